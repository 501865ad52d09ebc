/* SPDX-License-Identifier: MIT */
/*
 * directory: a directory that runs: its kind, the cache of one that is asked for each record, and the questions between
 * the two. Counted by reference, as decisions may still read the cache of one that was stopped.
 */
#ifndef CELLGATE_AGENT_DIRECTORY_DIRECTORY_H
#define CELLGATE_AGENT_DIRECTORY_DIRECTORY_H

#include "spoa/agent/directory/cache.h"
#include "spoa/agent/directory/options.h"

/* Called on the loop's thread, but `notify` also by who asks; none blocks. As of kind.h, where there is nothing else. */
struct directory_owner {
    bool (*loaded)(void *context, const struct directory_load *load);
    bool (*revoked)(void *context, int64_t not_before);
    bool (*revoked_tokens)(void *context, struct slice text, bool all, struct fail *why);
    /* When either changes, and once when the first is known; of a kind that holds all for each load that failed. */
    void (*health)(void *context, bool answering, bool pushing, const char *why);
    /* Before the record is in the cache; of those that are pushed only what has a place there. */
    void (*learned)(void *context, const struct record *record);
    /* A look-up was answered after so many seconds. */
    void (*answered)(void *context, enum lookup outcome, uint64_t took);
    /* As of struct directory_cache_options. */
    void (*notify)(void *context, struct slice key, uint64_t waiters);
    void *context;
};

/* Takes a reference of its own to options. patience: microseconds that a decision waits for a look-up. On the loop's
 * thread, as directory_stop is. NULL and *why. */
struct directory *directory_start(struct directory_options *options, const struct directory_owner *owner,
                                  uint64_t patience, struct loop *loop, struct log *log, struct fail *why);
/* The owner is not called any more, and nothing is asked. NULL is fine. The loop lives until nobody asks any more. */
void directory_stop(struct directory *directory);

/* Of the thread that starts and stops it. False: its kind has nothing to count. */
bool directory_counts(const struct directory *directory, uint64_t counts[DIRECTORY_FOLLOWED]);

/* ---- any thread ---- */

struct directory *directory_retain(struct directory *directory);
void directory_release(struct directory *directory); /* stopped; NULL is fine */

const struct directory_kind *directory_kind(const struct directory *directory);
/* NULL: the kind holds all records itself. */
struct directory_cache *directory_cache(const struct directory *directory);
/* False: suspended sandboxes are not woken here. */
bool directory_can_wake(const struct directory *directory);
/* At most once in some seconds for each key. owner: as of directory/cache.h. */
void directory_wake(struct directory *directory, struct slice key, struct fair_owner owner);

#endif
