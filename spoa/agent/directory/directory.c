/* SPDX-License-Identifier: MIT */
#include "spoa/agent/directory/directory.h"

#include <stdatomic.h>
#include <stdlib.h>

#include "spoa/base/references.h"

#define DUE_EVERY (100 * MILLISECOND) /* between looks at what is in use and due */

enum { QUESTIONS_MOST = 65536 };

struct directory {
    /* the owner's, decisions', one of each question and of `urgent` while it is posted */
    atomic_uint references;
    struct directory_options *options;
    struct directory_owner owner;
    struct loop *loop;
    struct directory_cache *cache;
    struct loop_timer due;
    struct loop_task urgent;
    atomic_bool urgent_posted, stopped;
    atomic_uint questions;

    /* of the loop's thread */
    void *self; /* of the kind; NULL: not started yet, or stopped: what it reports is for nobody */
    bool known, answering, pushing;
};

/* ---- questions ---- */

void directory_questions_put(struct directory_questions *all, struct directory_question *q)
{
    q->next = NULL;
    *(all->first ? &all->last->next : &all->first) = q;
    all->last = q;
}

struct directory_question *directory_questions_take(struct directory_questions *all)
{
    struct directory_question *q = all->first;
    if (q)
        all->first = q->next;
    return q;
}

static void on_question(void *context)
{
    struct directory_question *q = context;
    struct directory *d = q->directory;
    if (d->self)
        d->options->kind->ask(d->self, q);
    else
        directory_answer(q, LOOKUP_UNAVAILABLE, NULL, 0);
}

/* Any thread. False: too many, or out of memory. */
static bool directory_ask(struct directory *d, struct slice key, bool wake)
{
    size_t size = d->options->kind->question_size;
    struct directory_question *q = NULL;
    if (atomic_load(&d->stopped))
        return false;
    if (atomic_fetch_add(&d->questions, 1) >= QUESTIONS_MOST || !(q = calloc(1, size + key.len))) {
        atomic_fetch_sub(&d->questions, 1);
        return false;
    }
    uint8_t *at = (uint8_t *)q + size;
    memcpy(at, key.at, key.len);
    q->directory = directory_retain(d);
    q->asked = loop_clock();
    q->key = slice_of(at, key.len);
    q->wake = wake;
    q->task = (struct loop_task){.run = on_question, .context = q};
    loop_post(d->loop, &q->task);
    return true;
}

void directory_answer(struct directory_question *q, enum lookup outcome, const struct record *record,
                      uint64_t ttl)
{
    struct directory *d = q->directory;
    if (d->self && !q->wake) {
        if (outcome == LOOKUP_FOUND)
            d->owner.learned(d->owner.context, record);
        uint64_t took = directory_cache_answered(d->cache, q->key, outcome, record, ttl);
        if (took != DIRECTORY_CACHE_UNASKED)
            d->owner.answered(d->owner.context, outcome, took);
    }
    free(q);
    atomic_fetch_sub(&d->questions, 1);
    directory_release(d);
}

/* ---- what the kind tells ---- */

bool directory_loaded(struct directory *d, const struct directory_load *load)
{
    return d->owner.loaded(d->owner.context, load);
}

void directory_changed(struct directory *d, struct slice key, const struct record *record)
{
    if (!directory_cache_has(d->cache, key))
        return;
    d->owner.learned(d->owner.context, record);
    directory_cache_changed(d->cache, key, record);
}

void directory_removed(struct directory *d, struct slice key)
{
    directory_cache_removed(d->cache, key);
}

void directory_announced(struct directory *d, struct slice key)
{
    directory_cache_announced(d->cache, key);
}

void directory_missed(struct directory *d)
{
    directory_cache_missed(d->cache);
}

bool directory_revoked(struct directory *d, int64_t not_before)
{
    return d->owner.revoked(d->owner.context, not_before);
}

bool directory_revoked_tokens(struct directory *d, struct slice text, bool all, struct fail *why)
{
    return d->owner.revoked_tokens(d->owner.context, text, all, why);
}

void directory_health(struct directory *d, bool answering, bool pushing, const char *why)
{
    if (!d->self || (d->cache && d->known && d->answering == answering && d->pushing == pushing))
        return;
    d->known = true;
    d->answering = answering;
    d->pushing = pushing;
    if (d->cache)
        directory_cache_health(d->cache, answering, pushing);
    d->owner.health(d->owner.context, answering, pushing, answering ? "" : why);
}

/* ---- what the cache asks for ---- */

static uint64_t clock_of(void *context)
{
    (void)context;
    return loop_clock();
}

static bool look_up(void *context, struct slice key)
{
    return directory_ask(context, key, false);
}

static void notify_owner(void *context, struct slice key, uint64_t waiters)
{
    struct directory *d = context;
    d->owner.notify(d->owner.context, key, waiters);
}

static void on_due(void *context)
{
    struct directory *d = context;
    directory_cache_work(d->cache, false);
    loop_timer_set(&d->due, DUE_EVERY);
}

static void on_urgent(void *context)
{
    struct directory *d = context;
    atomic_store(&d->urgent_posted, false);
    if (d->self)
        directory_cache_work(d->cache, true);
    directory_release(d);
}

static void work(void *context)
{
    struct directory *d = context;
    if (atomic_exchange(&d->urgent_posted, true))
        return;
    directory_retain(d);
    loop_post(d->loop, &d->urgent);
}

/* ---- its life ---- */

static struct directory_cache *cache_new(struct directory *d, uint64_t patience)
{
    const struct directory_common *own = d->options->own;
    const struct directory_cache_options options = {
        .entries = (size_t)own->entries,
        .ttl = (uint64_t)own->ttl * MILLISECOND,
        .stale = d->options->kind->holds ? 0 : (uint64_t)own->stale * MILLISECOND,
        .patience = patience,
        .absence_is_doubt = d->options->kind->absence_is_doubt,
        .clock = clock_of,
        .look_up = look_up,
        .notify = notify_owner,
        .work = work,
        .context = d,
    };
    return directory_cache_new(&options);
}

struct directory *directory_start(struct directory_options *options, const struct directory_owner *owner,
                                  uint64_t patience, struct loop *loop, struct log *log, struct fail *why)
{
    struct directory *d = calloc(1, sizeof *d);
    if (!d) {
        fail(why, "out of memory");
        return NULL;
    }
    d->references = 1;
    d->options = directory_options_retain(options);
    d->owner = *owner;
    d->loop = loop;
    d->urgent = (struct loop_task){.run = on_urgent, .context = d};
    bool asked = options->kind->ask;
    if (asked && !(d->cache = cache_new(d, patience)))
        fail(why, "out of memory");
    else
        d->self = options->kind->start(options->own, d, loop, log, why);
    if (!d->self) {
        directory_release(d);
        return NULL;
    }
    if (asked) {
        loop_timer_open(&d->due, loop, on_due, d);
        loop_timer_set(&d->due, DUE_EVERY);
    }
    return d;
}

void directory_stop(struct directory *d)
{
    if (!d || !d->self)
        return;
    void *self = d->self;
    d->self = NULL;
    atomic_store(&d->stopped, true);
    loop_timer_close(&d->due);
    d->options->kind->stop(self);
}

struct directory *directory_retain(struct directory *d)
{
    references_add(&d->references);
    return d;
}

void directory_release(struct directory *d)
{
    if (!d || !references_drop(&d->references))
        return;
    directory_cache_free(d->cache);
    directory_options_release(d->options);
    free(d);
}

const struct directory_kind *directory_kind(const struct directory *d)
{
    return d->options->kind;
}

struct directory_cache *directory_cache(const struct directory *d)
{
    return d->cache;
}

bool directory_counts(const struct directory *d, uint64_t counts[DIRECTORY_FOLLOWED])
{
    if (!d->self || !d->options->kind->counts)
        return false;
    d->options->kind->counts(d->self, counts);
    return true;
}

bool directory_can_wake(const struct directory *d)
{
    return d->options->kind->wakes;
}

void directory_wake(struct directory *d, struct slice key)
{
    if (directory_cache_may_wake(d->cache, key))
        (void)directory_ask(d, key, true);
}
