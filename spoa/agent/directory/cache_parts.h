/* SPDX-License-Identifier: MIT */
/*
 * cache_parts: what the files of the cache share: cache.c (who asks), cache_look_ups.c (how good what is known is, and what is
 * looked up when), cache_answers.c (what the directory says).
 */
#ifndef CELLGATE_AGENT_DIRECTORY_CACHE_PARTS_H
#define CELLGATE_AGENT_DIRECTORY_CACHE_PARTS_H

#include <pthread.h>
#include <stdatomic.h>

#include "spoa/agent/directory/cache.h"
#include "spoa/agent/directory/table.h"
#include "spoa/base/table/hash.h"

enum {
    KEY_MAX = 255,
    TURNS = 32, /* refreshes at a time, as all that is watched may be due at once */
};

#define DOUBT (30 * SECOND)
#define RETRY_SOON \
    (100 * MILLISECOND) /* after a look-up that could not be begun, or while nobody is answered */

struct stripe {
    pthread_mutex_t lock;
    struct directory_table table;
    struct directory_cache_counts counts;
    bool urgent; /* a pinned entry was announced */
    bool behind; /* a pinned entry is due, but for which there was no turn yet */
} __attribute__((aligned(64)));

struct directory_cache {
    struct directory_cache_options options;
    struct hash_secret secret;
    atomic_bool answering, pushing;
    _Atomic uint64_t missed;       /* what was learned before is to be looked up again */
    _Atomic uint64_t usual;        /* for how long the last record said that it is good; 0: it did not */
    _Atomic uint64_t turns[TURNS]; /* when the refresh began that has this one; 0: none has */
    atomic_bool behind;            /* some stripe is */
    _Atomic size_t first;          /* the stripe that is worked first */
    uint64_t grace;                /* how long a record serves while it is looked up in the background */
    size_t mask;                   /* number of stripes less one */
    struct stripe stripes[];
};

/* An entry whose stripe is locked, and what has to be done when it is unlocked. */
struct locked_entry {
    struct directory_cache *cache;
    struct stripe *stripe;
    struct slice key;
    struct fair_owner owner; /* who asks */
    uint64_t hash;
    uint64_t now; /* read before locking: another thread may have stored a later time */
    struct directory_entry *entry;
    struct directory_entry *spare; /* to be freed */
    struct shared_record *box;     /* to be released */
};

static inline uint64_t cache_now(const struct directory_cache *c)
{
    return c->options.clock(c->options.context);
}

static inline bool cache_flag(const atomic_bool *atomic)
{
    return atomic_load_explicit(atomic, memory_order_relaxed);
}

/* ---- cache.c ---- */
/* h->stripe NULL, with nothing locked: this is no key. */
void cache_lock(struct locked_entry *h, struct directory_cache *c, struct slice key);
void cache_unlock(struct locked_entry *h);
/* Who is to be notified, and waits no longer. */
uint64_t cache_take_waiters(struct directory_entry *e, bool changed);

/* ---- cache_look_ups.c ---- */
/* When the directory confirmed what is known. Whether a record is in use is nothing for who has yet to prove that he may
 * know of it: what was confirmed to others counts for him as little as what is absent, of which there are no others. */
uint64_t cache_confirmed_at(const struct directory_entry *e, bool alike);
/* From when on it is to be looked up again. alike: absence when a record would be. */
uint64_t cache_due_at(const struct directory_cache *c, const struct directory_entry *e, bool alike);
/* Until when a record, or absence where it is treated alike, serves without anybody waiting. */
uint64_t cache_serves_until(const struct directory_cache *c, const struct directory_entry *e,
                            uint64_t confirmed);
/* Look-ups that began then or before will have no answer. */
uint64_t cache_lost_at(uint64_t now);
bool cache_in_flight(const struct directory_entry *e, uint64_t now);
/* Whether the caller is to call cache_look_up when it has unlocked the entry. */
bool cache_begin(struct locked_entry *h);
/* The owner of a look-up of this entry: of what somebody uses it counts as that, but for those who have yet to prove that they
 * may know of it. */
struct fair_owner cache_owner(const struct locked_entry *h, bool alike);
/* Returns false if the directory could not be asked, which the entry knows then. */
bool cache_look_up(struct directory_cache *c, struct slice key, struct fair_owner owner);
/* A look-up has ended. Whether somebody is behind who can have its turn. */
bool cache_give_turn_back(struct locked_entry *h);

#endif
