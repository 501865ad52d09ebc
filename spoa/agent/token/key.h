/* SPDX-License-Identifier: MIT */
/*
 * key: signs and verifies bytes, and knows no token format. A key belongs to one algorithm (RFC 7518 HS256 and ES256, RFC 8037 EdDSA
 * with Ed25519), so a token cannot choose another one. Immutable; any thread may use it. Errors name the file and never its content.
 */
#ifndef CELLGATE_AGENT_TOKEN_KEY_H
#define CELLGATE_AGENT_TOKEN_KEY_H

#include "spoa/agent/token/algorithm.h"
#include "spoa/base/bytes/slice.h"
#include "spoa/base/bytes/writer.h"
#include "spoa/base/os/fail.h"

struct key;

#define KEY_SIGNATURE   64 /* length of the longest signature, in bytes */
#define KEY_SECRET      32 /* recommended length of a secret, in bytes (RFC 7518 section 3.2) */
#define KEY_FINGERPRINT 64 /* hexadecimal digits of a fingerprint */

/* All of these functions return NULL and *why if the material does not fit the algorithm, or if memory is short. `name` appears in
 * errors. */
struct key *key_secret(struct slice bytes, size_t least, const char *name, struct fail *why);
/* Reads a PEM or JWK text, for KEY_ES256 or KEY_EDDSA. A public key must not come with its private part. */
struct key *key_pair(struct slice text, enum key_algorithm algorithm, enum key_part part, const char *name,
                     struct fail *why);
/* Like key_secret and key_pair, from files of at most KEY_FILE bytes. Every byte of the file belongs to the secret, also a line end. */
struct key *key_secret_file(const char *path, size_t least, struct fail *why);
struct key *key_pair_file(const char *path, enum key_algorithm algorithm, enum key_part part,
                          struct fail *why);
void key_free(struct key *key); /* key may be NULL */

enum key_algorithm key_algorithm(const struct key *key);
/* Returns the length of a secret in bytes, or 0 for a pair. */
size_t key_secret_length(const struct key *key);
/* Returns whether the key is a secret in text with a line end, which most likely comes from an editor. */
bool key_secret_ends_line(const struct key *key);
/* Returns whether both keys belong to one pair. */
bool key_matches(const struct key *one, const struct key *other);

/* Writes a fingerprint that identifies this key for one use (a digest of its description): the HMAC of a secret, or the SHA-256 of a
 * public key in a fixed encoding. Nothing can be signed with a fingerprint. Returns false if memory is short. */
bool key_fingerprint(const struct key *key, struct slice use, uint8_t fingerprint[KEY_FINGERPRINT]);

/* The result of a check. KEY_MEMORY: memory is short, the signature was not checked. */
enum key_result { KEY_GOOD, KEY_BAD, KEY_MEMORY };
enum key_result key_verify(const struct key *key, struct slice data, struct slice signature);
/* Appends the signature. Returns false if the key has only a public part, w is full, or memory is short. */
bool key_sign(const struct key *key, struct slice data, struct writer *w);

#endif
