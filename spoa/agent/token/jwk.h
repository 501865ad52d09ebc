/* SPDX-License-Identifier: MIT */
/*
 * jwk: a JSON Web Key (RFC 7517, RFC 7518 section 6.2, RFC 8037 section 2) as an OpenSSL key. P-256 and
 * Ed25519 only. `alg`, `use` and `key_ops` are honoured where they are there; `kid` is the configuration's
 * business.
 */
#ifndef CELLGATE_AGENT_TOKEN_JWK_H
#define CELLGATE_AGENT_TOKEN_JWK_H

#include <openssl/evp.h>

#include "spoa/agent/token/algorithm.h"
#include "spoa/base/bytes/slice.h"
#include "spoa/base/os/fail.h"

/* NULL and *why on anything else than one such key. The caller frees it with EVP_PKEY_free. */
EVP_PKEY *jwk_load(struct slice text, enum key_algorithm algorithm, enum key_part part, const char *name,
                   struct fail *why);

#endif
