/* SPDX-License-Identifier: MIT */
/* texts: a list of texts that its holder owns. */
#ifndef CELLGATE_BASE_BYTES_TEXTS_H
#define CELLGATE_BASE_BYTES_TEXTS_H

#include <stdbool.h>
#include <stddef.h>

#include "spoa/base/bytes/slice.h"

struct texts {
    char **at;
    size_t count;
};

/* Appends a copy. False when out of memory: nothing changed. */
bool texts_add(struct texts *texts, struct slice text);
void texts_free(struct texts *texts); /* *texts is the empty list then */

#endif
