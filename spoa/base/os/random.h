/* SPDX-License-Identifier: MIT */
/*
 * random: unpredictable bytes from getrandom(2), which each thread asks for a few hundred at a time: for masks and nonces, of
 * which a tunnel takes several. A byte that was given is not kept. For keys that last, ask the kernel.
 */
#ifndef CELLGATE_BASE_OS_RANDOM_H
#define CELLGATE_BASE_OS_RANDOM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { RANDOM_MAX = 64 }; /* bytes of one call */

/* False when the kernel gives none. */
bool random_bytes(void *to, size_t len) __attribute__((warn_unused_result));
uint32_t random_u32(void);

#endif
