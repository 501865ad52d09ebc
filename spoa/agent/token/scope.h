/* SPDX-License-Identifier: MIT */
/*
 * token_scope: the limits of an entry of `tokens`: the sources of its credentials (`sources`), and the places in which they are valid:
 * routes of `systems` and `routes`, below `domains`. An entry without these keys is valid on any route and host.
 */
#ifndef CELLGATE_AGENT_TOKEN_SCOPE_H
#define CELLGATE_AGENT_TOKEN_SCOPE_H

#include "spoa/agent/token/credential_source.h"
#include "spoa/service/options.h"

struct token_load;

/* The texts that the options table reads. */
struct token_scope_options {
    struct texts sources, systems, routes, domains;
};

struct token_scope {
    unsigned systems;
    struct texts routes, domains;
};

/* The key of the options tables, and its former name. */
#define TOKEN_SCOPE_SOURCES     "sources"
#define TOKEN_SCOPE_SOURCES_OLD "carriers"
/* Checks of values, for the options table. */
const char *token_scope_check_source(struct slice value);
const char *token_scope_check_system(struct slice value);
const char *token_scope_check_domain(struct slice value);

/* Mask of all built-in sources of tokens and secrets. */
#define SOURCES_BUILT_IN (((1u << SOURCE_COUNT) - 2) & ~SOURCES_SIGNED)

/* Returns the bits of the names in *bits; a name of no built-in source becomes an own source. Returns false and *why if there are too
 * many. */
bool token_scope_sources(const struct token_load *load, const struct texts *names, unsigned *bits,
                         struct fail *why);
/* Collects the own sources of all entries of `tokens` without reading a key. Returns false and *why, with nothing left to free, if an
 * entry is invalid. */
bool token_scope_own(const struct json *doc, const json_node *tokens, struct own_sources *own,
                     struct fail *why);
/* Moves the texts out of the options and replaces "<FORM>" by the form's domains. Returns false and *why if a text is invalid. */
bool token_scope_take(const struct token_load *load, struct token_scope_options *options,
                      struct token_scope *scope, struct fail *why);
void token_scope_free(struct token_scope *scope);

bool token_scope_is_bound(const struct token_scope *scope);
/* Returns whether the scope has the place's route and host; true if the scope has no limits. */
bool token_scope_has(const struct token_scope *scope, const struct credential_place *place);
/* Writes a text that is unique to this scope. */
void token_scope_text(const struct token_scope *scope, struct writer *w);

#endif
