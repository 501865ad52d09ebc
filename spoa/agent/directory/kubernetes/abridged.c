/* SPDX-License-Identifier: MIT */
#include "spoa/agent/directory/kubernetes/abridged.h"

#include "spoa/agent/directory/kubernetes/json.h"

/* Kind of the innermost wanted container, or of the next value. */
enum node {
    NOTHING, /* skipped */
    TEXT,
    EVENT,
    OBJECT,
    METADATA,
    LABELS
};

void kubernetes_abridged_begin(struct kubernetes_abridged *a, bool event, const char *label)
{
    a->label = label;
    a->path[0] = event ? EVENT : OBJECT;
    a->nest = a->wanted = a->key_len = a->len = 0;
    a->value = a->begins = a->string = a->escaped = a->copied = a->full = false;
}

struct slice kubernetes_abridged_text(const struct kubernetes_abridged *a)
{
    return a->full ? (struct slice){NULL, 0} : slice_of(a->text, a->len);
}

/* Appends to the result, or marks it as not fitting. */
static void put(struct kubernetes_abridged *a, struct slice bytes)
{
    struct writer w = {a->text, a->len, sizeof a->text, a->full};
    writer_put(&w, bytes);
    a->len = w.len;
    a->full = w.full;
}

/* ---- wanted members ---- */

/* Returns whether the last key is `name`. An escaped key is never equal, which is harmless: API servers do not escape these. */
static bool key_is(const struct kubernetes_abridged *a, const char *name)
{
    return name && a->key_len <= sizeof a->key && slice_is(slice_of(a->key, a->key_len), name);
}

/* Returns what the member with the last key is. */
static enum node member(const struct kubernetes_abridged *a)
{
    static const struct {
        enum node in;
        const char *key;
        enum node node;
    } wanted[] = {{EVENT, "type", TEXT},          {EVENT, "object", OBJECT},
                  {OBJECT, "metadata", METADATA}, {METADATA, "name", TEXT},
                  {METADATA, "namespace", TEXT},  {METADATA, "resourceVersion", TEXT},
                  {METADATA, "labels", LABELS}};
    enum node in = a->path[a->wanted - 1];
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++)
        if (wanted[i].in == in && key_is(a, wanted[i].key))
            return wanted[i].node;
    return in == LABELS && key_is(a, a->label) ? TEXT : NOTHING;
}

/* Takes the first byte of a member's value. A wanted member of the wrong type becomes null. */
static void begin_value(struct kubernetes_abridged *a, uint8_t c)
{
    enum node node = member(a);
    a->begins = false;
    if (node == NOTHING)
        return;
    if (a->text[a->len - 1] != '{')
        put(a, SLICE_LITERAL(","));
    put(a, SLICE_LITERAL("\""));
    put(a, slice_of(a->key, a->key_len));
    put(a, SLICE_LITERAL("\":"));
    if (node == TEXT && c == '"')
        a->copied = true;
    else if (node != TEXT && c == '{')
        a->path[a->wanted++] = (uint8_t)node;
    else
        put(a, SLICE_LITERAL("null"));
}

/* ---- bytes ---- */

/* Returns whether the innermost open container is wanted. */
static bool is_inside(const struct kubernetes_abridged *a)
{
    return a->nest > 0 && a->nest == a->wanted;
}

/* Closes the innermost container. */
static void close(struct kubernetes_abridged *a)
{
    if (is_inside(a)) {
        put(a, SLICE_LITERAL("}"));
        a->wanted--;
    }
    if (a->nest > 0)
        a->nest--;
    if (is_inside(a))
        a->value = true;
}

/* Takes a byte of a string. A key is kept up to one byte beyond the longest one that fits, which marks it as too long. */
static void in_string(struct kubernetes_abridged *a, uint8_t c)
{
    bool ends = c == '"' && !a->escaped;
    if (a->copied)
        put(a, slice_of(&c, 1));
    else if (is_inside(a) && !a->value && !ends) {
        if (a->key_len < sizeof a->key)
            a->key[a->key_len] = c;
        if (a->key_len <= sizeof a->key)
            a->key_len++;
    }
    a->escaped = c == '\\' && !a->escaped;
    a->string = !ends;
    a->copied = a->copied && !ends;
}

/* Takes a byte outside of strings. */
static void step(struct kubernetes_abridged *a, uint8_t c)
{
    if (a->begins && is_inside(a) && !kubernetes_json_space(c))
        begin_value(a, c);
    if (c == '"') {
        if (a->copied)
            put(a, slice_of(&c, 1));
        a->string = true;
        if (is_inside(a) && !a->value)
            a->key_len = 0;
    } else if (c == '{' || c == '[') {
        if (a->nest++ == 0)
            a->wanted = 1;
        if (is_inside(a)) {
            a->value = false;
            put(a, SLICE_LITERAL("{"));
        }
    } else if (c == '}' || c == ']') {
        close(a);
    } else if (is_inside(a) && (c == ':' || c == ',')) {
        a->value = a->begins = c == ':';
    }
}

void kubernetes_abridged_feed(struct kubernetes_abridged *a, struct slice bytes)
{
    for (size_t i = 0; i < bytes.len; i++)
        if (a->string)
            in_string(a, bytes.at[i]);
        else
            step(a, bytes.at[i]);
}
