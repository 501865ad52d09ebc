/* SPDX-License-Identifier: MIT */
#include "spoa/base/bytes/buffer.h"

#include <assert.h>

#include "spoa/base/bytes/heap.h"

enum { SIZE_MIN = 512 }; /* bytes of the first allocation */

/* Makes room for `want` more bytes. If the buffer holds no more bytes than have been consumed, they move to the front: each byte
 * then moves at most once on average. Otherwise the memory grows to the next power of two. Returns false if the limit would be
 * exceeded or memory is short. */
static bool make_room(struct buffer *b, size_t want)
{
    size_t held = buffer_len(b);
    if (want > b->limit || held > b->limit - want)
        return false;
    if (want <= b->size - b->end)
        return true;
    if (held + want <= b->size && held <= b->start) {
        memmove(b->memory, b->memory + b->start, held);
    } else {
        size_t size = SIZE_MIN, max = (size_t)b->limit << (b->start ? 1 : 0);
        while (size < held + want || (b->start && size <= b->size))
            size *= 2;
        if (size > max)
            size = max;
        /* malloc's realloc moves large blocks by remapping their pages, without a copy, but would also move consumed bytes */
        uint8_t *memory = b->start ? heap_take(size) : heap_grow(b->memory, held, size);
        if (!memory)
            return false;
        if (b->start) {
            memcpy(memory, b->memory + b->start, held);
            heap_give(b->memory);
        }
        b->memory = memory;
        b->size = (uint32_t)size;
    }
    b->start = 0;
    b->end = (uint32_t)held;
    return true;
}

bool buffer_put(struct buffer *b, struct slice s)
{
    if (s.len == 0)
        return true;
    if (!make_room(b, s.len))
        return false;
    memcpy(b->memory + b->end, s.at, s.len);
    b->end += (uint32_t)s.len;
    return true;
}

uint8_t *buffer_room(struct buffer *b, size_t want, size_t *room)
{
    if (!make_room(b, want))
        return NULL;
    size_t allowed = b->limit - buffer_len(b), there = b->size - b->end;
    *room = there < allowed ? there : allowed;
    return b->memory + b->end;
}

void buffer_commit(struct buffer *b, size_t len)
{
    assert(len <= b->size - b->end);
    b->end += (uint32_t)len;
    if (b->start == b->end)
        buffer_consume(b, 0);
}

void buffer_consume(struct buffer *b, size_t len)
{
    assert(len <= buffer_len(b));
    b->start += (uint32_t)len;
    if (b->start == b->end)
        buffer_free(b);
}

void buffer_cut(struct buffer *b, size_t len)
{
    assert(len <= buffer_len(b));
    b->end = b->start + (uint32_t)len;
}

void buffer_set_limit(struct buffer *b, size_t limit)
{
    b->limit = buffer_with_limit(limit).limit;
}

void buffer_swap(struct buffer *a, struct buffer *b)
{
    struct buffer held = *a;
    uint32_t limits[] = {a->limit, b->limit};
    *a = *b;
    *b = held;
    a->limit = limits[0];
    b->limit = limits[1];
}

void buffer_free(struct buffer *b)
{
    heap_give(b->memory);
    b->memory = NULL;
    b->start = b->end = b->size = 0;
}
