/* SPDX-License-Identifier: MIT */
/*
 * hash: SipHash-1-3 (Aumasson and Bernstein, "SipHash: a fast short-input PRF"), keyed with a secret of the
 * process, so that nobody outside can choose keys that collide. For hash tables, not for authentication.
 */
#ifndef CELLGATE_BASE_TABLE_HASH_H
#define CELLGATE_BASE_TABLE_HASH_H

#include "spoa/base/bytes/slice.h"

struct hash_secret {
    uint64_t k0, k1;
};

/* From getrandom(2); false when the kernel gives none. */
bool hash_secret_init(struct hash_secret *secret) __attribute__((warn_unused_result));
uint64_t hash_keyed(const struct hash_secret *secret, struct slice s);

#endif
