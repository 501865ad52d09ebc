/* SPDX-License-Identifier: MIT */
#include "spoa/service/redact.h"

#include "spoa/base/bytes/ascii.h"

enum { TOKEN_MIN = 16 }; /* shorter words like "eyJ" or "v1.2.3" stay */

static bool is_token_byte(uint8_t c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '-' || c == '.' || c == '+' || c == '/' || c == '=' || c == '~';
}

static bool ends_word(uint8_t c)
{
    return c <= ' ' || c == '"' || c == '\'' || c == ',' || c == ';' || c == '&';
}

static size_t token_len(struct slice s)
{
    size_t len = 0;
    while (len < s.len && is_token_byte(s.at[len]))
        len++;
    return len;
}

static size_t word_len(struct slice s)
{
    size_t len = 0;
    while (len < s.len && !ends_word(s.at[len]))
        len++;
    return len;
}

/* A token that begins with one of these is long: both forms begin so whatever they hold. */
static bool is_token_start(struct slice s)
{
    if (s.at[0] != 'e' && s.at[0] != 'f' && s.at[0] != 'v')
        return false;
    /* base64url of `{"`, `{ ` and `{` with a line break after it */
    return slice_starts(s, "eyJ") || slice_starts(s, "eyA") || slice_starts(s, "ewo") ||
           slice_starts(s, "ew0") || slice_starts(s, "v1.") || slice_starts(s, "v1_") ||
           slice_starts(s, "v2.") || slice_starts(s, "f1.");
}

#define INTRODUCTIONS(X) \
    X("bearer ") X("basic ") X("bearer%20") X("cellgate.bearer.") X("cellgate_token") X("__host-cellgate")

static const struct introduction {
    const char *text; /* in lower case */
    size_t len;
} introductions[] = {
#define X(text) {text, sizeof text - 1},
    INTRODUCTIONS(X)
#undef X
        {NULL, 0}};

/* Returns whether the introduction `by` begins here, in any case. */
static bool is_introduced(struct slice s, const struct introduction *by)
{
    return s.len >= by->len && ascii_lower(s.at[0]) == (uint8_t)by->text[0] &&
           slice_equal_nocase(slice_sub(s, 0, by->len), slice_of(by->text, by->len));
}

/* Returns whether a secret can begin with these two bytes, which saves comparisons for most of a text. */
static bool is_suspect(const uint8_t *at)
{
    static const bool first[256] = {['?'] = true, ['e'] = true, ['f'] = true, ['v'] = true, ['b'] = true,
                                    ['B'] = true, ['c'] = true, ['C'] = true, ['_'] = true};
    if (!first[at[0]])
        return false;
    switch (ascii_lower(at[0])) {
    case 'b':
        return ascii_lower(at[1]) == 'a' || ascii_lower(at[1]) == 'e';
    case 'c':
        return ascii_lower(at[1]) == 'e';
    case 'e':
        return at[1] == 'w' || at[1] == 'y';
    case 'f':
        return at[1] == '1';
    case 'v':
        return at[1] == '1' || at[1] == '2';
    case '_':
        return at[1] == '_';
    default:
        return true;
    }
}

/* Returns the length of the secret at the front of `s`, or 0. The first *keep bytes of it introduce the secret, and may be shown. */
static size_t secret_len(struct slice s, size_t *keep)
{
    *keep = 0;
    if (s.at[0] == '?') {
        *keep = 1;
        size_t len = 1;
        while (len < s.len && s.at[len] > ' ' && s.at[len] != '"')
            len++;
        return len > 1 ? len : 0;
    }
    if (is_token_start(s)) {
        size_t len = token_len(s);
        return len >= TOKEN_MIN ? len : 0;
    }
    for (const struct introduction *by = introductions; by->text;) {
        bool there = is_introduced(slice_from(s, *keep), by);
        *keep += there ? by->len : 0;
        by = there ? introductions : by + 1; /* there may be several: "bearer Bearer " */
    }
    size_t len = *keep ? word_len(slice_from(s, *keep)) : 0;
    return len ? *keep + len : 0;
}

bool redact_split(struct slice *rest, struct slice *plain)
{
    struct slice text = *rest;
    for (size_t at = 0; at + 1 < text.len; at++) {
        size_t keep = 0;
        size_t len = is_suspect(text.at + at) ? secret_len(slice_from(text, at), &keep) : 0;
        if (len) {
            *plain = slice_sub(text, 0, at + keep);
            *rest = slice_from(text, at + len);
            return true;
        }
        at += keep ? keep - 1 : 0;
    }
    *plain = text;
    *rest = slice_from(text, text.len);
    return false;
}
