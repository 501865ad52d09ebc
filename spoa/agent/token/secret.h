/* SPDX-License-Identifier: MIT */
/*
 * token_secret: reads secrets of token kinds from text files, without the whitespace (a line end) around them. It registers the files
 * with the load and warns about short secrets. Errors name the file and never its content.
 */
#ifndef CELLGATE_AGENT_TOKEN_SECRET_H
#define CELLGATE_AGENT_TOKEN_SECRET_H

#include "spoa/agent/token/key.h"
#include "spoa/agent/token/kind.h"

#define TOKEN_SECRET 1024 /* longest secret, in bytes */

/* The options of an entry of a kind with one secret, and its state. */
struct token_secret_options {
    char *kind, *kid, *secret_file;
    int64_t min_secret, max_ttl;
    bool bind;
};
struct token_secret {
    struct key *key;
    char *kid;
    int64_t max_ttl; /* seconds; 0 if there is no limit */
    bool bind;
};
/* Implement `load` and `release` of such a kind; the options fill a struct token_secret_options. */
bool token_secret_load(const struct token_load *load, const json_node *node, const struct option *options,
                       size_t count, struct token_entry *entry, struct fail *why);
void token_secret_release(void *state);
/* Returns REFUSAL_NONE and in *signer the kind's first entry whose key signed the data. Otherwise returns token_invalid, or
 * agent_unavailable if memory is short, and *reason. */
enum refusal token_secret_signer(const struct token_check *check, const struct token_kind *kind,
                                 struct slice data, struct slice signature, const struct token_entry **signer,
                                 const char **reason);
/* Returns false and *why if the lifetime of this grant would exceed max_ttl. */
bool token_secret_lives(int64_t max_ttl, const struct grant *grant, struct fail *why);

/* Reads a secret in padded base64 (RFC 4648 section 4) with at least `least` bytes and appends the bytes to w, which needs room for
 * TOKEN_SECRET. */
bool token_secret_base64(const struct token_load *load, const char *path, size_t least, struct writer *w,
                         struct fail *why);

#endif
