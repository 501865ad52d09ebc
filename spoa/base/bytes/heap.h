/* SPDX-License-Identifier: MIT */
/*
 * heap: the memory of buffers. It is malloc's, but for a process that goes on in the memory of a dead one (spoa/service/keeper/salvager.h): a lock of
 * that malloc may be held for ever, and its lists may be what killed the process. After heap_leave, allocations come from memory that nobody
 * else uses, and heap_return frees many of them at once.
 */
#ifndef CELLGATE_BASE_BYTES_HEAP_H
#define CELLGATE_BASE_BYTES_HEAP_H

#include <stdbool.h>
#include <stddef.h>

#include "spoa/base/bytes/must_check.h"

/* Returns `size` bytes, or NULL if memory is short. */
void *heap_take(size_t size) MUST_CHECK;
/* Returns `size` bytes that begin with the first `held` bytes of `at`, which is then freed; or NULL if memory is short: `at` is then as
 * before. `at` may be NULL. */
void *heap_grow(void *at, size_t held, size_t size) MUST_CHECK;
void heap_give(void *at);

/* Leaves malloc for good. Returns false if the system gives no memory. Call it in a process of one thread. */
bool heap_leave(void) MUST_CHECK;
/* After heap_leave: heap_mark returns a mark, and heap_return frees all that was taken since then. */
size_t heap_mark(void);
void heap_return(size_t mark);

#endif
