/* SPDX-License-Identifier: MIT */
/*
 * chunks: a ring that remembers where each write (a chunk) ends, and its stream. A full ring drops whole chunks only, so a reader that
 * begins at the ring's start never sees a part of one. Offsets count the bytes of both streams together.
 */
#ifndef CELLGATE_WORKER_SESSION_CHUNKS_H
#define CELLGATE_WORKER_SESSION_CHUNKS_H

#include "examples/worker/session/ring.h"

/* Largest number of chunks. The ring of a process that writes single bytes is shorter for that reason. */
#define CHUNKS_MAX 65536u

struct chunks {
    struct ring bytes;
    uint64_t *marks;           /* circular array; a chunk's mark is 2 * (offset of its end) + its stream */
    size_t first, count, size; /* index of the oldest mark; number of marks; size of the array */
};

static inline struct chunks chunks_with_limit(size_t limit)
{
    return (struct chunks){ring_with_limit(limit), NULL, 0, 0, 0};
}

/* Appends a chunk of stream 0 or 1, which must not be longer than the ring's limit. If memory is short, older bytes are dropped. */
void chunks_put(struct chunks *c, unsigned stream, struct slice s);
/* Returns the largest chunk that can be put without dropping bytes for want of memory; 0 if memory is short now. */
size_t chunks_reserve(struct chunks *c);
/* Returns bytes from `offset` on that belong to one chunk and are contiguous, and sets *stream. Empty if the ring does not hold
 * `offset`. */
struct slice chunks_at(const struct chunks *c, uint64_t offset, unsigned *stream);
/* Returns the largest chunk that can be put without dropping bytes from `offset` on. */
size_t chunks_room(const struct chunks *c, uint64_t offset);
void chunks_free(struct chunks *c);

#endif
