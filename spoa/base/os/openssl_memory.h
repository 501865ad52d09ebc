/* SPDX-License-Identifier: MIT */
/*
 * openssl_memory: tells whether OpenSSL ran out of memory. Some functions of OpenSSL 3.0 (Ed25519, copies of contexts) report a bad
 * signature if an allocation failed, so a good token would be refused for good. This module passes OpenSSL's allocations on to
 * malloc and records, for each thread, whether an allocation has failed (CRYPTO_set_mem_functions(3)). It is installed before main.
 */
#ifndef CELLGATE_BASE_OS_OPENSSL_MEMORY_H
#define CELLGATE_BASE_OS_OPENSSL_MEMORY_H

#include <stdbool.h>

#include "spoa/base/os/fail.h"

/* Makes OpenSSL's default context. Call once, before any other function of OpenSSL: version 3.0 continues with a context for which
 * it had no memory, and crashes later. Returns false and fills *why if memory was short; OpenSSL must then not be used. */
bool openssl_memory_begin(struct fail *why) MUST_CHECK;

/* Forgets earlier failures of this thread. Call before an operation whose failure may be one of memory. */
void openssl_memory_watch(void);
/* Returns true if an allocation of OpenSSL has failed in this thread since openssl_memory_watch. */
bool openssl_memory_lacked(void);

#endif
