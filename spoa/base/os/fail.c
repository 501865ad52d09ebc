/* SPDX-License-Identifier: MIT */
#include "spoa/base/os/fail.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

bool fail(struct fail *why, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(why->text, sizeof why->text, format, args);
    va_end(args);
    return false;
}

bool fail_of_memory(const struct fail *why)
{
    static const char ending[] = "out of memory";
    size_t len = strlen(why->text);
    return len >= sizeof(ending) - 1 && strcmp(why->text + len - (sizeof(ending) - 1), ending) == 0;
}

bool fail_of_resources(int error)
{
    return error == EMFILE || error == ENFILE || error == ENOBUFS || error == ENOMEM;
}
