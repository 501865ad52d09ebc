/* SPDX-License-Identifier: MIT */
/*
 * deadlines: a heap that knows which of many objects is due first. Each object embeds four bytes; the heap uses sixteen more for an
 * object that has a deadline. Times are in any unit, as long as all are in the same one. For one thread at a time.
 */
#ifndef CELLGATE_BASE_TABLE_DEADLINES_H
#define CELLGATE_BASE_TABLE_DEADLINES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "spoa/base/bytes/must_check.h"

#define DEADLINES_MAX (UINT32_MAX / 2) /* objects */

/* A member of each object, zeroed before its first use. The object must not move while it has a deadline: the heap points to it. */
struct deadline {
    uint32_t place; /* index in the heap, counted from 1; 0 means no deadline */
};

/* Zero bytes are an empty heap. */
struct deadlines {
    struct deadlines_entry {
        uint64_t at;
        struct deadline *of;
    } * heap;             /* each entry has CHILDREN children, none of which is due before it */
    uint32_t count, room; /* entries in use, entries allocated */
};

/* Makes room for this number of objects with deadlines, so that deadlines_set cannot fail. Returns false if memory is short or
 * `objects` exceeds DEADLINES_MAX. */
bool deadlines_reserve(struct deadlines *d, size_t objects) MUST_CHECK;
/* Sets or changes the deadline of an object. The caller has reserved room for the object. */
void deadlines_set(struct deadlines *d, struct deadline *of, uint64_t at);
/* Removes the deadline of an object. Does nothing if the object has none. */
void deadlines_clear(struct deadlines *d, struct deadline *of);
/* Returns the deadline of an object, or UINT64_MAX if the object has none. */
uint64_t deadlines_at(const struct deadlines *d, const struct deadline *of);
/* Returns the first deadline of all, or UINT64_MAX if there is none. */
uint64_t deadlines_first(const struct deadlines *d);
/* Returns the object that is due first if its deadline is not after `now`, and removes the deadline; else NULL. */
struct deadline *deadlines_take(struct deadlines *d, uint64_t now);
void deadlines_free(struct deadlines *d);

#endif
