/* SPDX-License-Identifier: MIT */
/*
 * chunks: a ring that remembers where each write began and which stream it was of. Only whole chunks are
 * pushed out, so whoever reads from the start never sees half of one. Offsets count the bytes of all streams
 * together.
 */
#ifndef CELLGATE_WORKER_SESSION_CHUNKS_H
#define CELLGATE_WORKER_SESSION_CHUNKS_H

#include "examples/worker/session/ring.h"

#define CHUNKS_MAX \
    65536u /* of them are remembered; a process that writes single bytes gets a shorter ring \
            */

struct chunks {
    struct ring bytes;
    uint64_t *marks; /* per chunk: its end offset * 2 + stream; a circle of `size` places from `first` on */
    size_t first, count, size;
};

static inline struct chunks chunks_with_limit(size_t limit)
{
    return (struct chunks){ring_with_limit(limit), NULL, 0, 0, 0};
}

/* s is one chunk of stream 0 or 1, not longer than the ring's limit. */
void chunks_put(struct chunks *c, unsigned stream, struct slice s);
/* How many bytes a chunk may have so that putting it does not drop any because memory is short; 0: none, for now. */
size_t chunks_reserve(struct chunks *c);
/* Bytes from offset on that are of one chunk and lie together, and their stream. Empty outside of what is
 * held. */
struct slice chunks_at(const struct chunks *c, uint64_t offset, unsigned *stream);
/* How many bytes a chunk may have so that putting it pushes out nothing from offset on. */
size_t chunks_room(const struct chunks *c, uint64_t offset);
void chunks_free(struct chunks *c);

#endif
