/* SPDX-License-Identifier: MIT */
/*
 * token_kind: what a kind of token brings. Each entry of the configuration's `tokens` belongs to one kind;
 * what the kind makes of it (keys, issuer, limits) is its own state, made by `load`, immutable, and freed by
 * `release`.
 */
#ifndef CELLGATE_AGENT_TOKEN_KIND_H
#define CELLGATE_AGENT_TOKEN_KIND_H

#include "spoa/agent/grant.h"
#include "spoa/agent/verdict.h"
#include "spoa/lib/options.h"

struct token_kind;

struct token_entry {
    const struct token_kind *kind;
    struct slice kid; /* points into state; absent: the entry has none */
    void *state;
};

struct token_load {
    const struct json *doc;
    const char *base_dir;
    const char *cell;
    bool minting;               /* private keys are wanted */
    struct option_texts *files; /* read while loading; a change of one is a reason to load again */
    struct option_texts *warnings;
};
/* For kinds, while they load: false and *why when out of memory. */
bool token_load_file(const struct token_load *load, const char *path, struct fail *why);
__attribute__((format(printf, 3, 4))) bool token_load_warn(const struct token_load *load, struct fail *why,
                                                           const char *format, ...);

struct token_check {
    const struct token_entry *entries; /* of all kinds, in the configuration's order */
    size_t count;
    struct slice credential;
    int64_t now;
    struct writer *text; /* for the grant's strings */
};

struct token_kind {
    const char *name;             /* `kind` of an entry */
    const struct option *options; /* what an entry may hold, for the manual too */
    size_t options_count;
    /* Fills entry's kid and state. False and *why, with nothing left to free. */
    bool (*load)(const struct token_load *load, const json_node *node, struct token_entry *entry,
                 struct fail *why);
    void (*release)(void *state);
    /* Whether a credential has this kind's outward form. From then on no other kind sees it. */
    bool (*recognises)(struct slice credential);
    /* As token_check, but for grant->kind. *reason is set unless it is good. */
    enum refusal (*check)(const struct token_check *check, struct grant *grant, const char **reason);
    /* Appends a token that grants this (from iat until exp). NULL: the kind's tokens are not made here. */
    bool (*mint)(const struct token_entry *entry, const struct grant *grant, struct writer *w,
                 struct fail *why);
};

extern const struct token_kind token_kind_jwt;

#endif
