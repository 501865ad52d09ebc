/* SPDX-License-Identifier: MIT */
/*
 * slabs: memory for many objects of one size that come and go together: without a header for each, apart from what else is
 * allocated meanwhile, and given back to the system once a slab of them is free. For one thread.
 */
#ifndef CELLGATE_BASE_TABLE_SLABS_H
#define CELLGATE_BASE_TABLE_SLABS_H

#include <stdbool.h>
#include <stddef.h>

#define SLABS_SIZE      65536 /* bytes of a slab, with its head */
#define SLABS_SIZE_MAX 8192  /* of an object */

struct slab;

struct slabs {
    size_t size;       /* of an object, a multiple of 8 */
    struct slab *some; /* those that are in use, and have room */
    void **empty;      /* those that are not; room for all */
    size_t empty_count;
    size_t count;        /* slabs there are */
    size_t places, kept; /* for objects in these: free ones, and how many of them are for objects that rest */
};

/* size: at most SLABS_SIZE_MAX; it is rounded up. */
struct slabs slabs_of(size_t size);
/* An object, zeroed; NULL when out of memory. */
void *slabs_take(struct slabs *slabs);
/* NULL is fine. The last slab stays, so that an object that comes and goes costs no system call. */
void slabs_give(struct slabs *slabs, void *object);
/* The object goes, but its place is kept: it costs address space, which limits of memory count, but no memory. */
void slabs_rest(struct slabs *slabs, void *object);
/* An object, zeroed, for one that rests. Never NULL. */
void *slabs_wake(struct slabs *slabs);
/* Nothing of it is in use, and nothing rests. */
void slabs_free(struct slabs *slabs);

#endif
