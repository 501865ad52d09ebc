/* SPDX-License-Identifier: MIT */
/*
 * alike: bytes that are much like others, kept short: what of them stands in a dictionary, or in themselves further in front, is a
 * reference. The dictionary is the caller's and never changes: nothing of what is packed gets into it, so that nobody can
 * fill it, and it holds nobody's secrets. For any thread.
 */
#ifndef CELLGATE_BASE_BYTES_ALIKE_H
#define CELLGATE_BASE_BYTES_ALIKE_H

#include "spoa/base/bytes/slice.h"
#include "spoa/base/bytes/writer.h"

#define ALIKE_DICTIONARY 16384 /* bytes of it */
#define ALIKE_MOST       32768 /* longer ones are not packed */

struct alike;

/* A copy of these words, at most ALIKE_DICTIONARY bytes, is the dictionary. NULL when out of memory. */
struct alike *alike_new(struct slice words);
void alike_free(struct alike *alike);

/* Packed; w->full when it does not fit: len + len / 128 + 1 bytes are enough. */
void alike_pack(const struct alike *alike, struct slice bytes, struct writer *w);
/* Of what this one has packed: as many bytes as were. */
void alike_unpack(const struct alike *alike, struct slice packed, struct writer *w);

#endif
