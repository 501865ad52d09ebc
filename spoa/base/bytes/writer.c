/* SPDX-License-Identifier: MIT */
#include "spoa/base/bytes/writer.h"

#include <stdarg.h>
#include <stdio.h>

void writer_decimal(struct writer *w, uint64_t v)
{
    uint8_t digits[20];
    size_t i = sizeof digits;
    do
        digits[--i] = (uint8_t)('0' + v % 10);
    while (v /= 10);
    writer_put(w, slice_of(digits + i, sizeof digits - i));
}

void writer_ip4(struct writer *w, const uint8_t bytes[static 4])
{
    for (size_t i = 0; i < 4; i++) {
        if (i)
            writer_u8(w, '.');
        writer_decimal(w, bytes[i]);
    }
}

void writer_printf(struct writer *w, const char *format, ...)
{
    if (w->full)
        return;
    va_list args;
    va_start(args, format);
    int need = vsnprintf((char *)w->at + w->len, w->size - w->len, format, args);
    va_end(args);
    /* vsnprintf needs room for its NUL, so a text that would fill the memory exactly counts as too long */
    if (need < 0 || (size_t)need >= w->size - w->len)
        w->full = true;
    else
        w->len += (size_t)need;
}
