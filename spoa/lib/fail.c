/* SPDX-License-Identifier: MIT */
#include "spoa/lib/fail.h"

#include <stdarg.h>
#include <stdio.h>

bool fail(struct fail *why, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(why->text, sizeof why->text, format, args);
    va_end(args);
    return false;
}
