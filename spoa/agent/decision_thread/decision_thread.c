/* SPDX-License-Identifier: MIT */
#include "spoa/agent/decision_thread/decision_thread_parts.h"

#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "spoa/agent/decision_thread/answer.h"
#include "spoa/agent/decision_thread/audit.h"
#include "spoa/agent/state/agent_metrics.h"
#include "spoa/net/net.h"

enum {
    REQUESTS_MOST = 8192,
    REQUESTS_BYTES = REQUESTS_MOST * PENDING_PLACE,
    REQUESTS_EACH = REQUESTS_MOST / 8, /* limit per owner */
    OUTSIDE_EACH = REQUESTS_MOST / 32, /* limit per sandbox, for hosts outside */
    OUTSIDE_PAID = REQUESTS_MOST / 4,  /* limit for all sandboxes of one organisation */
    RELAY_CONNECTIONS = 256,
    RELAY_CONNECTIONS_EACH = 80, /* limit per process, which has one for each of its threads, at most 64 */
    RELAY_OUTPUT = 64 << 10,
};

/* Longest time that a thread works for relays, or on pending questions, before it looks at HAProxy's questions again. */
#define RELAY_TURN MILLISECOND
#define WORK_TURN  MILLISECOND

#define CLOCK_BEHIND \
    MILLISECOND /* largest error of the clock while many questions that arrived together are answered */

static void count_more(struct decision_thread *d, unsigned family, unsigned index, uint64_t more)
{
    if (more)
        metrics_add(d->options.shard, family, METRIC_INDEX(index), (int64_t)more);
}

void decision_thread_count_cache(struct decision_thread *d)
{
    struct token_cache_counts now = token_cache_counts(d->cache);
    count_more(d, AGENT_TOKEN_CACHE, 0, now.hits - d->reported.hits);
    count_more(d, AGENT_TOKEN_CACHE, 1, now.misses - d->reported.misses);
    count_more(d, AGENT_TOKEN_SHARED, 0, now.shared - d->reported.shared);
    d->reported = now;
}

/* ---- deciding ---- */

int64_t decision_thread_unix_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return now.tv_sec;
}

static void read_clocks(struct decision_thread *d)
{
    d->unix_now = decision_thread_unix_now();
    d->unix_read = d->clock = loop_clock();
}

/* Updates the clock after each answer. Reading clocks is expensive, so the end of one answer is the start of the next. */
static uint64_t clock_forward(struct decision_thread *d)
{
    d->clock = loop_clock();
    if (d->clock - d->unix_read >= CLOCK_BEHIND)
        read_clocks(d);
    return d->clock;
}

static void take_snapshot(void *context);

void decision_thread_take_newest(struct decision_thread *d)
{
    if (atomic_load_explicit(&d->next, memory_order_acquire))
        take_snapshot(d);
}

static void on_haproxy_messages(void *context)
{
    decision_thread_take_newest(context);
    read_clocks(context);
}

/* Returns true if *verdict is the answer. Otherwise a look-up was started, and *verdict is the answer for the case that it takes too
 * long. Texts of *verdict are valid until snapshot_finder_done. */
static bool decide_request(struct decision_thread *d, const struct request *request,
                           struct snapshot_finder *finder, bool first, struct verdict *verdict)
{
    struct writer scratch = writer_of(d->scratch, DECIDE_SCRATCH);
    struct decide_view view = snapshot_view(d->snapshot, finder, d->cache, d->unix_now);
    view.token_checked = first ? agent_metrics_token : NULL;
    view.counting = d->options.shard;
    view.limiter = d->limiter;
    view.ticket_key = d->options.ticket_key;
    return decide(&view, request, &scratch, verdict);
}

static void note_use(struct decision_thread *d, const struct verdict *v)
{
    const struct intent intent = {.space = v->space, .sandbox = v->sandbox, .port = v->port, .path = v->path};
    bool used = (v->kind == VERDICT_DIRECT || v->kind == VERDICT_RELAY) && v->refusal == REFUSAL_NONE;
    if (used && slice_present(v->sandbox)) /* otherwise the request is a service's */
        renew_note(d->options.renew, &intent);
}

/* Logs the header at intervals; the reason is an environment of HAProxy that is older than the configuration. */
static void log_left(struct decision_thread *d, struct slice header)
{
    uint64_t now = loop_clock();
    if (!d->options.log || (d->left_logged && now - d->left_logged < REFUSAL_EVERY))
        return;
    d->left_logged = now;
    log_write(d->options.log, LOG_WARN,
              "requests are refused: HAProxy does not remove a header that the configuration names; set what "
              "`cellgate headers` prints",
              LOG_SLICE("header", header));
}

static void count_decision(struct decision_thread *d, const struct verdict *verdict, uint64_t begun)
{
    if (slice_present(verdict->left))
        log_left(d, verdict->left);
    note_use(d, verdict);
    if (audit_wanted(verdict, d->snapshot->parts.policy->settings->agent.audit))
        audit_write(d->options.audit, verdict);
    agent_metrics_decision(d->options.shard, verdict, (double)(clock_forward(d) - begun) / 1e6);
    decision_thread_count_cache(d);
}

bool decision_thread_keep(struct decision_thread *d, struct pending *among, struct pending_request pending,
                          const struct snapshot_finder *finder)
{
    pending.key = slice_of(finder->key, finder->len);
    bool kept = pending_add(among, &pending);
    metrics_add(d->options.shard, AGENT_PENDING, METRIC_INDEX(kept ? AGENT_GOOD : AGENT_BAD), 1);
    return kept;
}

/* Answers from the cache if the same question was answered before and nothing it depends on has changed. The result, metrics and audit
 * line are those of a fresh decision. */
static bool answer_again(struct decision_thread *d, const struct answer_question *question, uint64_t begun,
                         struct snapshot_finder *finder, struct spop_actions *actions)
{
    const struct verdict *v =
        answer_cache_give(d->answers, question, d->snapshot, finder, d->unix_now, actions);
    metrics_add(d->options.shard, AGENT_ANSWER_CACHE, METRIC_INDEX(v ? AGENT_GOOD : AGENT_BAD), 1);
    if (!v)
        return false;
    if (v->token_kind) { /* the cache did not check its signature again */
        agent_metrics_token(d->options.shard, v->token_kind, REFUSAL_NONE);
        metrics_add(d->options.shard, AGENT_TOKEN_CACHE, METRIC_INDEX(0), 1);
    }
    count_decision(d, v, begun);
    return true;
}

static void answer_first(struct decision_thread *d, const struct answer_question *question,
                         const struct verdict *verdict, const struct snapshot_finder *finder,
                         struct spop_actions *actions)
{
    size_t start = actions->out->len;
    unsigned count = actions->count;
    if (!answer_write(verdict, actions) || actions->out->full)
        return;
    const struct answer answer = {slice_of(actions->out->at + start, actions->out->len - start),
                                  actions->count - count};
    answer_cache_keep(d->answers, question, verdict, &answer, finder);
}

static enum server_reply on_haproxy_message(void *context, struct slice name, struct spop_args args,
                                            struct spop_actions *actions, const struct server_ticket *ticket)
{
    struct decision_thread *d = context;
    struct request request;
    struct verdict verdict;
    struct pending_request pending = {
        .ticket = *ticket, .args = args, .begun = d->clock, .kind = PENDING_ROUTE};
    bool inside = slice_is(name, "cell-egress-request");
    if (inside || slice_is(name, "cell-egress")) {
        pending.kind = inside ? PENDING_INSIDE : PENDING_EGRESS;
        return decision_thread_on_egress(d, pending, actions);
    }
    if (!slice_is(name, "cell-route")) {
        answer_unavailable(actions);
        return SERVER_NOW;
    }
    struct snapshot_finder finder = {.waiter = d->options.waiter, .owners = d->options.owners, .wakes = true};
    const struct answer_question question = answer_question_of(d->answers, args, pending.begun);
    if (answer_again(d, &question, pending.begun, &finder, actions)) {
        snapshot_finder_done(&finder);
        return SERVER_NOW;
    }
    if (!request_from_args(args, &request)) {
        answer_unavailable(actions);
        return SERVER_NOW;
    }
    bool undecided = !decide_request(d, &request, &finder, true, &verdict);
    pending.owner = finder.owner;
    bool later = undecided && decision_thread_keep(d, d->requests, pending, &finder);
    if (undecided && !later) { /* answer by the data at hand */
        finder.last = true;
        (void)decide_request(d, &request, &finder, false, &verdict);
    }
    if (!later) {
        answer_first(d, &question, &verdict, &finder, actions);
        count_decision(d, &verdict, pending.begun);
    }
    snapshot_finder_done(&finder);
    return later ? SERVER_LATER : SERVER_NOW;
}

/* Tries to answer, and returns whether it did. With `known` the last good record is enough. With `last` it answers in any case, by the
 * data at hand. */
static bool answer_route(struct decision_thread *d, const struct pending_request *pending, bool known,
                         bool last)
{
    struct request request;
    struct verdict verdict;
    struct spop_actions actions;
    struct snapshot_finder finder = {
        .waiter = d->options.waiter, .owners = d->options.owners, .last = known, .wakes = true};
    request_from_args(pending->args, &request); /* must succeed, because it did when the question arrived */
    read_clocks(d);
    bool answered = decide_request(d, &request, &finder, false, &verdict) || last;
    if (answered && server_answer_begin(d->server, &pending->ticket, &actions)) {
        answer_write(&verdict, &actions);
        server_answer_end(d->server, &pending->ticket, &actions);
        count_decision(d, &verdict, pending->begun);
    }
    snapshot_finder_done(&finder);
    return answered;
}

/* ---- pending questions ---- */

/* Answers by a known record at half time, so that HAProxy never times out for a known sandbox, however busy the machine is. */
static void on_request_half_due(void *context, const struct pending_request *pending)
{
    struct decision_thread *d = context;
    if (!answer_route(d, pending, true, false) && !pending_add(d->late_requests, pending))
        answer_route(d, pending, true, true);
}

static void on_request_due(void *context, const struct pending_request *pending)
{
    if (pending->kind == PENDING_EGRESS || pending->kind == PENDING_INSIDE)
        decision_thread_answer_egress(context, pending, true);
    else if (pending->kind == PENDING_ROUTE)
        answer_route(context, pending, true, true);
    else
        decision_thread_answer_relay_again(context, pending, true);
}

/* Tries again after news about the question's key, or about all. A subscription moves to the current directory. */
static bool on_request_notified(void *context, struct pending_request *pending)
{
    struct decision_thread *d = context;
    if (pending->kind == PENDING_SUBSCRIPTION && pending->pinned != d->snapshot->parts.directory) {
        decision_thread_unpin(d, pending);
        pending->pinned = NULL;
        decision_thread_pin(d, pending);
    }
    if (pending->kind == PENDING_ROUTE)
        return answer_route(d, pending, false, false);
    if (pending->kind == PENDING_EGRESS || pending->kind == PENDING_INSIDE)
        return decision_thread_answer_egress(d, pending, false);
    return decision_thread_answer_relay_again(d, pending, false);
}

/* Returns whether the relay can take an answer. One that does not read its answers gets no more until it does. */
static bool relay_has_room(void *context, const struct pending_request *pending)
{
    const struct decision_thread *d = context;
    return server_has_room(d->relay_server, &pending->ticket);
}

static void on_haproxy_closed(void *context, uint32_t slot, uint32_t generation)
{
    struct decision_thread *d = context;
    pending_drop(d->requests, slot, generation);
    pending_drop(d->late_requests, slot, generation);
    pending_drop(d->egress, slot, generation);
    pending_drop(d->hosts, slot, generation);
}

static void on_relay_closed(void *context, uint32_t slot, uint32_t generation)
{
    struct decision_thread *d = context;
    pending_drop(d->redials, slot, generation);
    pending_drop(d->subscriptions, slot, generation);
}

static void want_work(void *context)
{
    struct decision_thread *d = context;
    loop_post(d->loop, &d->work);
}

/* Returns whether the thread has stopped. Later messages of other threads must be ignored, because the server is already freed. */
static bool is_stopped(const struct decision_thread *d)
{
    return !d->server;
}

static void notify_all(struct decision_thread *d)
{
    pending_notify_all(d->requests);
    pending_notify_all(d->late_requests);
    pending_notify_all(d->egress);
    pending_notify_all(d->hosts);
    pending_notify_all(d->subscriptions);
}

/* Returns whether keys may be left. */
static bool read_inbox(struct decision_thread *d, uint64_t until)
{
    uint8_t memory[MAILBOX_KEY];
    struct slice key;
    if (mailbox_lost(d->inbox)) {
        notify_all(d);
        pending_notify_all(d->redials);
    }
    while (mailbox_take(d->inbox, memory, &key)) {
        pending_notify(d->pending, key);
        if (loop_clock() >= until)
            return true;
    }
    return false;
}

/* Works on pending questions for a limited time. Decisions come first, so the rest waits until HAProxy's new questions are answered. */
static void work_on_pending(void *context)
{
    struct decision_thread *d = context;
    if (is_stopped(d))
        return;
    decision_thread_take_newest(d);
    uint64_t until = loop_clock() + WORK_TURN;
    bool more = read_inbox(d, until);
    more = pending_work(d->pending, until) || more;
    if (more)
        want_work(d);
}

void decision_thread_notify(struct decision_thread *d, struct slice key)
{
    if (mailbox_put(d->inbox, key))
        loop_post(d->loop, &d->work);
}

static bool admit_haproxy(void *context, int fd)
{
    struct decision_thread *d = context;
    return peer_user_admits(&d->options.haproxy_user, fd, &d->haproxy_refusals, d->options.log);
}

static bool admit_relay(void *context, int fd)
{
    struct decision_thread *d = context;
    return peer_user_admits(&d->options.relay_user, fd, &d->relay_refusals, d->options.log);
}

/* ---- requests of other threads ---- */

static void take_snapshot(void *context)
{
    struct decision_thread *d = context;
    struct snapshot *next =
        is_stopped(d) ? NULL : atomic_exchange_explicit(&d->next, NULL, memory_order_acq_rel);
    if (!next)
        return;
    snapshot_release(d->snapshot);
    d->snapshot = next;
    answer_cache_clear(d->answers);
    notify_all(d); /* not redials: they still wait for their look-up */
}

void decision_thread_hand_over(struct decision_thread *d, struct snapshot *snapshot)
{
    snapshot_release(atomic_exchange_explicit(&d->next, snapshot_retain(snapshot), memory_order_acq_rel));
}

void decision_thread_take(struct decision_thread *d)
{
    loop_post(d->loop, &d->take);
}

static void drain_now(void *context)
{
    struct decision_thread *d = context;
    server_drain(d->server, d->grace, d->options.drained, d->options.context);
    /* subscriptions of relays would last a minute; relays ask another agent */
    server_drain(d->relay_server, 0, NULL, NULL);
}

void decision_thread_drain(struct decision_thread *d, uint64_t grace)
{
    d->grace = grace;
    loop_post(d->loop, &d->drain);
}

static void stop_now(void *context)
{
    struct decision_thread *d = context;
    server_free(d->server);
    server_free(d->relay_server);
    d->server = d->relay_server = NULL;
    pending_table_free(
        d->pending); /* otherwise a question that is due in this turn would be answered by a freed server */
    d->pending = NULL;
    loop_stop(d->loop);
}

void decision_thread_count(const struct decision_thread *d, struct server_counters *sum)
{
    const struct server_counters *own = server_counters(d->server), *relay = server_counters(d->relay_server);
#define X(field, type, help) sum->field += server_counter(&own->field) + server_counter(&relay->field);
    SERVER_COUNTERS(X)
#undef X
}

/* ---- start and stop ---- */

static void *run_decision_thread(void *context)
{
    struct decision_thread *d = context;
    loop_run(d->loop);
    return NULL;
}

void decision_thread_free(struct decision_thread *d)
{
    server_free(d->server);
    server_free(d->relay_server);
    pending_table_free(d->pending);
    free(d->waiting);
    free(d->outside);
    free(d->outside_payers);
    mailbox_free(d->inbox);
    loop_free(d->loop);
    token_cache_free(d->cache);
    answer_cache_free(d->answers);
    auth_failure_limiter_free(d->limiter);
    snapshot_release(d->snapshot);
    snapshot_release(d->next);
    free(d->scratch);
    free(d);
}

static bool prepare_pending(struct decision_thread *d)
{
    struct pending_options options = {.loop = d->loop,
                                      .patience = d->options.lookup / 2,
                                      .most = REQUESTS_MOST,
                                      .most_bytes = REQUESTS_BYTES,
                                      .fair = d->waiting,
                                      .due = on_request_half_due,
                                      .notify = on_request_notified,
                                      .context = d};
    if (!(d->pending = pending_table_new(want_work, d)))
        return false;
    d->requests = pending_new(d->pending, &options);
    options.due = on_request_due;
    options.fair = d->outside;
    options.payers = d->outside_payers;
    d->egress = pending_new(d->pending, &options);
    options.patience = d->options.host_lookup;
    d->hosts = pending_new(d->pending, &options);
    options.patience = d->options.lookup;
    options.fair = d->waiting;
    options.payers = NULL;
    d->late_requests = pending_new(d->pending, &options);
    d->redials_quota.most = REQUESTS_BYTES / PENDING_UNIT;
    options.quota = &d->redials_quota;
    d->redials = pending_new(
        d->pending,
        &options); /* a redial has a whole timeout of its own; the ones above share theirs with the time before */
    options.patience = SUBSCRIPTION_SECONDS * SECOND;
    options.most = options.most_bytes = SIZE_MAX;
    options.quota = d->options.subscriptions;
    options.fair = NULL;
    options.room = relay_has_room;
    options.gone = decision_thread_unpin;
    d->subscriptions = pending_new(d->pending, &options);
    return d->requests && d->late_requests && d->egress && d->hosts && d->redials && d->subscriptions;
}

static bool prepare_thread(struct decision_thread *d, struct fail *why)
{
    struct server_options options = SERVER_OPTIONS_DEFAULT;
    const struct fair_limits waiting = {.places = REQUESTS_MOST, .each = REQUESTS_EACH},
                             outside = {.places = REQUESTS_MOST, .each = OUTSIDE_EACH},
                             payers = {.places = REQUESTS_MOST, .each = OUTSIDE_PAID};
    const struct server_handler handler = {.begin = on_haproxy_messages,
                                           .message = on_haproxy_message,
                                           .admit = admit_haproxy,
                                           .closed = on_haproxy_closed,
                                           .context = d};
    const struct server_handler relay_handler = {
        .message = decision_thread_on_relay, .admit = admit_relay, .closed = on_relay_closed, .context = d};
    d->take = (struct loop_task){.run = take_snapshot, .context = d};
    d->work = (struct loop_task){.run = work_on_pending, .context = d};
    d->drain = (struct loop_task){.run = drain_now, .context = d};
    d->stop = (struct loop_task){.run = stop_now, .context = d};
    d->loop = loop_new(why);
    d->cache = token_cache_new(d->options.token_cache);
    d->answers = answer_cache_new();
    d->limiter = auth_failure_limiter_new();
    if (d->cache && d->options.token_store)
        token_cache_share(d->cache, d->options.token_store);
    d->scratch = malloc(DECIDE_SCRATCH);
    d->inbox = mailbox_new();
    d->waiting = fair_new(&waiting);
    d->outside = fair_new(&outside);
    d->outside_payers = fair_new(&payers);
    if (!d->loop || !d->cache || !d->answers || !d->limiter || !d->scratch || !d->inbox || !d->waiting ||
        !d->outside || !d->outside_payers || !prepare_pending(d))
        return fail(why, "out of memory or of descriptors");
    options.share = d->options.share;
    d->server = server_new(d->loop, d->options.listener, &options, &handler);
    options.share = d->options.relay_share;
    options.fallback_name = "state";
    options.fallback_value = "unavailable";
    options.connections = RELAY_CONNECTIONS;
    options.per_process = RELAY_CONNECTIONS_EACH;
    options.output = RELAY_OUTPUT;
    options.turn = RELAY_TURN;
    d->relay_server = server_new(d->loop, d->options.relay_listener, &options, &relay_handler);
    return (d->server && d->relay_server) || fail(why, "out of memory or of descriptors");
}

struct decision_thread *decision_thread_start(const struct decision_thread_options *options,
                                              struct snapshot *snapshot, struct fail *why)
{
    struct decision_thread *d = calloc(1, sizeof *d);
    if (!d) {
        fail(why, "out of memory");
        return NULL;
    }
    d->options = *options;
    d->snapshot = snapshot_retain(snapshot);
    if (!prepare_thread(d, why)) {
        decision_thread_free(d);
        return NULL;
    }
    if (thread_start(&d->thread, run_decision_thread, d, why))
        return d;
    decision_thread_free(d);
    return NULL;
}

void decision_thread_stop(struct decision_thread *d)
{
    loop_post(d->loop, &d->stop);
    pthread_join(d->thread, NULL);
}
