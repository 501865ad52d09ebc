/* SPDX-License-Identifier: MIT */
/*
 * names: resolves the workers that records name instead of giving an address. Names are asked for on a loop (dns.h), and again
 * when their time to live is over (1 to 30 s). Whenever an address changes, an immutable table is published. A name that cannot be
 * resolved any more keeps its last address, because dialling shows whether a worker still answers there. If a name has
 * several addresses, a known one is kept.
 */
#ifndef CELLGATE_AGENT_DIRECTORY_NAMES_H
#define CELLGATE_AGENT_DIRECTORY_NAMES_H

#include "spoa/agent/directory/name_table.h"
#include "spoa/net/dns.h"

struct names;

struct names_options {
    struct texts servers; /* name servers to ask, borrowed until names_stop; empty: the system's */
    uint64_t unused; /* time that a name stays resolved after names_use or its last use from a table [µs] */
    size_t max_used; /* maximum number of names that are resolved because of names_use */
    /* Publishes a new table; retain it to keep it. Returns false if memory is short, and is then called again a second later. */
    bool (*changed)(void *context, struct name_table *table);
    /* Reports that each name of the last names_want had its first look-up, and that the addresses found are published. */
    void (*settled)(void *context);
    void *context;
};

/* Starts to resolve names on `loop`. Returns NULL with *why if a server is not an address or memory is short. */
struct names *names_start(struct loop *loop, const struct names_options *options, struct fail *why)
    MUST_CHECK;
/* Replaces the set of names that are always resolved (those of a directory that holds all records), on the loop's thread. */
void names_want(struct names *names, char *const *hosts, size_t count);
/* Asks for one more name to be resolved, for a record of a cache; it stays resolved while it is used. Any thread may call this, and it
 * never waits. `owner` is charged for a name that nobody uses yet (spoa/base/table/fair.h). Returns false if memory is short or too
 * many names are wanted; the caller may try again with its next request. */
bool names_use(struct names *names, struct slice host, struct fair_owner owner);
/* Stops and frees everything without waiting for look-ups, on the loop's thread. No other thread may use `names` any more. NULL is
 * fine. */
void names_stop(struct names *names);

#endif
