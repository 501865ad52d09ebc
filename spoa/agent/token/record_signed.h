/* SPDX-License-Identifier: MIT */
/*
 * record_signed: the common part of kinds whose URLs are signed with a secret of the sandbox's record (token_kind.confirms). Their
 * entries have no key, and a URL grants one file of one sandbox, in one direction, at the port of its file API.
 */
#ifndef CELLGATE_AGENT_TOKEN_RECORD_SIGNED_H
#define CELLGATE_AGENT_TOKEN_RECORD_SIGNED_H

#include "spoa/agent/token/kind.h"

struct record_signed_options {
    char *kind;
    int64_t max_ttl;
};

/* The rows of such a kind's table of options. */
#define RECORD_SIGNED_OPTIONS(name)                                                                     \
    {"kind", OPTION_TEXT,          offsetof(struct record_signed_options, kind),                        \
     NULL,   .help = "`" name "`", .max = 32},                                                          \
    {                                                                                                   \
        "max_ttl", OPTION_DURATION, offsetof(struct record_signed_options, max_ttl), OPTION_NONE,       \
            .help = "URLs that live longer, or without an end, are refused; not set: any `not_before` " \
                    "refuses all",                                                                      \
            .min = OPTION_SECOND, .max = 3650 * OPTION_DAY                                              \
    }
enum { RECORD_SIGNED_OPTION_COUNT = 2 };

/* Implements `load` of such a kind with its table of RECORD_SIGNED_OPTION_COUNT options; `release` is free. */
bool record_signed_load(const struct token_load *load, const json_node *node, const struct option *options,
                        struct token_entry *entry, struct fail *why);

/* Reads an end in Unix seconds, without leading zeros. Returns false if the text is not one. */
bool record_signed_expiry(struct slice text, uint64_t *seconds);

/* Fills the grant of the URL in check->credential, whose form was checked before; expires is 0 if the URL has no end. Returns
 * token_expired or token_invalid, and sets *reason, if the URL is refused regardless of its signature. */
enum refusal record_signed_grant(const struct token_check *check, const struct token_kind *kind,
                                 uint64_t expires, struct grant *grant, const char **reason);

#endif
