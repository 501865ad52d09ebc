/* SPDX-License-Identifier: MIT */
/* texts: a list of texts that its holder owns. */
#ifndef CELLGATE_BASE_TEXTS_H
#define CELLGATE_BASE_TEXTS_H

#include <stddef.h>

struct texts {
    char **at;
    size_t count;
};

#endif
