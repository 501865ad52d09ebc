/* SPDX-License-Identifier: MIT */
/*
 * match: what the rules say of a target, and of a request inside. The first rule that matches decides; no rule: refused.
 *
 * A name is matched by `host` alone, before anybody looks it up: a look-up would carry what is in the name to the outside.
 * A `cidr` that allows is therefore for targets that are addresses; one that denies is for what a name leads to, besides, and for
 * addresses that carry one of its own (reach.h).
 */
#ifndef CELLGATE_AGENT_EGRESS_MATCH_H
#define CELLGATE_AGENT_EGRESS_MATCH_H

#include "spoa/agent/egress/rules.h"
#include "spoa/agent/egress/target.h"

/* The first rule that is about this target; false: there is none. */
bool egress_rules_match(const struct egress_policy *policy, const struct target *target,
                        struct egress_rule *rule);
/* Why a rule is not about this target; NULL: it is. */
const char *egress_rule_miss(const struct egress_rule *rule, const struct target *target);
/* The number of the first rule in front of `before` that denies this address to whoever reaches it by a name; -1: none. */
int egress_rules_deny(const struct egress_policy *policy, const struct target *target, unsigned before,
                      const struct address *address);

/* ---- of a rule that inspects ---- */
bool egress_rule_method(const struct egress_rule *rule, struct slice method);
/* A path that could be read in two ways (dot segments, empty ones, %2F, '\', ';') is on no list. */
bool egress_rule_path(const struct egress_rule *rule, struct slice path);

/* Whether a name matches a pattern, both in lower case: `*` is a label, `**` at least one. */
bool egress_host_matches(struct slice pattern, struct slice name);

#endif
