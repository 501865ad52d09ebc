/* SPDX-License-Identifier: MIT */
#include "spoa/agent/directory/kubernetes/json.h"

#include "spoa/base/json/json_string.h"

/* The functions after_... return the index after what begins at `at`. */
static size_t after_space(struct slice text, size_t at)
{
    while (at < text.len && kubernetes_json_space(text.at[at]))
        at++;
    return at;
}

/* Returns a value beyond the text's end if the closing quote is missing. */
static size_t after_string(struct slice text, size_t at)
{
    for (at++; at < text.len && text.at[at] != '"'; at++)
        if (text.at[at] == '\\')
            at++;
    return at + 1;
}

/* Returns a value beyond the text's end if a closing bracket is missing. */
static size_t after_brackets(struct slice text, size_t at)
{
    size_t nest = 0;
    while (at < text.len) {
        uint8_t c = text.at[at];
        if (c == '"') {
            at = after_string(text, at);
            continue;
        }
        at++;
        if (c == '{' || c == '[')
            nest++;
        else if ((c == '}' || c == ']') && --nest == 0)
            return at;
    }
    return text.len + 1;
}

/* Reads the value at *at and moves *at after it. Returns false if there is no whole value. */
static bool take_value(struct slice text, size_t *at, struct slice *value)
{
    size_t start = *at, end = start;
    if (start >= text.len)
        return false;
    uint8_t c = text.at[start];
    if (c == '"')
        end = after_string(text, start);
    else if (c == '{' || c == '[')
        end = after_brackets(text, start);
    else /* a number, true, false or null */
        while (end < text.len && !kubernetes_json_space(text.at[end]) &&
               (!strchr(",:\"{}[]", text.at[end]) || !text.at[end]))
            end++;
    *value = slice_sub(text, start, end - start);
    *at = end;
    return end > start && end <= text.len;
}

/* Reads a member's key and the colon. */
static bool take_key(struct slice text, size_t *at, struct slice *key)
{
    struct slice quoted;
    if (*at >= text.len || text.at[*at] != '"' || !take_value(text, at, &quoted))
        return false;
    *key = slice_sub(quoted, 1, quoted.len - 2);
    *at = after_space(text, *at);
    if (*at >= text.len || text.at[*at] != ':')
        return false;
    *at = after_space(text, *at + 1);
    return true;
}

/* Reads the next member. Returns false at the end; *closed then tells whether the container ends properly and nothing follows. */
static bool next(struct slice c, size_t *cursor, struct slice *key, struct slice *value, bool *closed)
{
    bool object = c.len && c.at[0] == '{', array = c.len && c.at[0] == '[', first = *cursor == 0;
    size_t at = after_space(c, first ? 1 : *cursor);
    *key = (struct slice){NULL, 0};
    *closed = false;
    if ((!object && !array) || at >= c.len)
        return false;
    if (c.at[at] == (object ? '}' : ']')) {
        *closed = after_space(c, at + 1) == c.len;
        return false;
    }
    if (!first) {
        if (c.at[at] != ',')
            return false;
        at = after_space(c, at + 1);
    }
    if ((object && !take_key(c, &at, key)) || !take_value(c, &at, value))
        return false;
    *cursor = at;
    return true;
}

bool kubernetes_json_next(struct slice container, size_t *cursor, struct slice *key, struct slice *value)
{
    bool closed;
    return next(container, cursor, key, value, &closed);
}

bool kubernetes_json_sound(struct slice container)
{
    struct slice key, value;
    size_t cursor = 0;
    bool closed;
    while (next(container, &cursor, &key, &value, &closed))
        ;
    return closed;
}

bool kubernetes_json_members(struct slice object, const char *const keys[], struct slice values[],
                             size_t count)
{
    struct slice key, value;
    size_t cursor = 0;
    bool closed = false;
    for (size_t i = 0; i < count; i++)
        values[i] = (struct slice){NULL, 0};
    while (object.len && object.at[0] == '{' && next(object, &cursor, &key, &value, &closed))
        for (size_t i = 0; i < count; i++)
            if (slice_is(key, keys[i]))
                values[i] = slice_is(value, "null") ? (struct slice){NULL, 0} : value;
    return closed;
}

bool kubernetes_json_member(struct slice object, const char *name, struct slice *value)
{
    struct slice one;
    kubernetes_json_members(object, &name, &one, 1);
    if (!slice_present(one))
        return false;
    *value = one;
    return true;
}

bool kubernetes_json_text(struct slice value, struct writer *scratch, struct slice *text)
{
    size_t len;
    if (value.len < 2 || value.at[0] != '"')
        return false;
    struct slice rest = slice_from(value, 1);
    if (json_string_check(rest, &len) || len != rest.len - 1)
        return false;
    *text = slice_sub(rest, 0, len);
    if (slice_find(*text, '\\') == len)
        return true;
    if (scratch->full || len > scratch->size - scratch->len)
        return false;
    uint8_t *out = scratch->at + scratch->len;
    size_t written = json_string_unescape(*text, out);
    scratch->len += written;
    *text = slice_of(out, written);
    return true;
}

bool kubernetes_json_is(struct slice value, const char *text)
{
    return value.len >= 2 && value.at[0] == '"' && slice_is(slice_sub(value, 1, value.len - 2), text);
}

bool kubernetes_json_u64(struct slice value, uint64_t *number)
{
    return slice_u64(value, UINT64_MAX, number);
}
