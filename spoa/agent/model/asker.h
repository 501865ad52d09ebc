/* SPDX-License-Identifier: MIT */
/*
 * asker: who a decision asks for, so that what it makes others do counts as that one's (spoa/base/table/fair.h): the organisation of
 * a token that was verified, else its sandbox, else its bearer; if nothing is verified, the network of the address
 * (spoa/base/table/client_site.h).
 */
#ifndef CELLGATE_AGENT_MODEL_ASKER_H
#define CELLGATE_AGENT_MODEL_ASKER_H

#include "spoa/agent/model/grant.h"
#include "spoa/base/table/fair.h"
#include "spoa/base/table/hash.h"
#include "spoa/base/text/address.h"

enum asker_kind { ASKER_SOURCE, ASKER_BEARER, ASKER_SANDBOX, ASKER_ORG };

struct asker {
    enum asker_kind kind;
    struct slice space, name; /* of a sandbox; else only name; what they point to is the caller's */
    struct address source;    /* ASKER_SOURCE */
};

struct asker asker_of_source(const struct address *source);
/* space: absent, or a namespace. */
struct asker asker_of_sandbox(struct slice space, struct slice sandbox);
/* Of a token that was verified. */
struct asker asker_of_grant(const struct grant *grant);
/* org: absent or empty if there is none; then the sandbox asks. */
struct asker asker_of_org(struct slice org, struct slice space, struct slice sandbox);
struct fair_owner asker_owner(const struct asker *asker, const struct hash_secret *secret);

#endif
