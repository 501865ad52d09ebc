/* SPDX-License-Identifier: MIT */
/*
 * key: signs and verifies bytes; it knows no format of a token. One key and the one algorithm it is for (RFC 7518 HS256 and ES256, RFC 8037 EdDSA with Ed25519). Since
 * the key decides the algorithm, a token cannot choose another. Immutable once made; any thread may use it.
 * Errors name the file and never what is in it.
 */
#ifndef CELLGATE_AGENT_TOKEN_KEY_H
#define CELLGATE_AGENT_TOKEN_KEY_H

#include "spoa/agent/token/algorithm.h"
#include "spoa/base/bytes/slice.h"
#include "spoa/base/bytes/writer.h"
#include "spoa/base/os/fail.h"

struct key;

#define KEY_SIGNATURE   64 /* bytes of the longest signature */
#define KEY_SECRET      32 /* bytes that a secret should have at least (RFC 7518 section 3.2) */
#define KEY_FINGERPRINT 64 /* hexadecimal digits */

/* All return NULL and *why when the material does not fit the algorithm or out of memory. `name` is for
 * errors. */
struct key *key_secret(struct slice bytes, size_t least, const char *name, struct fail *why);
/* A PEM or JWK text; KEY_ES256 or KEY_EDDSA. A public key must not come with its private part. */
struct key *key_pair(struct slice text, enum key_algorithm algorithm, enum key_part part, const char *name,
                     struct fail *why);
/* The same from files of at most KEY_FILE bytes. A secret is every byte of its file, a line end too. */
struct key *key_secret_file(const char *path, size_t least, struct fail *why);
struct key *key_pair_file(const char *path, enum key_algorithm algorithm, enum key_part part,
                          struct fail *why);
void key_free(struct key *key); /* NULL is fine */

enum key_algorithm key_algorithm(const struct key *key);
/* Bytes of a secret, 0 for a pair. */
size_t key_secret_length(const struct key *key);
/* A secret that is text and ends in a line end: most likely an editor's, not the key's. */
bool key_secret_ends_line(const struct key *key);
/* Whether both are of one pair. */
bool key_matches(const struct key *one, const struct key *other);

/* What tells this key from every other, for one use of it (a digest of what that is): the HMAC of a secret, the SHA-256 of a
 * public key however it is written. Shows nothing that can sign. False when out of memory. */
bool key_fingerprint(const struct key *key, struct slice use, uint8_t fingerprint[KEY_FINGERPRINT]);

/* What a signature is found to be; without memory that is not found out. */
enum key_result { KEY_GOOD, KEY_BAD, KEY_MEMORY };
enum key_result key_verify(const struct key *key, struct slice data, struct slice signature);
/* Appends the signature. False when the key is only a public one, when w is full or out of memory. */
bool key_sign(const struct key *key, struct slice data, struct writer *w);

#endif
