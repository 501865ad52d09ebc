/* SPDX-License-Identifier: MIT */
/* What the directory reports to the cache: answers of look-ups, pushed changes, and its health. */
#include "spoa/agent/directory/cache_parts.h"

#define RETRY   SECOND /* pause after a look-up that was not answered while others are */
#define TTL_MAX (24 * 60 * MINUTE)

/* Replaces the record; cache_unlock releases the old one. */
static void put_box(struct locked_entry *h, struct shared_record *box)
{
    h->box = directory_table_put(&h->stripe->table, h->entry, box);
}

/* ---- answers ---- */
/* Returns whether the record is older than the known one, by its epoch. */
static bool is_behind(const struct directory_entry *e, const struct shared_record *box)
{
    return e->box && box->record.epoch && box->record.epoch < e->epoch;
}

/* Applies the record `box`, which it takes over. `since`: the directory held this record at that time or later; `good`: lifetime that
 * the directory stated, or 0. Returns whether the content changed. An older record confirms the known one, but does not replace it. */
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

/* Applies the absence of a record. If `doubtful`, a known record serves on until the directory has denied it for DOUBT. Returns
 * whether the content changed. */
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

/* Applies the answer of a look-up; takes over `box`. Returns whether the content changed. An answer that a push has overtaken is
 * dropped; after a change that was announced meanwhile the entry stays outdated, because the answer may be older. */
static bool take_answer(struct locked_entry *h, enum lookup outcome, struct shared_record *box, uint64_t good)
{
    struct directory_entry *e = h->entry;
    bool overtaken = e->overtaken, again = e->again, changed = false;
    uint64_t since = e->asked ? e->asked_at : h->now;
    directory_table_asked(&h->stripe->table, e, false);
    e->overtaken = e->again = false;
    if (e->unproven && outcome != LOOKUP_UNAVAILABLE)
        e->shown = since;
    e->unproven = false;
    if (again)
        e->announced = false; /* an absence in this answer may be older than the announcement */
    if (overtaken)
        h->box = box;
    else if (outcome == LOOKUP_FOUND)
        changed = learn(h, box, since, good);
    else if (outcome == LOOKUP_ABSENT)
        changed = learn_absence(h, since, h->cache->options.absence_is_doubt);
    else {
        /* While the directory does not answer, its kind limits the number of attempts. Retrying soon then shows early that it is back. */
        e->unavailable = true;
        e->retry_at = h->now + (cache_flag(&h->cache->answering) ? RETRY : RETRY_SOON);
    }
    if (again) {
        e->outdated = e->announced = true;
        h->stripe->urgent = h->stripe->urgent || e->pins;
    }
    return changed;
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
    h.stripe->counts.found += outcome == LOOKUP_FOUND;
    h.stripe->counts.not_found += outcome == LOOKUP_ABSENT;
    h.stripe->counts.failed += outcome == LOOKUP_UNAVAILABLE;
    bool slot = cache_return_slot(&h);
    bool changed = take_answer(&h, outcome, box, ttl < TTL_MAX ? ttl : TTL_MAX);
    uint64_t waiters = cache_take_waiters(h.entry, changed);
    bool work = h.stripe->urgent || slot;
    cache_unlock(&h);
    if (waiters)
        c->options.notify(c->options.context, key, waiters);
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

/* ---- pushed changes ---- */
/* Applies a pushed record, or a pushed absence if `box` is NULL; takes over `box`. */
static void push(struct directory_cache *c, struct slice key, struct shared_record *box)
{
    struct locked_entry h;
    cache_lock(&h, c, key);
    bool behind = h.entry && box && is_behind(h.entry, box);
    if (behind) /* confirms nothing: an answer in flight is newer than this push */
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
    uint64_t waiters = cache_take_waiters(h.entry, changed);
    cache_unlock(&h);
    if (waiters)
        c->options.notify(c->options.context, key, waiters);
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
        c->stripes[i].due = true;
        pthread_mutex_unlock(&c->stripes[i].lock);
    }
    c->options.work(c->options.context);
}

void directory_cache_health(struct directory_cache *c, bool answering, bool pushing)
{
    atomic_store_explicit(&c->answering, answering, memory_order_relaxed);
    atomic_store_explicit(&c->pushing, pushing, memory_order_relaxed);
}
