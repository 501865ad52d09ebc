/* SPDX-License-Identifier: MIT */
#include "examples/worker/systems/json_text.h"

static void put_byte(struct writer *w, uint8_t c, uint8_t highest)
{
    if (c < 0x20 || c == 0x7f || c > highest) {
        writer_printf(w, "\\u%04x", c);
        return;
    }
    if (c == '"' || c == '\\')
        writer_u8(w, '\\');
    writer_u8(w, c);
}

static void put(struct writer *w, struct slice s, uint8_t highest)
{
    writer_u8(w, '"');
    for (size_t i = 0; i < s.len; i++)
        put_byte(w, s.at[i], highest);
    writer_u8(w, '"');
}

void json_text_put(struct writer *w, struct slice s)
{
    put(w, s, UINT8_MAX);
}

void json_text_put_bytes(struct writer *w, struct slice s)
{
    put(w, s, 0x7f);
}
