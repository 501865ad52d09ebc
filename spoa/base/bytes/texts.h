/* SPDX-License-Identifier: MIT */
/* texts: a growing list of C strings that owns its strings. Zero bytes are an empty list. */
#ifndef CELLGATE_BASE_BYTES_TEXTS_H
#define CELLGATE_BASE_BYTES_TEXTS_H

#include <stdbool.h>
#include <stddef.h>

#include "spoa/base/bytes/slice.h"

struct texts {
    char **at; /* count strings; NULL while the list is empty */
    size_t count;
};

/* Appends a copy. Returns false, and changes nothing, if memory is short. */
bool texts_add(struct texts *texts, struct slice text) MUST_CHECK;
/* Frees the strings. *texts becomes the empty list. */
void texts_free(struct texts *texts);

#endif
