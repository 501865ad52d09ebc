/* SPDX-License-Identifier: MIT */
/*
 * openssl_memory: whether OpenSSL had the memory it asked for. Some of its functions (3.0: Ed25519, copies of
 * contexts) say of a signature that it is bad, and nothing else, when they could not look at it. Its
 * allocations are malloc's as ever; that one failed is kept, per thread (CRYPTO_set_mem_functions(3)).
 */
#ifndef CELLGATE_BASE_OS_OPENSSL_MEMORY_H
#define CELLGATE_BASE_OS_OPENSSL_MEMORY_H

#include <stdbool.h>

#include "spoa/base/os/fail.h"

/* Once, before anything else of OpenSSL is used: 3.0 goes on with a default context that it had no memory to
 * make, and crashes. False and *why: it must not be used at all. */
bool openssl_memory_begin(struct fail *why);

/* From now on, in this thread. */
void openssl_memory_watch(void);
/* Whether an allocation has failed since then. */
bool openssl_memory_lacked(void);

#endif
