/* SPDX-License-Identifier: MIT */
/*
 * names: the addresses of workers that records name instead of giving a literal. Asks for all of them on a loop
 * (dns.h), again when their time to live is over (1 to 30 s), and publishes an immutable,
 * reference-counted table whenever something changed. A name that cannot be resolved any more keeps its last
 * address: whether a worker answers there is found out by dialling it. Of several addresses the one that is
 * known already stays.
 */
#ifndef CELLGATE_AGENT_DIRECTORY_NAMES_H
#define CELLGATE_AGENT_DIRECTORY_NAMES_H

#include "spoa/agent/directory/name_table.h"
#include "spoa/net/dns.h"

struct names;

struct names_options {
    struct texts servers; /* name servers to ask, borrowed until names_stop; none: the system's */
    /* microseconds that a name is resolved on after names_use, or after it was last found in a table */
    uint64_t unused;
    size_t most; /* names beyond which no further one is resolved for that */
    /* It retains what it keeps, and is called again a second after it has returned false: out of memory. */
    bool (*changed)(void *context, struct name_table *table);
    /* The names that are wanted now were asked for once, and who was found is published. */
    void (*settled)(void *context);
    void *context;
};

/* NULL and *why when a server is no address, or out of memory. */
struct names *names_start(struct loop *loop, const struct names_options *options, struct fail *why);
/* Replaces the set of names to resolve. On the loop's thread. */
void names_want(struct names *names, char *const *hosts, size_t count);
/* One more name to resolve, and to keep resolved while it is asked for by this or found in the tables; for records of a
 * cache. Any thread, never waits. owner: whose share of `most` it takes, if nobody's is resolved already; no more than it leaves
 * free (spoa/base/table/fair.h). False when out of memory or too many are wanted. */
bool names_use(struct names *names, struct slice host, struct fair_owner owner);
/* Waits for no look-up. On the loop's thread, when nobody uses it any more. NULL is fine. */
void names_stop(struct names *names);

#endif
