/* SPDX-License-Identifier: MIT */
#include "spoa/base/bytes/slice.h"

#include <stdlib.h>

#include "spoa/base/bytes/ascii.h"

bool slice_same_letters(const uint8_t *a, const uint8_t *b, size_t len)
{
    for (size_t i = 0; i < len; i++)
        if (ascii_lower(a[i]) != ascii_lower(b[i]))
            return false;
    return true;
}

bool slice_starts(struct slice s, const char *prefix)
{
    size_t len = strlen(prefix);
    return s.len >= len && (len == 0 || memcmp(s.at, prefix, len) == 0);
}

bool slice_unreserved(struct slice s)
{
    static const bool unreserved[256] = {
        ['0' ... '9'] = true, ['A' ... 'Z'] = true, ['a' ... 'z'] = true, ['-'] = true,
        ['.'] = true,         ['_'] = true,         ['~'] = true};
    for (size_t i = 0; i < s.len; i++)
        if (!unreserved[s.at[i]])
            return false;
    return true;
}

size_t slice_find(struct slice s, uint8_t byte)
{
    const uint8_t *hit = s.len ? memchr(s.at, byte, s.len) : NULL;
    return hit ? (size_t)(hit - s.at) : s.len;
}

struct slice slice_trim(struct slice s)
{
    while (s.len && (s.at[0] == ' ' || s.at[0] == '\t'))
        s = slice_from(s, 1);
    while (s.len && (s.at[s.len - 1] == ' ' || s.at[s.len - 1] == '\t'))
        s.len--;
    return s;
}

static bool is_white_space(uint8_t c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

struct slice slice_trim_space(struct slice s)
{
    while (s.len && is_white_space(s.at[0]))
        s = slice_from(s, 1);
    while (s.len && is_white_space(s.at[s.len - 1]))
        s.len--;
    return s;
}

bool slice_split(struct slice *rest, uint8_t byte, struct slice *part)
{
    if (!slice_present(*rest))
        return false;
    size_t at = slice_find(*rest, byte);
    *part = slice_sub(*rest, 0, at);
    *rest = at == rest->len ? (struct slice){NULL, 0} : slice_from(*rest, at + 1);
    return true;
}

bool slice_u64(struct slice s, uint64_t max, uint64_t *value)
{
    uint64_t v = 0;
    if (s.len == 0)
        return false;
    for (size_t i = 0; i < s.len; i++) {
        if (!ascii_is_digit(s.at[i]))
            return false;
        uint64_t digit = (uint64_t)(s.at[i] - '0');
        if (v > (max - digit) / 10 || digit > max)
            return false;
        v = v * 10 + digit;
    }
    *value = v;
    return true;
}

char *slice_dup(struct slice s)
{
    char *copy = malloc(s.len + 1);
    if (!copy)
        return NULL;
    if (s.len)
        memcpy(copy, s.at, s.len);
    copy[s.len] = '\0';
    return copy;
}
