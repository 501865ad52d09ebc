/* SPDX-License-Identifier: MIT */
#include "spoa/base/table/slabs.h"

#include <assert.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "spoa/base/table/list.h"

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define EACH_BY_ITSELF 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__)
#define EACH_BY_ITSELF 1
#endif
/* AddressSanitizer finds a use after slabs_give only if each object is an allocation of its own. */

struct slabs slabs_of(size_t size)
{
    size_t rounded = (size + 7) & ~(size_t)7;
    assert(rounded && rounded <= SLABS_SIZE_MAX);
    return (struct slabs){.size = rounded};
}

#ifdef EACH_BY_ITSELF
#include <sanitizer/asan_interface.h>

struct slab {
    /* resting objects; the bytes after this pointer are poisoned, because nobody may read them */
    struct slab *next;
};

void *slabs_take(struct slabs *slabs)
{
    return calloc(1, slabs->size);
}

void slabs_give(struct slabs *slabs, void *object)
{
    (void)slabs;
    free(object);
}

void slabs_rest(struct slabs *slabs, void *object)
{
    struct slab *rests = object;

    rests->next = slabs->some;
    slabs->some = rests;
    ASAN_POISON_MEMORY_REGION(rests + 1, slabs->size - sizeof *rests);
}

void *slabs_wake(struct slabs *slabs)
{
    struct slab *rests = slabs->some;

    assert(rests);
    slabs->some = rests->next;
    ASAN_UNPOISON_MEMORY_REGION(rests, slabs->size);
    return memset(rests, 0, slabs->size);
}

void slabs_free(struct slabs *slabs)
{
    assert(!slabs->some);
}
#else
/* The head of a slab, in its first bytes. A slab is aligned to its size, so an object's address gives its slab. */
struct slab {
    struct slab *next, **link; /* list of the slabs with room */
    void *free;                /* first object that was given back; each points to the next; or NULL */
    size_t used;               /* objects in use */
    /* offset from which on no object was ever handed out: the kernel has no pages there yet */
    size_t touched;
};

/* offset of the first object: one cache line, so that objects of whole lines share none */
enum { FRONT = 64 };
_Static_assert(sizeof(struct slab) <= FRONT, "");

static bool has_room(const struct slabs *slabs, const struct slab *slab)
{
    return slab->free || slab->touched + slabs->size <= SLABS_SIZE;
}

/* Returns the number of objects that a slab has room for. */
static size_t places_of(const struct slabs *slabs)
{
    return (SLABS_SIZE - FRONT) / slabs->size;
}

/* ---- slabs ---- */
/* Maps a slab, or returns NULL. The kernel aligns to pages only, so this maps twice the size and unmaps what lies around an aligned
 * slab. */
static void *map_slab(void)
{
    uint8_t *memory = mmap(NULL, 2 * SLABS_SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return NULL;
    size_t front = -(uintptr_t)memory & (SLABS_SIZE - 1);
    if (front)
        munmap(memory, front);
    munmap(memory + front + SLABS_SIZE, SLABS_SIZE - front);
    return memory + front;
}

/* Adds an empty slab. Returns false if memory is short. */
static bool add_slab(struct slabs *slabs)
{
    void **empty = realloc(slabs->empty, (slabs->count + 1) * sizeof *empty);
    void *slab = empty ? map_slab() : NULL;

    if (empty)
        slabs->empty = empty;
    if (!slab)
        return false;
    slabs->empty[slabs->empty_count++] = slab;
    slabs->count++;
    slabs->places += places_of(slabs);
    return true;
}

/* Returns the pages of a slab without objects to the system. The slab stays mapped, as an empty one, if resting objects need its
 * places. */
static void end_slab(struct slabs *slabs, void *slab)
{
    size_t places = places_of(slabs);

    if (slabs->places < slabs->kept + places) {
        if (madvise(slab, SLABS_SIZE, MADV_DONTNEED) != 0) /* the kernel refuses locked memory */
            memset(slab, 0, SLABS_SIZE);
        slabs->empty[slabs->empty_count++] = slab;
        return;
    }
    munmap(slab, SLABS_SIZE);
    slabs->count--;
    slabs->places -= places;
}

/* ---- objects ---- */
/* Returns a zeroed object. A place must be free. */
static void *take(struct slabs *slabs)
{
    struct slab *slab = slabs->some;
    if (!slab) {
        slab = slabs->empty[--slabs->empty_count];
        slab->touched = FRONT;
        LIST_PUSH(slabs->some, slab);
    }
    void *object = slab->free;
    if (object) {
        memcpy(&slab->free, object, sizeof slab->free);
        memset(object, 0, slabs->size);
    } else {
        object = (uint8_t *)slab + slab->touched;
        slab->touched += slabs->size;
    }
    slab->used++;
    slabs->places--;
    if (!has_room(slabs, slab))
        LIST_UNLINK(slab);
    return object;
}

void *slabs_take(struct slabs *slabs)
{
    return slabs->places > slabs->kept || add_slab(slabs) ? take(slabs) : NULL;
}

void slabs_give(struct slabs *slabs, void *object)
{
    if (!object)
        return;
    struct slab *slab = (struct slab *)((uintptr_t)object & ~(uintptr_t)(SLABS_SIZE - 1));
    if (!has_room(slabs, slab))
        LIST_PUSH(slabs->some, slab);
    memcpy(object, &slab->free, sizeof slab->free);
    slab->free = object;
    slab->used--;
    slabs->places++;
    if (!slab->used && (slabs->some != slab || slab->next)) { /* the only slab with room stays */
        LIST_UNLINK(slab);
        end_slab(slabs, slab);
    }
    if (slabs->empty_count && slabs->places >= slabs->kept + places_of(slabs))
        end_slab(slabs, slabs->empty[--slabs->empty_count]);
}

void slabs_rest(struct slabs *slabs, void *object)
{
    slabs->kept++;
    slabs_give(slabs, object);
}

void *slabs_wake(struct slabs *slabs)
{
    assert(slabs->kept);
    slabs->kept--;
    return take(slabs);
}

void slabs_free(struct slabs *slabs)
{
    assert(!slabs->kept);
    while (slabs->some) {
        struct slab *slab = slabs->some;
        assert(!slab->used);
        LIST_UNLINK(slab);
        end_slab(slabs, slab);
    }
    while (slabs->empty_count)
        end_slab(slabs, slabs->empty[--slabs->empty_count]);
    free(slabs->empty);
    slabs->empty = NULL;
}
#endif
