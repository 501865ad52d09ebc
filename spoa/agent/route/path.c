/* SPDX-License-Identifier: MIT */
#include "spoa/agent/route/path.h"

#include "spoa/base/bytes/ascii.h"

static bool is_unreserved(int c)
{
    return (c >= '0' && c <= '9') || ((c | 0x20) >= 'a' && (c | 0x20) <= 'z') || c == '-' || c == '.' ||
           c == '_' || c == '~';
}

/* Returns the byte of "%XX" at s.at[i], or -1 if there is no valid escape. */
static int encoded_at(struct slice s, size_t i)
{
    if (s.len < i + 3 || s.at[i] != '%')
        return -1;
    int high = ascii_hex_value(s.at[i + 1]), low = ascii_hex_value(s.at[i + 2]);
    return high < 0 || low < 0 ? -1 : high << 4 | low;
}

/* Returns the byte at *i, decoded if it is an encoded unreserved character, and moves *i past it. */
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
    static const bool plain[256] = {
        ['!' ... '"'] = true, ['$'] = true, ['&' ... '~'] = true}; /* without '#'; '%' is checked below */
    if (path.len == 0 || path.at[0] != '/')
        return false;
    for (size_t i = 0; i < path.len; i++)
        if (!plain[path.at[i]] && encoded_at(path, i) < 0)
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

/* Returns the length of the separator at tail.at[i], or 0 if there is none. */
static size_t separator_at(struct slice tail, size_t i, bool lenient)
{
    if (tail.at[i] == '/')
        return 1;
    if (!lenient)
        return 0;
    int c = encoded_at(tail, i);
    return tail.at[i] == '\\' ? 1 : c == '/' || c == '\\' ? 3 : 0;
}

/* Returns the place where the parameters of a segment begin, for workers that know parameters; its length if it has none. */
static size_t parameters_at(struct slice segment)
{
    size_t i = 0;
    while (i < segment.len && segment.at[i] != ';' && encoded_at(segment, i) != ';')
        i++;
    return i;
}

enum ascent { STAYS, GOES_UP, CLIMBS };

static enum ascent ascent_of(struct slice tail, bool lenient)
{
    enum ascent ascent = STAYS;
    size_t depth = 0, start = 0, i = 0;
    while (start <= tail.len) {
        size_t separator = 0;
        for (i = start; i < tail.len && !(separator = separator_at(tail, i, lenient));)
            i++;
        struct slice segment = slice_sub(tail, start, i - start);
        if (lenient)
            segment = slice_sub(segment, 0, parameters_at(segment));
        bool dots = path_segment_dots(segment);
        bool up = dots && !path_segment_is(segment, SLICE_LITERAL("."));
        if (up && depth == 0)
            return CLIMBS;
        if (up) {
            ascent = GOES_UP;
            depth--;
        } else if (segment.len && !dots) {
            depth++;
        }
        start = i + (separator ? separator : 1);
    }
    return ascent;
}

/* Returns whether the tail mixes several kinds of separators that some workers recognise and others do not. */
static bool is_ambiguous(struct slice tail)
{
    unsigned kinds = 0;
    for (size_t i = 0; i < tail.len; i++) {
        int c = encoded_at(tail, i);
        kinds |= tail.at[i] == '\\'  ? 1
                 : tail.at[i] == ';' ? 2
                 : c == '/'          ? 4
                 : c == '\\'         ? 8
                 : c == ';'          ? 16
                                     : 0;
    }
    return kinds & (kinds - 1);
}

bool path_climbs(struct slice tail)
{
    /* most paths end here: without '.' and '%' there is no ".." */
    if (slice_find(tail, '.') == tail.len && slice_find(tail, '%') == tail.len)
        return false;
    enum ascent ascent = ascent_of(tail, true);
    if (ascent != GOES_UP)
        return ascent == CLIMBS;
    return is_ambiguous(tail) || ascent_of(tail, false) == CLIMBS;
}

bool path_names(struct slice path, const char *const *words)
{
    for (size_t start = 0, i; start < path.len; start = i) {
        size_t separator = 0;
        for (i = start; i < path.len && !(separator = separator_at(path, i, true));)
            i++;
        struct slice segment = slice_sub(path, start, i - start);
        segment = slice_sub(segment, 0, parameters_at(segment));
        for (size_t n = 0; segment.len && words[n]; n++)
            if (path_segment_is(segment, slice_text(words[n])))
                return true;
        i += separator;
    }
    return false;
}

void path_decode(struct slice s, struct writer *w)
{
    for (size_t i = 0; i < s.len;)
        writer_u8(w, decoded_next(s, &i));
}
