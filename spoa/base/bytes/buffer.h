/* SPDX-License-Identifier: MIT */
/*
 * buffer: a bounded first-in first-out of bytes. Memory is taken when bytes are there and given back when the last
 * one is consumed, so an idle connection costs none. Not for use by two threads.
 */
#ifndef CELLGATE_BASE_BYTES_BUFFER_H
#define CELLGATE_BASE_BYTES_BUFFER_H

#include "spoa/base/bytes/slice.h"

struct buffer {
    uint8_t *memory;
    uint32_t start, end; /* the bytes held are memory[start, end) */
    uint32_t size;       /* of memory */
    uint32_t limit;      /* more than this is never held, nor than BUFFER_LIMIT_MAX */
};
#define BUFFER_LIMIT_MAX ((size_t)INT32_MAX)

static inline struct buffer buffer_with_limit(size_t limit)
{
    return (struct buffer){NULL, 0, 0, 0, (uint32_t)(limit < BUFFER_LIMIT_MAX ? limit : BUFFER_LIMIT_MAX)};
}

static inline struct slice buffer_slice(const struct buffer *b)
{
    return b->memory ? slice_of(b->memory + b->start, b->end - b->start) : (struct slice){NULL, 0};
}

static inline size_t buffer_len(const struct buffer *b)
{
    return b->end - b->start;
}

/* How many more bytes fit without more memory. */
static inline size_t buffer_spare(const struct buffer *b)
{
    size_t held = buffer_len(b);
    return held <= b->start ? b->size - held : b->size - b->end;
}

/* Appends all of s or nothing: false when the limit would be passed or memory is short. */
bool buffer_put(struct buffer *b, struct slice s) __attribute__((warn_unused_result));
/* At least `want` writable bytes behind those held, for a read(2) or an encoder; NULL when over the limit or out of
 * memory. *room is what may be written. What was written is then added with buffer_commit. */
uint8_t *buffer_room(struct buffer *b, size_t want, size_t *room) __attribute__((warn_unused_result));
void buffer_commit(struct buffer *b, size_t len);
/* Drops the first len bytes; len must not be more than is held. */
void buffer_consume(struct buffer *b, size_t len);
/* Keeps the first len bytes, of those that are held. */
void buffer_cut(struct buffer *b, size_t len);
/* Another limit; what is held beyond it stays. */
void buffer_set_limit(struct buffer *b, size_t limit);
/* Each holds what the other one held, which its limit has to allow; the limits stay. */
void buffer_swap(struct buffer *a, struct buffer *b);
void buffer_free(struct buffer *b);

#endif
