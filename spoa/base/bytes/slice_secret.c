/* SPDX-License-Identifier: MIT */
#include "spoa/base/bytes/slice.h"

#include <openssl/crypto.h>

/* This function has a file of its own so that a program that compares no secrets links without OpenSSL. */
bool slice_equal_constant_time(struct slice a, struct slice b)
{
    return a.len == b.len && (a.len == 0 || CRYPTO_memcmp(a.at, b.at, a.len) == 0);
}
