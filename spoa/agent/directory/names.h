/* SPDX-License-Identifier: MIT */
/*
 * names: the addresses of workers that records name instead of giving a literal. A thread of its own asks for
 * all of them (dns.h), again when their time to live is over (1 to 30 s), and publishes an immutable,
 * reference-counted table whenever something changed. A name that cannot be resolved any more keeps its last
 * address: whether a worker answers there is found out by dialling it. Of several addresses the one that is
 * known already stays.
 */
#ifndef CELLGATE_AGENT_DIRECTORY_NAMES_H
#define CELLGATE_AGENT_DIRECTORY_NAMES_H

#include <time.h>

#include "spoa/agent/directory/name_table.h"
#include "spoa/agent/directory/records.h"
#include "spoa/service/options.h"

struct names;
/* `changed` is called by the resolver's thread; it retains what it keeps, and is called again a second after it has
 * returned false, which it does when out of memory. unused: seconds that a name is resolved on after names_use, or after
 * it was last found in a table; most: names beyond which no further one is resolved for that. servers: name servers to
 * ask, borrowed for the call; none: the system's. NULL and *why when there is no thread, or one of them is no address. */
struct names *names_start(const struct texts *servers, double unused, size_t most,
                          bool (*changed)(void *context, struct name_table *table), void *context,
                          struct fail *why);
/* Replaces the set of names to resolve by those of the records (NULL: none); any thread. False when out of memory. */
bool names_want(struct names *names, const struct records *records);
/* One more name to resolve, and to keep resolved while it is asked for by this or found in the tables; for records of a
 * cache. Any thread, never waits for the resolver. False when out of memory or too many are wanted. */
bool names_use(struct names *names, struct slice host);
/* Waits until the names that are wanted now were asked for once, at most until then (CLOCK_MONOTONIC). */
void names_await(struct names *names, const struct timespec *until);
/* Ends the thread; waits for no look-up. */
void names_stop(struct names *names);

#endif
