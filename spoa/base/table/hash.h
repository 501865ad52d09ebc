/* SPDX-License-Identifier: MIT */
/*
 * hash: SipHash-1-3 (Aumasson and Bernstein, "SipHash: a fast short-input PRF", 2012), keyed with a secret of the process, so that a
 * client cannot choose keys that collide in a hash table. It is for hash tables and authenticates nothing.
 */
#ifndef CELLGATE_BASE_TABLE_HASH_H
#define CELLGATE_BASE_TABLE_HASH_H

#include "spoa/base/bytes/slice.h"

struct hash_secret {
    uint64_t k0, k1;
};

/* Fills the secret from getrandom(2). Returns false if the kernel provides no random bytes. */
bool hash_secret_init(struct hash_secret *secret) MUST_CHECK;
/* Returns the hash of s. It differs between processes, so it must not be stored or sent. */
uint64_t hash_keyed(const struct hash_secret *secret, struct slice s);

#endif
