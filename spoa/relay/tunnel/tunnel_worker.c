/* SPDX-License-Identifier: MIT */
#include "spoa/relay/tunnel/tunnel_parts.h"

#include "spoa/relay/tunnel/upstream.h"

#define CLOSE_TAKEN 4001

/* ---- a worker goes ---- */
/* Answers the client's last Ping in place of the lost worker. If memory is short, the Ping stays unanswered, which RFC 6455 section 5.5.3
 * lets a client expect. */
static void answer_ping(struct tunnel *t, uint64_t now)
{
    uint8_t payload[WS_CONTROL_MAX];
    size_t len;

    if (t->forward.there[CLIENT] && pings_take(&t->forward.pings, payload, &len))
        (void)forward_send_control(&t->forward, CLIENT, WS_PONG, slice_of(payload, len), now);
}

/* Handles a worker that was lost or detached: output held for this worker is kept for the next one. */
static void worker_gone(struct tunnel *t, enum loss loss, uint64_t now)
{
    struct leg *leg = &t->forward.legs[WORKER];

    tunnel_end_recheck(t, now);
    /* the session often moves away from the old worker before the agent's answer arrives */
    bool moving = t->state == TUNNEL_serving && t->connector.phase != CONNECTOR_IDLE;

    t->loss = moving ? LOSS_moved : loss;
    t->lost_at = now;
    tunnel_lose_input(t, false);
    if (!send_queue_salvage(&leg->out))
        leg->message_out = 0;
    answer_ping(t, now);
}

/* Returns true if the session resumes exactly and makes progress, which justifies any number of redials. */
static bool gets_on(const struct tunnel *t)
{
    return t->forward.adapter->progress && t->forward.gaps == t->gaps_before &&
           t->forward.adapter->progress(t->forward.adapter_state) != t->progress_before;
}

/* Begins to redial, with a fresh budget, or closes the tunnel if it must not redial. */
static void begin_redial(struct tunnel *t, uint64_t now)
{
    tunnel_enter(t, EVENT_lost);
    if (t->one_leg)
        tunnel_fail(t, t->ends_with, now);
    else if (!forward_mend_message(&t->forward, now))
        tunnel_fail(t, CLOSE_message_cut, now);
    else if (!connector_lost(&t->connector, t->lost_at - t->worker_since,
                             t->loss == LOSS_moved || t->exit_held, gets_on(t), now))
        tunnel_fail(t, CLOSE_flapping, now);
}

static void redial_now(struct tunnel *t, uint64_t now)
{
    begin_redial(t, now);
    if (t->state == TUNNEL_redialling && t->connector.phase == CONNECTOR_IDLE)
        tunnel_heed(t, connector_again(&t->connector, now), now);
}

static void begin_grace(struct tunnel *t, unsigned code, struct slice text, uint64_t now)
{
    tunnel_enter(t, EVENT_worker_closed);
    t->close_at = now + t->forward.place.settings->grace_period;
    t->pending_code = code;
    buffer_free(&t->pending_close);
    if (!buffer_put(&t->pending_close, text))
        t->pending_code = WS_NO_CODE;
    connector_ask(&t->connector, now);
    connector_watch_now(&t->connector, now);
}

void tunnel_grace_over(struct tunnel *t, uint64_t now)
{
    tunnel_need(t, forward_tell_adapter(&t->forward, ADAPTER_NO_MORE, now), now);
    tunnel_close(t, CLOSE_session_ended, t->pending_code, buffer_slice(&t->pending_close), now);
}

/* ---- the worker's Close ---- */
static void end_by_worker(struct tunnel *t, enum close_reason reason, unsigned code, struct slice text,
                          uint64_t now)
{
    if (reason == CLOSE_exec_completed && text.len == 0) {
        code = 1000;
        text = slice_text(close_reason_info(reason)->text);
    }
    tunnel_need(t, forward_tell_adapter(&t->forward, ADAPTER_NO_MORE, now), now);
    tunnel_close(t, reason, code, text, now);
}

/* Returns true if the worker seems not to have the session. Some workers accept each client, then look for the session and close silently
 * if there is none. The first such connection may have ended because of a hand-over, so two in a row are needed. */
static bool has_no_session(struct tunnel *t, unsigned code)
{
    bool lacks, before = t->was_empty;

    t->was_empty = t->forward.adapter->empty && t->forward.adapter->empty(t->forward.adapter_state, &lacks);
    return t->was_empty && before && (code == 1000 || code == WS_NO_CODE) &&
           t->connector.phase == CONNECTOR_IDLE && t->connector.answer != ANSWER_MIGRATING;
}

/* Handles a Close that the adapter understands by itself. Returns false if the code decides. */
static bool understand_close(struct tunnel *t, unsigned code, struct slice text, uint64_t now)
{
    if (t->forward.adapter->one_leg || t->outside) {
        tunnel_pass_close(t, code, text, now);
        return true;
    }
    if (!t->forward.adapter->numbers)
        return false;
    switch (t->forward.adapter->numbers->closed(t->forward.adapter_state, code)) {
    case ADAPTER_END:
        tunnel_need(t, forward_acknowledge_all(&t->forward, now), now);
        tunnel_close(t, CLOSE_session_ended, code, text, now);
        return true;
    case ADAPTER_TAKEN:
        tunnel_close(t, CLOSE_taken_over, code, text, now);
        return true;
    case ADAPTER_REFUSED:
        tunnel_fail(t, CLOSE_worker_protocol, now);
        return true;
    case ADAPTER_LOSS:
        tunnel_answer_worker(t, code, text, now);
        worker_gone(t, LOSS_closed, now);
        redial_now(t, now);
        return true;
    default:
        return false;
    }
}

/* Gives up input that the worker did not acknowledge, because it never will. Within a frame no Close can be sent, so the leg is dropped. */
static void leave_unacknowledged(struct tunnel *t)
{
    bool cut = send_queue_cut(&t->forward.legs[WORKER].out);

    tunnel_lose_input(t, true);
    if (cut)
        tunnel_drop_worker(t);
}

/* Sends the client the answer to its Close: the worker's, unless the client broke the protocol or the worker's Close only reports an
 * earlier dial of the relay's own. */
static void answer_close(struct tunnel *t, unsigned code, struct slice text, uint64_t now)
{
    if (t->forward.adapter->numbers)
        leave_unacknowledged(t);
    if (t->reason == CLOSE_client_protocol || (code == CLOSE_TAKEN && t->reason == CLOSE_client_closed &&
                                               connector_took_itself(&t->connector, now)))
        tunnel_pay_close(t, now);
    else
        forward_send_close(&t->forward, CLIENT, code, text, now);
    tunnel_leave_client(t, now);
}

void tunnel_worker_closed(struct tunnel *t, unsigned code, struct slice text, uint64_t now)
{
    enum close_reason reason;

    if (t->state == TUNNEL_closing) {
        answer_close(t, code, text, now);
        return;
    }
    if (understand_close(t, code, text, now))
        return;
    bool replaced = t->connector.phase != CONNECTOR_IDLE;
    const struct upstream_context context = {
        .replaced = replaced,
        .end_said = t->forward.end_said,
        .not_redialled = t->one_leg && t->ends_with == CLOSE_not_redialled,
        .took_itself = code == CLOSE_TAKEN && !replaced && !t->forward.end_said &&
                       connector_took_itself(&t->connector, now),
        .end = t->forward.end,
    };
    enum upstream_meaning meaning = upstream_closed(&context, code, &reason);
    bool holds = meaning == UPSTREAM_ended && reason == CLOSE_exec_completed && tunnel_holds_exit(t);
    if (meaning == UPSTREAM_ended && !holds) {
        end_by_worker(t, reason, code, text, now);
        return;
    }
    if (meaning == UPSTREAM_lost && has_no_session(t, code)) {
        tunnel_fail(t, CLOSE_session_not_found, now);
        return;
    }
    tunnel_answer_worker(t, code, text, now);
    worker_gone(t, LOSS_closed, now);
    if (meaning == UPSTREAM_maybe && !holds)
        begin_grace(t, code, text, now);
    else
        redial_now(t, now);
}

void tunnel_worker_lost(struct tunnel *t, enum loss how, uint64_t now)
{
    bool listens = forward_hears_client(&t->forward);

    tunnel_drop_worker(t);
    leg_renew(&t->forward.legs[WORKER], now);
    if (t->state == TUNNEL_closing) {
        tunnel_lose_input(t, true);
        if (tunnel_owes_close(t))
            tunnel_pay_close(t, now);
        if (listens)
            tunnel_heard_client(t, now);
        else
            tunnel_leave_client(t, now);
    } else if (t->forward.end_said && t->connector.phase == CONNECTOR_IDLE && !tunnel_holds_exit(t)) {
        end_by_worker(t, CLOSE_exec_completed, 1000, slice_text(""), now);
    } else {
        worker_gone(t, how, now);
        redial_now(t, now);
    }
}

/* ---- it moves ---- */
static void leave_for_another(struct tunnel *t, uint64_t now)
{
    tunnel_leave_worker(t, 1000, SLICE_LITERAL("moved"), true, now);
    worker_gone(t, LOSS_moved, now);
}

bool tunnel_overlaps(const struct tunnel *t)
{
    return !t->one_leg && (t->forward.adapter->overlap || t->overlap);
}

void tunnel_worker_moved(struct tunnel *t, const struct answer *answer, uint64_t now)
{
    struct connector *c = &t->connector;

    if (t->state == TUNNEL_serving && tunnel_overlaps(t)) {
        redial_begin(&c->redial, t->forward.place.settings->redial.budget, now);
    } else {
        if (t->state == TUNNEL_serving)
            leave_for_another(t, now);
        else if (target_known(&answer->target) && !target_same(&c->target, &answer->target))
            t->loss = LOSS_moved;
        begin_redial(t, now);
    }
    if (t->state >= TUNNEL_closing)
        return;
    redial_attempted(&c->redial);
    tunnel_heed(t, connector_use(c, answer, now), now);
}

/* ---- a worker comes ---- */
static void note_resumed(struct tunnel *t, uint64_t now)
{
    uint64_t gap = now - t->lost_at;

    t->redials++;
    if (gap > t->longest_gap)
        t->longest_gap = gap;
    commands_put(t->forward.place.host->commands,
                 &(struct command){.kind = COMMAND_RESUMED, .loss = t->loss, .time = gap});
}

/* Goes on without the adapter, because the first worker does not know its protocol. */
static void be_plain(struct tunnel *t)
{
    t->forward.adapter = &adapter_none;
    t->forward.legs[WORKER].out.keeps = false;
    t->connector.resumes = false;
    t->one_leg = !t->named;
    t->ends_with = CLOSE_worker_lost;
}

/* Limits messages to the window, because a larger one could never be acknowledged. */
static void limit_message(struct tunnel *t)
{
    size_t window;

    t->forward.adapter->numbers->room(t->forward.adapter_state, &window);
    if (!t->forward.max_message || t->forward.max_message > window - 16)
        t->forward.max_message = window - 16;
}

static bool go_on(struct tunnel *t, const struct http_head *head, uint64_t now)
{
    static const struct connector_result expired = {CONNECTOR_HOPELESS, CLOSE_resume_expired,
                                                    REFUSAL_worker_unreachable},
                                         wrong = {CONNECTOR_HOPELESS, CLOSE_worker_protocol,
                                                  REFUSAL_worker_unreachable};

    if (!t->forward.adapter->answered)
        return true;
    switch (t->forward.adapter->answered(t->forward.adapter_state, head)) {
    case ADAPTER_GOES_ON:
        limit_message(t);
        return true;
    case ADAPTER_PLAIN:
        be_plain(t);
        return true;
    case ADAPTER_EXPIRED:
        tunnel_heed(t, expired, now);
        return false;
    default:
        tunnel_heed(t, wrong, now);
        return false;
    }
}

/* Lets the adapter declare how the session resumes, now or later. Without an adapter the gap is unknown. */
static void join(struct tunnel *t, bool resumed)
{
    struct adapter_edit edit = {.outcome = ADAPTER_PENDING};

    if (t->forward.adapter->joined)
        t->forward.adapter->joined(t->forward.adapter_state, &t->forward.legs[WORKER].out, &edit);
    else if (resumed)
        edit = (struct adapter_edit){.outcome = ADAPTER_GAP, .gap = ADAPTER_UNKNOWN};
    forward_declare(&t->forward, edit.outcome, edit.gap);
}

void tunnel_worker_found(struct tunnel *t, const struct http_head *head, uint64_t now)
{
    enum tunnel_state before = t->state;
    struct connector *c = &t->connector;

    if (!go_on(t, head, now))
        return;
    if (before == TUNNEL_serving) {
        /* the old worker still serves: detach it in favour of the new one */
        if (!forward_mend_message(&t->forward, now)) {
            tunnel_fail(t, CLOSE_message_cut, now);
            return;
        }
        leave_for_another(t, now);
    }
    t->was_empty = t->was_empty && target_same(&c->target, connector_target(c));
    connector_connected(c);
    tunnel_enter(t, EVENT_connected);
    t->forward.there[WORKER] = true;
    t->exit_held = false;
    t->worker_since = now;
    leg_renew(&t->forward.legs[WORKER], now);
    place_put(&t->forward.place, COMMAND_ADOPT);
    join(t, before != TUNNEL_opening);
    t->gaps_before = t->forward.gaps;
    t->progress_before =
        t->forward.adapter->progress ? t->forward.adapter->progress(t->forward.adapter_state) : 0;
    if (before == TUNNEL_opening)
        place_put(&t->forward.place, COMMAND_ACCEPT);
    else
        note_resumed(t, now);
    connector_watch(c, now);
    tunnel_need(t, forward_acknowledge(&t->forward, now), now);
}
