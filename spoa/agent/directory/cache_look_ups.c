/* SPDX-License-Identifier: MIT */
/* Decides which entries of the cache are looked up and when: freshness, refresh slots, and the work that the owner calls for. */
#include "spoa/agent/directory/cache_parts.h"

enum {
    BATCH = 32,         /* keys that are looked up between two holds of a stripe's lock */
    PUSHED_FACTOR = 10, /* factor of a record's lifetime while the directory pushes changes */
};

#define ABSENT_FOR SECOND        /* time that absence is believed */
#define LOST       (60 * SECOND) /* a look-up without an answer after this time never gets one */
#define HANGS      SECOND        /* a refresh that takes longer loses its slot to others */

/* ---- freshness ---- */

/* Returns whether pushes may have been lost after `confirmed`; one of them may have been about this entry. */
static bool missed_since(const struct directory_cache *c, uint64_t confirmed)
{
    return confirmed < atomic_load_explicit(&c->missed, memory_order_relaxed);
}

/* Returns the lifetime of what was learned at `confirmed`, which is cache_confirmed_at of the caller's kind. */
static uint64_t good_for(const struct directory_cache *c, const struct directory_entry *e, uint64_t confirmed)
{
    uint64_t said = e->box ? e->good_for : atomic_load_explicit(&c->usual, memory_order_relaxed);
    if (said)
        return said;
    return cache_flag(&c->pushing) && !missed_since(c, confirmed) ? c->options.ttl * PUSHED_FACTOR
                                                                  : c->options.ttl;
}

uint64_t cache_confirmed_at(const struct directory_entry *e, bool alike)
{
    return alike ? e->shown : e->learned;
}

uint64_t cache_due_at(const struct directory_cache *c, const struct directory_entry *e, bool alike)
{
    uint64_t confirmed = cache_confirmed_at(e, alike);
    if (e->outdated || missed_since(c, confirmed))
        return 0;
    if (e->doubt_since)
        return e->doubted + ABSENT_FOR;
    if (e->absent && !alike)
        return e->learned + ABSENT_FOR;
    return confirmed ? confirmed + good_for(c, e, confirmed) : 0;
}

uint64_t cache_serves_until(const struct directory_cache *c, const struct directory_entry *e,
                            uint64_t confirmed)
{
    if (e->outdated)
        return 0; /* in doubt, too: the directory announced a change */
    return e->doubt_since ? e->doubt_since + DOUBT : confirmed + good_for(c, e, confirmed) + c->grace;
}

/* ---- the begin and the end of a look-up ---- */
uint64_t cache_lost_at(uint64_t now)
{
    return now > LOST ? now - LOST : 0;
}

bool cache_in_flight(const struct directory_entry *e, uint64_t now)
{
    return e->asked && e->asked_at > cache_lost_at(now);
}

static bool may_look_up(const struct locked_entry *h)
{
    return !cache_in_flight(h->entry, h->now) && h->now >= h->entry->retry_at;
}

bool cache_begin(struct locked_entry *h)
{
    struct directory_entry *e = h->entry;
    if (!may_look_up(h))
        return false;
    if (directory_table_crowded(&h->stripe->table, e, cache_lost_at(h->now))) {
        h->stripe->counts.crowded++;
        return false;
    }
    directory_table_asked(&h->stripe->table, e, true);
    e->again = e->overtaken = false; /* flags of a look-up that never began or was never answered */
    e->slot = 0;
    e->asked_at = h->now;
    h->stripe->counts.look_ups++;
    return true;
}

/* ---- refresh slots: an entry that a decision waits for must not queue after all that is refreshed ---- */

/* Takes a free slot. Returns its number, from 1 on, or 0 if all are taken. */
static uint8_t free_slot(struct directory_cache *c, uint64_t now)
{
    for (unsigned i = 0; i < REFRESH_SLOTS; i++) {
        uint64_t begun = atomic_load(&c->slots[i]);
        if ((!begun || begun + HANGS <= now) && atomic_compare_exchange_strong(&c->slots[i], &begun, now))
            return (uint8_t)(i + 1);
    }
    return 0;
}

/* Takes a slot like free_slot, and otherwise asks whoever returns one to call for more work. */
static uint8_t take_slot(struct directory_cache *c, uint64_t now)
{
    uint8_t slot = free_slot(c, now);
    if (slot)
        return slot;
    /* a slot that is returned before this store is seen only by another attempt */
    atomic_store(&c->slot_wanted, true);
    return free_slot(c, now);
}

bool cache_return_slot(struct locked_entry *h)
{
    struct directory_entry *e = h->entry;
    struct directory_cache *c = h->cache;
    uint64_t begun = e->asked_at; /* differs if the refresh hung and another one has taken the slot */
    bool returned = e->slot && atomic_compare_exchange_strong(&c->slots[e->slot - 1], &begun, 0);
    e->slot = 0;
    return returned && atomic_load(&c->slot_wanted) && cache_flag(&c->answering);
}

struct fair_owner cache_owner(const struct locked_entry *h, bool alike)
{
    const struct directory_entry *e = h->entry;
    bool used = !alike && (e->box || e->pins);
    return (struct fair_owner){.hash = h->owner.hash ? h->owner.hash : e->hash,
                               .rank = used ? FAIR_IN_USE : h->owner.rank};
}

/* Undoes cache_begin for a look-up that the directory did not get. `refused`: the directory cannot be asked by anybody, so the entry is
 * unavailable for a moment. Otherwise only this owner has too many pending, and whoever waits may ask again. */
static void not_begun(struct directory_cache *c, struct slice key, bool refused)
{
    struct locked_entry h;
    uint64_t waiters = 0;
    cache_lock(&h, c, key);
    if (!h.stripe)
        return;
    if (h.entry) {
        waiters = cache_take_waiters(h.entry, false);
        directory_table_asked(&h.stripe->table, h.entry, false);
        (void)cache_return_slot(&h);
        h.entry->again = h.entry->overtaken = h.entry->unproven = false;
        h.entry->unavailable = h.entry->unavailable || refused;
        h.entry->retry_at = refused ? h.now + RETRY_SOON : h.entry->retry_at;
    }
    h.stripe->counts.failed += refused;
    h.stripe->counts.crowded += !refused;
    cache_unlock(&h);
    if (waiters)
        c->options.notify(c->options.context, key, waiters);
}

bool cache_look_up(struct directory_cache *c, struct slice key, struct fair_owner owner)
{
    enum directory_ask asked = c->options.look_up(c->options.context, key, owner);
    if (asked != ASK_BEGUN)
        not_begun(c, key, asked == ASK_REFUSED);
    return asked == ASK_BEGUN;
}

void directory_cache_unasked(struct directory_cache *c, struct slice key)
{
    not_begun(c, key, false);
}

/* ---- work for the owner of the cache ---- */

/* State of one directory_cache_work. */
struct batch {
    bool all;     /* set: look up all due entries; clear: announced ones, and due ones that had no slot */
    bool room;    /* a refresh slot may be free */
    bool taken;   /* a refresh took one */
    size_t first; /* the stripe that had the first choice of slots */
    size_t count; /* of keys */
    struct {
        struct fair_owner owner;
        uint8_t len;
        uint8_t bytes[KEY_MAX];
    } keys[BATCH];
};

/* Returns by how much a pinned entry is looked up before it is due: up to a quarter of its lifetime, by its hash. Entries that were
 * learned together, as after an outage, would otherwise stay due together for ever, and all other look-ups would queue after them. */
static uint64_t early(const struct directory_cache *c, const struct directory_entry *e)
{
    bool good = e->box && !e->doubt_since;
    return good ? good_for(c, e, e->learned) / 1024 * (e->hash >> 56)
                : 0; /* stripe and bucket use the other bits */
}

/* Begins the look-up of a pinned entry that is due; returns whether it did. An entry that was announced or is unknown needs no refresh
 * slot, because somebody waits for it. Without a free slot the next directory_cache_work begins with a stripe that had none: the
 * one after this stripe, if this one had the first choice, otherwise this one. */

static bool begin_due(struct locked_entry *h, struct batch *batch)
{
    struct directory_cache *c = h->cache;
    struct directory_entry *e = h->entry;
    bool refresh = (e->box || e->absent) && !e->outdated;
    if (!may_look_up(h))
        return false;
    uint8_t slot = refresh && batch->room ? take_slot(c, h->now) : 0;
    if (refresh && !slot) {
        size_t at = (size_t)(h->stripe - c->stripes);
        if (at == batch->first && batch->taken)
            at = (at + 1) & c->mask;
        if (batch->room)
            atomic_store_explicit(&c->first, at, memory_order_relaxed);
        batch->room = false;
        h->stripe->due = true;
        return false;
    }
    if (!cache_begin(h))
        return false;
    e->slot = slot;
    batch->taken = batch->taken || slot;
    directory_table_touch(&h->stripe->table, e); /* the last one of the list, for the next time */
    return true;
}

/* Begins look-ups of pinned entries that are due, and copies their keys to the batch; at most BATCH of them. */
static void collect(struct directory_cache *c, struct stripe *s, struct batch *batch)
{
    struct locked_entry h = {.cache = c, .stripe = s, .now = cache_now(c)};
    struct directory_entry *e, *next;
    batch->count = 0;
    pthread_mutex_lock(&s->lock);
    bool all = batch->all || s->urgent;
    s->due = s->due && !batch->room;
    for (e = s->table.lists[DIRECTORY_PINNED].oldest; e && batch->count < BATCH && (batch->room || all);
         e = next) {
        next = e->newer;
        h.entry = e;
        if (h.now + early(c, e) < cache_due_at(c, e, false) || !begin_due(&h, batch))
            continue;
        batch->keys[batch->count].owner = cache_owner(&h, false);
        batch->keys[batch->count].len = e->key_len;
        memcpy(batch->keys[batch->count++].bytes, e->key, e->key_len);
    }
    if (batch->count < BATCH)
        s->urgent = false;
    else
        s->due = true; /* more may be due: the next call finds out */
    pthread_mutex_unlock(&s->lock);
}

/* Looks up the due entries of one stripe. Returns false if the directory does not answer or the owner is out of places: the other
 * stripes then have to wait. */
static bool work_stripe(struct directory_cache *c, struct stripe *s, struct batch *batch)
{
    do {
        bool begun = true;
        collect(c, s, batch);
        for (size_t i = 0; i < batch->count; i++)
            begun =
                cache_look_up(c, slice_of(batch->keys[i].bytes, batch->keys[i].len), batch->keys[i].owner) &&
                begun;
        if (batch->count && (!begun || !cache_flag(&c->answering)))
            return false;
    } while (batch->count == BATCH);
    return true;
}

void directory_cache_work(struct directory_cache *c, bool urgent)
{
    struct batch batch = {.all = !urgent, .room = true};
    batch.first = atomic_load_explicit(&c->first, memory_order_relaxed);
    atomic_store(&c->slot_wanted, false);
    for (size_t i = 0; i <= c->mask; i++) {
        struct stripe *s = &c->stripes[(batch.first + i) & c->mask];
        pthread_mutex_lock(&s->lock);
        bool wanted = !urgent || s->urgent || s->due;
        pthread_mutex_unlock(&s->lock);
        if (wanted && !work_stripe(c, s, &batch))
            break;
    }
}
