/* SPDX-License-Identifier: MIT */
/* scoped_token: the common part of both versions of Agent Sandbox's scoped tokens: the sandbox and the expiry. */
#ifndef CELLGATE_AGENT_SYSTEMS_AGENT_SANDBOX_SCOPED_TOKEN_H
#define CELLGATE_AGENT_SYSTEMS_AGENT_SANDBOX_SCOPED_TOKEN_H

#include "spoa/agent/token/kind.h"
#include "spoa/base/json/json.h"

enum { SCOPED_TOKEN_PAYLOAD = 2048 }; /* limit of the decoded claims, in bytes */

/* Returns whether the text is a DNS label, as Kubernetes requires for names of namespaces and sandboxes. */
bool scoped_token_is_label(struct slice s);

/* Reads the claims ns, name and exp into the grant; its texts go to check->text. Calls `more`, unless it is NULL, for further
 * claims: `more` returns false if one is missing or malformed. Returns token_invalid for such claims, or agent_unavailable
 * without memory; *reason is then set. */
enum refusal scoped_token_read(const struct token_check *check, struct slice payload,
                               bool (*more)(const struct token_check *check, const struct json *doc,
                                            struct grant *grant),
                               struct grant *grant, const char **reason);

#endif
