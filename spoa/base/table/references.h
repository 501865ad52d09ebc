/* SPDX-License-Identifier: MIT */
/*
 * references: counts the holders of an object that threads share. The count begins at 1, for the maker. A thread may add a
 * reference only while it holds one, so adding needs no memory ordering. The thread that drops the last reference sees everything
 * that the other threads did before they dropped theirs, so it can free the object.
 */
#ifndef CELLGATE_BASE_TABLE_REFERENCES_H
#define CELLGATE_BASE_TABLE_REFERENCES_H

#include <stdatomic.h>
#include <stdbool.h>

#include "spoa/base/bytes/must_check.h"

static inline void references_add(atomic_uint *references)
{
    atomic_fetch_add_explicit(references, 1, memory_order_relaxed);
}

/* Returns true if this was the last reference; the caller then frees the object. */
MUST_CHECK static inline bool references_drop(atomic_uint *references)
{
    return atomic_fetch_sub_explicit(references, 1, memory_order_acq_rel) == 1;
}

#endif
