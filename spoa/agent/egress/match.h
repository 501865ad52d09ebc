/* SPDX-License-Identifier: MIT */
/*
 * match: evaluates the rules for a target, and for a request in an inspected connection. The first rule that matches decides; if none
 * matches, the answer is no.
 *
 * Only `host` matches a name, before any look-up, because a look-up would leak the content of the name. Therefore a `cidr` that allows
 * applies to targets that are addresses. A `cidr` that denies applies also to the address a name resolves to, and to addresses that
 * carry a denied one (reach.h).
 */
#ifndef CELLGATE_AGENT_EGRESS_MATCH_H
#define CELLGATE_AGENT_EGRESS_MATCH_H

#include "spoa/agent/egress/rules.h"
#include "spoa/agent/egress/target.h"

/* Finds the first rule that covers this target; returns false if there is none. */
bool egress_rules_match(const struct egress_policy *policy, const struct target *target,
                        struct egress_rule *rule);
/* Returns the reason why a rule does not cover this target, or NULL if it does. */
const char *egress_rule_miss(const struct egress_rule *rule, const struct target *target);
/* Returns the number of the first rule in front of `before` that denies this address when a name resolves to it, or -1 if there is none. */
int egress_rules_deny(const struct egress_policy *policy, const struct target *target, unsigned before,
                      const struct address *address);

/* ---- rules that inspect ---- */
bool egress_rule_method(const struct egress_rule *rule, struct slice method);
/* Returns whether the rule's list has the path. A path that can be read in two ways (dot segments, empty ones, %2F, '\', ';') is on no
 * list. */
bool egress_rule_path(const struct egress_rule *rule, struct slice path);

/* Returns whether a name matches a pattern, both in lower case. `*` is one label, `**` one or more. */
bool egress_host_matches(struct slice pattern, struct slice name);

#endif
