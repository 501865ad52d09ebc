/* SPDX-License-Identifier: MIT */
/*
 * directory: a directory that runs: its kind, and the cache of one that is asked for each record. Counted by
 * reference, as decisions may still read the cache of one that was stopped.
 */
#ifndef CELLGATE_AGENT_DIRECTORY_DIRECTORY_H
#define CELLGATE_AGENT_DIRECTORY_DIRECTORY_H

#include "spoa/agent/directory/cache.h"
#include "spoa/agent/directory/options.h"

struct directory;

/* Called by threads of the directory or by who asks it; none blocks. */
struct directory_owner {
    /* As of struct directory_sink. */
    bool (*loaded)(void *context, const struct directory_load *load);
    bool (*revoked)(void *context, int64_t not_before);
    bool (*revoked_tokens)(void *context, struct slice text, bool all, struct fail *why);
    void (*health)(void *context, bool answering, bool pushing, const char *why);
    /* Before the record is in the cache; of those that are pushed only what has a place there. */
    void (*learned)(void *context, const struct record *record);
    /* A look-up was answered after so many seconds. */
    void (*answered)(void *context, enum lookup outcome, double seconds);
    /* As of struct directory_cache_options. */
    void (*news)(void *context, struct slice key);
    void (*work)(void *context);
    void *context;
};

/* Takes a reference of its own to options. patience: microseconds that a decision waits for a look-up. NULL
 * and *why. */
struct directory *directory_start(struct directory_options *options, const struct directory_owner *owner,
                                  uint64_t patience, struct log *log, struct fail *why);
/* Ends its threads: the owner is not called any more, and nothing is asked. NULL is fine. */
void directory_stop(struct directory *directory);
struct directory *directory_retain(struct directory *directory);
void directory_release(struct directory *directory); /* stopped; NULL is fine */

const struct directory_kind *directory_kind(const struct directory *directory);
/* NULL: the kind holds all records itself. */
struct directory_cache *directory_cache(const struct directory *directory);
/* False: suspended sandboxes are not woken here. */
bool directory_can_wake(const struct directory *directory);
/* At most once in some seconds for each key. */
void directory_wake(struct directory *directory, struct slice key);

#endif
