/* SPDX-License-Identifier: MIT */
#include "spoa/agent/serve/decision_thread.h"

#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "spoa/agent/serve/agent_metrics.h"
#include "spoa/agent/serve/answer.h"
#include "spoa/agent/serve/audit.h"
#include "spoa/agent/serve/mailbox.h"
#include "spoa/agent/serve/resolve.h"
#include "spoa/base/thread.h"
#include "spoa/net/net.h"

enum {
    PARKED_MOST = 8192,
    PARKED_BYTES = 16 << 20,
    WATCH_SECONDS = 60,
    QUESTION_MOST = 2048, /* bytes of a relay's question that is kept */
    RELAY_CONNECTIONS = 256,
    RELAY_CONNECTIONS_EACH = 80, /* of one process, which has one for each of its threads, 64 at most */
    RELAY_OUTPUT = 64 << 10,
};

/* What a thread does for relays, and for those who wait, between two looks at what HAProxy asks. */
#define RELAY_TURN 0.001
#define WORK_TURN  UINT64_C(1000) /* microseconds */

#define REFUSAL_EVERY UINT64_C(10000000) /* microseconds between two such lines of the log */

enum wait_kind { WAIT_ROUTE, WAIT_RESOLVE, WAIT_WATCH };

struct decision_thread {
    struct decision_thread_options options;
    struct loop *loop;
    struct server *server, *relay_server;
    struct pending_table *pending; /* of these */
    struct pending *parked;        /* questions that wait for a look-up */
    struct pending *waiting; /* those that wait on: nothing is known that could serve instead */
    struct pending *redials; /* questions of relays that wait for a look-up */
    struct pending_quota redials_quota;
    struct pending *watches; /* of relays */
    struct mailbox *inbox;
    struct token_cache *cache;
    struct auth_failure_limiter *limiter;
    uint8_t *scratch;
    pthread_t thread;

    struct snapshot *snapshot; /* of the thread */
    struct snapshot *next;     /* atomic: handed over, not taken yet */
    struct token_cache_counts reported;
    uint64_t left_told;    /* the same of a header that HAProxy leaves */
    uint64_t refusal_told; /* loop_clock: when the log was told last that a relay is refused; 0: never */

    struct loop_task take, work, drain, stop;
    double grace;
};

static void count_cache(struct decision_thread *d)
{
    struct token_cache_counts now = token_cache_counts(d->cache);
    if (now.hits == d->reported.hits && now.misses == d->reported.misses)
        return;
    metrics_add(d->options.shard, AGENT_TOKEN_CACHE, METRIC_INDEX(0), (int64_t)(now.hits - d->reported.hits));
    metrics_add(d->options.shard, AGENT_TOKEN_CACHE, METRIC_INDEX(1),
                (int64_t)(now.misses - d->reported.misses));
    d->reported = now;
}

/* ---- deciding ---- */

/* time(2) lags behind by up to a tick: a token that was issued just now would be of the future. */
static int64_t unix_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return now.tv_sec;
}

/* Whether there is an answer in *verdict; else a look-up is on its way, and *verdict is what to answer if it
 * takes too long. What *verdict points to is good until finder_done. */
static bool decide_request(struct decision_thread *d, const struct request *request,
                           struct snapshot_finder *finder, bool first, struct verdict *verdict)
{
    struct writer scratch = writer_of(d->scratch, DECIDE_SCRATCH);
    struct decide_view view = snapshot_view(d->snapshot, finder, d->cache, unix_now());
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
    if (used && slice_present(v->sandbox)) /* else it is a service's */
        renew_note(d->options.renew, &intent);
}

/* Told from time to time: HAProxy's environment is older than the configuration. */
static void tell_left(struct decision_thread *d, struct slice header)
{
    uint64_t now = loop_clock();
    if (!d->options.log || (d->left_told && now - d->left_told < REFUSAL_EVERY))
        return;
    d->left_told = now;
    log_write(d->options.log, LOG_WARN,
              "requests are refused: HAProxy does not remove a header that the configuration names; set what "
              "`cellgate headers` prints",
              LOG_SLICE("header", header));
}

static void count_decision(struct decision_thread *d, const struct verdict *verdict, uint64_t begun)
{
    if (slice_present(verdict->left))
        tell_left(d, verdict->left);
    note_use(d, verdict);
    if (audit_wanted(verdict, d->snapshot->parts.policy->settings->agent.audit))
        audit_write(d->options.audit, verdict);
    agent_metrics_decision(d->options.shard, verdict, (double)(loop_clock() - begun) / 1e6);
    count_cache(d);
}

/* Keeps the question until the look-up that `finder` has begun is answered. */
static bool park(struct decision_thread *d, struct wait wait, const struct snapshot_finder *finder)
{
    wait.key = slice_of(finder->key, finder->len);
    bool kept = pending_add(d->parked, &wait);
    metrics_add(d->options.shard, AGENT_PARKED, METRIC_INDEX(kept ? AGENT_GOOD : AGENT_BAD), 1);
    return kept;
}

static enum server_reply on_message(void *context, struct slice name, struct spop_args args,
                                    struct spop_actions *actions, const struct server_ticket *ticket)
{
    struct decision_thread *d = context;
    struct request request;
    struct verdict verdict;
    struct wait wait = {.ticket = *ticket, .args = args, .begun = loop_clock(), .kind = WAIT_ROUTE};
    if (!slice_is(name, "cell-route") || !request_from_args(args, &request)) {
        answer_unavailable(actions);
        return SERVER_NOW;
    }
    struct snapshot_finder finder = {.waiter = d->options.waiter, .wakes = true};
    bool pending = !decide_request(d, &request, &finder, true, &verdict);
    bool later = pending && park(d, wait, &finder);
    if (pending && !later) { /* what is known has to do */
        finder.last = true;
        (void)decide_request(d, &request, &finder, false, &verdict);
    }
    if (!later) {
        answer_write(&verdict, actions);
        count_decision(d, &verdict, wait.begun);
    }
    snapshot_finder_done(&finder);
    return later ? SERVER_LATER : SERVER_NOW;
}

/* Whether it was answered; `known`: the last good record will do; `last`: whatever is known. */
static bool answer_route(struct decision_thread *d, const struct wait *wait, bool known, bool last)
{
    struct request request;
    struct verdict verdict;
    struct spop_actions actions;
    struct snapshot_finder finder = {.waiter = d->options.waiter, .last = known, .wakes = true};
    request_from_args(wait->args, &request); /* as it could when the question came */
    bool answered = decide_request(d, &request, &finder, false, &verdict) || last;
    if (answered && server_answer_begin(d->server, &wait->ticket, &actions)) {
        answer_write(&verdict, &actions);
        server_answer_end(d->server, &wait->ticket, &actions);
        count_decision(d, &verdict, wait->begun);
    }
    snapshot_finder_done(&finder);
    return answered;
}

/* ---- relays ---- */

/* What *answer points to is good until finder_done. */
static void look_up(struct decision_thread *d, const struct resolve_question *question,
                    struct snapshot_finder *finder, struct resolve_answer *answer)
{
    struct writer scratch = writer_of(d->scratch, DECIDE_SCRATCH);
    struct decide_view view = snapshot_view(d->snapshot, finder, d->cache, unix_now());
    resolve(&view, question, &scratch, answer);
}

static void answer_relay(struct decision_thread *d, const struct wait *wait,
                         const struct resolve_answer *answer)
{
    struct spop_actions actions;
    if (!server_answer_begin(d->relay_server, &wait->ticket, &actions))
        return;
    resolve_write(answer, &actions);
    server_answer_end(d->relay_server, &wait->ticket, &actions);
}

/* Whether it was answered; `last`: whatever is known. */
static bool answer_question(struct decision_thread *d, const struct wait *wait, bool last)
{
    struct resolve_question question;
    struct resolve_answer answer;
    struct snapshot_finder finder = {.waiter = d->options.waiter, .last = true, .wakes = wait->kind == WAIT_RESOLVE};
    resolve_from_args(wait->args, &question); /* as it could when the question came */
    look_up(d, &question, &finder, &answer);
    bool answered = last || wait->kind == WAIT_RESOLVE || resolve_is_news(&question, &answer);
    if (answered)
        answer_relay(d, wait, &answer);
    snapshot_finder_done(&finder);
    return answered;
}

/* A watch uses its record: the cache keeps it, has it looked up again by itself, and tells what changes. */
static void pin(struct decision_thread *d, struct wait *wait)
{
    struct directory *directory = d->snapshot->parts.directory;
    struct directory_cache *cache = directory ? directory_cache(directory) : NULL;
    if (cache && directory_cache_pin(cache, wait->key, d->options.waiter))
        wait->pinned = directory_retain(directory);
}

static void unpin(void *context, const struct wait *wait)
{
    (void)context;
    if (!wait->pinned)
        return;
    directory_cache_unpin(directory_cache(wait->pinned), wait->key);
    directory_release(wait->pinned);
}

/* A relay that lost a worker wants to know what the directory says now. */
static bool ask_afresh(struct decision_thread *d, const struct wait *wait)
{
    struct directory *directory = d->snapshot->parts.directory;
    struct directory_cache *cache = directory ? directory_cache(directory) : NULL;
    return cache && directory_cache_refresh(cache, wait->key, d->options.waiter) && pending_add(d->redials, wait);
}

/* Each tunnel's watch comes back at least once in WATCH_SECONDS. */
static void note_tunnel(struct decision_thread *d, const struct resolve_question *q)
{
    const struct intent intent = {.space = q->space, .sandbox = q->sandbox, .port = q->port};
    if (q->idle >= 0 && q->idle <= WATCH_SECONDS)
        renew_note(d->options.renew, &intent);
}

/* Nobody wants to know any more what the watch of that stream-id, on the same connection, would tell. */
static void end_watch(struct decision_thread *d, struct spop_args args, struct spop_actions *actions,
                      const struct server_ticket *ticket)
{
    struct server_ticket watch = *ticket;
    struct slice name;
    struct spop_value value;
    while (spop_arg_next(&args, &name, &value))
        if (slice_is(name, "watch") && spop_value_unsigned(value, &watch.stream_id)) {
            pending_end(d->watches, &watch); /* it may have been answered meanwhile */
            spop_set_var(actions, SPOP_TRANSACTION, name, value);
        }
}

/* Counted, and told from time to time: whoever asks may ask as often as there is time for. */
static void refuse_relay(struct decision_thread *d, enum agent_relay_refusal why)
{
    uint64_t now = loop_clock();
    metrics_add(d->options.shard, AGENT_RELAY_REFUSED, METRIC_INDEX(why), 1);
    if (d->refusal_told && now - d->refusal_told < REFUSAL_EVERY)
        return;
    d->refusal_told = now;
    if (d->options.log)
        log_write(d->options.log, LOG_WARN, "questions of a relay are refused",
                  LOG_TEXT("why", agent_relay_refusals[why]));
}

/* Only what counts of it, so that a watch costs what it has to. False: too long. */
static bool pack(struct decision_thread *d, const struct resolve_question *question, struct wait *wait,
                 uint8_t memory[QUESTION_MOST])
{
    struct writer w = writer_of(memory, QUESTION_MOST);
    if (resolve_pack(question, &w, &wait->args))
        return true;
    refuse_relay(d, AGENT_RELAY_TOO_LONG);
    return false;
}

static bool keep_watch(struct decision_thread *d, const struct wait *wait)
{
    if (pending_add(d->watches, wait))
        return true;
    refuse_relay(d, AGENT_RELAY_TOO_MANY);
    return false;
}

static enum server_reply on_relay_message(void *context, struct slice name, struct spop_args args,
                                          struct spop_actions *actions, const struct server_ticket *ticket)
{
    struct decision_thread *d = context;
    struct resolve_question question;
    struct resolve_answer answer;
    uint8_t key[256], memory[QUESTION_MOST];
    if (slice_is(name, "cell-unwatch")) {
        end_watch(d, args, actions, ticket);
        return SERVER_NOW;
    }
    bool watch = slice_is(name, "cell-watch");
    if ((!watch && !slice_is(name, "cell-resolve")) || !resolve_from_args(args, &question))
        return SERVER_NOW; /* the fallback: unavailable */
    if (!resolve_is_admitted(d->options.ticket_key, &question)) {
        refuse_relay(d, AGENT_RELAY_NOT_ADMITTED);
        resolve_write(&(struct resolve_answer){.state = RESOLVE_NOT_ADMITTED, .epoch = -1}, actions);
        return SERVER_NOW;
    }
    struct wait wait = {.ticket = *ticket,
                        .key = snapshot_key(question.space, question.sandbox, key),
                        .args = args,
                        .begun = loop_clock(),
                        .kind = watch ? WAIT_WATCH : WAIT_RESOLVE};
    bool packed = pack(d, &question, &wait, memory);
    if (!watch && packed && ask_afresh(d, &wait))
        return SERVER_LATER;
    if (watch) {
        note_tunnel(d, &question);
        pin(d, &wait); /* before it is looked at, so that no change is missed in between */
    }
    struct snapshot_finder finder = {.waiter = d->options.waiter, .last = true, .wakes = !watch};
    look_up(d, &question, &finder, &answer);
    bool wanted = watch && !resolve_is_news(&question, &answer);
    bool later = wanted && packed && keep_watch(d, &wait);
    answer.unwatched = wanted && !later;
    if (!later) {
        unpin(d, &wait);
        resolve_write(&answer, actions);
    }
    snapshot_finder_done(&finder);
    return later ? SERVER_LATER : SERVER_NOW;
}

/* ---- what waits ---- */

/* Whoever is known is served before HAProxy's patience comes to its end, however busy the machine is. */
static void on_half_due(void *context, const struct wait *wait)
{
    struct decision_thread *d = context;
    if (!answer_route(d, wait, true, false) && !pending_add(d->waiting, wait))
        answer_route(d, wait, true, true);
}

static void on_due(void *context, const struct wait *wait)
{
    if (wait->kind == WAIT_ROUTE)
        answer_route(context, wait, true, true);
    else
        answer_question(context, wait, true);
}

/* Something is known now of its key, or of all. A watch uses the directory that is there now. */
static bool on_news(void *context, struct wait *wait)
{
    struct decision_thread *d = context;
    if (wait->kind == WAIT_WATCH && wait->pinned != d->snapshot->parts.directory) {
        unpin(d, wait);
        wait->pinned = NULL;
        pin(d, wait);
    }
    return wait->kind == WAIT_ROUTE ? answer_route(d, wait, false, false) : answer_question(d, wait, false);
}

/* A relay that does not read what it is answered waits for the rest of it. */
static bool has_room(void *context, const struct wait *wait)
{
    const struct decision_thread *d = context;
    return server_has_room(d->relay_server, &wait->ticket);
}

static void on_closed(void *context, uint32_t slot, uint32_t generation)
{
    struct decision_thread *d = context;
    pending_drop(d->parked, slot, generation);
    pending_drop(d->waiting, slot, generation);
}

static void on_relay_closed(void *context, uint32_t slot, uint32_t generation)
{
    struct decision_thread *d = context;
    pending_drop(d->redials, slot, generation);
    pending_drop(d->watches, slot, generation);
}

static void want_work(void *context)
{
    struct decision_thread *d = context;
    loop_post(d->loop, &d->work);
}

/* What others still post then is for nobody: there is no server to answer by, and soon nothing else. */
static bool is_stopped(const struct decision_thread *d)
{
    return !d->server;
}

static void tell_all(struct decision_thread *d)
{
    pending_tell_all(d->parked);
    pending_tell_all(d->waiting);
    pending_tell_all(d->watches);
}

/* Whether there may be more. */
static bool read_inbox(struct decision_thread *d, uint64_t until)
{
    uint8_t memory[MAILBOX_KEY];
    struct slice key;
    if (mailbox_lost(d->inbox)) {
        tell_all(d);
        pending_tell_all(d->redials);
    }
    while (mailbox_take(d->inbox, memory, &key)) {
        pending_tell(d->pending, key);
        if (loop_clock() >= until)
            return true;
    }
    return false;
}

/* Decisions come first: what there is to do goes on in the next turn, behind what HAProxy has asked meanwhile. */
static void work(void *context)
{
    struct decision_thread *d = context;
    if (is_stopped(d))
        return;
    uint64_t until = loop_clock() + WORK_TURN;
    bool more = read_inbox(d, until);
    more = pending_work(d->pending, until) || more;
    if (more)
        want_work(d);
}

void decision_thread_news(struct decision_thread *d, struct slice key)
{
    if (mailbox_put(d->inbox, key))
        loop_post(d->loop, &d->work);
}

static bool admit_relay(void *context, int fd)
{
    const struct decision_thread *d = context;
    struct net_peer peer;
    return net_peer(fd, &peer) && relay_user_admits(&d->options.relay_user, &peer);
}

/* ---- what others ask of the thread ---- */

static void take_next(void *context)
{
    struct decision_thread *d = context;
    struct snapshot *next = is_stopped(d) ? NULL : __atomic_exchange_n(&d->next, NULL, __ATOMIC_ACQ_REL);
    if (!next)
        return;
    snapshot_release(d->snapshot);
    d->snapshot = next;
    tell_all(d); /* but redials, which still wait for their look-up */
}

void decision_thread_use(struct decision_thread *d, struct snapshot *snapshot)
{
    snapshot_release(__atomic_exchange_n(&d->next, snapshot_retain(snapshot), __ATOMIC_ACQ_REL));
    loop_post(d->loop, &d->take);
}

static void drain_now(void *context)
{
    struct decision_thread *d = context;
    server_drain(d->server, d->grace, d->options.drained, d->options.context);
    /* watches of relays would last a minute; they ask again elsewhere */
    server_drain(d->relay_server, 0, NULL, NULL);
}

void decision_thread_drain(struct decision_thread *d, double grace)
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
    pending_table_free(d->pending); /* a time that is up in this very turn would be answered */
    d->pending = NULL;
    loop_stop(d->loop);
}

void decision_thread_count(const struct decision_thread *d, struct server_counters *sum)
{
    const struct server_counters *own = server_counters(d->server), *relay = server_counters(d->relay_server);
#define X(field, help) sum->field += server_counter(&own->field) + server_counter(&relay->field);
    SERVER_COUNTERS(X)
#undef X
}

/* ---- its life ---- */

static void *run(void *context)
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
    mailbox_free(d->inbox);
    loop_free(d->loop);
    token_cache_free(d->cache);
    auth_failure_limiter_free(d->limiter);
    snapshot_release(d->snapshot);
    snapshot_release(d->next);
    free(d->scratch);
    free(d);
}

static bool prepare_waits(struct decision_thread *d)
{
    struct pending_options options = {.loop = d->loop,
                                      .seconds = d->options.lookup / 2,
                                      .most = PARKED_MOST,
                                      .most_bytes = PARKED_BYTES,
                                      .due = on_half_due,
                                      .news = on_news,
                                      .context = d};
    if (!(d->pending = pending_table_new(want_work, d)))
        return false;
    d->parked = pending_new(d->pending, &options);
    options.seconds = d->options.lookup;
    options.due = on_due;
    d->waiting = pending_new(d->pending, &options);
    d->redials_quota.most = PARKED_BYTES / PENDING_UNIT;
    options.quota = &d->redials_quota;
    d->redials =
        pending_new(d->pending, &options); /* each has its whole time before it, those above the rest of theirs */
    options.seconds = WATCH_SECONDS;
    options.most = options.most_bytes = SIZE_MAX;
    options.quota = d->options.watches;
    options.room = has_room;
    options.gone = unpin;
    d->watches = pending_new(d->pending, &options);
    return d->parked && d->waiting && d->redials && d->watches;
}

static bool prepare(struct decision_thread *d, struct fail *why)
{
    struct server_options options = SERVER_OPTIONS_DEFAULT;
    const struct server_handler handler = {.message = on_message, .closed = on_closed, .context = d};
    const struct server_handler relay_handler = {
        .message = on_relay_message, .admit = admit_relay, .closed = on_relay_closed, .context = d};
    d->take = (struct loop_task){.run = take_next, .context = d};
    d->work = (struct loop_task){.run = work, .context = d};
    d->drain = (struct loop_task){.run = drain_now, .context = d};
    d->stop = (struct loop_task){.run = stop_now, .context = d};
    d->loop = loop_new(why);
    d->cache = token_cache_new(d->options.token_cache);
    d->limiter = auth_failure_limiter_new();
    d->scratch = malloc(DECIDE_SCRATCH);
    d->inbox = mailbox_new();
    if (!d->loop || !d->cache || !d->limiter || !d->scratch || !d->inbox || !prepare_waits(d))
        return fail(why, "out of memory or of descriptors");
    d->server = server_new(d->loop, d->options.listener, &options, &handler);
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
    if (!prepare(d, why)) {
        decision_thread_free(d);
        return NULL;
    }
    if (thread_start(&d->thread, run, d, why))
        return d;
    decision_thread_free(d);
    return NULL;
}

void decision_thread_stop(struct decision_thread *d)
{
    loop_post(d->loop, &d->stop);
    pthread_join(d->thread, NULL);
}
