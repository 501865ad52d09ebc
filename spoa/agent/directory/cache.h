/* SPDX-License-Identifier: MIT */
/*
 * directory_cache: what is known of a directory that is asked for one record at a time. It decides when what
 * is known may be served, when the directory is asked, and who is notified; I/O and time are its owner's.
 *
 * - A look-up is on its way for each key at most once, however many ask. Its key is not given up for others until it is
 *   answered. How many are on their way for what is unknown, and for records that nobody watches, is bounded: what is
 *   unknown is then unavailable at once.
 * - A record serves for `ttl` (ten times that while the directory pushes changes and none since can have been
 *   lost), and for a moment longer while it is looked up in the background. Later a decision has to wait for the look-up, unless the
 *   directory is known not to answer: then it serves until it is `stale`, and is unknown from then on.
 * - Absence is believed for a second, but see directory_cache_find_alike. Where a record was, and absence is doubt, the record serves 30 s more.
 * - A record whose epoch is lower than the last one's is ignored.
 * - What a watch uses (pinned) is looked up again by itself, and stays in memory. Where nobody waits for that, a few
 *   are at a time, whatever is due: the directory is asked for them in its own order, and who waits would be behind them.
 *
 * Any thread may call everything. Locks are striped by key and held only while pointers move: no system call,
 * no allocation and no callback happens under them.
 */
#ifndef CELLGATE_AGENT_DIRECTORY_CACHE_H
#define CELLGATE_AGENT_DIRECTORY_CACHE_H

#include "spoa/agent/model/shared_record.h"
#include "spoa/base/os/time.h"
#include "spoa/base/table/fair.h"

struct directory_cache;

enum directory_ask {
    ASK_BEGUN,
    ASK_CROWDED, /* the owner has as many look-ups on their way as it may; others may ask for the same */
    ASK_REFUSED  /* it cannot be asked now, by nobody */
};

struct directory_cache_options {
    size_t entries;      /* records kept, each 4 KiB on average at most; what has none is bounded besides */
    uint64_t ttl, stale; /* microseconds */
    uint64_t patience;   /* a look-up that takes longer hangs */
    bool absence_is_doubt;
    uint64_t (*clock)(void *context); /* microseconds, only forward, not 0 */
    /* Asks the directory on the owner's behalf; if that is ASK_BEGUN, directory_cache_answered or
     * directory_cache_unasked follows later. */
    enum directory_ask (*look_up)(void *context, struct slice key, struct fair_owner owner);
    /* Another owner waits for a look-up that is on its way. May be NULL. */
    void (*join)(void *context, struct slice key, struct fair_owner owner);
    /* A look-up that somebody waits for was answered, or what is known of a pinned key changed: of use to those whose
     * bits are set. */
    void (*notify)(void *context, struct slice key, uint64_t waiters);
    /* Something is to be looked up: directory_cache_work is to be called soon, not from here. */
    void (*work)(void *context);
    void *context;
};

#define DIRECTORY_CACHE_COUNTERS(X)                                                   \
    X(hits, "answered from memory")                                                   \
    X(stale, "answered with the last good record while the directory did not answer") \
    X(absent, "answered that there is none, from memory")                             \
    X(waits, "had to wait for a look-up")                                             \
    X(unavailable, "nothing was known and the directory did not answer")              \
    X(crowded, "not looked up because too many look-ups are on their way")            \
    X(look_ups, "look-ups begun")                                                     \
    X(found, "look-ups answered with a record")                                       \
    X(not_found, "look-ups answered that there is none")                              \
    X(failed, "look-ups not answered")                                                \
    X(pushed, "changes that the directory pushed and that were of use")               \
    X(behind, "records ignored because their epoch went back")                        \
    X(evicted, "entries given up for others")

struct directory_cache_counts {
#define X(field, help) uint64_t field;
    DIRECTORY_CACHE_COUNTERS(X)
#undef X
    size_t records, empty, pinned, bytes; /* now */
};

/* NULL when out of memory. */
struct directory_cache *directory_cache_new(const struct directory_cache_options *options);
void directory_cache_free(struct directory_cache *cache); /* NULL is fine */

/* ---- who asks ---- */

/* waiter: the bit by which `notify` names who asks; several may share one. owner: whose share a look-up takes; of what is in
 * use already it takes a share of that rank (spoa/base/table/fair.h). Hash 0: the record itself is the owner. */

/* FOUND: *box is the caller's to release. PENDING: `notify` follows when the look-up is answered. `last`: the
 * caller has waited enough: the last good record will do. */
enum lookup directory_cache_find(struct directory_cache *cache, struct slice key, bool last, uint64_t waiter,
                                 struct fair_owner owner, struct shared_record **box);
/* The same for somebody who has yet to prove that he may know: absence is believed for as long as a record would be,
 * looked up again when a record would be, and serves while the directory is away; and what others have learned of a
 * record is looked up once more. So neither the time of an answer nor the directory's own load tells whether there is a
 * record, or whether it is in use. */
enum lookup directory_cache_find_alike(struct directory_cache *cache, struct slice key, bool last,
                                       uint64_t waiter, struct fair_owner owner, struct shared_record **box);
/* Wants to know what the directory says now. True: `notify` follows. False: what is known is as fresh as can be
 * had. */
bool directory_cache_refresh(struct directory_cache *cache, struct slice key, uint64_t waiter,
                             struct fair_owner owner);
/* Counted: as many unpins follow. False when out of memory. */
bool directory_cache_pin(struct directory_cache *cache, struct slice key, uint64_t waiter);
void directory_cache_unpin(struct directory_cache *cache, struct slice key);
/* Whether a suspended sandbox is to be woken now: true once in five seconds. */
bool directory_cache_may_wake(struct directory_cache *cache, struct slice key);
/* It was not asked for: it may be asked for now. */
void directory_cache_not_woken(struct directory_cache *cache, struct slice key);

/* ---- what the directory says: as of directory/kind.h ---- */

#define DIRECTORY_CACHE_UNASKED UINT64_MAX
/* Returns how many microseconds the look-up took, or that none was on its way; ttl as of directory_answer. */
uint64_t directory_cache_answered(struct directory_cache *cache, struct slice key, enum lookup outcome,
                                  const struct record *record, uint64_t ttl);
/* The look-up ended before the directory was asked, as too many of its owner's wait. That says nothing of the record. */
void directory_cache_unasked(struct directory_cache *cache, struct slice key);
/* Whether it is of interest here; what is pushed of others is not kept. */
bool directory_cache_has(struct directory_cache *cache, struct slice key);
void directory_cache_changed(struct directory_cache *cache, struct slice key, const struct record *record);
void directory_cache_removed(struct directory_cache *cache, struct slice key);
void directory_cache_announced(struct directory_cache *cache, struct slice key);
void directory_cache_missed(struct directory_cache *cache);
void directory_cache_health(struct directory_cache *cache, bool answering, bool pushing);

/* ---- its owner ---- */

/* Looks up what is pinned and due. `urgent`: only what was announced; else all: call that some times in a
 * second. */
void directory_cache_work(struct directory_cache *cache, bool urgent);
struct directory_cache_counts directory_cache_counts(struct directory_cache *cache);

#endif
