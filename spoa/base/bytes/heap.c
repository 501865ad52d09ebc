/* SPDX-License-Identifier: MIT */
#include "spoa/base/bytes/heap.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "spoa/base/bytes/min_max.h"

/* bytes of address space, which take no memory until they are used: what a tunnel may hold, several times */
#define ROOM ((size_t)8 << 30)

enum { ALIGNMENT = 16, KEPT = 1 << 20 /* bytes after a mark that stay resident, at most */ };

static uint8_t *room; /* NULL: malloc is in use */
static size_t used;

static void *take_from_room(size_t size)
{
    size_t rounded = (size + ALIGNMENT - 1) & ~(size_t)(ALIGNMENT - 1);

    if (size > ROOM || rounded > ROOM - used)
        return NULL;
    used += rounded;
    return room + used - rounded;
}

void *heap_take(size_t size)
{
    return room ? take_from_room(size) : malloc(size);
}

void *heap_grow(void *at, size_t held, size_t size)
{
    if (!room)
        return realloc(at, size);
    void *grown = take_from_room(size);
    if (grown && held)
        memcpy(grown, at, min_size(held, size));
    return grown;
}

void heap_give(void *at)
{
    if (!room)
        free(at);
}

bool heap_leave(void)
{
    void *memory =
        mmap(NULL, ROOM, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    if (memory == MAP_FAILED)
        return false;
    room = memory;
    used = 0;
    return true;
}

size_t heap_mark(void)
{
    return used;
}

void heap_return(size_t mark)
{
    size_t kept = (mark + KEPT) & ~(size_t)(KEPT - 1);

    if (used > kept)
        (void)madvise(room + kept, used - kept, MADV_DONTNEED);
    used = mark;
}
