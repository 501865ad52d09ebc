/* SPDX-License-Identifier: MIT */
/*
 * token_static: the kind `static`: the access secret of a sandbox's record, which holds its SHA-256. The record must confirm its grants
 * (token_admits_secret of check.h).
 */
#ifndef CELLGATE_AGENT_TOKEN_STATIC_H
#define CELLGATE_AGENT_TOKEN_STATIC_H

#include "spoa/agent/model/record.h"
#include "spoa/agent/token/kind.h"

/* Writes the SHA-256 of a secret in the form of records, 64 hexadecimal digits. Returns false if memory is short. */
bool token_static_digest(struct slice secret, struct writer *w);
/* Returns for a request without a credential whether an entry is `public`. *grant is then valid for sandboxes whose record has no
 * secret. */
bool token_static_public(const struct token_check *check, struct grant *grant);
/* Returns whether a tunnel that was opened with this grant->kid may stay open: false if its secret is not the record's any more, true
 * for kids of other kinds. */
bool token_static_stands(struct slice kid, const struct record *record);

#endif
