/* SPDX-License-Identifier: MIT */
/* min_max: the smaller and the larger of two numbers. Both arguments are evaluated once, unlike those of a macro. */
#ifndef CELLGATE_BASE_BYTES_MIN_MAX_H
#define CELLGATE_BASE_BYTES_MIN_MAX_H

#include <stddef.h>
#include <stdint.h>

static inline uint64_t min_u64(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static inline uint64_t max_u64(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

static inline size_t min_size(size_t a, size_t b)
{
    return a < b ? a : b;
}

static inline size_t max_size(size_t a, size_t b)
{
    return a > b ? a : b;
}

#endif
