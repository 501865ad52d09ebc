/* SPDX-License-Identifier: MIT */
/*
 * buffer: a bounded first-in first-out queue of bytes in one piece of memory. The buffer allocates when the first byte comes and
 * frees when the last one is consumed, so an idle connection costs no memory. A buffer belongs to one thread at a time.
 *
 * Invariant: start <= end <= size.
 */
#ifndef CELLGATE_BASE_BYTES_BUFFER_H
#define CELLGATE_BASE_BYTES_BUFFER_H

#include "spoa/base/bytes/slice.h"

struct buffer {
    uint8_t *memory;     /* of heap_take; NULL only if the buffer is empty */
    uint32_t start, end; /* the bytes held are memory[start, end) */
    uint32_t size;       /* bytes allocated */
    uint32_t limit;      /* largest number of bytes that the buffer may hold, at most BUFFER_LIMIT_MAX */
};
/* Offsets take 32 bits each: a relay has several buffers for each of a million tunnels. */
#define BUFFER_LIMIT_MAX ((size_t)INT32_MAX)

/* Returns an empty buffer. A limit above BUFFER_LIMIT_MAX is lowered to it. */
static inline struct buffer buffer_with_limit(size_t limit)
{
    return (struct buffer){NULL, 0, 0, 0, (uint32_t)(limit < BUFFER_LIMIT_MAX ? limit : BUFFER_LIMIT_MAX)};
}

/* Returns the bytes held, valid until the buffer next changes; absent if the buffer is empty. */
static inline struct slice buffer_slice(const struct buffer *b)
{
    return b->memory ? slice_of(b->memory + b->start, b->end - b->start) : (struct slice){NULL, 0};
}

static inline size_t buffer_len(const struct buffer *b)
{
    return b->end - b->start;
}

/* Returns the number of bytes that can be added without another allocation. */
static inline size_t buffer_spare(const struct buffer *b)
{
    size_t held = buffer_len(b);
    return held <= b->start ? b->size - held : b->size - b->end;
}

/* Appends all of s. Returns false, and appends nothing, if the limit would be exceeded or memory is short. */
bool buffer_put(struct buffer *b, struct slice s) MUST_CHECK;
/* Returns at least `want` writable bytes after those held, for a read(2) or an encoder, and sets *room to the number that may be
 * written. The caller then adds the bytes that it wrote with buffer_commit. Returns NULL if the limit would be exceeded or memory
 * is short. */
uint8_t *buffer_room(struct buffer *b, size_t want, size_t *room) MUST_CHECK;
/* Adds `len` bytes that were written after buffer_room. */
void buffer_commit(struct buffer *b, size_t len);
/* Drops the first len bytes, which the buffer must hold. */
void buffer_consume(struct buffer *b, size_t len);
/* Keeps the first len bytes, which the buffer must hold, and drops the others. */
void buffer_cut(struct buffer *b, size_t len);
/* Changes the limit. Bytes held beyond a lower one stay until they are consumed. */
void buffer_set_limit(struct buffer *b, size_t limit);
/* Exchanges the contents of both buffers, which both limits must allow. Each buffer keeps its own limit. */
void buffer_swap(struct buffer *a, struct buffer *b);
/* Empties the buffer; the limit stays, and the buffer can be used again. */
void buffer_free(struct buffer *b);

#endif
