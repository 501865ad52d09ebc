/* SPDX-License-Identifier: MIT */
#include "spoa/agent/decider.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "spoa/agent/agent_metrics.h"
#include "spoa/agent/answer.h"
#include "spoa/agent/watches.h"
#include "spoa/lib/net.h"

struct decider {
    struct decider_options options;
    struct loop *loop;
    struct server *server, *relay_server;
    struct watches *watches;
    struct token_cache *cache;
    uint8_t *scratch;
    pthread_t thread;

    struct snapshot *snapshot; /* of the thread */
    struct snapshot *next;     /* atomic: handed over, not taken yet */
    struct token_cache_counts reported;

    struct loop_task take, drain, stop;
    double grace;
};

static double seconds_since(const struct timespec *start)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)(now.tv_sec - start->tv_sec) + (double)(now.tv_nsec - start->tv_nsec) / 1e9;
}

static void count_cache(struct decider *d)
{
    struct token_cache_counts now = token_cache_counts(d->cache);
    if (now.hits == d->reported.hits && now.misses == d->reported.misses)
        return;
    metrics_add(d->options.shard, AGENT_TOKEN_CACHE, METRIC_INDEX(0), (int64_t)(now.hits - d->reported.hits));
    metrics_add(d->options.shard, AGENT_TOKEN_CACHE, METRIC_INDEX(1),
                (int64_t)(now.misses - d->reported.misses));
    d->reported = now;
}

static enum server_reply on_message(void *context, struct slice name, struct spop_args args,
                                    struct spop_actions *actions, const struct server_ticket *ticket)
{
    struct decider *d = context;
    struct request request;
    struct verdict verdict;
    struct timespec start;
    (void)ticket;
    clock_gettime(CLOCK_MONOTONIC, &start);
    if (!slice_is(name, "cell-route") || !request_from_args(args, &request)) {
        answer_unavailable(actions);
        return SERVER_NOW;
    }
    struct writer scratch = writer_of(d->scratch, DECIDE_SCRATCH);
    struct decide_view view = snapshot_view(d->snapshot, d->cache, time(NULL));
    view.token_checked = agent_metrics_token;
    view.counting = d->options.shard;
    decide(&view, &request, &scratch, &verdict);
    answer_write(&verdict, actions);
    agent_metrics_decision(d->options.shard, &verdict, seconds_since(&start));
    count_cache(d);
    return SERVER_NOW;
}

/* ---- relays ---- */

static void look_up(struct decider *d, const struct resolve_question *question, struct writer *scratch,
                    struct resolve_answer *answer)
{
    *scratch = writer_of(d->scratch, DECIDE_SCRATCH);
    struct decide_view view = snapshot_view(d->snapshot, d->cache, time(NULL));
    resolve(&view, question, scratch, answer);
}

static bool is_news(void *context, const struct resolve_question *question)
{
    struct resolve_answer answer;
    struct writer scratch;
    look_up(context, question, &scratch, &answer);
    return resolve_is_news(question, &answer);
}

static void answer_watch(void *context, const struct server_ticket *ticket,
                         const struct resolve_question *question)
{
    struct decider *d = context;
    struct spop_actions actions;
    struct resolve_answer answer;
    struct writer scratch;
    look_up(d, question, &scratch, &answer);
    if (!server_answer_begin(d->relay_server, ticket, &actions))
        return;
    resolve_write(&answer, &actions);
    server_answer_end(d->relay_server, ticket, &actions);
}

static enum server_reply on_relay_message(void *context, struct slice name, struct spop_args args,
                                          struct spop_actions *actions, const struct server_ticket *ticket)
{
    struct decider *d = context;
    struct resolve_question question;
    struct resolve_answer answer;
    struct writer scratch;
    bool watch = slice_is(name, "cell-watch");
    if ((!watch && !slice_is(name, "cell-resolve")) || !resolve_from_args(args, &question))
        return SERVER_NOW; /* the fallback: unavailable */
    look_up(d, &question, &scratch, &answer);
    if (watch && !resolve_is_news(&question, &answer) && watches_add(d->watches, ticket, &question))
        return SERVER_LATER;
    resolve_write(&answer, actions);
    return SERVER_NOW;
}

/* Who may ask for records' secrets: root, and who runs as our user or in our group. */
static bool admit_relay(void *context, int fd)
{
    struct net_peer peer;
    (void)context;
    return net_peer(fd, &peer) && (peer.uid == 0 || peer.uid == geteuid() || peer.gid == getegid());
}

/* ---- what others ask of the thread ---- */

static void take_next(void *context)
{
    struct decider *d = context;
    struct snapshot *next = __atomic_exchange_n(&d->next, NULL, __ATOMIC_ACQ_REL);
    if (!next)
        return;
    snapshot_release(d->snapshot);
    d->snapshot = next;
    watches_look(d->watches, is_news);
}

void decider_use(struct decider *d, struct snapshot *snapshot)
{
    snapshot_release(__atomic_exchange_n(&d->next, snapshot_retain(snapshot), __ATOMIC_ACQ_REL));
    loop_post(d->loop, &d->take);
}

static void drain_now(void *context)
{
    struct decider *d = context;
    server_drain(d->server, d->grace, d->options.drained, d->options.context);
    /* watches of relays would last a minute; they ask again elsewhere */
    server_drain(d->relay_server, 0, NULL, NULL);
}

void decider_drain(struct decider *d, double grace)
{
    d->grace = grace;
    loop_post(d->loop, &d->drain);
}

static void stop_now(void *context)
{
    struct decider *d = context;
    server_free(d->server);
    server_free(d->relay_server);
    d->server = d->relay_server = NULL;
    loop_stop(d->loop);
}

void decider_count(const struct decider *d, struct server_counters *sum)
{
    const struct server_counters *own = server_counters(d->server), *relay = server_counters(d->relay_server);
#define X(field, help) sum->field += server_counter(&own->field) + server_counter(&relay->field);
    SERVER_COUNTERS(X)
#undef X
}

/* ---- its life ---- */

static void *run(void *context)
{
    struct decider *d = context;
    loop_run(d->loop);
    return NULL;
}

static void destroy(struct decider *d)
{
    server_free(d->server);
    server_free(d->relay_server);
    watches_free(d->watches);
    loop_free(d->loop);
    token_cache_free(d->cache);
    snapshot_release(d->snapshot);
    snapshot_release(d->next);
    free(d->scratch);
    free(d);
}

static bool prepare(struct decider *d, struct fail *why)
{
    struct server_options options = SERVER_OPTIONS_DEFAULT;
    const struct server_handler handler = {.message = on_message, .context = d};
    const struct server_handler relay_handler = {
        .message = on_relay_message, .admit = admit_relay, .context = d};
    d->take = (struct loop_task){.run = take_next, .context = d};
    d->drain = (struct loop_task){.run = drain_now, .context = d};
    d->stop = (struct loop_task){.run = stop_now, .context = d};
    d->loop = loop_new(why);
    d->cache = token_cache_new(d->options.token_cache);
    d->scratch = malloc(DECIDE_SCRATCH);
    const struct watches_options watching = {.loop = d->loop, .answer = answer_watch, .context = d};
    if (!d->loop || !d->cache || !d->scratch || !(d->watches = watches_new(&watching)))
        return fail(why, "out of memory or of descriptors");
    d->server = server_new(d->loop, d->options.listener, &options, &handler);
    options.fallback_name = "state";
    options.fallback_value = "unavailable";
    d->relay_server = server_new(d->loop, d->options.relay_listener, &options, &relay_handler);
    return (d->server && d->relay_server) || fail(why, "out of memory or of descriptors");
}

struct decider *decider_start(const struct decider_options *options, struct snapshot *snapshot,
                              struct fail *why)
{
    struct decider *d = calloc(1, sizeof *d);
    if (!d) {
        fail(why, "out of memory");
        return NULL;
    }
    d->options = *options;
    d->snapshot = snapshot_retain(snapshot);
    if (!prepare(d, why)) {
        destroy(d);
        return NULL;
    }
    sigset_t all, old;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old); /* signals are the main thread's */
    int error = pthread_create(&d->thread, NULL, run, d);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (error == 0)
        return d;
    fail(why, "cannot start a thread: %s", strerror(error));
    destroy(d);
    return NULL;
}

void decider_stop(struct decider *d)
{
    if (!d)
        return;
    loop_post(d->loop, &d->stop);
    pthread_join(d->thread, NULL);
    destroy(d);
}
