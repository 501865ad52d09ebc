/* SPDX-License-Identifier: MIT */
/*
 * random: unpredictable bytes for masks and nonces. Each thread fetches a few hundred bytes of getrandom(2) at a time, because a
 * tunnel needs several small numbers and a system call for each would show. A byte is erased when it is handed out. Keys that last
 * come from the kernel directly (hash_secret_init).
 */
#ifndef CELLGATE_BASE_OS_RANDOM_H
#define CELLGATE_BASE_OS_RANDOM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "spoa/base/bytes/must_check.h"

enum { RANDOM_MAX = 64 }; /* largest number of bytes of one call */

/* Fills `len` bytes, at most RANDOM_MAX. Returns false if the kernel provides none. */
bool random_bytes(void *to, size_t len) MUST_CHECK;
/* Returns a random number. Cannot fail: arc4random(3) serves if the kernel does not. */
uint32_t random_u32(void);

#endif
