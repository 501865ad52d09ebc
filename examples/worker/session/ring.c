/* SPDX-License-Identifier: MIT */
#include "examples/worker/session/ring.h"

#include <stdlib.h>

#define SMALLEST 4096u
#define FEW      1024u

struct slice ring_at(const struct ring *r, uint64_t offset)
{
    if (offset < r->start || offset >= r->end)
        return (struct slice){NULL, 0};
    size_t position = (size_t)(offset % r->size);
    uint64_t left = r->end - offset;
    size_t together = r->size - position;
    return slice_of(r->memory + position, left < together ? (size_t)left : together);
}

void ring_drop(struct ring *r, uint64_t offset)
{
    if (offset > r->end)
        offset = r->end;
    if (offset > r->start)
        r->start = offset;
}

/* Copies s to the position of the byte `offset`. s must not be longer than the memory. */
static void place(uint8_t *memory, size_t size, uint64_t offset, struct slice s)
{
    size_t position = (size_t)(offset % size);
    size_t first = s.len < size - position ? s.len : size - position;
    if (first)
        memcpy(memory + position, s.at, first);
    if (s.len > first)
        memcpy(memory, s.at + first, s.len - first);
}

static size_t size_for(const struct ring *r, uint64_t held)
{
    size_t size = r->size ? r->size : SMALLEST;
    while (size < held && size < r->limit)
        size *= 2;
    return size < r->limit ? size : r->limit;
}

static void grow(struct ring *r, uint64_t held)
{
    size_t size = size_for(r, held);
    uint8_t *memory = size > r->size ? malloc(size) : NULL;
    if (!memory)
        return;
    for (uint64_t at = r->start; at < r->end;) {
        struct slice s = ring_at(r, at);
        place(memory, size, at, s);
        at += s.len;
    }
    free(r->memory);
    r->memory = memory;
    r->size = size;
}

size_t ring_reserve(struct ring *r)
{
    uint64_t held = r->end - r->start;
    if (r->size < r->limit && r->size - held < FEW)
        grow(r, held + FEW);
    return r->size < r->limit ? r->size - held : r->limit;
}

void ring_put(struct ring *r, struct slice s)
{
    uint64_t held = r->end - r->start;
    if (s.len > r->size - held)
        grow(r, held + s.len);
    uint64_t end = r->end + s.len;
    struct slice kept = s.len > r->size ? slice_from(s, s.len - r->size) : s;
    if (r->size)
        place(r->memory, r->size, end - kept.len, kept);
    r->end = end;
    if (end - r->start > r->size)
        r->start = end - r->size;
}

void ring_free(struct ring *r)
{
    free(r->memory);
    r->memory = NULL;
    r->size = 0;
    r->start = r->end;
}
