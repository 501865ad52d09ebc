/* SPDX-License-Identifier: MIT */
/* decision_thread_relays: answers questions of relays at once, and subscriptions when something changes. */
#include "spoa/agent/decision_thread/decision_thread_parts.h"
#include "spoa/agent/decision_thread/resolve.h"
#include "spoa/agent/state/agent_metrics.h"

enum {
    QUESTION_MOST = 8192 /* longest question that is kept, in bytes; a token may name thousands of ports */
};

/* Returns the owner of the look-up. Its rank is "in use", because a tunnel to the sandbox exists. */
static struct fair_owner owner_of(const struct decision_thread *d, const struct resolve_question *question)
{
    const struct asker asker = asker_of_org(question->org, question->space, question->sandbox);
    struct fair_owner owner = {.rank = FAIR_IN_USE};
    if (d->options.owners)
        owner.hash = asker_owner(&asker, d->options.owners).hash;
    return owner;
}

/* Looks up the record and fills *answer, whose texts are valid until snapshot_finder_done. */
static void look_up_for_relay(struct decision_thread *d, const struct resolve_question *question,
                              struct snapshot_finder *finder, struct resolve_answer *answer)
{
    struct writer scratch = writer_of(d->scratch, DECIDE_SCRATCH);
    finder->owner = owner_of(d, question);
    struct decide_view view = snapshot_view(d->snapshot, finder, d->cache, decision_thread_unix_now());
    view.ticket_key = d->options.ticket_key;
    resolve(&view, question, &scratch, answer);
}

static void answer_relay(struct decision_thread *d, const struct pending_request *pending,
                         const struct resolve_answer *answer)
{
    struct spop_actions actions;
    if (!server_answer_begin(d->relay_server, &pending->ticket, &actions))
        return;
    resolve_write(answer, &actions);
    server_answer_end(d->relay_server, &pending->ticket, &actions);
}

bool decision_thread_answer_relay_again(struct decision_thread *d, const struct pending_request *pending,
                                        bool last)
{
    struct resolve_question question;
    struct resolve_answer answer;
    bool resolves = pending->kind == PENDING_RESOLVE;
    struct snapshot_finder finder = {
        .waiter = d->options.waiter, .owners = d->options.owners, .last = true, .wakes = resolves};
    resolve_from_args(pending->args, &question); /* must succeed, because it did when the question arrived */
    look_up_for_relay(d, &question, &finder, &answer);
    bool answered = last || resolves || resolve_has_changed(&question, &answer);
    if (answered)
        answer_relay(d, pending, &answer);
    snapshot_finder_done(&finder);
    return answered;
}

void decision_thread_pin(struct decision_thread *d, struct pending_request *pending)
{
    struct directory *directory = d->snapshot->parts.directory;
    struct directory_cache *cache = directory ? directory_cache(directory) : NULL;
    if (cache && directory_cache_pin(cache, pending->key, d->options.waiter))
        pending->pinned = directory_retain(directory);
}

void decision_thread_unpin(void *context, const struct pending_request *pending)
{
    (void)context;
    if (!pending->pinned)
        return;
    directory_cache_unpin(directory_cache(pending->pinned), pending->key);
    directory_release(pending->pinned);
}

/* Starts a new look-up: after the loss of a worker the relay needs the directory's current record. */
static bool ask_afresh(struct decision_thread *d, const struct resolve_question *question,
                       const struct pending_request *pending)
{
    struct directory *directory = d->snapshot->parts.directory;
    struct directory_cache *cache = directory ? directory_cache(directory) : NULL;
    return cache && directory_cache_refresh(cache, pending->key, d->options.waiter, owner_of(d, question)) &&
           pending_add(d->redials, pending);
}

/* Reports the sandbox as in use; each tunnel's subscription returns at least once in SUBSCRIPTION_SECONDS. */
static void note_tunnel(struct decision_thread *d, const struct resolve_question *q)
{
    const struct intent intent = {.space = q->space, .sandbox = q->sandbox, .port = q->port};
    if (q->idle >= 0 && q->idle <= SUBSCRIPTION_SECONDS)
        renew_note(d->options.renew, &intent);
}

/* Ends the subscription with that stream-id on the same connection: its relay does not need the answer any more. */
static void end_subscription(struct decision_thread *d, struct spop_args args, struct spop_actions *actions,
                             const struct server_ticket *ticket)
{
    struct server_ticket watch = *ticket;
    struct slice name;
    struct spop_value value;
    while (spop_arg_next(&args, &name, &value))
        if (slice_is(name, "watch") && spop_value_unsigned(value, &watch.stream_id)) {
            pending_end(d->subscriptions, &watch); /* may fail, if the subscription was answered meanwhile */
            spop_set_var(actions, SPOP_TRANSACTION, name, value);
        }
}

/* Counts the refusal and logs it at intervals: a client may ask at a high rate, so logging each would flood the log. */
static void refuse_relay(struct decision_thread *d, enum agent_relay_refusal why)
{
    uint64_t now = loop_clock();
    metrics_add(d->options.shard, AGENT_RELAY_REFUSED, METRIC_INDEX(why), 1);
    if (d->refusal_logged && now - d->refusal_logged < REFUSAL_EVERY)
        return;
    d->refusal_logged = now;
    if (d->options.log)
        log_write(d->options.log, LOG_WARN, "questions of a relay are refused",
                  LOG_TEXT("why", agent_relay_refusals[why]));
}

/* Packs only the arguments that count, so that a subscription uses no more memory than it needs. Returns false if they are too long. */
static bool pack_question(struct decision_thread *d, const struct resolve_question *question,
                          struct pending_request *pending, uint8_t memory[QUESTION_MOST])
{
    struct writer w = writer_of(memory, QUESTION_MOST);
    if (resolve_pack(question, &w, &pending->args))
        return true;
    refuse_relay(d, AGENT_RELAY_TOO_LONG);
    return false;
}

static bool keep_subscription(struct decision_thread *d, const struct pending_request *pending)
{
    if (pending_add(d->subscriptions, pending))
        return true;
    refuse_relay(d, AGENT_RELAY_TOO_MANY);
    return false;
}

enum server_reply decision_thread_on_relay(void *context, struct slice name, struct spop_args args,
                                           struct spop_actions *actions, const struct server_ticket *ticket)
{
    struct decision_thread *d = context;
    struct resolve_question question;
    struct resolve_answer answer;
    uint8_t key[256], memory[QUESTION_MOST];
    decision_thread_take_newest(d);
    if (slice_is(name, "cell-unwatch")) {
        end_subscription(d, args, actions, ticket);
        return SERVER_NOW;
    }
    bool watch = slice_is(name, "cell-watch");
    if ((!watch && !slice_is(name, "cell-resolve")) || !resolve_from_args(args, &question))
        return SERVER_NOW; /* the fallback answer is "unavailable" */
    if (!resolve_is_admitted(d->options.ticket_key, &question)) {
        refuse_relay(d, AGENT_RELAY_NOT_ADMITTED);
        resolve_write(&(struct resolve_answer){.state = RESOLVE_NOT_ADMITTED, .epoch = -1}, actions);
        return SERVER_NOW;
    }
    struct pending_request pending = {.ticket = *ticket,
                                      .key = snapshot_key(question.space, question.sandbox, key),
                                      .args = args,
                                      .begun = loop_clock(),
                                      .kind = watch ? PENDING_SUBSCRIPTION : PENDING_RESOLVE,
                                      .owner = owner_of(d, &question)};
    bool packed = pack_question(d, &question, &pending, memory);
    if (!watch && packed && ask_afresh(d, &question, &pending))
        return SERVER_LATER;
    if (watch) {
        note_tunnel(d, &question);
        decision_thread_pin(d, &pending); /* before the look-up, so that no change in between is missed */
    }
    struct snapshot_finder finder = {
        .waiter = d->options.waiter, .owners = d->options.owners, .last = true, .wakes = !watch};
    look_up_for_relay(d, &question, &finder, &answer);
    bool wanted = watch && !resolve_has_changed(&question, &answer);
    bool later = wanted && packed && keep_subscription(d, &pending);
    answer.unwatched = wanted && !later;
    if (!later) {
        decision_thread_unpin(d, &pending);
        resolve_write(&answer, actions);
    }
    snapshot_finder_done(&finder);
    return later ? SERVER_LATER : SERVER_NOW;
}
