/* SPDX-License-Identifier: MIT */
/*
 * asker: the party that a decision is charged to when it makes others work (spoa/base/table/fair.h): the organisation of a verified
 * token, otherwise its sandbox, otherwise its bearer; without a verified token, the network of the client's address
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
    struct slice space, name; /* both set for a sandbox, otherwise only name; the memory is the caller's */
    struct address source;    /* only for ASKER_SOURCE */
};

struct asker asker_of_source(const struct address *source);
/* `space` is a namespace, or absent. */
struct asker asker_of_sandbox(struct slice space, struct slice sandbox);
/* The grant must be that of a verified token. */
struct asker asker_of_grant(const struct grant *grant);
/* If `org` is absent or empty, the asker is the sandbox. */
struct asker asker_of_org(struct slice org, struct slice space, struct slice sandbox);
struct fair_owner asker_owner(const struct asker *asker, const struct hash_secret *secret);

#endif
