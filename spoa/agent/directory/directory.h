/* SPDX-License-Identifier: MIT */
/*
 * directory: a running directory: a kind (kind.h), the cache of a kind that looks up single records, and the queues of
 * questions between the two. Counted by reference, because decisions may still read the cache of a stopped directory.
 */
#ifndef CELLGATE_AGENT_DIRECTORY_DIRECTORY_H
#define CELLGATE_AGENT_DIRECTORY_DIRECTORY_H

#include "spoa/agent/directory/cache.h"
#include "spoa/agent/directory/options.h"

/* Call-backs of whoever runs the directory. All of them run on the loop's thread, but `notify` also on the thread of a caller of the
 * cache. None may block. The parameters are those of the function of kind.h with the same name. */
struct directory_owner {
    bool (*loaded)(void *context, const struct directory_load *load);
    /* Revokes all tokens issued before `not_before` (Unix seconds). Returns false if memory is short. */
    bool (*revoked)(void *context, int64_t not_before);
    bool (*revoked_tokens)(void *context, struct slice text, bool all, struct fail *why);
    /* Called when `answering` or `pushing` changes, and once when they are first known; a kind that holds all records also calls
     * it after each failed load. */
    void (*health)(void *context, bool answering, bool pushing, const char *why);
    /* Called before the record enters the cache. A pushed record without a place in the cache is not reported. */
    void (*learned)(void *context, const struct record *record);
    /* Called when a look-up was answered; `took` is its duration [µs]. */
    void (*answered)(void *context, enum lookup outcome, uint64_t took);
    /* See struct directory_cache_options. */
    void (*notify)(void *context, struct slice key, uint64_t waiters);
    void *context;
};

/* Starts a directory on the loop's thread. The directory takes a reference of its own to `options`; `patience` is the time (in µs)
 * that a decision waits for a look-up. Returns NULL with *why if memory or descriptors are short. */
struct directory *directory_start(struct directory_options *options, const struct directory_owner *owner,
                                  uint64_t patience, struct loop *loop, struct log *log, struct fail *why)
    MUST_CHECK;
/* Stops the directory, on the loop's thread: no call-back of the owner is called any more, and no question is sent. The loop must
 * live until the last reference is released. `directory` may be NULL. */
void directory_stop(struct directory *directory);

/* Fills in the counters of a directory that follows changes, on the loop's thread. Returns false if its kind counts nothing. */
bool directory_counts(const struct directory *directory, uint64_t counts[DIRECTORY_FOLLOWED]);

/* ---- any thread ---- */
/* Take and drop a reference. Whoever drops the last one must have stopped the directory before; NULL may be released. */

struct directory *directory_retain(struct directory *directory);
void directory_release(struct directory *directory);

const struct directory_kind *directory_kind(const struct directory *directory);
/* Returns the cache of the directory, or NULL if the kind holds all records itself. */
struct directory_cache *directory_cache(const struct directory *directory);
/* Returns whether suspended sandboxes can be woken through this directory. */
bool directory_can_wake(const struct directory *directory);
/* Asks the directory to wake the sandbox `key`, at most once in five seconds for each key. `owner`: see directory/cache.h. */
void directory_wake(struct directory *directory, struct slice key, struct fair_owner owner);

#endif
