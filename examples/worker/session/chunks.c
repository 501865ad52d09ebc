/* SPDX-License-Identifier: MIT */
#include "examples/worker/session/chunks.h"

#include <stdlib.h>

#define FEWEST 64u

static uint64_t mark(const struct chunks *c, size_t i)
{
    return c->marks[(c->first + i) % c->size];
}

static uint64_t end_of(const struct chunks *c, size_t i)
{
    return mark(c, i) >> 1;
}

static void drop_oldest(struct chunks *c)
{
    ring_drop(&c->bytes, end_of(c, 0));
    c->first = (c->first + 1) % c->size;
    c->count--;
}

static void grow(struct chunks *c)
{
    size_t size = c->size ? c->size * 2 : FEWEST;
    uint64_t *marks = size <= CHUNKS_MAX ? malloc(size * sizeof *marks) : NULL;
    if (!marks)
        return;
    for (size_t i = 0; i < c->count; i++)
        marks[i] = mark(c, i);
    free(c->marks);
    c->marks = marks;
    c->size = size;
    c->first = 0;
}

/* Drops the marks of chunks that the ring has dropped because memory was short, and the rest of a chunk that it has cut. `was` is the
 * ring's start before. */
static void drop_cut(struct chunks *c, uint64_t was)
{
    while (c->count && end_of(c, 0) <= c->bytes.start && was != c->bytes.start)
        drop_oldest(c);
    if (c->count && c->bytes.start != was)
        drop_oldest(c);
}

void chunks_put(struct chunks *c, unsigned stream, struct slice s)
{
    if (s.len == 0)
        return;
    if (c->count == c->size)
        grow(c);
    while (c->count && (c->count == c->size || c->bytes.end - c->bytes.start + s.len > c->bytes.limit))
        drop_oldest(c);
    uint64_t was = c->bytes.start;
    ring_put(&c->bytes, s);
    if (!c->size) { /* without memory for a mark the chunk is lost, but its bytes count in the offsets */
        ring_drop(&c->bytes, c->bytes.end);
        return;
    }
    c->marks[(c->first + c->count++) % c->size] = c->bytes.end << 1 | (stream & 1);
    drop_cut(c, was);
}

size_t chunks_reserve(struct chunks *c)
{
    if (c->count == c->size)
        grow(c);
    return c->count < c->size || c->size == CHUNKS_MAX ? ring_reserve(&c->bytes) : 0;
}

/* Returns the index of the chunk with the byte at `offset`, or c->count if there is none. */
static size_t chunk_of(const struct chunks *c, uint64_t offset)
{
    size_t low = 0, high = c->count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (end_of(c, middle) > offset)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

struct slice chunks_at(const struct chunks *c, uint64_t offset, unsigned *stream)
{
    struct slice s = ring_at(&c->bytes, offset);
    if (s.len == 0)
        return s;
    size_t i = chunk_of(c, offset);
    *stream = (unsigned)(mark(c, i) & 1);
    return slice_sub(s, 0, (size_t)(end_of(c, i) - offset));
}

size_t chunks_room(const struct chunks *c, uint64_t offset)
{
    size_t i = chunk_of(c, offset);
    if (c->count == CHUNKS_MAX && i == 0)
        return 0;
    uint64_t start = i == 0 ? c->bytes.start : end_of(c, i - 1);
    return (size_t)(c->bytes.limit - (c->bytes.end - start));
}

void chunks_free(struct chunks *c)
{
    free(c->marks);
    c->marks = NULL;
    c->first = c->count = c->size = 0;
    ring_free(&c->bytes);
}
