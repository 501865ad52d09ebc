/* SPDX-License-Identifier: MIT */
/*
 * ring: the last bytes of a stream. A byte is identified by its offset from the stream's beginning (64 bits, never reused). The ring
 * holds the bytes [start, end), at most `limit` of them; new bytes replace the oldest. Memory grows with the bytes held. If memory
 * cannot grow, the ring holds less, which a reader sees like any other gap.
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

/* Appends s, and drops the oldest bytes that no longer fit. */
void ring_put(struct ring *r, struct slice s);
/* Returns the number of bytes that can be put before the ring holds less than its limit for want of memory: at least a thousand, unless
 * the limit is lower. Returns 0 if memory is short now. */
size_t ring_reserve(struct ring *r);
/* Drops all bytes before `offset`. */
void ring_drop(struct ring *r, uint64_t offset);
/* Returns the contiguous bytes from `offset` on: those up to `end`, or up to the end of the memory; a second call then returns the
 * others. Empty outside of [start, end). Valid until the next ring_put. */
struct slice ring_at(const struct ring *r, uint64_t offset);
void ring_free(struct ring *r);

#endif
