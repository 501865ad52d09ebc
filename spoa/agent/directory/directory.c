/* SPDX-License-Identifier: MIT */
#include "spoa/agent/directory/directory.h"

#include <pthread.h>
#include <stdlib.h>

#include "spoa/net/loop.h"

struct directory {
    unsigned references; /* atomic */
    struct directory_options *options;
    struct directory_owner owner;
    struct directory_sink sink;
    struct directory_cache *cache;
    pthread_rwlock_t lock; /* guards self against its end while it is asked */
    void *self;            /* of the kind; NULL: stopped */
};

/* ---- what the kind tells ---- */

static bool on_loaded(void *context, const struct directory_load *load)
{
    struct directory *d = context;
    return d->owner.loaded(d->owner.context, load);
}

static void on_answered(void *context, struct slice key, enum lookup outcome, const struct record *record,
                        double ttl)
{
    struct directory *d = context;
    if (outcome == LOOKUP_FOUND)
        d->owner.learned(d->owner.context, record);
    double seconds = directory_cache_answered(d->cache, key, outcome, record, ttl);
    if (seconds >= 0)
        d->owner.answered(d->owner.context, outcome, seconds);
}

static void on_changed(void *context, struct slice key, const struct record *record)
{
    struct directory *d = context;
    if (directory_cache_has(d->cache, key))
        d->owner.learned(d->owner.context, record);
    directory_cache_changed(d->cache, key, record);
}

static void on_removed(void *context, struct slice key)
{
    directory_cache_removed(((struct directory *)context)->cache, key);
}

static void on_announced(void *context, struct slice key)
{
    directory_cache_announced(((struct directory *)context)->cache, key);
}

static void on_missed(void *context)
{
    directory_cache_missed(((struct directory *)context)->cache);
}

static bool on_revoked(void *context, int64_t not_before)
{
    struct directory *d = context;
    return d->owner.revoked(d->owner.context, not_before);
}

static bool on_revoked_tokens(void *context, struct slice text, bool all, struct fail *why)
{
    struct directory *d = context;
    return d->owner.revoked_tokens(d->owner.context, text, all, why);
}

static void on_health(void *context, bool answering, bool pushing, const char *why)
{
    struct directory *d = context;
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
    struct directory *d = context;
    pthread_rwlock_rdlock(&d->lock);
    bool begun = d->self && d->options->kind->look_up(d->self, key);
    pthread_rwlock_unlock(&d->lock);
    return begun;
}

static void news(void *context, struct slice key)
{
    struct directory *d = context;
    d->owner.news(d->owner.context, key);
}

static void work(void *context)
{
    struct directory *d = context;
    d->owner.work(d->owner.context);
}

/* ---- its life ---- */

static struct directory_cache *cache_new(struct directory *d, uint64_t patience)
{
    const struct directory_common *own = d->options->own;
    const struct directory_cache_options options = {
        .entries = (size_t)own->entries,
        .ttl = (uint64_t)own->ttl * 1000,
        .stale = (uint64_t)own->stale * 1000,
        .patience = patience,
        .absence_is_doubt = d->options->kind->absence_is_doubt,
        .clock = clock_of,
        .look_up = look_up,
        .news = news,
        .work = work,
        .context = d,
    };
    return directory_cache_new(&options);
}

struct directory *directory_start(struct directory_options *options, const struct directory_owner *owner,
                                  uint64_t patience, struct log *log, struct fail *why)
{
    struct directory *d = calloc(1, sizeof *d);
    if (!d) {
        fail(why, "out of memory");
        return NULL;
    }
    d->references = 1;
    d->options = directory_options_retain(options);
    d->owner = *owner;
    d->sink = (struct directory_sink){.loaded = on_loaded,
                                      .answered = on_answered,
                                      .changed = on_changed,
                                      .removed = on_removed,
                                      .announced = on_announced,
                                      .missed = on_missed,
                                      .revoked = on_revoked,
                                      .revoked_tokens = on_revoked_tokens,
                                      .health = on_health,
                                      .context = d};
    pthread_rwlock_init(&d->lock, NULL);
    bool asked = options->kind->look_up;
    if (asked && !(d->cache = cache_new(d, patience)))
        fail(why, "out of memory");
    else
        d->self = options->kind->start(options->own, &d->sink, log, why);
    if (d->self)
        return d;
    directory_release(d);
    return NULL;
}

void directory_stop(struct directory *d)
{
    if (!d)
        return;
    pthread_rwlock_wrlock(&d->lock);
    void *self = d->self;
    d->self = NULL;
    pthread_rwlock_unlock(&d->lock);
    if (self)
        d->options->kind->stop(self);
}

struct directory *directory_retain(struct directory *d)
{
    __atomic_fetch_add(&d->references, 1, __ATOMIC_RELAXED);
    return d;
}

void directory_release(struct directory *d)
{
    if (!d || __atomic_sub_fetch(&d->references, 1, __ATOMIC_ACQ_REL) > 0)
        return;
    directory_cache_free(d->cache);
    directory_options_release(d->options);
    pthread_rwlock_destroy(&d->lock);
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

bool directory_can_wake(const struct directory *d)
{
    return d->options->kind->wake;
}

void directory_wake(struct directory *d, struct slice key)
{
    if (!directory_cache_may_wake(d->cache, key))
        return;
    pthread_rwlock_rdlock(&d->lock);
    if (d->self)
        d->options->kind->wake(d->self, key);
    pthread_rwlock_unlock(&d->lock);
}
