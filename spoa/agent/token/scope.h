/* SPDX-License-Identifier: MIT */
/*
 * token_scope: where credentials of an entry of `tokens` may stand (`sources`), and what they are good for: the routes of
 * `systems` and `routes`, below `domains`. Nothing of these: any route, any host.
 */
#ifndef CELLGATE_AGENT_TOKEN_SCOPE_H
#define CELLGATE_AGENT_TOKEN_SCOPE_H

#include "spoa/agent/token/credential_source.h"
#include "spoa/service/options.h"

struct token_load;

/* As the options table reads them. */
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
/* For the options table. */
const char *token_scope_check_source(struct slice value);
const char *token_scope_check_system(struct slice value);
const char *token_scope_check_domain(struct slice value);

/* All built-in sources of tokens and secrets. */
#define SOURCES_BUILT_IN (((1u << SOURCE_COUNT) - 2) & ~SOURCES_SIGNED)

/* The bits of names; those that are no built-in ones become own ones. False and *why: there are too many. */
bool token_scope_sources(const struct token_load *load, const struct texts *names, unsigned *bits,
                         struct fail *why);
/* The own ones of all entries of `tokens`, of which no key is read. False and *why, with nothing left to free. */
bool token_scope_own(const struct json *doc, const json_node *tokens, struct own_sources *own,
                     struct fail *why);
/* Takes the texts out of options; "<FORM>" becomes the form's domains. False and *why. */
bool token_scope_take(const struct token_load *load, struct token_scope_options *options,
                      struct token_scope *scope, struct fail *why);
void token_scope_free(struct token_scope *scope);

bool token_scope_is_bound(const struct token_scope *scope);
/* Whether the place's route and host are among those that are named; true if none is. */
bool token_scope_has(const struct token_scope *scope, const struct credential_place *place);
/* A text that is another for every other scope. */
void token_scope_text(const struct token_scope *scope, struct writer *w);

#endif
