/* SPDX-License-Identifier: MIT */
#include "spoa/base/slabs.h"

#include <assert.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define EACH_BY_ITSELF 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__)
#define EACH_BY_ITSELF 1 /* so that a use of one that was given back is found */
#endif

/* At the beginning of its memory, which begins at a multiple of its size. */
struct slab {
    struct slab *next, **link; /* of those that have room */
    void *free;                /* the first object that was given back; each points to the next */
    size_t used;               /* objects */
    size_t touched;            /* bytes; those behind were never given out, so that they cost no memory */
};

enum { FRONT = 64 }; /* bytes in front of the first: objects of whole cache lines begin with one */
_Static_assert(sizeof(struct slab) <= FRONT, "");

struct slabs slabs_of(size_t size)
{
    size_t rounded = (size + 7) & ~(size_t)7;
    assert(rounded && rounded <= SLABS_SIZE_MOST);
    return (struct slabs){.size = rounded};
}

#ifdef EACH_BY_ITSELF
void *slabs_take(struct slabs *slabs)
{
    return calloc(1, slabs->size);
}

void slabs_give(struct slabs *slabs, void *object)
{
    (void)slabs;
    free(object);
}

void slabs_free(struct slabs *slabs)
{
    (void)slabs;
}
#else
/* ---- the list of those that have room ---- */
static void put(struct slabs *slabs, struct slab *slab)
{
    slab->next = slabs->some;
    slab->link = &slabs->some;
    if (slab->next)
        slab->next->link = &slab->next;
    slabs->some = slab;
}

static void take_off(struct slab *slab)
{
    *slab->link = slab->next;
    if (slab->next)
        slab->next->link = slab->link;
}

static bool has_room(const struct slabs *slabs, const struct slab *slab)
{
    return slab->free || slab->touched + slabs->size <= SLABS_SIZE;
}

/* ---- slabs ---- */
/* The kernel aligns to pages: of twice as much what lies around a whole one goes back. */
static struct slab *slab_new(struct slabs *slabs)
{
    uint8_t *memory = mmap(NULL, 2 * SLABS_SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return NULL;
    size_t front = -(uintptr_t)memory & (SLABS_SIZE - 1);
    if (front)
        munmap(memory, front);
    munmap(memory + front + SLABS_SIZE, SLABS_SIZE - front);
    struct slab *slab = (struct slab *)(void *)(memory + front);
    slab->touched = FRONT;
    put(slabs, slab);
    slabs->count++;
    return slab;
}

static void slab_free(struct slabs *slabs, struct slab *slab)
{
    take_off(slab);
    munmap(slab, SLABS_SIZE);
    slabs->count--;
}

/* ---- objects ---- */
void *slabs_take(struct slabs *slabs)
{
    struct slab *slab = slabs->some ? slabs->some : slab_new(slabs);
    if (!slab)
        return NULL;
    void *object = slab->free;
    if (object) {
        memcpy(&slab->free, object, sizeof slab->free);
        memset(object, 0, slabs->size);
    } else {
        object = (uint8_t *)slab + slab->touched;
        slab->touched += slabs->size;
    }
    slab->used++;
    if (!has_room(slabs, slab))
        take_off(slab);
    return object;
}

void slabs_give(struct slabs *slabs, void *object)
{
    if (!object)
        return;
    struct slab *slab = (struct slab *)((uintptr_t)object & ~(uintptr_t)(SLABS_SIZE - 1));
    if (!has_room(slabs, slab))
        put(slabs, slab);
    memcpy(object, &slab->free, sizeof slab->free);
    slab->free = object;
    slab->used--;
    if (!slab->used && (slabs->some != slab || slab->next))
        slab_free(slabs, slab);
}

void slabs_free(struct slabs *slabs)
{
    while (slabs->some) {
        assert(!slabs->some->used);
        slab_free(slabs, slabs->some);
    }
}
#endif
