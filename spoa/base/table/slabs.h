/* SPDX-License-Identifier: MIT */
/*
 * slabs: memory for many objects of one size that come and go together. Objects have no headers of their own, do not mix with other
 * allocations, and their memory returns to the system once a whole slab is free. For one thread at a time.
 *
 * An object can be put to rest: its memory goes, but a place for it stays reserved, so that waking it cannot fail. That is how a
 * packed tunnel can always be unpacked.
 */
#ifndef CELLGATE_BASE_TABLE_SLABS_H
#define CELLGATE_BASE_TABLE_SLABS_H

#include <stdbool.h>
#include <stddef.h>

#include "spoa/base/bytes/must_check.h"

#define SLABS_SIZE     65536 /* bytes of a slab, with its head */
#define SLABS_SIZE_MAX 8192  /* bytes of an object */

struct slab;

/* Callers read the fields, for metrics, and do not change them. */
struct slabs {
    size_t size;       /* bytes of an object, a multiple of 8 */
    struct slab *some; /* list of the slabs that have objects in use and room for more */
    /* slabs without an object in use; allocated for all slabs, so that a slab can always be added */
    void **empty;
    size_t empty_count; /* entries of `empty` */
    size_t count;       /* slabs in all */
    size_t places;      /* free places for objects in all slabs */
    size_t kept;        /* number of these places that are reserved for resting objects; kept <= places */
};

/* Returns an empty set for objects of `size` bytes, which is rounded up to a multiple of 8; at most SLABS_SIZE_MAX. */
struct slabs slabs_of(size_t size);
/* Returns a zeroed object, or NULL if memory is short. */
void *slabs_take(struct slabs *slabs) MUST_CHECK;
/* Frees an object; NULL is fine. The last slab stays, so that a single object that comes and goes costs no system call. */
void slabs_give(struct slabs *slabs, void *object);
/* Frees an object and reserves a place for it. The reserved place costs address space, which limits of memory count, but no
 * memory. */
void slabs_rest(struct slabs *slabs, void *object);
/* Returns a zeroed object in the place of one that was put to rest. Never NULL. */
void *slabs_wake(struct slabs *slabs);
/* Returns all memory to the system. No object may be in use or at rest. */
void slabs_free(struct slabs *slabs);

#endif
