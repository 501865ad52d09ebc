/* SPDX-License-Identifier: MIT */
#include "spoa/base/json/json_write.h"

#include <stdarg.h>
#include <stdio.h>

#include "spoa/base/json/json_string.h"

enum { ONE_MAX = 6 }; /* bytes of the longest escape */

/* Takes one character that is not plain off *text, writes it escaped or as UTF-8, and returns the number of bytes written. */
static size_t put_one(uint8_t *to, struct slice *text)
{
    static const char hex[] = "0123456789abcdef";
    uint8_t c = text->at[0];
    if (c >= 0x80) {
        size_t len = json_string_utf8(*text);
        memcpy(to, len ? (const char *)text->at : "\xEF\xBF\xBD", len ? len : 3);
        *text = slice_from(*text, len ? len : 1);
        return len ? len : 3;
    }
    *text = slice_from(*text, 1);
    if (c == '"' || c == '\\') {
        to[0] = '\\';
        to[1] = c;
        return 2;
    }
    memcpy(to, "\\u00", 4);
    to[4] = (uint8_t)hex[c >> 4];
    to[5] = (uint8_t)hex[c & 15];
    return 6;
}

/* Takes as much off *text as fits into `room` bytes, writes it, and returns the number of bytes written. */
static size_t put_some(uint8_t *to, size_t room, struct slice *text)
{
    size_t len = 0;
    while (text->len && room - len >= ONE_MAX) {
        if (!json_string_is_plain(text->at[0])) {
            len += put_one(to + len, text);
            continue;
        }
        size_t plain = json_string_plain(slice_sub(*text, 0, room - len));
        memcpy(to + len, text->at, plain);
        *text = slice_from(*text, plain);
        len += plain;
    }
    return len;
}

size_t json_text_len(struct slice text)
{
    uint8_t one[ONE_MAX];
    size_t len = 2;
    while (text.len) {
        uint8_t c = text.at[0];
        size_t plain = json_string_is_plain(c) ? json_string_plain(text) : 0;
        len += plain;
        if (!plain && c < 0x80)
            len += c < 0x20 ? 6 : 2;
        if (!plain && c >= 0x80)
            len += put_one(one, &text);
        else
            text = slice_from(text, plain ? plain : 1);
    }
    return len;
}

bool json_write_text(struct buffer *to, struct slice text)
{
    uint8_t piece[1024];
    bool good = buffer_put(to, SLICE_LITERAL("\""));
    while (good && text.len)
        good = buffer_put(to, slice_of(piece, put_some(piece, sizeof piece, &text)));
    return good && buffer_put(to, SLICE_LITERAL("\""));
}

bool json_write(struct buffer *to, const char *format, ...)
{
    char text[1024];
    va_list args;
    va_start(args, format);
    int len = vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return len >= 0 && (size_t)len < sizeof text && buffer_put(to, slice_of(text, (size_t)len));
}
