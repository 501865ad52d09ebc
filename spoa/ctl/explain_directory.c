/* SPDX-License-Identifier: MIT */
#include "spoa/ctl/explain_directory.h"

#include <pthread.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#define PATIENCE_SECONDS    10
#define FOLLOW_MILLISECONDS 300 /* for what it pushes to begin with, if it does: what is revoked */

struct explain_directory {
    struct directory *running;
    struct log *log;      /* of answers that make no sense */
    pthread_mutex_t lock; /* of what follows */
    pthread_cond_t changed;
    bool answered, answering;
    struct revoked *revoked; /* NULL: none */
    bool told, waited;  /* what is revoked; until that was told, or long enough */
    int64_t not_before; /* as it was pushed; 0: none */
    struct fail why;    /* while not answering */
};

/* ---- what it tells, on a thread of its own ---- */

static void on_answered(void *context, enum lookup outcome, double seconds)
{
    (void)context, (void)outcome, (void)seconds;
}

static void on_news(void *context, struct slice key)
{
    struct explain_directory *d = context;
    (void)key;
    pthread_mutex_lock(&d->lock);
    d->answered = true;
    pthread_cond_signal(&d->changed);
    pthread_mutex_unlock(&d->lock);
}

static void on_health(void *context, bool answering, bool pushing, const char *why)
{
    struct explain_directory *d = context;
    pthread_mutex_lock(&d->lock);
    (void)pushing;
    d->answering = answering;
    fail(&d->why, "%s", answering ? "it does not answer" : why);
    pthread_cond_signal(&d->changed);
    pthread_mutex_unlock(&d->lock);
}

static bool on_loaded(void *context, const struct directory_load *load)
{
    (void)context, (void)load;
    return true;
}

static bool on_revoked(void *context, int64_t not_before)
{
    struct explain_directory *d = context;
    pthread_mutex_lock(&d->lock);
    d->not_before = not_before;
    d->told = true;
    pthread_cond_signal(&d->changed);
    pthread_mutex_unlock(&d->lock);
    return true;
}

static bool on_revoked_tokens(void *context, struct slice text, bool all, struct fail *why)
{
    struct explain_directory *d = context;
    pthread_mutex_lock(&d->lock);
    (void)all; /* none were known before */
    bool good = revoked_read(text, "revoked", time(NULL), &d->revoked, &d->not_before, NULL, why);
    d->told = true;
    pthread_cond_signal(&d->changed);
    pthread_mutex_unlock(&d->lock);
    return good;
}

static void on_learned(void *context, const struct record *record)
{
    (void)context, (void)record;
}

static void on_work(void *context)
{
    (void)context;
}

/* ---- for the command ---- */

struct explain_directory *explain_directory_start(struct directory_options *options, struct fail *why)
{
    struct explain_directory *d = calloc(1, sizeof *d);
    if (!d) {
        fail(why, "out of memory");
        return NULL;
    }
    const struct directory_owner owner = {.loaded = on_loaded,
                                          .revoked = on_revoked,
                                          .revoked_tokens = on_revoked_tokens,
                                          .health = on_health,
                                          .learned = on_learned,
                                          .answered = on_answered,
                                          .news = on_news,
                                          .work = on_work,
                                          .context = d};
    pthread_mutex_init(&d->lock, NULL);
    pthread_cond_init(&d->changed, NULL);
    fail(&d->why, "it does not answer");
    d->log = log_new(STDERR_FILENO, LOG_WARN);
    d->running = directory_start(options, &owner, (uint64_t)PATIENCE_SECONDS * 1000000, d->log, why);
    if (d->running)
        return d;
    explain_directory_stop(d);
    return NULL;
}

void explain_directory_stop(struct explain_directory *d)
{
    if (!d)
        return;
    directory_stop(d->running);
    directory_release(d->running);
    if (d->log)
        log_free(d->log);
    revoked_release(d->revoked);
    pthread_cond_destroy(&d->changed);
    pthread_mutex_destroy(&d->lock);
    free(d);
}

struct directory *explain_directory_running(const struct explain_directory *d)
{
    return d->running;
}

struct revoked *explain_directory_revoked(struct explain_directory *d)
{
    pthread_mutex_lock(&d->lock);
    struct revoked *revoked = d->revoked ? revoked_retain(d->revoked) : NULL;
    pthread_mutex_unlock(&d->lock);
    return revoked;
}

int64_t explain_directory_not_before(struct explain_directory *d)
{
    pthread_mutex_lock(&d->lock);
    int64_t not_before = d->not_before;
    pthread_mutex_unlock(&d->lock);
    return not_before;
}

static struct timespec after(int milliseconds)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    t.tv_sec += milliseconds / 1000;
    t.tv_nsec += milliseconds % 1000 * 1000000L;
    if (t.tv_nsec >= 1000000000L) {
        t.tv_sec++;
        t.tv_nsec -= 1000000000L;
    }
    return t;
}

/* Waits, with the lock, until it is true or the time is over. */
static void await(struct explain_directory *d, const bool *is, int milliseconds)
{
    struct timespec until = after(milliseconds);
    for (int error = 0; !*is && error == 0;)
        error = pthread_cond_timedwait(&d->changed, &d->lock, &until);
}

bool explain_directory_await(struct explain_directory *d, struct fail *why)
{
    pthread_mutex_lock(&d->lock);
    await(d, &d->answered, PATIENCE_SECONDS * 1000);
    if (d->answered && d->answering && !d->waited) {
        await(d, &d->told, FOLLOW_MILLISECONDS);
        d->waited = true;
    }
    bool good = d->answered && d->answering;
    d->answered = false;
    if (!good)
        *why = d->why;
    pthread_mutex_unlock(&d->lock);
    return good;
}
