/* SPDX-License-Identifier: MIT */
#include "spoa/base/json/json_string.h"

#include "spoa/base/bytes/ascii.h"

size_t json_string_utf8(struct slice s)
{
    uint8_t lead = s.at[0], low = 0x80, high = 0xBF;
    size_t len = lead < 0xC2 ? 0 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : lead < 0xF5 ? 4 : 0;
    if (len == 0 || s.len < len)
        return 0;
    if (lead == 0xE0)
        low = 0xA0; /* below: overlong */
    else if (lead == 0xED)
        high = 0x9F; /* above: surrogates */
    else if (lead == 0xF0)
        low = 0x90; /* below: overlong */
    else if (lead == 0xF4)
        high = 0x8F; /* above: beyond U+10FFFF */
    if (s.at[1] < low || s.at[1] > high)
        return 0;
    for (size_t i = 2; i < len; i++)
        if ((s.at[i] & 0xC0) != 0x80)
            return 0;
    return len;
}

/* Returns the UTF-16 unit of `\uXXXX` at the front of s, or -1. */
static int32_t escaped_unit(struct slice s)
{
    int32_t unit = 0;
    if (s.len < 6 || s.at[0] != '\\' || s.at[1] != 'u')
        return -1;
    for (size_t i = 2; i < 6; i++) {
        int digit = ascii_hex_value(s.at[i]);
        if (digit < 0)
            return -1;
        unit = unit << 4 | digit;
    }
    return unit;
}

/* Returns true for the first surrogate of a pair. */
static bool is_high(int32_t unit)
{
    return unit >= 0xD800 && unit < 0xDC00;
}

/* Returns true for the second surrogate of a pair. */
static bool is_low(int32_t unit)
{
    return unit >= 0xDC00 && unit < 0xE000;
}

/* Checks the escape at the front of s, which begins with a backslash. Returns NULL or the error; *len is the length of the
 * escape, with both halves of a surrogate pair. */
static const char *check_escape(struct slice s, size_t *len)
{
    uint8_t c = s.len > 1 ? s.at[1] : 0;
    *len = 2;
    if (c && strchr("\"\\/bfnrt", c))
        return NULL;
    if (c != 'u')
        return "unknown escape in a string";
    int32_t unit = escaped_unit(s);
    *len = is_high(unit) ? 12 : 6;
    if (unit < 0)
        return "an escape is not of the form \\uXXXX";
    if (unit == 0)
        return "NUL in a string";
    if (is_low(unit) || (is_high(unit) && !is_low(escaped_unit(slice_from(s, 6)))))
        return "a surrogate without its other half";
    return NULL;
}

size_t json_string_plain(struct slice s)
{
    const uint64_t ones = 0x0101010101010101u, tops = 0x8080808080808080u;
    size_t len = 0;
    for (; s.len - len >= 8; len += 8) {
        uint64_t v;
        memcpy(&v, s.at + len, 8);
        /* Each term sets the top bit of a byte that is a control, a quote, a backslash or not ASCII. A borrow can set the top
         * bit of a later byte as well, but only after a byte that has set one already, so the test below stays right. */
        uint64_t special = (v - ones * 0x20) | ((v ^ ones * '"') - ones) | ((v ^ ones * '\\') - ones) | v;
        if (special & tops)
            break;
    }
    while (len < s.len && json_string_is_plain(s.at[len]))
        len++;
    return len;
}

const char *json_string_check(struct slice s, size_t *len)
{
    for (*len = 0;;) {
        *len += json_string_plain(slice_from(s, *len));
        struct slice rest = slice_from(s, *len);
        if (rest.len == 0)
            return "the document ends inside a string";
        size_t step = 0;
        const char *wrong = NULL;
        if (rest.at[0] == '"')
            return NULL;
        if (rest.at[0] == '\\')
            wrong = check_escape(rest, &step);
        else if (rest.at[0] < 0x20)
            wrong = "a control character in a string";
        else if ((step = json_string_utf8(rest)) == 0)
            wrong = "invalid UTF-8";
        if (wrong)
            return wrong;
        *len += step;
    }
}

/* ---- unescaping ---- */

static size_t encode_utf8(uint32_t point, uint8_t out[4])
{
    static const uint8_t lead[] = {0, 0, 0xC0, 0xE0, 0xF0};
    size_t len = point < 0x80 ? 1 : point < 0x800 ? 2 : point < 0x10000 ? 3 : 4;
    for (size_t i = len - 1; i > 0; i--, point >>= 6)
        out[i] = (uint8_t)(0x80 | (point & 0x3F));
    out[0] = (uint8_t)(lead[len] | point);
    return len;
}

/* Takes one byte or one escape off *raw, writes the bytes that it stands for, and returns their number. An escape never stands for
 * more bytes than it has. */
static size_t unescape_one(struct slice *raw, uint8_t out[4])
{
    static const char from[] = "bfnrt", to[] = "\b\f\n\r\t";
    size_t taken = 1, len = 1;
    out[0] = raw->at[0];
    if (raw->at[0] == '\\' && raw->at[1] == 'u') {
        uint32_t point = (uint32_t)escaped_unit(*raw);
        taken = 6;
        if (is_high((int32_t)point)) {
            point =
                0x10000 + ((point - 0xD800) << 10) + ((uint32_t)escaped_unit(slice_from(*raw, 6)) - 0xDC00);
            taken = 12;
        }
        len = encode_utf8(point, out);
    } else if (raw->at[0] == '\\') {
        const char *hit = strchr(from, raw->at[1]);
        out[0] = hit ? (uint8_t)to[hit - from] : raw->at[1];
        taken = 2;
    }
    *raw = slice_from(*raw, taken);
    return len;
}

size_t json_string_unescape(struct slice raw, uint8_t *out)
{
    size_t len = 0;
    while (raw.len) {
        uint8_t bytes[4];
        size_t n = unescape_one(&raw, bytes);
        memcpy(out + len, bytes, n);
        len += n;
    }
    return len;
}

/* A position in raw text that is unescaped while it is read. */
struct cursor {
    struct slice raw; /* not read yet */
    uint8_t bytes[4]; /* the last escape, unescaped */
    size_t at, len;   /* next byte of `bytes`, their number */
};

/* Returns the next unescaped byte, or -1 at the end. */
static int next_byte(struct cursor *c)
{
    if (c->at == c->len) {
        if (c->raw.len == 0)
            return -1;
        c->len = unescape_one(&c->raw, c->bytes);
        c->at = 0;
    }
    return c->bytes[c->at++];
}

int json_string_compare(struct slice a, struct slice b)
{
    /* the first bytes decide most comparisons */
    if (a.len && b.len && a.at[0] != b.at[0] && a.at[0] != '\\' && b.at[0] != '\\')
        return a.at[0] - b.at[0];
    if (slice_find(a, '\\') == a.len && slice_find(b, '\\') == b.len) {
        size_t shorter = a.len < b.len ? a.len : b.len;
        int order = shorter ? memcmp(a.at, b.at, shorter) : 0;
        return order ? order : (a.len > b.len) - (a.len < b.len);
    }
    struct cursor one = {.raw = a}, other = {.raw = b};
    for (;;) {
        int byte = next_byte(&one), against = next_byte(&other);
        if (byte != against || byte < 0)
            return byte - against;
    }
}
