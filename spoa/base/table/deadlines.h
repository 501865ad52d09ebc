/* SPDX-License-Identifier: MIT */
/*
 * deadlines: which of many objects is due next. An object has four bytes in it, and takes sixteen here while it is due at all.
 * Times are of any unit that begins small. For one thread.
 */
#ifndef CELLGATE_BASE_TABLE_DEADLINES_H
#define CELLGATE_BASE_TABLE_DEADLINES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define DEADLINES_MAX (UINT32_MAX / 2) /* objects */

/* In the object, zeroed before its first use. It stays where it is while it has a time. */
struct deadline {
    uint32_t place; /* counted from 1; 0: it has none */
};

/* Zeroed before its first use. */
struct deadlines {
    struct deadlines_entry {
        uint64_t at;
        struct deadline *of;
    } * heap;
    uint32_t count, room;
};

/* So many objects may have a time from now on. False: out of memory, or more than DEADLINES_MAX. */
bool deadlines_reserve(struct deadlines *d, size_t objects) __attribute__((warn_unused_result));
/* It is due then, and not when it was before. There is room for it. */
void deadlines_set(struct deadlines *d, struct deadline *of, uint64_t at);
/* It is not due any more; one that has no time is fine. */
void deadlines_clear(struct deadlines *d, struct deadline *of);
/* When it is due; UINT64_MAX: not at all. */
uint64_t deadlines_at(const struct deadlines *d, const struct deadline *of);
/* When the first one is; UINT64_MAX: none is. */
uint64_t deadlines_first(const struct deadlines *d);
/* The first one that is due by now, which has no time then; NULL: none. */
struct deadline *deadlines_take(struct deadlines *d, uint64_t now);
void deadlines_free(struct deadlines *d);

#endif
