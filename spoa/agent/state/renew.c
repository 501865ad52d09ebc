/* SPDX-License-Identifier: MIT */
#include "spoa/agent/state/renew.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "spoa/agent/directory/redis_link.h"
#include "spoa/agent/state/agent_metrics.h"

enum { ROOM = 4096, IN_FLIGHT = 32, TEXT_MOST = 2048 };

/* A push that Redis has not answered yet. */
struct push {
    struct redis_command command;
    struct renew *renew;
    bool busy;
};

struct renew {
    struct renew_options options;
    struct settings_renew settings;
    struct intents *intents;
    struct dns *dns;
    struct dns_options dns_options;
    struct redis_link *link;
    struct push pushes[IN_FLIGHT];
    struct loop_task tell;
    uint64_t complained; /* loop_clock of the last complaint in the log */
    bool stopping;
};

/* ---- sending ---- */

static void count_intents(struct renew *r, enum renew_outcome outcome, uint64_t by)
{
    if (by)
        metrics_add(r->options.shard, AGENT_RENEW, METRIC_INDEX(outcome), (int64_t)by);
}

static void complain(struct renew *r, const char *why)
{
    uint64_t now = loop_clock();
    if (r->stopping || (r->complained && now - r->complained < 10 * SECOND))
        return;
    r->complained = now;
    log_write(r->options.log, LOG_WARN, "renew intents cannot be sent", LOG_TEXT("why", why));
}

static void tell(void *context);

static void on_pushed(struct redis_command *command, const struct resp *reply)
{
    struct push *push = (struct push *)(void *)command;
    struct renew *r = push->renew;
    bool good = reply && reply->kind == RESP_INTEGER;
    push->busy = false;
    count_intents(r, good ? RENEW_TOLD : RENEW_FAILED, 1);
    if (reply && !good)
        complain(r, "the server refuses the command");
    if (!r->stopping && reply)
        loop_defer(r->options.loop, &r->tell);
}

static void on_trimmed(struct redis_command *command, const struct resp *reply)
{
    (void)reply;
    ((struct push *)(void *)command)->busy = false;
}

static struct push *free_push(struct renew *r)
{
    for (size_t i = 0; i < IN_FLIGHT; i++)
        if (!r->pushes[i].busy)
            return &r->pushes[i];
    return NULL;
}

static bool send_words(struct renew *r, const struct slice *words, size_t count,
                       void (*replied)(struct redis_command *command, const struct resp *reply))
{
    struct push *push = free_push(r);
    if (!push)
        return false;
    *push = (struct push){.command = {.replied = replied}, .renew = r};
    push->busy = redis_link_send(r->link, words, count, &push->command);
    return push->busy;
}

static bool push_next(struct renew *r, uint64_t now)
{
    struct buffer text = buffer_with_limit(TEXT_MOST);
    struct timespec unix_now;
    const uint64_t old = 5 * MINUTE;
    clock_gettime(CLOCK_REALTIME, &unix_now);
    bool taken = intents_take(r->intents, now > old ? now - old : 0, now,
                              (int64_t)unix_now.tv_sec * 1000 + unix_now.tv_nsec / 1000000, &text);
    if (taken) {
        const struct slice words[] = {SLICE_LITERAL("LPUSH"), slice_text(r->settings.key),
                                      buffer_slice(&text)};
        if (!send_words(r, words, 3, on_pushed))
            count_intents(r, RENEW_FAILED, 1);
    }
    buffer_free(&text);
    return taken;
}

static void trim(struct renew *r)
{
    char last[24];
    snprintf(last, sizeof last, "%lld", (long long)r->settings.max_length - 1);
    const struct slice words[] = {SLICE_LITERAL("LTRIM"), slice_text(r->settings.key), SLICE_LITERAL("0"),
                                  slice_text(last)};
    (void)send_words(r, words, 4, on_trimmed);
}

/* Sends as many pushes as may be in flight; their answers call it again. */
static void tell(void *context)
{
    struct renew *r = context;
    uint64_t now = loop_clock();
    size_t told = 0;
    while (!r->stopping && redis_link_ready(r->link) && free_push(r) && push_next(r, now))
        told++;
    if (told && r->settings.max_length)
        trim(r);
    count_intents(r, RENEW_DROPPED, intents_lost(r->intents));
}

void renew_note(struct renew *r, const struct intent *intent)
{
    if (r && intents_note(r->intents, intent, loop_clock()))
        loop_post(r->options.loop, &r->tell);
}

static void on_renew_ready(void *context)
{
    tell(context);
}

static void on_lost(void *context, const char *why)
{
    complain(context, why);
}

/* ---- start and end ---- */

bool renew_check(const struct settings_renew *settings, struct fail *why)
{
    struct redis_server server;
    struct fail what;
    if (settings->user && !settings->password_file)
        return fail(why, "renew.user: a user needs a password_file");
    return !settings->redis || redis_server_parse(slice_text(settings->redis), &server, &what) ||
           fail(why, "renew.redis: %s", what.text);
}

static bool prepare_renew(struct renew *r, struct fail *why)
{
    struct redis_link_options link = {.database = r->settings.database,
                                      .user = r->settings.user,
                                      .password_file = r->settings.password_file,
                                      .timeout = 2 * SECOND,
                                      .ready = on_renew_ready,
                                      .lost = on_lost,
                                      .context = r};
    r->dns_options.timeout = link.timeout;
    r->intents = intents_new((uint64_t)r->settings.every * MILLISECOND, ROOM);
    if (!r->intents)
        return fail(why, "out of memory");
    if (!(r->dns = dns_new(r->options.loop, &r->dns_options, why)) ||
        !redis_server_parse(slice_text(r->settings.redis), &link.server, why))
        return false;
    link.loop = r->options.loop;
    link.dns = r->dns;
    r->link = redis_link_new(&link);
    return r->link || fail(why, "out of memory");
}

static void destroy(void *context)
{
    struct renew *r = context;
    intents_free(r->intents);
    free(r);
}

void renew_stop(struct renew *r)
{
    if (!r)
        return;
    r->stopping = true;
    dns_free(r->dns);
    redis_link_free(r->link);
    r->tell.run = destroy; /* after the task that may be queued */
    loop_post(r->options.loop, &r->tell);
}

struct renew *renew_start(const struct renew_options *options, struct fail *why)
{
    struct renew *r = calloc(1, sizeof *r);
    if (!r) {
        fail(why, "out of memory");
        return NULL;
    }
    r->options = *options;
    r->settings = *options->settings;
    r->tell = (struct loop_task){.run = tell, .context = r};
    if (prepare_renew(r, why))
        return r;
    renew_stop(r);
    return NULL;
}
