/* SPDX-License-Identifier: MIT */
#include "spoa/base/json_write.h"

#include <stdarg.h>
#include <stdio.h>

#include "spoa/base/json_string.h"

/* One character of the text, escaped if need be; gives how many bytes it took. */
static size_t put_one(struct buffer *to, struct slice text, bool *good)
{
    uint8_t c = text.at[0];
    char escaped[8];
    if (c >= 0x80) {
        size_t len = json_string_utf8(text);
        *good = buffer_put(to, len ? slice_sub(text, 0, len) : SLICE_LITERAL("\xEF\xBF\xBD"));
        return len ? len : 1;
    }
    if (c == '"' || c == '\\')
        snprintf(escaped, sizeof escaped, "\\%c", c);
    else
        snprintf(escaped, sizeof escaped, "\\u%04x", c);
    *good = buffer_put(to, slice_text(escaped));
    return 1;
}

bool json_write_text(struct buffer *to, struct slice text)
{
    bool good = buffer_put(to, SLICE_LITERAL("\""));
    while (good && text.len) {
        size_t plain = json_string_plain(text);
        good = buffer_put(to, slice_sub(text, 0, plain));
        text = slice_from(text, plain);
        if (good && text.len)
            text = slice_from(text, put_one(to, text, &good));
    }
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
