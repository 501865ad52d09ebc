/* SPDX-License-Identifier: MIT */
#include "spoa/agent/directory/cache.h"

#include <stdlib.h>

#include "spoa/agent/directory/cache_parts.h"

enum {
    STRIPES_MAX = 64,
    ENTRIES_PER_STRIPE = 64, /* minimum; smaller stripes would fill unevenly */
};

#define FRESH_ENOUGH (100 * MILLISECOND) /* a younger answer is not worth another look-up */
#define WAKE_EVERY   (5 * SECOND)        /* between two wakes of one sandbox */
#define GRACE_MIN    SECOND
#define GRACE_MAX    (10 * SECOND)

struct directory_cache *directory_cache_new(const struct directory_cache_options *options)
{
    size_t stripes = 1;
    while (stripes < STRIPES_MAX && stripes * 2 * ENTRIES_PER_STRIPE <= options->entries)
        stripes *= 2;
    size_t size = sizeof(struct directory_cache) + stripes * sizeof(struct stripe);
    struct directory_cache *c = aligned_alloc(64, (size + 63) / 64 * 64);
    if (!c)
        return NULL;
    memset(c, 0, size);
    c->options = *options;
    c->answering = true;
    c->grace = options->ttl < GRACE_MIN ? GRACE_MIN : options->ttl < GRACE_MAX ? options->ttl : GRACE_MAX;
    c->mask = stripes - 1;
    bool good = hash_secret_init(&c->secret);
    for (size_t i = 0; i < stripes; i++) {
        pthread_mutex_init(&c->stripes[i].lock, NULL);
        good = directory_table_init(&c->stripes[i].table, (options->entries + stripes - 1) / stripes) && good;
    }
    if (good)
        return c;
    directory_cache_free(c);
    return NULL;
}

void directory_cache_free(struct directory_cache *c)
{
    for (size_t i = 0; c && i <= c->mask; i++) {
        directory_table_clear(&c->stripes[i].table);
        pthread_mutex_destroy(&c->stripes[i].lock);
    }
    free(c);
}

/* ---- locking one entry ---- */

void cache_lock(struct locked_entry *h, struct directory_cache *c, struct slice key)
{
    uint64_t hash = hash_keyed(&c->secret, key);
    /* the table uses the low bits */
    *h = (struct locked_entry){.cache = c,
                               .stripe = &c->stripes[(hash >> 40) & c->mask],
                               .key = key,
                               .hash = hash,
                               .now = cache_now(c)};
    if (key.len == 0 || key.len > KEY_MAX)
        h->stripe = NULL;
    if (!h->stripe)
        return;
    pthread_mutex_lock(&h->stripe->lock);
    h->entry = directory_table_find(&h->stripe->table, hash, key);
}

/* Locks the entry of `key`, which is created if there is none. Returns false with nothing locked if memory is short or the key is not
 * valid. Memory is allocated while nothing is locked, so another thread may have created the entry meanwhile. */
static bool lock_made_entry(struct locked_entry *h, struct directory_cache *c, struct slice key)
{
    cache_lock(h, c, key);
    if (!h->stripe)
        return false;
    if (h->entry)
        return true;
    pthread_mutex_unlock(&h->stripe->lock);
    struct directory_entry *fresh = directory_entry_new(h->hash, key);
    if (!fresh)
        return false;
    pthread_mutex_lock(&h->stripe->lock);
    h->entry = directory_table_find(&h->stripe->table, h->hash, key);
    if (h->entry) {
        h->spare = fresh;
        return true;
    }
    directory_table_insert(&h->stripe->table, fresh);
    h->entry = fresh;
    return true;
}

void cache_unlock(struct locked_entry *h)
{
    struct directory_entry *out = directory_table_trim(&h->stripe->table, cache_lost_at(h->now));
    for (const struct directory_entry *e = out; e; e = e->chain)
        h->stripe->counts.evicted++;
    pthread_mutex_unlock(&h->stripe->lock);
    directory_entry_free(out);
    directory_entry_free(h->spare);
    shared_record_release(h->box);
}

uint64_t cache_take_waiters(struct directory_entry *e, bool changed)
{
    uint64_t waiters = e->waiters | (changed ? e->watchers : 0);
    e->waiters = 0;
    return waiters;
}

/* ---- decisions ---- */

/* Adds the caller to the waiters of the look-up in flight. Returns UNAVAILABLE if there is none. */
static enum lookup wait_for(struct locked_entry *h, uint64_t waiter)
{
    if (!cache_in_flight(h->entry, h->now)) {
        h->stripe->counts.unavailable++;
        return LOOKUP_UNAVAILABLE;
    }
    h->entry->waiters |= waiter;
    h->stripe->counts.waits++;
    return LOOKUP_PENDING;
}

/* Returns whether the directory does not answer, at least for this entry. */
static bool is_unanswered(const struct locked_entry *h)
{
    const struct directory_entry *e = h->entry;
    bool hangs = cache_in_flight(e, h->now) && h->now >= e->asked_at + h->cache->options.patience;
    return hangs || e->unavailable || !cache_flag(&h->cache->answering);
}

/* Decides about an entry whose content is known: a record, or for an unauthenticated caller absence. The content was confirmed at
 * `confirmed`, and serves without waiting until `until`. */
static enum lookup judge_known(struct locked_entry *h, bool last, uint64_t waiter, uint64_t confirmed,
                               uint64_t until)
{
    const struct directory_cache *c = h->cache;
    const struct directory_entry *e = h->entry;
    enum lookup known = e->box ? LOOKUP_FOUND : LOOKUP_ABSENT;
    if (h->now < until) {
        h->stripe->counts.hits += e->box != NULL;
        h->stripe->counts.absent += !e->box;
        return known;
    }
    if (h->now >= confirmed + c->options.stale)
        return wait_for(h, waiter);
    if (!last && !is_unanswered(h))
        return wait_for(h, waiter);
    h->stripe->counts.stale++;
    return known;
}

/* Decides about a locked entry. Sets *ask if the caller must call cache_look_up after it has unlocked the entry. */
static enum lookup judge_entry(struct locked_entry *h, bool last, bool alike, uint64_t waiter, bool *ask)
{
    struct directory_entry *e = h->entry;
    uint64_t confirmed = cache_confirmed_at(e, alike);
    bool known = alike ? confirmed && (e->box || e->absent) : e->box != NULL;
    uint64_t until = known ? cache_serves_until(h->cache, e, confirmed) : UINT64_MAX;
    bool due = h->now >= cache_due_at(h->cache, e, alike) || h->now >= until;
    *ask = due && cache_begin(h);
    e->unproven = e->unproven || (alike && due);
    if (known)
        return judge_known(h, last, waiter, confirmed, until);
    if (!e->absent || due)
        return wait_for(h, waiter);
    h->stripe->counts.absent++;
    return LOOKUP_ABSENT;
}

/* Begins the look-up if `ask`, otherwise joins the one in flight if `waits`. Call with nothing locked. Returns false if the directory
 * could not be asked. */
static bool ask_or_join(struct directory_cache *c, struct slice key, bool ask, bool waits,
                        struct fair_owner owner)
{
    if (ask)
        return cache_look_up(c, key, owner);
    if (waits && c->options.join)
        c->options.join(c->options.context, key, owner);
    return true;
}

static enum lookup find_entry(struct directory_cache *c, struct slice key, bool last, bool alike,
                              uint64_t waiter, struct fair_owner owner, struct shared_record **box)
{
    struct locked_entry h;
    bool ask;
    *box = NULL;
    if (!lock_made_entry(&h, c, key))
        return key.len == 0 || key.len > KEY_MAX ? LOOKUP_ABSENT : LOOKUP_UNAVAILABLE;
    h.owner = owner;
    directory_table_touch(&h.stripe->table, h.entry);
    enum lookup found = judge_entry(&h, last, alike, waiter, &ask);
    owner = cache_owner(&h, alike);
    if (found == LOOKUP_FOUND)
        *box = shared_record_retain(h.entry->box);
    cache_unlock(&h);
    if (!ask_or_join(c, key, ask, found == LOOKUP_PENDING, owner) && found == LOOKUP_PENDING)
        found = LOOKUP_UNAVAILABLE;
    return found;
}

enum lookup directory_cache_find(struct directory_cache *c, struct slice key, bool last, uint64_t waiter,
                                 struct fair_owner owner, struct shared_record **box)
{
    return find_entry(c, key, last, false, waiter, owner, box);
}

enum lookup directory_cache_find_alike(struct directory_cache *c, struct slice key, bool last,
                                       uint64_t waiter, struct fair_owner owner, struct shared_record **box)
{
    return find_entry(c, key, last, true, waiter, owner, box);
}

bool directory_cache_refresh(struct directory_cache *c, struct slice key, uint64_t waiter,
                             struct fair_owner owner)
{
    struct locked_entry h;
    if (!lock_made_entry(&h, c, key))
        return false;
    struct directory_entry *e = h.entry;
    h.owner = owner;
    directory_table_touch(&h.stripe->table, e);
    bool known = (e->box || e->absent) && !e->outdated && h.now < e->learned + FRESH_ENOUGH;
    bool ask = !known && cache_begin(&h);
    bool wait = !known && cache_in_flight(e, h.now) && !(e->box && is_unanswered(&h));
    e->waiters |= wait ? waiter : 0;
    owner = cache_owner(&h, false);
    cache_unlock(&h);
    return ask_or_join(c, key, ask, wait, owner) && wait;
}

bool directory_cache_pin(struct directory_cache *c, struct slice key, uint64_t waiter)
{
    struct locked_entry h;
    if (!lock_made_entry(&h, c, key))
        return false;
    h.entry->watchers |= waiter;
    if (++h.entry->pins == 1)
        directory_table_touch(&h.stripe->table, h.entry);
    cache_unlock(&h);
    return true;
}

void directory_cache_unpin(struct directory_cache *c, struct slice key)
{
    struct locked_entry h;
    cache_lock(&h, c, key);
    if (!h.stripe)
        return;
    if (h.entry && h.entry->pins && --h.entry->pins == 0) {
        h.entry->watchers = 0;
        directory_table_touch(&h.stripe->table, h.entry);
    }
    cache_unlock(&h);
}

bool directory_cache_may_wake(struct directory_cache *c, struct slice key)
{
    struct locked_entry h;
    if (!lock_made_entry(&h, c, key))
        return false;
    bool may = !h.entry->woken || h.now >= h.entry->woken + WAKE_EVERY;
    if (may)
        h.entry->woken = h.now;
    cache_unlock(&h);
    return may;
}

void directory_cache_not_woken(struct directory_cache *c, struct slice key)
{
    struct locked_entry h;
    cache_lock(&h, c, key);
    if (!h.stripe)
        return;
    if (h.entry)
        h.entry->woken = 0;
    cache_unlock(&h);
}

struct directory_cache_counts directory_cache_counts(struct directory_cache *c)
{
    struct directory_cache_counts sum = {0};
    for (size_t i = 0; i <= c->mask; i++) {
        struct stripe *s = &c->stripes[i];
        pthread_mutex_lock(&s->lock);
#define X(field, help) sum.field += s->counts.field;
        DIRECTORY_CACHE_COUNTERS(X)
#undef X
        sum.pinned += s->table.lists[DIRECTORY_PINNED].count;
        sum.records +=
            s->table.lists[DIRECTORY_RECORDS].count + s->table.lists[DIRECTORY_RECORDS_ASKED].count;
        sum.empty += s->table.lists[DIRECTORY_EMPTY].count + s->table.lists[DIRECTORY_EMPTY_ASKED].count;
        sum.bytes += s->table.bytes;
        pthread_mutex_unlock(&s->lock);
    }
    return sum;
}
