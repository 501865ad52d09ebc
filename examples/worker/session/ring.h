/* SPDX-License-Identifier: MIT */
/*
 * ring: the last bytes of a stream, each known by its offset from the stream's beginning (64 bits, never
 * reused). It holds bytes [start, end), at most `limit` of them; what does not fit pushes the oldest out.
 * Memory grows with what is held. When it cannot grow, less is held: start moves on earlier, which a reader
 * sees as any other gap.
 */
#ifndef CELLGATE_WORKER_SESSION_RING_H
#define CELLGATE_WORKER_SESSION_RING_H

#include "spoa/base/bytes/slice.h"

struct ring {
    uint8_t *memory; /* byte `offset` is memory[offset % size] */
    size_t size, limit;
    uint64_t start, end;
};

static inline struct ring ring_with_limit(size_t limit)
{
    return (struct ring){NULL, 0, limit, 0, 0};
}

void ring_put(struct ring *r, struct slice s);
/* How many bytes can be put without less being held than the limit says: a thousand at least, unless the limit is
 * lower. 0: out of memory, for now. */
size_t ring_reserve(struct ring *r);
/* Forgets all bytes before offset. */
void ring_drop(struct ring *r, uint64_t offset);
/* Bytes from offset on that lie together in memory: all up to the end, or up to the memory's end, in which
 * case a second call gives the others. Empty outside of [start, end). Valid until the next put. */
struct slice ring_at(const struct ring *r, uint64_t offset);
void ring_free(struct ring *r);

#endif
