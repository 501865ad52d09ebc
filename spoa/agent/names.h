/* SPDX-License-Identifier: MIT */
/*
 * names: the addresses of workers that records name instead of giving a literal. A thread of its own asks the
 * system's resolver (which may block for many seconds), again every 30 s, and publishes an immutable,
 * reference-counted table whenever something changed. A name that cannot be resolved any more keeps its last
 * address: whether a worker answers there is found out by dialling it.
 */
#ifndef CELLGATE_AGENT_NAMES_H
#define CELLGATE_AGENT_NAMES_H

#include <time.h>

#include "spoa/agent/records.h"

struct name_table;

struct name_table *name_table_retain(struct name_table *table);
void name_table_release(struct name_table *table); /* NULL is fine */
/* False: the name is not (yet) resolved. table may be NULL. */
bool name_table_find(const struct name_table *table, struct slice name, struct address *addr);

struct names;
/* `changed` is called by the resolver's thread; it retains what it keeps. NULL and *why when there is no
 * thread. */
struct names *names_start(void (*changed)(void *context, struct name_table *table), void *context,
                          struct fail *why);
/* Replaces the set of names to resolve by those of the records; any thread. False when out of memory. */
bool names_want(struct names *names, const struct records *records);
/* One more name to resolve, and to keep resolved until it was not asked for by this for 10 minutes; for records
 * of a cache. Any thread, never waits for the resolver. False when out of memory or too many are wanted. */
bool names_use(struct names *names, struct slice host);
/* Waits until the names that are wanted now were asked for once, at most until then (CLOCK_MONOTONIC). */
void names_await(struct names *names, const struct timespec *until);
/* Ends the thread. A look-up that hangs is waited for at most as long as the resolver's own patience. */
void names_stop(struct names *names);

#endif
