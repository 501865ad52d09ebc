/* SPDX-License-Identifier: MIT */
/*
 * fold: objects at rest, each kept as that in which it differs from the first one that was folded. Most of what an object
 * holds for the time it is at work is zero when it rests, or the same in all of them; so it takes a twentieth of its memory. What is
 * unfolded is the same, byte for byte: pointers in it are good as long as nothing of what they point to has moved, which is
 * also why none may point into the object itself. For one thread.
 */
#ifndef CELLGATE_BASE_BYTES_FOLD_H
#define CELLGATE_BASE_BYTES_FOLD_H

#include <stdint.h>

#include "spoa/base/bytes/slice.h"

#define FOLD_SIZE_MOST 8192 /* bytes of an object */

struct fold {
    size_t size;    /* of an object: a multiple of 8, at most FOLD_SIZE_MOST */
    uint8_t *first; /* what the others are compared with; NULL: none was folded yet */
};

#define FOLD_PACKED_MOST (FOLD_SIZE_MOST / 8 * 10)
#define FOLD_NO_MEMORY   SIZE_MAX
/* How many bytes it has become, or FOLD_NO_MEMORY: the first one needs some. */
size_t fold_pack(struct fold *fold, const void *object, uint8_t to[static FOLD_PACKED_MOST]);
/* Of one that this fold has packed. */
void fold_unpack(const struct fold *fold, struct slice packed, void *object);
void fold_free(struct fold *fold);

#endif
