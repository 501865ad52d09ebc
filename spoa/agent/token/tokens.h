/* SPDX-License-Identifier: MIT */
/*
 * tokens: the loaded entries of the configuration's `tokens`, with their keys. check.h checks credentials with them. Immutable, for all
 * threads. A reload makes a new object with another generation, so that no cache uses what the old keys verified.
 */
#ifndef CELLGATE_AGENT_TOKEN_TOKENS_H
#define CELLGATE_AGENT_TOKEN_TOKENS_H

#include "spoa/agent/token/kind.h"

struct tokens;

#define TOKENS_MOST 64 /* limit of entries; it limits the cost of an invalid token without a kid */

enum tokens_use { TOKENS_CHECK, TOKENS_MINT }; /* only TOKENS_MINT reads private keys */

/* Loads the entries. `array` may be NULL or empty; every credential is then refused. The call reads files, so event loop threads must
 * not call it. base_dir is the folder of the configuration file, cell the cell's name. Returns NULL and *why for the first invalid
 * entry. */
struct tokens *tokens_load(const struct json *doc, const json_node *array, const char *base_dir,
                           const char *cell, enum tokens_use use, struct fail *why);
void tokens_free(struct tokens *tokens); /* tokens may be NULL */

uint64_t tokens_generation(const struct tokens *tokens);
const struct token_entry *tokens_entries(const struct tokens *tokens, size_t *count);
/* Returns whether any entry still admits the tunnel, by its kid. */
bool tokens_admit(const struct tokens *tokens, const struct token_tunnel *tunnel);
/* Returns whether any entry still accepts signatures of the key with this fingerprint. */
bool tokens_has_key(const struct tokens *tokens, struct slice fingerprint);
/* Returns the SOURCE_BITs that the entries use in this place. */
unsigned tokens_sources(const struct tokens *tokens, const struct credential_place *place);
/* Returns the headers and parameters that the entries name. */
const struct own_sources *tokens_own(const struct tokens *tokens);
/* Returns the files that were read. If the state of one changes, the tokens must be loaded again. */
const struct token_files *tokens_files(const struct tokens *tokens);
/* Returns sentences to log once after loading, for example about a secret that is too short. */
const struct texts *tokens_warnings(const struct tokens *tokens);
/* Adds a warning for each key of the entries that has its former name. Returns false and *why if memory is short. */
bool tokens_warn_old(const struct json *doc, const json_node *array, struct texts *warnings,
                     struct fail *why);

/* Appends a token with this grant, made by the first entry that can make it; if kind or kid is present, only entries that match it are
 * tried. */
bool tokens_mint(const struct tokens *tokens, struct slice kind, struct slice kid, const struct grant *grant,
                 struct writer *w, struct fail *why);

/* Returns the i-th kind, for the manual and for loading; NULL after the last. Defined in check.c. */
const struct token_kind *token_kind_at(size_t i);

#endif
