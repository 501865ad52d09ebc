/* SPDX-License-Identifier: MIT */
/*
 * tokens: the entries of the configuration's `tokens` with their keys, loaded. It checks no credential: that is
 * check.h. Immutable, for all threads. A reload
 * makes a new one, whose generation differs, so that no cache believes what the old one verified.
 */
#ifndef CELLGATE_AGENT_TOKEN_TOKENS_H
#define CELLGATE_AGENT_TOKEN_TOKENS_H

#include "spoa/agent/token/kind.h"

struct tokens;

#define TOKENS_MOST 64 /* entries; bounds what one bad token without a kid can cost */

enum tokens_use { TOKENS_CHECK, TOKENS_MINT }; /* only TOKENS_MINT reads private keys */

/* `array` may be NULL or empty: then every credential is refused. Reads files: not for a loop's thread.
 * base_dir is the folder of the configuration file, cell the cell's name. NULL and *why on the first entry
 * that is not in order. */
struct tokens *tokens_load(const struct json *doc, const json_node *array, const char *base_dir,
                           const char *cell, enum tokens_use use, struct fail *why);
void tokens_free(struct tokens *tokens); /* NULL is fine */

uint64_t tokens_generation(const struct tokens *tokens);
const struct token_entry *tokens_entries(const struct tokens *tokens, size_t *count);
/* Whether any entry would still let the tunnel in, by its kid. */
bool tokens_admit(const struct tokens *tokens, const struct token_tunnel *tunnel);
/* Whether any entry still accepts what the key of this fingerprint signs. */
bool tokens_has_key(const struct tokens *tokens, struct slice fingerprint);
/* SOURCE_BITs that the entries listen to at the place. */
unsigned tokens_sources(const struct tokens *tokens, const struct credential_place *place);
/* The headers and parameters that the entries name. */
const struct own_sources *tokens_own(const struct tokens *tokens);
/* The files that were read: when one does not look any more as it did then, load again. */
const struct token_files *tokens_files(const struct tokens *tokens);
/* Sentences to be logged once after loading, as of a secret shorter than it should be. */
const struct texts *tokens_warnings(const struct tokens *tokens);
/* Of keys of the entries that have their former names. False and *why: out of memory. */
bool tokens_warn_old(const struct json *doc, const json_node *array, struct texts *warnings,
                     struct fail *why);

/* Appends a token that grants this, made by the first entry that can; if kind or kid are present, by one of
 * these. */
bool tokens_mint(const struct tokens *tokens, struct slice kind, struct slice kid, const struct grant *grant,
                 struct writer *w, struct fail *why);

/* The kinds there are, for the manual and for loading; NULL behind the last. Lives in token.c. */
const struct token_kind *token_kind_at(size_t i);

#endif
