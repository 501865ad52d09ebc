/* SPDX-License-Identifier: MIT */
/*
 * cache_parts: what the files of the cache share. cache.c serves decisions, cache_look_ups.c decides how long something is good and
 * when it is looked up, cache_answers.c applies what the directory reports.
 */
#ifndef CELLGATE_AGENT_DIRECTORY_CACHE_PARTS_H
#define CELLGATE_AGENT_DIRECTORY_CACHE_PARTS_H

#include <pthread.h>
#include <stdatomic.h>

#include "spoa/agent/directory/cache.h"
#include "spoa/agent/directory/table.h"
#include "spoa/base/table/hash.h"

enum {
    KEY_MAX = 255,      /* maximum length of a key [bytes] */
    REFRESH_SLOTS = 32, /* maximum number of refreshes in flight; all pinned entries may be due at once */
};

#define DOUBT (30 * SECOND) /* time that a record serves after the first denial */
/* Pause after a look-up that could not begin, or while nobody gets an answer. */
#define RETRY_SOON (100 * MILLISECOND)

/* A part of the cache with a lock of its own. */
struct stripe {
    pthread_mutex_t lock;
    struct directory_table table;
    struct directory_cache_counts counts;
    bool urgent; /* a pinned entry was announced */
    bool due;    /* a pinned entry is due, but had no refresh slot yet */
} __attribute__((aligned(64)));

/* Invariant: stripes are chosen by bits of the keyed hash that the table does not use. Fields without a comment are set once. */
struct directory_cache {
    struct directory_cache_options options;
    struct hash_secret secret;
    atomic_bool answering, pushing; /* as last reported by directory_cache_health */
    /* Last time when pushes may have been lost: entries learned before are looked up again. */
    _Atomic uint64_t missed;
    /* Lifetime that the last record stated, or 0; absence gets it too, because absence states none. */
    _Atomic uint64_t usual;
    _Atomic uint64_t slots[REFRESH_SLOTS]; /* start of the refresh that holds the slot, or 0 */
    atomic_bool slot_wanted;               /* a due entry waits for a free slot */
    _Atomic size_t first;                  /* the stripe that the next directory_cache_work begins with */
    uint64_t grace; /* time that a record serves while it is looked up in the background */
    size_t mask;    /* number of stripes less one */
    struct stripe stripes[];
};

/* One entry with its stripe locked, and what cache_unlock has to free. */
struct locked_entry {
    struct directory_cache *cache;
    struct stripe *stripe; /* NULL if the key is not valid: nothing is locked then */
    struct slice key;
    struct fair_owner owner; /* on whose behalf; not set by cache_lock */
    uint64_t hash;
    uint64_t now;                  /* read before locking, so another thread may have stored a later time */
    struct directory_entry *entry; /* NULL if the table has none */
    struct directory_entry *spare; /* an entry that was not needed, or NULL */
    struct shared_record *box;     /* a replaced record, or NULL */
};

/* Returns the present time of the cache's clock. */
static inline uint64_t cache_now(const struct directory_cache *c)
{
    return c->options.clock(c->options.context);
}

/* Reads a flag that orders no other memory. */
static inline bool cache_flag(const atomic_bool *atomic)
{
    return atomic_load_explicit(atomic, memory_order_relaxed);
}

/* ---- cache.c ---- */
/* Locks the stripe of `key` and finds the entry. An invalid key locks nothing and leaves h->stripe NULL. */
void cache_lock(struct locked_entry *h, struct directory_cache *c, struct slice key);
/* Evicts what exceeds the limits, unlocks, and frees `spare`, `box` and the evicted entries. */
void cache_unlock(struct locked_entry *h);
/* Returns the bits of the callers to notify: those that wait, and the watches if the entry changed. Nobody waits afterwards. */
uint64_t cache_take_waiters(struct directory_entry *e, bool changed);

/* ---- cache_look_ups.c ---- */
/* Returns when the directory last confirmed the entry. `alike`: for an unauthenticated caller, for whom a confirmation counts
 * only if such a caller waited for it; otherwise the time of an answer would tell whether somebody else uses the record. */
uint64_t cache_confirmed_at(const struct directory_entry *e, bool alike);
/* Returns the time from which on the entry needs a look-up. `alike`: absence lasts as long as a record. */
uint64_t cache_due_at(const struct directory_cache *c, const struct directory_entry *e, bool alike);
/* Returns the time until which the entry serves without a decision waiting for a look-up. */
uint64_t cache_serves_until(const struct directory_cache *c, const struct directory_entry *e,
                            uint64_t confirmed);
/* Returns the start of the latest look-up that counts as lost at `now`: it will have no answer. */
uint64_t cache_lost_at(uint64_t now);
/* Returns whether a look-up is in flight that may still be answered. */
bool cache_in_flight(const struct directory_entry *e, uint64_t now);
/* Marks a look-up as begun. Returns false if none may begin; after true the caller must unlock and then call cache_look_up. */
bool cache_begin(struct locked_entry *h) MUST_CHECK;
/* Returns the owner to charge for a look-up of this entry: with rank FAIR_IN_USE if somebody uses the entry already, but not for an
 * unauthenticated caller (`alike`). */
struct fair_owner cache_owner(const struct locked_entry *h, bool alike);
/* Asks the directory. Call with nothing locked. Returns false if that failed; the entry is updated and waiters are notified then. */
bool cache_look_up(struct directory_cache *c, struct slice key, struct fair_owner owner) MUST_CHECK;
/* Frees the refresh slot of a look-up that ended. Returns whether another entry waits for a slot. */
bool cache_return_slot(struct locked_entry *h);

#endif
