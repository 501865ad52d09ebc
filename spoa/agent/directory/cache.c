/* SPDX-License-Identifier: MIT */
#include "spoa/agent/directory/cache.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "spoa/agent/directory/table.h"
#include "spoa/base/hash.h"

enum {
    STRIPES_MOST = 64,
    ENTRIES_PER_STRIPE = 64, /* at least, so that stripes fill evenly */
    KEY_MAX = 255,
    BATCH = 32,         /* keys that are looked up between two turns of a lock */
    PUSHED_FACTOR = 10, /* how much longer a record serves while changes are pushed */
    TURNS = 32,         /* refreshes at a time, as all that is watched may be due at once */
};

#define ABSENT_FOR   SECOND
#define DOUBT        (30 * SECOND)
#define RETRY        SECOND              /* after a look-up that was not answered while others are */
#define RETRY_SOON   (100 * MILLISECOND) /* after one that could not be begun, or while nobody is answered */
#define FRESH_ENOUGH (100 * MILLISECOND) /* younger is not worth another look-up */
#define LOST         (60 * SECOND)       /* a look-up that was not answered by then never will be */
#define WAKE_EVERY   (5 * SECOND)
#define HANGS        SECOND /* a refresh that takes longer holds up no other */
#define GRACE_LEAST  SECOND
#define GRACE_MOST   (10 * SECOND)
#define TTL_MOST     (24 * 60 * MINUTE)

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
    uint64_t hash;
    uint64_t now; /* read before locking: another thread may have stored a later time */
    struct directory_entry *entry;
    struct directory_entry *spare; /* to be freed */
    struct shared_record *box;     /* to be released */
};

static uint64_t now_of(const struct directory_cache *c)
{
    return c->options.clock(c->options.context);
}

static size_t stripes_for(size_t entries)
{
    size_t stripes = 1;
    while (stripes < STRIPES_MOST && stripes * 2 * ENTRIES_PER_STRIPE <= entries)
        stripes *= 2;
    return stripes;
}

static uint64_t clamp(uint64_t value, uint64_t least, uint64_t most)
{
    return value < least ? least : value > most ? most : value;
}

struct directory_cache *directory_cache_new(const struct directory_cache_options *options)
{
    size_t stripes = stripes_for(options->entries);
    size_t size = sizeof(struct directory_cache) + stripes * sizeof(struct stripe);
    struct directory_cache *c = aligned_alloc(64, (size + 63) / 64 * 64);
    if (!c)
        return NULL;
    memset(c, 0, size);
    c->options = *options;
    c->answering = true;
    c->grace = clamp(options->ttl, GRACE_LEAST, GRACE_MOST);
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

static void lock_entry(struct locked_entry *h, struct directory_cache *c, struct slice key)
{
    uint64_t hash = hash_keyed(&c->secret, key);
    /* the table takes the low bits */
    *h = (struct locked_entry){.cache = c,
                               .stripe = &c->stripes[(hash >> 40) & c->mask],
                               .key = key,
                               .hash = hash,
                               .now = now_of(c)};
    if (key.len == 0 || key.len > KEY_MAX)
        h->stripe = NULL;
    if (!h->stripe)
        return;
    pthread_mutex_lock(&h->stripe->lock);
    h->entry = directory_table_find(&h->stripe->table, hash, key);
}

/* The entry is made if it is not there. False, with nothing locked: out of memory, or this is no key. */
static bool lock_made_entry(struct locked_entry *h, struct directory_cache *c, struct slice key)
{
    lock_entry(h, c, key);
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
    if (h->entry) { /* somebody was faster */
        h->spare = fresh;
        return true;
    }
    directory_table_insert(&h->stripe->table, fresh);
    h->entry = fresh;
    return true;
}

static void put_box(struct locked_entry *h, struct shared_record *box)
{
    h->box = directory_table_put(&h->stripe->table, h->entry, box);
}

/* Look-ups that began then or before will have no answer. */
static uint64_t lost_at(uint64_t now)
{
    return now > LOST ? now - LOST : 0;
}

static void unlock_entry(struct locked_entry *h)
{
    struct directory_entry *out = directory_table_trim(&h->stripe->table, lost_at(h->now));
    for (const struct directory_entry *e = out; e; e = e->chain)
        h->stripe->counts.evicted++;
    pthread_mutex_unlock(&h->stripe->lock);
    directory_entry_free(out);
    directory_entry_free(h->spare);
    shared_record_release(h->box);
}

/* ---- when what is known is how good ---- */

static bool flag(const atomic_bool *atomic)
{
    return atomic_load_explicit(atomic, memory_order_relaxed);
}

/* Pushes were lost since, or may have been: one of them may have been about this. */
static bool missed_since(const struct directory_cache *c, uint64_t confirmed)
{
    return confirmed < atomic_load_explicit(&c->missed, memory_order_relaxed);
}

/* confirmed: for those who may know, or for those who have yet to prove it. */
static uint64_t good_for(const struct directory_cache *c, const struct directory_entry *e, uint64_t confirmed)
{
    uint64_t said = e->box ? e->good_for : atomic_load_explicit(&c->usual, memory_order_relaxed);
    if (said)
        return said;
    return flag(&c->pushing) && !missed_since(c, confirmed) ? c->options.ttl * PUSHED_FACTOR : c->options.ttl;
}

/* When the directory confirmed what is known. Whether a record is in use is nothing for who has yet to prove that he may
 * know of it: what was confirmed to others counts for him as little as what is absent, of which there are no others. */
static uint64_t confirmed_at(const struct directory_entry *e, bool alike)
{
    return alike ? e->shown : e->learned;
}

/* From when on it is to be looked up again. alike: absence when a record would be. */
static uint64_t due_at(const struct directory_cache *c, const struct directory_entry *e, bool alike)
{
    uint64_t confirmed = confirmed_at(e, alike);
    if (e->outdated || missed_since(c, confirmed))
        return 0;
    if (e->doubt_since)
        return e->doubted + ABSENT_FOR;
    if (e->absent && !alike)
        return e->learned + ABSENT_FOR;
    return confirmed ? confirmed + good_for(c, e, confirmed) : 0;
}

/* Until when a record, or absence where it is treated alike, serves without anybody waiting. */
static uint64_t serves_until(const struct directory_cache *c, const struct directory_entry *e,
                             uint64_t confirmed)
{
    if (e->outdated)
        return 0; /* in doubt, too: it was said that there is something to learn */
    return e->doubt_since ? e->doubt_since + DOUBT : confirmed + good_for(c, e, confirmed) + c->grace;
}

static bool is_in_flight(const struct directory_entry *e, uint64_t now)
{
    return e->asked && e->asked_at > lost_at(now);
}

static bool may_look_up(const struct locked_entry *h)
{
    return !is_in_flight(h->entry, h->now) && h->now >= h->entry->retry_at;
}

/* Whether the caller is to begin a look-up when it has unlocked the entry. */
static bool begin_look_up(struct locked_entry *h)
{
    struct directory_entry *e = h->entry;
    if (!may_look_up(h))
        return false;
    if (directory_table_crowded(&h->stripe->table, e, lost_at(h->now))) {
        h->stripe->counts.crowded++;
        return false;
    }
    directory_table_asked(&h->stripe->table, e, true);
    e->again = e->overtaken = false; /* of one that never began or was never answered */
    e->turn = 0;
    e->asked_at = h->now;
    h->stripe->counts.look_ups++;
    return true;
}

/* ---- turns: who waits for an answer is not to wait behind all that is looked up again ---- */

/* From 1 on; 0: there is none. */
static uint8_t free_turn(struct directory_cache *c, uint64_t now)
{
    for (unsigned i = 0; i < TURNS; i++) {
        uint64_t begun = atomic_load(&c->turns[i]);
        if ((!begun || begun + HANGS <= now) && atomic_compare_exchange_strong(&c->turns[i], &begun, now))
            return (uint8_t)(i + 1);
    }
    return 0;
}

static uint8_t take_turn(struct directory_cache *c, uint64_t now)
{
    uint8_t turn = free_turn(c, now);
    if (turn)
        return turn;
    atomic_store(&c->behind, true); /* who gives one back from now on says so */
    return free_turn(c, now);
}

/* Whether somebody is behind who can have it. */
static bool give_turn_back(struct locked_entry *h)
{
    struct directory_entry *e = h->entry;
    struct directory_cache *c = h->cache;
    uint64_t begun = e->asked_at; /* if it hung, somebody else may have it */
    bool given = e->turn && atomic_compare_exchange_strong(&c->turns[e->turn - 1], &begun, 0);
    e->turn = 0;
    return given && atomic_load(&c->behind) && flag(&c->answering);
}

/* Who is to be notified, and waits no longer. */
static uint64_t take_waiters(struct directory_entry *e, bool changed)
{
    uint64_t waiters = e->waiters | (changed ? e->watchers : 0);
    e->waiters = 0;
    return waiters;
}

/* The look-up could not be begun. */
static void not_begun(struct directory_cache *c, struct slice key)
{
    struct locked_entry h;
    uint64_t tell = 0;
    lock_entry(&h, c, key);
    if (!h.stripe)
        return;
    if (h.entry) {
        tell = take_waiters(h.entry, false);
        directory_table_asked(&h.stripe->table, h.entry, false);
        (void)give_turn_back(&h);
        h.entry->unavailable = true;
        h.entry->retry_at = h.now + RETRY_SOON;
    }
    h.stripe->counts.failed++;
    unlock_entry(&h);
    if (tell)
        c->options.notify(c->options.context, key, tell);
}

static bool begin_entry(struct directory_cache *c, struct slice key)
{
    if (c->options.look_up(c->options.context, key))
        return true;
    not_begun(c, key);
    return false;
}

/* ---- who asks ---- */

static enum lookup wait_for(struct locked_entry *h, uint64_t waiter)
{
    if (!is_in_flight(h->entry, h->now)) {
        h->stripe->counts.unavailable++;
        return LOOKUP_UNAVAILABLE;
    }
    h->entry->waiters |= waiter;
    h->stripe->counts.waits++;
    return LOOKUP_PENDING;
}

/* Whether the directory is known not to answer, at least for this. */
static bool is_away(const struct locked_entry *h)
{
    const struct directory_entry *e = h->entry;
    bool hangs = is_in_flight(e, h->now) && h->now >= e->asked_at + h->cache->options.patience;
    return hangs || e->unavailable || !flag(&h->cache->answering);
}

/* Of an entry with a record, or whose absence is treated alike, which serves without anybody waiting `until` then. */
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
    if (!last && !is_away(h))
        return wait_for(h, waiter);
    h->stripe->counts.stale++;
    return known;
}

static enum lookup judge_entry(struct locked_entry *h, bool last, bool alike, uint64_t waiter, bool *ask)
{
    struct directory_entry *e = h->entry;
    uint64_t confirmed = confirmed_at(e, alike);
    bool known = alike ? confirmed && (e->box || e->absent) : e->box != NULL;
    uint64_t until = known ? serves_until(h->cache, e, confirmed) : UINT64_MAX;
    bool due = h->now >= due_at(h->cache, e, alike) || h->now >= until;
    *ask = due && begin_look_up(h);
    e->strangers = e->strangers || (alike && due);
    if (known)
        return judge_known(h, last, waiter, confirmed, until);
    if (!e->absent || due)
        return wait_for(h, waiter);
    h->stripe->counts.absent++;
    return LOOKUP_ABSENT;
}

static enum lookup find_entry(struct directory_cache *c, struct slice key, bool last, bool alike,
                              uint64_t waiter, struct shared_record **box)
{
    struct locked_entry h;
    bool ask;
    *box = NULL;
    if (!lock_made_entry(&h, c, key))
        return key.len == 0 || key.len > KEY_MAX ? LOOKUP_ABSENT : LOOKUP_UNAVAILABLE;
    directory_table_touch(&h.stripe->table, h.entry);
    enum lookup found = judge_entry(&h, last, alike, waiter, &ask);
    if (found == LOOKUP_FOUND)
        *box = shared_record_retain(h.entry->box);
    unlock_entry(&h);
    if (ask && !begin_entry(c, key) && found == LOOKUP_PENDING)
        found = LOOKUP_UNAVAILABLE;
    return found;
}

enum lookup directory_cache_find(struct directory_cache *c, struct slice key, bool last, uint64_t waiter,
                                 struct shared_record **box)
{
    return find_entry(c, key, last, false, waiter, box);
}

enum lookup directory_cache_find_alike(struct directory_cache *c, struct slice key, bool last,
                                       uint64_t waiter, struct shared_record **box)
{
    return find_entry(c, key, last, true, waiter, box);
}

bool directory_cache_refresh(struct directory_cache *c, struct slice key, uint64_t waiter)
{
    struct locked_entry h;
    if (!lock_made_entry(&h, c, key))
        return false;
    struct directory_entry *e = h.entry;
    directory_table_touch(&h.stripe->table, e);
    bool known = (e->box || e->absent) && !e->outdated && h.now < e->learned + FRESH_ENOUGH;
    bool ask = !known && begin_look_up(&h);
    bool wait = !known && is_in_flight(e, h.now) && !(e->box && is_away(&h));
    e->waiters |= wait ? waiter : 0;
    unlock_entry(&h);
    return (!ask || begin_entry(c, key)) && wait;
}

bool directory_cache_pin(struct directory_cache *c, struct slice key, uint64_t waiter)
{
    struct locked_entry h;
    if (!lock_made_entry(&h, c, key))
        return false;
    h.entry->watchers |= waiter;
    if (++h.entry->pins == 1)
        directory_table_touch(&h.stripe->table, h.entry);
    unlock_entry(&h);
    return true;
}

void directory_cache_unpin(struct directory_cache *c, struct slice key)
{
    struct locked_entry h;
    lock_entry(&h, c, key);
    if (!h.stripe)
        return;
    if (h.entry && h.entry->pins && --h.entry->pins == 0) {
        h.entry->watchers = 0;
        directory_table_touch(&h.stripe->table, h.entry);
    }
    unlock_entry(&h);
}

bool directory_cache_may_wake(struct directory_cache *c, struct slice key)
{
    struct locked_entry h;
    if (!lock_made_entry(&h, c, key))
        return false;
    bool may = !h.entry->woken || h.now >= h.entry->woken + WAKE_EVERY;
    if (may)
        h.entry->woken = h.now;
    unlock_entry(&h);
    return may;
}

/* ---- what the directory says ---- */

static bool is_behind(const struct directory_entry *e, const struct shared_record *box)
{
    return e->box && box->record.epoch && box->record.epoch < e->epoch;
}

/* Takes over box, which says how it was at `since`. Whether something is different now. */
static bool learn(struct locked_entry *h, struct shared_record *box, uint64_t since, uint64_t good)
{
    struct directory_entry *e = h->entry;
    const struct shared_record *old = e->box;
    e->learned = since;
    e->absent = e->unavailable = e->outdated = e->announced = false;
    e->doubt_since = e->retry_at = 0;
    bool behind = is_behind(e, box);
    if (behind)
        h->stripe->counts.behind++;
    else
        e->good_for = good;
    if (!behind)
        atomic_store_explicit(&h->cache->usual, good, memory_order_relaxed);
    if (!behind && !box->record.bare)
        e->epoch = box->record.epoch;
    if (behind || (old && shared_record_equal(old, box))) {
        h->box = box;
        return false;
    }
    put_box(h, box);
    return true;
}

static bool learn_absence(struct locked_entry *h, uint64_t since, bool doubtful)
{
    struct directory_entry *e = h->entry;
    doubtful = doubtful && e->box && !e->announced;
    e->unavailable = e->outdated = e->announced = false;
    e->retry_at = 0;
    if (doubtful && (!e->doubt_since || h->now < e->doubt_since + DOUBT)) {
        e->doubted = h->now;
        if (!e->doubt_since)
            e->doubt_since = h->now;
        return false;
    }
    bool news = e->box || !e->absent;
    e->learned = since;
    e->absent = true;
    e->doubt_since = 0;
    put_box(h, NULL);
    return news;
}

/* While the directory is away its kind bounds how often it is tried; who needs a record then learns soon that
 * it is back. */
static void learn_nothing(struct locked_entry *h)
{
    h->entry->unavailable = true;
    h->entry->retry_at = h->now + (flag(&h->cache->answering) ? RETRY : RETRY_SOON);
}

/* The answer of a look-up. Takes over box. Whether something is different now. */
static bool take_answer(struct locked_entry *h, enum lookup outcome, struct shared_record *box, uint64_t good)
{
    struct directory_entry *e = h->entry;
    bool overtaken = e->overtaken, again = e->again, changed = false;
    uint64_t since = e->asked ? e->asked_at : h->now;
    directory_table_asked(&h->stripe->table, e, false);
    e->overtaken = e->again = false;
    if (e->strangers && outcome != LOOKUP_UNAVAILABLE)
        e->shown = since;
    e->strangers = false;
    if (again)
        e->announced = false; /* this answer may be older than that */
    if (overtaken)
        h->box = box;
    else if (outcome == LOOKUP_FOUND)
        changed = learn(h, box, since, good);
    else if (outcome == LOOKUP_ABSENT)
        changed = learn_absence(h, since, h->cache->options.absence_is_doubt);
    else
        learn_nothing(h);
    if (again) {
        e->outdated = e->announced = true;
        h->stripe->urgent = h->stripe->urgent || e->pins;
    }
    return changed;
}

static void count_answer(struct stripe *s, enum lookup outcome)
{
    s->counts.found += outcome == LOOKUP_FOUND;
    s->counts.not_found += outcome == LOOKUP_ABSENT;
    s->counts.failed += outcome == LOOKUP_UNAVAILABLE;
}

uint64_t directory_cache_answered(struct directory_cache *c, struct slice key, enum lookup outcome,
                                  const struct record *record, uint64_t ttl)
{
    struct locked_entry h;
    uint64_t took = DIRECTORY_CACHE_UNASKED;
    struct shared_record *box = outcome == LOOKUP_FOUND ? shared_record_new(record) : NULL;
    if (outcome == LOOKUP_FOUND && !box)
        outcome = LOOKUP_UNAVAILABLE;
    lock_entry(&h, c, key);
    if (!h.entry) {
        if (h.stripe)
            unlock_entry(&h);
        shared_record_release(box);
        return took;
    }
    if (h.entry->asked)
        took = h.now - h.entry->asked_at;
    count_answer(h.stripe, outcome);
    bool turn = give_turn_back(&h);
    bool changed = take_answer(&h, outcome, box, ttl < TTL_MOST ? ttl : TTL_MOST);
    uint64_t tell = take_waiters(h.entry, changed);
    bool work = h.stripe->urgent || turn;
    unlock_entry(&h);
    if (tell)
        c->options.notify(c->options.context, key, tell);
    if (work)
        c->options.work(c->options.context);
    return took;
}

bool directory_cache_has(struct directory_cache *c, struct slice key)
{
    struct locked_entry h;
    lock_entry(&h, c, key);
    if (h.stripe)
        unlock_entry(&h);
    return h.entry;
}

/* Pushed with content, of which NULL is absence. Takes over box. */
static void push(struct directory_cache *c, struct slice key, struct shared_record *box)
{
    struct locked_entry h;
    lock_entry(&h, c, key);
    bool behind = h.entry && box && is_behind(h.entry, box);
    if (behind) /* of before what is known: it confirms nothing, and an answer that is on its way is newer */
        h.stripe->counts.behind++;
    if (!h.entry || behind) {
        if (h.stripe)
            unlock_entry(&h);
        shared_record_release(box);
        return;
    }
    h.stripe->counts.pushed++;
    h.entry->overtaken = h.entry->asked;
    bool changed = box ? learn(&h, box, h.now, 0) : learn_absence(&h, h.now, false);
    uint64_t tell = take_waiters(h.entry, changed);
    unlock_entry(&h);
    if (tell)
        c->options.notify(c->options.context, key, tell);
}

void directory_cache_changed(struct directory_cache *c, struct slice key, const struct record *record)
{
    struct shared_record *box = shared_record_new(record);
    if (box)
        push(c, key, box);
    else
        directory_cache_announced(c, key);
}

void directory_cache_removed(struct directory_cache *c, struct slice key)
{
    push(c, key, NULL);
}

void directory_cache_announced(struct directory_cache *c, struct slice key)
{
    struct locked_entry h;
    lock_entry(&h, c, key);
    if (!h.stripe)
        return;
    bool work = h.entry && h.entry->pins;
    if (h.entry) {
        h.stripe->counts.pushed++;
        h.entry->outdated = h.entry->announced = true;
        h.entry->again = h.entry->asked;
        h.entry->retry_at = 0;
        h.stripe->urgent = h.stripe->urgent || work;
    }
    unlock_entry(&h);
    if (work)
        c->options.work(c->options.context);
}

void directory_cache_missed(struct directory_cache *c)
{
    atomic_store_explicit(&c->missed, now_of(c), memory_order_relaxed);
    for (size_t i = 0; i <= c->mask; i++) {
        pthread_mutex_lock(&c->stripes[i].lock);
        c->stripes[i].behind = true;
        pthread_mutex_unlock(&c->stripes[i].lock);
    }
    c->options.work(c->options.context);
}

void directory_cache_health(struct directory_cache *c, bool answering, bool pushing)
{
    atomic_store_explicit(&c->answering, answering, memory_order_relaxed);
    atomic_store_explicit(&c->pushing, pushing, memory_order_relaxed);
}

/* ---- its owner ---- */

struct batch {
    bool all;     /* what is due; else what was announced, and the rest of what was due */
    bool room;    /* there are turns left */
    bool taken;   /* one was */
    size_t first; /* the stripe that had the choice of them */
    size_t count;
    struct {
        uint8_t len;
        uint8_t bytes[KEY_MAX];
    } keys[BATCH];
};

/* By how much what is pinned is looked up before it is due, up to a quarter of its time: what was learned at once, as
 * after a break, would else be asked for at once for ever, and who asks for something new would wait behind all of it.
 */
static uint64_t early(const struct directory_cache *c, const struct directory_entry *e)
{
    bool good = e->box && !e->doubt_since;
    return good ? good_for(c, e, e->learned) / 1024 * (e->hash >> 56)
                : 0; /* the other bits choose stripe and bucket */
}

/* The next one is first that had none; this one, if it had what others had left. */
static void go_on_at(const struct locked_entry *h, const struct batch *batch)
{
    size_t at = (size_t)(h->stripe - h->cache->stripes);
    if (at == batch->first && batch->taken)
        at = (at + 1) & h->cache->mask;
    atomic_store_explicit(&h->cache->first, at, memory_order_relaxed);
}

/* Whether one that is due takes off. What was announced, or is not known, needs no turn: somebody waits for it. */
static bool look_up_in_turn(struct locked_entry *h, struct batch *batch)
{
    struct directory_cache *c = h->cache;
    struct directory_entry *e = h->entry;
    bool refresh = (e->box || e->absent) && !e->outdated;
    if (!may_look_up(h))
        return false;
    uint8_t turn = refresh && batch->room ? take_turn(c, h->now) : 0;
    if (refresh && !turn) {
        if (batch->room)
            go_on_at(h, batch);
        batch->room = false;
        h->stripe->behind = true;
        return false;
    }
    if (!begin_look_up(h))
        return false;
    e->turn = turn;
    batch->taken = batch->taken || turn;
    directory_table_touch(&h->stripe->table, e); /* behind all others, for the next time */
    return true;
}

/* Takes off with what is pinned and due, a batch at most. */
static void collect(struct directory_cache *c, struct stripe *s, struct batch *batch)
{
    struct locked_entry h = {.cache = c, .stripe = s, .now = now_of(c)};
    struct directory_entry *e, *next;
    batch->count = 0;
    pthread_mutex_lock(&s->lock);
    bool all = batch->all || s->urgent;
    s->behind = s->behind && !batch->room;
    for (e = s->table.lists[DIRECTORY_PINNED].oldest; e && batch->count < BATCH && (batch->room || all);
         e = next) {
        next = e->newer;
        h.entry = e;
        if (h.now + early(c, e) < due_at(c, e, false) || !look_up_in_turn(&h, batch))
            continue;
        batch->keys[batch->count].len = e->key_len;
        memcpy(batch->keys[batch->count++].bytes, e->key, e->key_len);
    }
    if (batch->count < BATCH)
        s->urgent = false;
    else
        s->behind = true; /* that may have been all; the next one says */
    pthread_mutex_unlock(&s->lock);
}

/* A directory that does not answer is not asked for all of them. */
static bool work_stripe(struct directory_cache *c, struct stripe *s, struct batch *batch)
{
    do {
        collect(c, s, batch);
        for (size_t i = 0; i < batch->count; i++)
            begin_entry(c, slice_of(batch->keys[i].bytes, batch->keys[i].len));
        if (batch->count && !flag(&c->answering))
            return false;
    } while (batch->count == BATCH);
    return true;
}

static bool is_urgent(struct stripe *s)
{
    pthread_mutex_lock(&s->lock);
    bool urgent = s->urgent || s->behind;
    pthread_mutex_unlock(&s->lock);
    return urgent;
}

void directory_cache_work(struct directory_cache *c, bool urgent)
{
    struct batch batch = {.all = !urgent, .room = true};
    batch.first = atomic_load_explicit(&c->first, memory_order_relaxed);
    atomic_store(&c->behind, false);
    for (size_t i = 0; i <= c->mask; i++) {
        struct stripe *s = &c->stripes[(batch.first + i) & c->mask];
        if ((!urgent || is_urgent(s)) && !work_stripe(c, s, &batch))
            break;
    }
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
