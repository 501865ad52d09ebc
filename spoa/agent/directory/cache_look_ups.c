/* SPDX-License-Identifier: MIT */
/* What is looked up, and when: how good what is known is, turns for what is looked up again, and what the owner does of it. */
#include "spoa/agent/directory/cache_parts.h"

enum {
    BATCH = 32,         /* keys that are looked up between two turns of a lock */
    PUSHED_FACTOR = 10, /* how much longer a record serves while changes are pushed */
};

#define ABSENT_FOR SECOND
#define LOST       (60 * SECOND) /* a look-up that was not answered by then never will be */
#define HANGS      SECOND        /* a refresh that takes longer holds up no other */

/* ---- when what is known is how good ---- */
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
        return 0; /* in doubt, too: it was said that there is something to learn */
    return e->doubt_since ? e->doubt_since + DOUBT : confirmed + good_for(c, e, confirmed) + c->grace;
}

/* ---- to begin one ---- */
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

bool cache_give_turn_back(struct locked_entry *h)
{
    struct directory_entry *e = h->entry;
    struct directory_cache *c = h->cache;
    uint64_t begun = e->asked_at; /* if it hung, somebody else may have it */
    bool given = e->turn && atomic_compare_exchange_strong(&c->turns[e->turn - 1], &begun, 0);
    e->turn = 0;
    return given && atomic_load(&c->behind) && cache_flag(&c->answering);
}

struct fair_owner cache_owner(const struct locked_entry *h, bool alike)
{
    const struct directory_entry *e = h->entry;
    bool used = !alike && (e->box || e->pins);
    return (struct fair_owner){.hash = h->owner.hash ? h->owner.hash : e->hash,
                               .rank = used ? FAIR_IN_USE : h->owner.rank};
}

/* The look-up could not be begun, or did not have its turn. refused: nobody can ask for it at the moment. Otherwise that is
 * its owner's affair, and whoever waits for it may ask for it again. */
static void not_begun(struct directory_cache *c, struct slice key, bool refused)
{
    struct locked_entry h;
    uint64_t tell = 0;
    cache_lock(&h, c, key);
    if (!h.stripe)
        return;
    if (h.entry) {
        tell = cache_take_waiters(h.entry, false);
        directory_table_asked(&h.stripe->table, h.entry, false);
        (void)cache_give_turn_back(&h);
        h.entry->again = h.entry->overtaken = h.entry->strangers = false;
        h.entry->unavailable = h.entry->unavailable || refused;
        h.entry->retry_at = refused ? h.now + RETRY_SOON : h.entry->retry_at;
    }
    h.stripe->counts.failed += refused;
    h.stripe->counts.crowded += !refused;
    cache_unlock(&h);
    if (tell)
        c->options.notify(c->options.context, key, tell);
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

/* ---- its owner ---- */

struct batch {
    bool all;     /* what is due; else what was announced, and the rest of what was due */
    bool room;    /* there are turns left */
    bool taken;   /* one was */
    size_t first; /* the stripe that had the choice of them */
    size_t count;
    struct {
        struct fair_owner owner;
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
    if (!cache_begin(h))
        return false;
    e->turn = turn;
    batch->taken = batch->taken || turn;
    directory_table_touch(&h->stripe->table, e); /* behind all others, for the next time */
    return true;
}

/* Takes off with what is pinned and due, a batch at most. */
static void collect(struct directory_cache *c, struct stripe *s, struct batch *batch)
{
    struct locked_entry h = {.cache = c, .stripe = s, .now = cache_now(c)};
    struct directory_entry *e, *next;
    batch->count = 0;
    pthread_mutex_lock(&s->lock);
    bool all = batch->all || s->urgent;
    s->behind = s->behind && !batch->room;
    for (e = s->table.lists[DIRECTORY_PINNED].oldest; e && batch->count < BATCH && (batch->room || all);
         e = next) {
        next = e->newer;
        h.entry = e;
        if (h.now + early(c, e) < cache_due_at(c, e, false) || !look_up_in_turn(&h, batch))
            continue;
        batch->keys[batch->count].owner = cache_owner(&h, false);
        batch->keys[batch->count].len = e->key_len;
        memcpy(batch->keys[batch->count++].bytes, e->key, e->key_len);
    }
    if (batch->count < BATCH)
        s->urgent = false;
    else
        s->behind = true; /* that may have been all; the next one says */
    pthread_mutex_unlock(&s->lock);
}

/* A directory that does not answer is not asked for all of them, and no place that is not there for the next one. */
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
