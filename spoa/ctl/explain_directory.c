/* SPDX-License-Identifier: MIT */
#include "spoa/ctl/explain_directory.h"

#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#define PATIENCE (10 * SECOND)
/* time for a directory that pushes changes to send the list of revoked tokens */
#define FOLLOW (300 * MILLISECOND)

struct explain_directory {
    struct directory *running;
    struct loop *loop; /* event loop; runs only while a caller waits */
    struct loop_timer patience;
    struct log *log; /* log for invalid answers */
    bool answered, answering, over;
    bool heard;              /* true if the directory has answered */
    struct revoked *revoked; /* NULL: none */
    bool told, waited;       /* told: the revoked tokens are known; waited: the wait for them is over */
    int64_t not_before;      /* pushed not_before; 0 if there is none */
    struct fail why;         /* reason why the directory does not answer */
};

/* ---- call-backs of the directory ---- */

static void on_explain_answered(void *context, enum lookup outcome, uint64_t took)
{
    (void)context, (void)outcome, (void)took;
}

static void on_explain_notified(void *context, struct slice key, uint64_t waiters)
{
    (void)key, (void)waiters;
    ((struct explain_directory *)context)->answered = true;
}

static void on_health(void *context, bool answering, bool pushing, const char *why)
{
    struct explain_directory *d = context;
    (void)pushing;
    d->answering = answering;
    d->heard = true;
    fail(&d->why, "%s", answering ? "it does not answer" : why);
}

static bool on_loaded(void *context, const struct directory_load *load)
{
    (void)context, (void)load;
    return true;
}

static bool on_revoked(void *context, int64_t not_before)
{
    struct explain_directory *d = context;
    d->not_before = not_before;
    d->told = true;
    return true;
}

static bool on_revoked_tokens(void *context, struct slice text, bool all, struct fail *why)
{
    struct explain_directory *d = context;
    (void)all; /* none were known before */
    d->told = true;
    return revoked_read(text, "revoked", time(NULL), &d->revoked, &d->not_before, NULL, why);
}

static void on_learned(void *context, const struct record *record)
{
    (void)context, (void)record;
}

static void on_over(void *owner)
{
    ((struct explain_directory *)owner)->over = true;
}

/* Waits until *is is true or `patience` is over. */
static void await(struct explain_directory *d, const bool *is, uint64_t patience)
{
    d->over = false;
    loop_timer_set(&d->patience, patience);
    while (!*is && !d->over)
        loop_turn(d->loop, true);
    loop_timer_stop(&d->patience);
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
                                          .answered = on_explain_answered,
                                          .notify = on_explain_notified,
                                          .context = d};
    fail(&d->why, "it does not answer");
    d->log = log_new(STDERR_FILENO, LOG_WARN);
    d->loop = loop_new(why);
    if (d->loop) {
        loop_timer_open(&d->patience, d->loop, on_over, d);
        d->running = directory_start(options, &owner, PATIENCE, d->loop, d->log, why);
    }
    if (d->running) {
        /* a directory that holds records has none before it has pushed them */
        if (directory_kind(d->running)->holds)
            await(d, &d->heard, PATIENCE);
        return d;
    }
    explain_directory_stop(d);
    return NULL;
}

void explain_directory_stop(struct explain_directory *d)
{
    if (!d)
        return;
    directory_stop(d->running);
    directory_release(d->running);
    loop_timer_close(&d->patience);
    loop_free(d->loop);
    if (d->log)
        log_free(d->log);
    revoked_release(d->revoked);
    free(d);
}

struct directory *explain_directory_running(const struct explain_directory *d)
{
    return d->running;
}

struct revoked *explain_directory_revoked(struct explain_directory *d)
{
    return d->revoked ? revoked_retain(d->revoked) : NULL;
}

int64_t explain_directory_not_before(struct explain_directory *d)
{
    return d->not_before;
}

bool explain_directory_await(struct explain_directory *d, struct fail *why)
{
    await(d, &d->answered, PATIENCE);
    if (d->answered && d->answering && !d->waited) {
        await(d, &d->told, FOLLOW);
        d->waited = true;
    }
    bool good = d->answered && d->answering;
    d->answered = false;
    if (!good)
        *why = d->why;
    return good;
}
