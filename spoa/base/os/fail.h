/* SPDX-License-Identifier: MIT */
/*
 * fail: the text of an error, for people. Functions that can refuse an input take a `struct fail *` (never
 * NULL), fill it and return false. The text names the file and line, the key or the port; it never holds a
 * secret.
 */
#ifndef CELLGATE_BASE_OS_FAIL_H
#define CELLGATE_BASE_OS_FAIL_H

#include <stdbool.h>

#include "spoa/base/bytes/must_check.h"

struct fail {
    char text[512];
};

/* Always false, so that a caller can write `return fail(why, "...")`. */
__attribute__((format(printf, 2, 3))) bool fail(struct fail *why, const char *format, ...);
/* Whether the error is one of memory, not of the input: by convention its text ends in "out of memory". */
bool fail_of_memory(const struct fail *why);
/* Whether an errno says that this process or its machine has run out of memory or descriptors. */
bool fail_of_resources(int error);

#endif
