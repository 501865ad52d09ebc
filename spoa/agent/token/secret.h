/* SPDX-License-Identifier: MIT */
/*
 * token_secret: secrets of token kinds from files that hold them as text: what stands before and behind it (a
 * line end) does not count. Files are registered with the load, short secrets are warned of. Errors name the
 * file and never what is in it.
 */
#ifndef CELLGATE_AGENT_TOKEN_SECRET_H
#define CELLGATE_AGENT_TOKEN_SECRET_H

#include "spoa/agent/token/key.h"
#include "spoa/agent/token/kind.h"

#define TOKEN_SECRET 1024 /* bytes that a secret may have */

/* What an entry of a kind with one secret may hold, and its state. */
struct token_secret_options {
    char *kind, *kid, *secret_file;
    int64_t min_secret, max_ttl;
    bool bind;
};
struct token_secret {
    struct key *key;
    char *kid;
    int64_t max_ttl; /* seconds; 0: any */
    bool bind;
};
/* `load` and `release` of such a kind; options fill a struct token_secret_options. */
bool token_secret_load(const struct token_load *load, const json_node *node, const struct option *options,
                       size_t count, struct token_entry *entry, struct fail *why);
void token_secret_release(void *state);
/* REFUSAL_NONE, and the first of the kind's entries whose key has signed the data. Otherwise token_invalid, or
 * agent_unavailable when out of memory, and *reason. */
enum refusal token_secret_signer(const struct token_check *check, const struct token_kind *kind,
                                 struct slice data, struct slice signature, const struct token_entry **signer,
                                 const char **reason);
/* False and *why when a token of this grant would live too long. */
bool token_secret_lives(int64_t max_ttl, const struct grant *grant, struct fail *why);

/* A secret in padded base64 (RFC 4648 section 4), of which it must have `least` bytes: appends these to w,
 * which holds TOKEN_SECRET. */
bool token_secret_base64(const struct token_load *load, const char *path, size_t least, struct writer *w,
                         struct fail *why);

#endif
