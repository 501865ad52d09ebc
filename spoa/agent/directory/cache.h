/* SPDX-License-Identifier: MIT */
/*
 * directory_cache: the records of a directory that looks up one record at a time. The cache decides when a record may be
 * served, when the directory is asked and who is notified; its owner does the I/O and provides the clock.
 *
 * - At most one look-up is in flight for each key, however many callers wait for it, and its entry is not evicted until it is
 *   answered. The number of look-ups in flight for unknown keys, and for records without a watch, is bounded; beyond it an unknown
 *   key is LOOKUP_UNAVAILABLE at once.
 * - A record serves for `ttl`, or for ten times `ttl` while the directory pushes changes and none can have been lost since. It
 *   serves a moment longer while it is looked up in the background. After that a decision waits for the look-up, unless the
 *   directory is known not to answer: then the record serves until it is `stale`, and is unknown from then on.
 * - Absence is believed for one second (see directory_cache_find_alike for the exception). If absence_is_doubt is set, a known
 *   record serves 30 s longer than the first denial.
 * - A record whose epoch is lower than the last one's is ignored.
 * - A pinned record (one that a watch uses) stays in memory, and the cache refreshes it without being asked. Only a few such
 *   refreshes are in flight at a time, however many are due: the directory answers in its own order, and decisions that wait
 *   would queue after all of them.
 *
 * Any thread may call any function. Locks are striped by key and held only while pointers move: no system call, allocation or
 * call-back happens under a lock.
 */
#ifndef CELLGATE_AGENT_DIRECTORY_CACHE_H
#define CELLGATE_AGENT_DIRECTORY_CACHE_H

#include "spoa/agent/model/shared_record.h"
#include "spoa/base/os/time.h"
#include "spoa/base/table/fair.h"

struct directory_cache;

/* Result of struct directory_cache_options.look_up. */
enum directory_ask {
    ASK_BEGUN,   /* the question is queued */
    ASK_CROWDED, /* this owner has too many look-ups pending; another owner may succeed */
    ASK_REFUSED  /* the directory cannot be asked by anybody at the moment */
};

struct directory_cache_options {
    size_t entries; /* maximum number of records, 4 KiB each on average; others have a bound of their own */
    uint64_t ttl;   /* default lifetime of a record [µs] */
    uint64_t stale; /* time that a record still serves while the directory does not answer [µs] */
    uint64_t patience;     /* after this time a look-up counts as hanging, and a known record serves [µs] */
    bool absence_is_doubt; /* see above */
    uint64_t (*clock)(void *context); /* monotonic time [µs], never 0 */
    /* Asks the directory on behalf of `owner`. After ASK_BEGUN the owner of the cache must call directory_cache_answered or
     * directory_cache_unasked, later and not from here. */
    enum directory_ask (*look_up)(void *context, struct slice key, struct fair_owner owner);
    /* Reports that another owner waits for a look-up in flight. May be NULL. */
    void (*join)(void *context, struct slice key, struct fair_owner owner);
    /* Reports that a look-up which somebody waits for was answered, or that a pinned key changed. `waiters` has the bits of all
     * callers that need to know. */
    void (*notify)(void *context, struct slice key, uint64_t waiters);
    /* Asks the owner to call directory_cache_work soon, but not from here. */
    void (*work)(void *context);
    void *context;
};

#define DIRECTORY_CACHE_COUNTERS(X)                                                   \
    X(hits, "answered from memory")                                                   \
    X(stale, "answered with the last good record while the directory did not answer") \
    X(absent, "answered from memory that there is no record")                         \
    X(waits, "had to wait for a look-up")                                             \
    X(unavailable, "nothing was known and the directory did not answer")              \
    X(crowded, "not looked up because too many look-ups are on their way")            \
    X(look_ups, "look-ups begun")                                                     \
    X(found, "look-ups answered with a record")                                       \
    X(not_found, "look-ups answered that there is none")                              \
    X(failed, "look-ups not answered")                                                \
    X(pushed, "pushed changes of keys that the cache holds")                          \
    X(behind, "records ignored because their epoch went back")                        \
    X(evicted, "entries evicted to make room")

/* Totals since the start, and the present state of the cache. */
struct directory_cache_counts {
#define X(field, help) uint64_t field;
    DIRECTORY_CACHE_COUNTERS(X)
#undef X
    size_t records, empty, pinned; /* number of entries now: with a record, without, in use by a watch */
    size_t bytes;                  /* memory of all entries now */
};

/* Returns a new cache, or NULL if memory is short. The options are copied. */
struct directory_cache *directory_cache_new(const struct directory_cache_options *options) MUST_CHECK;
/* Frees the cache, which no other thread may use any more; NULL is fine. */
void directory_cache_free(struct directory_cache *cache);

/* ---- decisions ---- */

/* `waiter` is the bit by which `notify` names the caller; several callers may share one. `owner` is charged for the look-up; for a
 * key that is in use already its share of rank FAIR_IN_USE is charged (spoa/base/table/fair.h). If its hash is 0, the record is an
 * owner of its own. */

/* Looks up `key`. FOUND: *box is the record, for the caller to release. PENDING: `notify` follows when the look-up is answered.
 * ABSENT: the directory has no such record. UNAVAILABLE: nothing is known and the directory does not answer. Set `last` if
 * the caller has waited long enough: then the last good record is returned, if there is one. */
enum lookup directory_cache_find(struct directory_cache *cache, struct slice key, bool last, uint64_t waiter,
                                 struct fair_owner owner, struct shared_record **box);
/* Like directory_cache_find, for an unauthenticated caller, who must not learn whether a record exists or is in use, neither from the
 * duration of an answer nor from the load of the directory. Therefore an absent key is treated like a present one: absence is
 * believed and refreshed as a record would be, and serves while the directory does not answer; and a record that
 * only authenticated callers have looked up so far is looked up once more. */
enum lookup directory_cache_find_alike(struct directory_cache *cache, struct slice key, bool last,
                                       uint64_t waiter, struct fair_owner owner, struct shared_record **box);
/* Asks for the present record. Returns true if `notify` follows, false if the entry is as fresh as it can be. */
bool directory_cache_refresh(struct directory_cache *cache, struct slice key, uint64_t waiter,
                             struct fair_owner owner);
/* Marks the entry as used by a watch. Each successful call must be followed by one directory_cache_unpin. Returns false if memory is
 * short. */
bool directory_cache_pin(struct directory_cache *cache, struct slice key, uint64_t waiter) MUST_CHECK;
/* Undoes one directory_cache_pin. */
void directory_cache_unpin(struct directory_cache *cache, struct slice key);
/* Returns true at most once in five seconds for each key: a wake of the suspended sandbox may then be asked for. */
bool directory_cache_may_wake(struct directory_cache *cache, struct slice key);
/* Takes back the last directory_cache_may_wake, because the wake could not be asked for. */
void directory_cache_not_woken(struct directory_cache *cache, struct slice key);

/* ---- the directory ---- */

#define DIRECTORY_CACHE_UNASKED UINT64_MAX
/* Applies the answer of a look-up; parameters as of directory_answer (kind.h). Returns the duration of the look-up [µs], or
 * DIRECTORY_CACHE_UNASKED if none was in flight. */
uint64_t directory_cache_answered(struct directory_cache *cache, struct slice key, enum lookup outcome,
                                  const struct record *record, uint64_t ttl);
/* Ends a look-up that never reached the directory, because its owner has too many pending. The entry is
 * unchanged. */
void directory_cache_unasked(struct directory_cache *cache, struct slice key);
/* Returns whether the cache has an entry for `key`; pushed records of other keys are dropped. */
bool directory_cache_has(struct directory_cache *cache, struct slice key);
/* The reports of kind.h of the same names. */
void directory_cache_changed(struct directory_cache *cache, struct slice key, const struct record *record);
void directory_cache_removed(struct directory_cache *cache, struct slice key);
void directory_cache_announced(struct directory_cache *cache, struct slice key);
void directory_cache_missed(struct directory_cache *cache);
void directory_cache_health(struct directory_cache *cache, bool answering, bool pushing);

/* ---- the owner of the cache ---- */

/* Begins look-ups for pinned entries: only for those that were announced if `urgent`, otherwise for all that are due. Call it
 * several times in a second with `urgent` false. */
void directory_cache_work(struct directory_cache *cache, bool urgent);
/* Returns the sums over all stripes. */
struct directory_cache_counts directory_cache_counts(struct directory_cache *cache);

#endif
