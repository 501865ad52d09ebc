/* SPDX-License-Identifier: MIT */
/*
 * fail: the text of an error, for people. A function that can refuse an input takes a `struct fail *`, never NULL; on failure the
 * function fills it and returns false. The text names the error and its place (file and line, key, port) and never holds a secret,
 * because callers log it.
 */
#ifndef CELLGATE_BASE_OS_FAIL_H
#define CELLGATE_BASE_OS_FAIL_H

#include <stdbool.h>

#include "spoa/base/bytes/must_check.h"

struct fail {
    char text[512]; /* NUL-terminated; a longer text is cut. Set only if a function has failed */
};

/* Formats the text. Always returns false, so that a caller can write `return fail(why, "...")`. */
__attribute__((format(printf, 2, 3))) bool fail(struct fail *why, const char *format, ...);
/* Returns true if the error is a lack of memory and not a wrong input. By convention, the text of such an error ends with "out of
 * memory". */
bool fail_of_memory(const struct fail *why);
/* Returns true if an errno means that this process or its machine has run out of memory or descriptors. */
bool fail_of_resources(int error);

#endif
