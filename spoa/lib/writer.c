/* SPDX-License-Identifier: MIT */
#include "spoa/lib/writer.h"

#include <stdarg.h>
#include <stdio.h>

void writer_printf(struct writer *w, const char *format, ...)
{
    if (w->full)
        return;
    va_list args;
    va_start(args, format);
    int need = vsnprintf((char *)w->at + w->len, w->size - w->len, format, args);
    va_end(args);
    /* vsnprintf wants room for its NUL; a text that fits without it is refused too, which no caller minds */
    if (need < 0 || (size_t)need >= w->size - w->len)
        w->full = true;
    else
        w->len += (size_t)need;
}
