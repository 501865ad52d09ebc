/* SPDX-License-Identifier: MIT */
/* rules_json: `egress` as a record or the configuration writes it. */
#ifndef CELLGATE_AGENT_EGRESS_RULES_JSON_H
#define CELLGATE_AGENT_EGRESS_RULES_JSON_H

#include "spoa/agent/egress/rules.h"
#include "spoa/service/options.h"

/* Packs `node` into w. False: *why has the position. `known` says whether a secret of that name is configured; NULL: all
 * are taken to be (of a record, which may be read before the configuration that it needs). */
bool egress_policy_read(const struct json *doc, const json_node *node,
                        bool (*known)(const void *secrets, struct slice name), const void *secrets,
                        struct writer *w, struct fail *why);
/* The keys of `egress`, and of a rule, for people. */
const struct option *egress_policy_options(size_t *count);
const struct option *egress_rule_options(size_t *count);

#endif
