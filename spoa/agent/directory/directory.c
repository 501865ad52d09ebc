/* SPDX-License-Identifier: MIT */
#include "spoa/agent/directory/directory.h"

#include <stdatomic.h>
#include <stdlib.h>

#include "spoa/agent/directory/queue.h"
#include "spoa/base/table/references.h"

#define DUE_EVERY  (100 * MILLISECOND) /* between two calls of directory_cache_work for what is due */
#define LATE       (3 * SECOND)        /* minimum time until a queued look-up ends; requests ask again */
#define WAKE_AGAIN (500 * MILLISECOND) /* between two attempts to wake one sandbox */
#define WAKE_MAX   (30 * SECOND) /* time after which nobody waits for a wake: the default of relay.hold */

/* Places of the queues (spoa/base/table/fair.h): in all, and of one owner. */
enum { LOOK_UPS_MAX = 65536, LOOK_UPS_EACH = 8192, LOOK_UPS_MIN = 128, WAKES_MAX = 16384, WAKES_EACH = 1024 };

struct directory {
    /* held by the owner, by decisions, by each question, and by `urgent` and `serve` while they are posted */
    atomic_uint references;
    struct directory_options *options;
    struct directory_owner owner;
    struct loop *loop;
    struct directory_cache *cache;
    uint64_t patience;     /* time after which a look-up in the queue is given up */
    struct loop_timer due; /* runs on_due */
    struct loop_task urgent, serve;
    atomic_bool urgent_posted, serve_posted;  /* set while the task is posted */
    struct directory_queue *look_ups, *wakes; /* NULL if the kind holds all records */

    /* the loop's thread only */
    void *self; /* the kind's state; NULL, and reports are ignored, before its start and after its stop */
    struct directory_questions set_aside; /* wakes to be tried again, the next one first */
    struct loop_timer again;              /* runs on_again */
    bool known;                           /* health was reported at least once; the last report follows */
    bool answering, pushing;
};

/* ---- lists of questions ---- */

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

/* ---- asking: any thread ---- */

static struct directory_queue *queue_of(const struct directory *d, bool wake)
{
    return wake ? d->wakes : d->look_ups;
}

/* Lets on_serve run on the loop's thread, once however often this is called before. */
static void serve_soon(struct directory *d)
{
    if (atomic_exchange(&d->serve_posted, true))
        return;
    directory_retain(d);
    loop_post(d->loop, &d->serve);
}

/* Queues a question on behalf of `owner`. The key is copied to the end of the question's memory. */
static enum directory_ask directory_ask(struct directory *d, struct slice key, struct fair_owner owner,
                                        bool wake)
{
    size_t size = d->options->kind->question_size;
    struct directory_question *q = calloc(1, size + key.len);
    if (!q)
        return ASK_REFUSED;
    uint8_t *at = (uint8_t *)q + size;
    memcpy(at, key.at, key.len);
    q->directory = directory_retain(d);
    q->asked = loop_clock();
    q->key = slice_of(at, key.len);
    q->wake = wake;
    enum directory_ask asked = directory_queue_put(queue_of(d, wake), q, owner);
    if (asked == ASK_BEGUN) {
        serve_soon(d);
    } else {
        free(q);
        directory_release(d);
    }
    return asked;
}

static void directory_join(struct directory *d, struct slice key, struct fair_owner owner, bool wake)
{
    if (directory_queue_join(queue_of(d, wake), key, owner))
        serve_soon(d);
}

/* ---- serving: on the loop's thread ---- */

static void free_question(struct directory_question *q)
{
    struct directory *d = q->directory;
    free(q);
    directory_release(d);
}

/* Drops look-ups that have waited since `since` or longer: the requests that waited for them have ended. */
static void give_up_late(struct directory *d, uint64_t since)
{
    struct directory_question *q;
    while ((q = directory_queue_late(d->look_ups, since))) {
        if (d->self)
            directory_cache_unasked(d->cache, q->key);
        free_question(q);
    }
}

/* Drops wakes in the same way. Their callers wait for a push of the directory, so nobody is notified. */
static void give_up_wakes(struct directory *d, uint64_t since)
{
    struct directory_question *q;
    while ((q = directory_queue_late(d->wakes, since)))
        free_question(q);
}

/* Passes questions to the kind, as many as it takes at a time. The kind may be stopped in between. */
static void serve_queue(struct directory *d, struct directory_queue *queue)
{
    struct directory_question *q;
    while (d->self && (q = directory_queue_next(queue)))
        d->options->kind->ask(d->self, q);
}

static void on_serve(void *context)
{
    struct directory *d = context;
    atomic_store(&d->serve_posted, false);
    serve_queue(d, d->wakes);
    serve_queue(d, d->look_ups);
    directory_release(d);
}

bool directory_wake_again(struct directory_question *q)
{
    struct directory *d = q->directory;
    q->again = loop_clock() + WAKE_AGAIN;
    if (!d->self || q->again > q->asked + WAKE_MAX)
        return false;
    directory_queue_hold(d->wakes, q);
    directory_questions_put(&d->set_aside, q);
    if (!loop_timer_active(&d->again))
        loop_timer_set_at(&d->again, q->again);
    serve_soon(d);
    return true;
}

static void on_again(void *context)
{
    struct directory *d = context;
    uint64_t now = loop_clock();
    while (d->set_aside.first && d->set_aside.first->again <= now)
        directory_queue_again(d->wakes, directory_questions_take(&d->set_aside));
    if (d->set_aside.first)
        loop_timer_set_at(&d->again, d->set_aside.first->again);
    serve_soon(d);
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
    struct directory_queue *queue = queue_of(d, q->wake);
    directory_queue_leave(queue, q);
    if (d->self && directory_queue_is_waiting(queue))
        serve_soon(d);
    free_question(q);
}

/* ---- reports of the kind ---- */

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

/* ---- call-backs of the cache ---- */

/* The cache and the loop share one clock. */
static uint64_t clock_of(void *context)
{
    (void)context;
    return loop_clock();
}

static enum directory_ask look_up(void *context, struct slice key, struct fair_owner owner)
{
    return directory_ask(context, key, owner, false);
}

static void join(void *context, struct slice key, struct fair_owner owner)
{
    directory_join(context, key, owner, false);
}

static void notify_owner(void *context, struct slice key, uint64_t waiters)
{
    struct directory *d = context;
    d->owner.notify(d->owner.context, key, waiters);
}

static void on_due(void *context)
{
    struct directory *d = context;
    uint64_t now = loop_clock();
    give_up_late(d, now - d->patience);
    give_up_wakes(d, now - WAKE_MAX);
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

/* ---- life ---- */

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
        .join = join,
        .notify = notify_owner,
        .work = work,
        .context = d,
    };
    return directory_cache_new(&options);
}

/* Creates the cache and the queues of a kind that looks up single records. Returns false if memory is short. */
static bool prepare_asked(struct directory *d, uint64_t patience)
{
    const struct directory_kind *kind = d->options->kind;
    /* Proportional to the cache, which has room for so many look-ups of unknown keys: an owner then exceeds its own share first, and is
     * refused before the cache is full for all. */
    int64_t places = d->options->own->entries / 4 + LOOK_UPS_MIN;
    const struct fair_limits look_ups = {.places = (uint32_t)(places < LOOK_UPS_MAX ? places : LOOK_UPS_MAX),
                                         .each = LOOK_UPS_EACH,
                                         .served = kind->look_ups_at_once},
                             wakes = {.places = WAKES_MAX, .each = WAKES_EACH, .served = kind->wakes_at_once};
    d->patience = patience > LATE ? patience : LATE;
    d->cache = cache_new(d, patience);
    d->look_ups = directory_queue_new(&look_ups);
    d->wakes = directory_queue_new(&wakes);
    return d->cache && d->look_ups && d->wakes;
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
    d->serve = (struct loop_task){.run = on_serve, .context = d};
    bool asked = options->kind->ask;
    if (asked && !prepare_asked(d, patience))
        fail(why, "out of memory");
    else
        d->self = options->kind->start(options->own, d, loop, log, why);
    if (!d->self) {
        directory_release(d);
        return NULL;
    }
    if (asked) {
        loop_timer_open(&d->again, loop, on_again, d);
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
    if (d->look_ups) {
        directory_queue_stop(d->look_ups);
        directory_queue_stop(d->wakes);
        loop_timer_close(&d->due);
        loop_timer_close(&d->again);
    }
    d->options->kind->stop(self);
    if (!d->look_ups)
        return;
    /* The kind is stopped: nobody gets an answer to what still waits. */
    for (struct directory_question *q; (q = directory_questions_take(&d->set_aside));)
        directory_answer(q, LOOKUP_UNAVAILABLE, NULL, 0);
    give_up_late(d, UINT64_MAX);
    give_up_wakes(d, UINT64_MAX);
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
    directory_queue_free(d->look_ups);
    directory_queue_free(d->wakes);
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

void directory_wake(struct directory *d, struct slice key, struct fair_owner owner)
{
    if (!directory_cache_may_wake(d->cache, key))
        directory_join(d, key, owner, true);
    else if (directory_ask(d, key, owner, true) != ASK_BEGUN)
        directory_cache_not_woken(d->cache, key);
}
