/* SPDX-License-Identifier: MIT */
/*
 * jwk: reads a JSON Web Key (RFC 7517, RFC 7518 section 6.2, RFC 8037 section 2) as an OpenSSL key. Only P-256 and Ed25519 are
 * supported. `alg`, `use` and `key_ops` are checked if present; `kid` is ignored, because the configuration names keys.
 */
#ifndef CELLGATE_AGENT_TOKEN_JWK_H
#define CELLGATE_AGENT_TOKEN_JWK_H

#include <openssl/evp.h>

#include "spoa/agent/token/algorithm.h"
#include "spoa/base/bytes/slice.h"
#include "spoa/base/os/fail.h"

/* Returns NULL and *why unless the text is one such key. The caller frees the key with EVP_PKEY_free. */
EVP_PKEY *jwk_load(struct slice text, enum key_algorithm algorithm, enum key_part part, const char *name,
                   struct fail *why);

#endif
