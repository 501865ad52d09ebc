/* SPDX-License-Identifier: MIT */
/* decision_thread_egress: answers CONNECTs of sandboxes, and requests inside them. */
#include "spoa/agent/decision_thread/answer.h"
#include "spoa/agent/decision_thread/audit.h"
#include "spoa/agent/decision_thread/decision_thread_parts.h"
#include "spoa/agent/state/agent_metrics.h"

/* Returns true if *verdict is the answer; otherwise a look-up was started. Texts of *verdict are valid until snapshot_finder_done. */
static bool decide_egress(struct decision_thread *d, const struct egress_request *request,
                          struct snapshot_finder *finder, bool first, struct egress_verdict *verdict)
{
    struct writer scratch = writer_of(d->scratch, DECIDE_SCRATCH);
    struct decide_view view = snapshot_view(d->snapshot, finder, d->cache, decision_thread_unix_now());
    view.token_checked = first ? agent_metrics_token : NULL;
    view.counting = d->options.shard;
    view.limiter = d->limiter;
    view.ticket_key = d->options.ticket_key;
    return egress_decide(&view, request, &scratch, verdict);
}

static void count_egress(struct decision_thread *d, const struct egress_request *request,
                         const struct egress_verdict *verdict)
{
    audit_write_egress(d->options.audit ? d->options.audit : d->options.log, request, verdict);
    agent_metrics_egress(d->options.shard, verdict->refusal, verdict->audit);
    decision_thread_count_cache(d);
}

/* Returns the list to wait in. Host addresses have a timeout of their own, because DNS servers are far away. */
static struct pending *pending_for(const struct decision_thread *d, const struct snapshot_finder *finder)
{
    return snapshot_is_host_key(slice_of(finder->key, finder->len)) ? d->hosts : d->egress;
}

/* Returns the owner whose share of the pending questions is used: the sandbox, or while it is unknown, the owner of the look-up. */
static struct fair_owner owner_of(const struct decision_thread *d, const struct egress_verdict *verdict,
                                  const struct snapshot_finder *finder)
{
    if (!d->options.owners || !slice_present(verdict->sandbox))
        return finder->owner;
    const struct asker asker = asker_of_sandbox(verdict->space, verdict->sandbox);
    return asker_owner(&asker, d->options.owners);
}

/* Sets the two shares that the question uses: the sandbox's, and that of the look-up's owner, which is the sandbox's organisation if it
 * has one. */
static void set_shares(const struct decision_thread *d, const struct egress_verdict *verdict,
                       const struct snapshot_finder *finder, struct pending_request *pending)
{
    pending->owner = owner_of(d, verdict, finder);
    pending->payer = finder->owner.hash ? finder->owner.hash : pending->owner.hash;
}

/* Returns the refusal of a request that cannot wait, because too many of its sandbox or its organisation wait. */
static struct egress_verdict too_many(const struct egress_verdict *verdict)
{
    struct egress_verdict v =
        egress_refusal(REFUSAL_too_many_connections,
                       "too many requests of this sandbox or its organisation wait for a look-up");
    v.sandbox = verdict->sandbox;
    v.space = verdict->space;
    v.host = verdict->host;
    v.port = verdict->port;
    return v;
}

enum server_reply decision_thread_on_egress(struct decision_thread *d, struct pending_request pending,
                                            struct spop_actions *actions)
{
    struct egress_request request;
    struct egress_verdict verdict;
    struct snapshot_finder finder = {.waiter = d->options.waiter, .owners = d->options.owners};
    if (!egress_request_from_args(pending.args, pending.kind == PENDING_INSIDE, &request)) {
        answer_unavailable(actions);
        return SERVER_NOW;
    }
    bool undecided = !decide_egress(d, &request, &finder, true, &verdict);
    set_shares(d, &verdict, &finder, &pending);
    bool later = undecided && decision_thread_keep(d, pending_for(d, &finder), pending, &finder);
    if (undecided && !later && !pending_has_room(d->egress, &pending)) {
        verdict = too_many(&verdict);
    } else if (undecided && !later) {
        finder.last = true;
        (void)decide_egress(d, &request, &finder, false, &verdict);
    }
    if (!later) {
        egress_answer_write(&verdict, actions);
        count_egress(d, &request, &verdict);
    }
    snapshot_finder_done(&finder);
    return later ? SERVER_LATER : SERVER_NOW;
}

/* Waits for the next look-up. After that of the source or the sandbox another one may be needed, which has a timeout of its own. */
static bool wait_on(struct decision_thread *d, const struct pending_request *pending,
                    const struct snapshot_finder *finder, struct egress_verdict *verdict, bool *refused)
{
    struct pending_request next = *pending;
    next.key = slice_of(finder->key, finder->len);
    next.begun = loop_clock();
    set_shares(d, verdict, finder, &next);
    if (slice_equal(next.key, pending->key))
        return false;
    if (pending_add(pending_for(d, finder), &next))
        return true;
    *refused = !pending_has_room(d->egress, &next);
    if (*refused)
        *verdict = too_many(verdict);
    return false;
}

bool decision_thread_answer_egress(struct decision_thread *d, const struct pending_request *pending,
                                   bool last)
{
    struct egress_request request;
    struct egress_verdict verdict;
    struct spop_actions actions;
    struct snapshot_finder finder = {.waiter = d->options.waiter, .owners = d->options.owners, .last = last};
    egress_request_from_args(pending->args, pending->kind == PENDING_INSIDE,
                             &request); /* must succeed, because it did when the question arrived */
    bool answered = decide_egress(d, &request, &finder, false, &verdict) || last;
    bool moved = !answered && wait_on(d, pending, &finder, &verdict, &answered);
    if (answered && server_answer_begin(d->server, &pending->ticket, &actions)) {
        egress_answer_write(&verdict, &actions);
        server_answer_end(d->server, &pending->ticket, &actions);
        count_egress(d, &request, &verdict);
    }
    snapshot_finder_done(&finder);
    return answered || moved;
}
