/* SPDX-License-Identifier: MIT */
#include "spoa/agent/path.h"

static int hex(uint8_t c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c |= 0x20;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static bool is_unreserved(int c)
{
    return (c >= '0' && c <= '9') || ((c | 0x20) >= 'a' && (c | 0x20) <= 'z') || c == '-' || c == '.' ||
           c == '_' || c == '~';
}

/* The byte that "%XX" at s.at[i] stands for; -1 if there is no such thing. */
static int encoded_at(struct slice s, size_t i)
{
    if (s.len < i + 3 || s.at[i] != '%')
        return -1;
    int high = hex(s.at[i + 1]), low = hex(s.at[i + 2]);
    return high < 0 || low < 0 ? -1 : high << 4 | low;
}

/* The byte at *i with an encoded unreserved character decoded; moves *i behind it. */
static uint8_t decoded_next(struct slice s, size_t *i)
{
    int c = encoded_at(s, *i);
    if (c < 0 || !is_unreserved(c))
        return s.at[(*i)++];
    *i += 3;
    return (uint8_t)c;
}

bool path_valid(struct slice path)
{
    if (path.len == 0 || path.at[0] != '/')
        return false;
    for (size_t i = 0; i < path.len; i++)
        if (path.at[i] <= ' ' || path.at[i] >= 0x7f || path.at[i] == '#' ||
            (path.at[i] == '%' && encoded_at(path, i) < 0))
            return false;
    return true;
}

bool path_segment_is(struct slice segment, struct slice text)
{
    if (segment.len == text.len)
        return slice_equal(segment, text);
    size_t i = 0, n = 0;
    if (segment.len < text.len)
        return false;
    while (i < segment.len)
        if (n == text.len || decoded_next(segment, &i) != text.at[n++])
            return false;
    return n == text.len;
}

bool path_segment_dots(struct slice segment)
{
    size_t i = 0, dots = 0;
    while (i < segment.len)
        if (dots == 2 || decoded_next(segment, &i) != '.')
            return false;
        else
            dots++;
    return dots > 0;
}

/* What a worker may read into a path beside what RFC 3986 does: each of them or none, in any combination. */
enum {
    READS_BACKSLASH = 1,         /* '\' separates */
    READS_ENCODED_SLASH = 2,     /* %2F does */
    READS_ENCODED_BACKSLASH = 4, /* %5C does */
    READS_PARAMETERS = 8,        /* "x;y" is "x" */
    READINGS = 16
};

static unsigned reading_of(int c, bool encoded)
{
    return c == '\\'              ? (encoded ? READS_ENCODED_BACKSLASH : READS_BACKSLASH)
           : c == '/' && encoded  ? READS_ENCODED_SLASH
           : c == ';' && !encoded ? READS_PARAMETERS
                                  : 0;
}

/* Those that make a difference here. */
static unsigned readings_of(struct slice tail)
{
    unsigned readings = 0;
    for (size_t i = 0; i < tail.len; i++)
        readings |= reading_of(tail.at[i], false) | reading_of(encoded_at(tail, i), true);
    return readings;
}

/* The length of what separates segments at tail.at[i]; 0: nothing does. */
static size_t separator_at(struct slice tail, size_t i, unsigned reading)
{
    if (tail.at[i] == '/' || (tail.at[i] == '\\' && reading & READS_BACKSLASH))
        return 1;
    return tail.at[i] == '%' && reading_of(encoded_at(tail, i), true) & reading ? 3 : 0;
}

static bool climbs(struct slice tail, unsigned reading)
{
    size_t depth = 0, start = 0, i = 0;
    while (start <= tail.len) {
        size_t separator = 0;
        for (i = start; i < tail.len && !(separator = separator_at(tail, i, reading));)
            i++;
        struct slice segment = slice_sub(tail, start, i - start);
        if (reading & READS_PARAMETERS)
            segment = slice_sub(segment, 0, slice_find(segment, ';'));
        bool dots = path_segment_dots(segment);
        bool up = dots && !path_segment_is(segment, SLICE_LITERAL("."));
        if (up && depth == 0)
            return true;
        if (up)
            depth--;
        else if (segment.len && !dots)
            depth++;
        start = i + (separator ? separator : 1);
    }
    return false;
}

bool path_climbs(struct slice tail)
{
    /* ".." cannot be there without a dot or an encoded one; most paths end here */
    if (slice_find(tail, '.') == tail.len && slice_find(tail, '%') == tail.len)
        return false;
    unsigned readings = readings_of(tail);
    for (unsigned reading = 0; reading < READINGS; reading++)
        if ((reading & ~readings) == 0 && climbs(tail, reading))
            return true;
    return false;
}

void path_decode(struct slice s, struct writer *w)
{
    for (size_t i = 0; i < s.len;)
        writer_u8(w, decoded_next(s, &i));
}
