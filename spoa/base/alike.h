/* SPDX-License-Identifier: MIT */
/*
 * alike: bytes that are much like others before them, kept short: what of them stands in a dictionary, or in themselves further
 * in front, is a reference. Pieces that were seen twice get into the dictionary, until that is full; nothing of it ever goes,
 * so nothing secret belongs there. For one thread.
 */
#ifndef CELLGATE_BASE_ALIKE_H
#define CELLGATE_BASE_ALIKE_H

#include "spoa/base/slice.h"
#include "spoa/base/writer.h"

#define ALIKE_DICTIONARY 16384 /* bytes of it */
#define ALIKE_MOST       32768 /* longer ones are not packed */

struct alike;

/* NULL when out of memory. */
struct alike *alike_new(void);
void alike_free(struct alike *alike);

/* A piece that others may have, too. */
void alike_learn(struct alike *alike, struct slice piece);
/* Packed; w->full when it does not fit: len + len / 128 + 1 bytes are enough. */
void alike_pack(const struct alike *alike, struct slice bytes, struct writer *w);
/* Of what this one has packed: as many bytes as were. */
void alike_unpack(const struct alike *alike, struct slice packed, struct writer *w);

#endif
