/* SPDX-License-Identifier: MIT */
/*
 * references: how many hold an object that threads share. It begins with 1, its maker's. Who retains it has a reference
 * already, so adding one orders nothing; who drops the last one sees what the others did before they dropped theirs.
 */
#ifndef CELLGATE_BASE_TABLE_REFERENCES_H
#define CELLGATE_BASE_TABLE_REFERENCES_H

#include <stdatomic.h>
#include <stdbool.h>

static inline void references_add(atomic_uint *references)
{
    atomic_fetch_add_explicit(references, 1, memory_order_relaxed);
}

/* True: it was the last, and the object is to be freed. */
static inline bool references_drop(atomic_uint *references)
{
    return atomic_fetch_sub_explicit(references, 1, memory_order_acq_rel) == 1;
}

#endif
