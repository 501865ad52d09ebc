/* SPDX-License-Identifier: MIT */
/* rules_json: reads `egress` of a record or of the configuration. */
#ifndef CELLGATE_AGENT_EGRESS_RULES_JSON_H
#define CELLGATE_AGENT_EGRESS_RULES_JSON_H

#include "spoa/agent/egress/rules.h"
#include "spoa/service/options.h"

/* Packs `node` into w. Returns false and *why, with the position, if it is invalid. `known` returns whether the configuration has a
 * secret of this name; with NULL every name is accepted, because a record may be read before the configuration it needs. */
bool egress_policy_read(const struct json *doc, const json_node *node,
                        bool (*known)(const void *secrets, struct slice name), const void *secrets,
                        struct writer *w, struct fail *why);
/* Return the keys of `egress`, and of a rule, for documentation. */
const struct option *egress_policy_options(size_t *count);
const struct option *egress_rule_options(size_t *count);

#endif
