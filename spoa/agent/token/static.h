/* SPDX-License-Identifier: MIT */
/*
 * token_static: the kind `static`: the access secret of a sandbox's record, of which the record holds the
 * SHA-256. What it grants has to be confirmed with the record (token_admits_secret of check.h).
 */
#ifndef CELLGATE_AGENT_TOKEN_STATIC_H
#define CELLGATE_AGENT_TOKEN_STATIC_H

#include "spoa/agent/model/record.h"
#include "spoa/agent/token/kind.h"

/* Writes the SHA-256 of a secret as records hold it, 64 hexadecimal digits. False when out of memory. */
bool token_static_digest(struct slice secret, struct writer *w);
/* For a request without a credential: whether an entry is `public`. Then *grant is good for sandboxes whose
 * record has no secret. */
bool token_static_public(const struct token_check *check, struct grant *grant);
/* Whether a tunnel that was opened with this grant->kid may stay: false when it was by a secret that is not
 * the record's any more. True for kids of other kinds. */
bool token_static_stands(struct slice kid, const struct record *record);

#endif
