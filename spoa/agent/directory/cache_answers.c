/* SPDX-License-Identifier: MIT */
/* What the directory says: answers of look-ups, what it pushes, and whether it is there. */
#include "spoa/agent/directory/cache_parts.h"

#define RETRY    SECOND /* after a look-up that was not answered while others are */
#define TTL_MOST (24 * 60 * MINUTE)

static void put_box(struct locked_entry *h, struct shared_record *box)
{
    h->box = directory_table_put(&h->stripe->table, h->entry, box);
}

/* ---- answers ---- */
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
    h->entry->retry_at = h->now + (cache_flag(&h->cache->answering) ? RETRY : RETRY_SOON);
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
    cache_lock(&h, c, key);
    if (!h.entry) {
        if (h.stripe)
            cache_unlock(&h);
        shared_record_release(box);
        return took;
    }
    if (h.entry->asked)
        took = h.now - h.entry->asked_at;
    count_answer(h.stripe, outcome);
    bool turn = cache_give_turn_back(&h);
    bool changed = take_answer(&h, outcome, box, ttl < TTL_MOST ? ttl : TTL_MOST);
    uint64_t tell = cache_take_waiters(h.entry, changed);
    bool work = h.stripe->urgent || turn;
    cache_unlock(&h);
    if (tell)
        c->options.notify(c->options.context, key, tell);
    if (work)
        c->options.work(c->options.context);
    return took;
}

bool directory_cache_has(struct directory_cache *c, struct slice key)
{
    struct locked_entry h;
    cache_lock(&h, c, key);
    if (h.stripe)
        cache_unlock(&h);
    return h.entry;
}

/* ---- what it pushes ---- */
/* Pushed with content, of which NULL is absence. Takes over box. */
static void push(struct directory_cache *c, struct slice key, struct shared_record *box)
{
    struct locked_entry h;
    cache_lock(&h, c, key);
    bool behind = h.entry && box && is_behind(h.entry, box);
    if (behind) /* of before what is known: it confirms nothing, and an answer that is on its way is newer */
        h.stripe->counts.behind++;
    if (!h.entry || behind) {
        if (h.stripe)
            cache_unlock(&h);
        shared_record_release(box);
        return;
    }
    h.stripe->counts.pushed++;
    h.entry->overtaken = h.entry->asked;
    bool changed = box ? learn(&h, box, h.now, 0) : learn_absence(&h, h.now, false);
    uint64_t tell = cache_take_waiters(h.entry, changed);
    cache_unlock(&h);
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
    cache_lock(&h, c, key);
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
    cache_unlock(&h);
    if (work)
        c->options.work(c->options.context);
}

void directory_cache_missed(struct directory_cache *c)
{
    atomic_store_explicit(&c->missed, cache_now(c), memory_order_relaxed);
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
