/* SPDX-License-Identifier: MIT */
#include "spoa/base/text/base64url.h"

static const char alphabet[64] = {'A', 'B', 'C', 'D', 'E', 'F', 'G', 'H', 'I', 'J', 'K', 'L', 'M',
                                  'N', 'O', 'P', 'Q', 'R', 'S', 'T', 'U', 'V', 'W', 'X', 'Y', 'Z',
                                  'a', 'b', 'c', 'd', 'e', 'f', 'g', 'h', 'i', 'j', 'k', 'l', 'm',
                                  'n', 'o', 'p', 'q', 'r', 's', 't', 'u', 'v', 'w', 'x', 'y', 'z',
                                  '0', '1', '2', '3', '4', '5', '6', '7', '8', '9', '-', '_'};

enum { FOREIGN = 64 }; /* value of a character outside the alphabet */

static uint32_t value_of(uint8_t c)
{
    if (c >= 'A' && c <= 'Z')
        return (uint32_t)(c - 'A');
    if (c >= 'a' && c <= 'z')
        return (uint32_t)(c - 'a' + 26);
    if (c >= '0' && c <= '9')
        return (uint32_t)(c - '0' + 52);
    return c == '-' ? 62 : c == '_' ? 63 : FOREIGN;
}

/* Decodes two to four characters into one to three bytes. */
static bool decode_group(struct slice group, struct writer *w)
{
    uint32_t bits = 0;
    for (size_t i = 0; i < group.len; i++) {
        uint32_t value = value_of(group.at[i]);
        if (value == FOREIGN)
            return false;
        bits |= value << (18 - 6 * i);
    }
    size_t bytes = group.len * 3 / 4;
    if (bits & (0xffffffU >> (8 * bytes))) /* bits beyond the last byte: another encoding of the same bytes */
        return false;
    writer_be(w, bits >> (24 - 8 * bytes), bytes);
    return !w->full;
}

bool base64url_decode(struct slice text, struct writer *w)
{
    size_t before = w->len;
    if (text.len % 4 == 1) /* six bits are no byte */
        return false;
    for (size_t at = 0; at < text.len; at += 4)
        if (!decode_group(slice_sub(text, at, 4), w)) {
            w->len = before;
            return false;
        }
    return !w->full;
}

void base64url_encode(struct slice bytes, struct writer *w)
{
    for (size_t at = 0; at < bytes.len; at += 3) {
        struct slice group = slice_sub(bytes, at, 3);
        uint32_t bits = 0;
        for (size_t i = 0; i < group.len; i++)
            bits |= (uint32_t)group.at[i] << (16 - 8 * i);
        for (size_t i = 0; i <= group.len; i++)
            writer_u8(w, (uint8_t)alphabet[bits >> (18 - 6 * i) & 63]);
    }
}
