/* SPDX-License-Identifier: MIT */
#include "spoa/relay/tunnel/tunnel_parts.h"

#define CLOSE_TAKEN 4001
#define LATE        UINT64_C(10000000) /* microseconds in which a worker may get to a dial that was given up */

/* ---- losing the worker ---- */
static void answer_pings(struct tunnel *t, uint64_t now)
{
    uint8_t payload[WS_CONTROL_MAX];
    size_t len;

    while (t->client_there && pings_take(&t->pings, payload, &len))
        if (!tunnel_send_control(t, CLIENT, WS_PONG, slice_of(payload, len), now))
            return;
}

void tunnel_worker_gone(struct tunnel *t, enum loss loss, uint64_t now)
{
    struct leg *leg = &t->legs[WORKER];
    /* the session often leaves the old worker before its answer is here */
    bool moving = t->state == TUNNEL_SERVING && t->seek != SEEK_NOTHING;

    t->loss = moving ? LOSS_moved : loss;
    t->lost_at = now;
    tunnel_lose_input(t, false);
    if (!send_queue_salvage(&leg->out))
        leg->message_out = 0;
    answer_pings(t, now);
}

/* What resumes exactly, and goes on, is worth any number of redials. */
static bool gets_on(const struct tunnel *t)
{
    return t->adapter->progress && t->gaps == t->gaps_before &&
           t->adapter->progress(t->adapter_state) != t->progress_before;
}

void tunnel_redial(struct tunnel *t, uint64_t now)
{
    uint64_t lived = t->lost_at - t->worker_since;
    bool flaps = t->loss != LOSS_moved && redial_lost(&t->redial, &t->settings->redial, lived, now);

    t->state = TUNNEL_REDIALLING;
    if (t->one_leg)
        tunnel_close(t, t->ends_with, 0, slice_text(""), now);
    else if (!tunnel_mend_message(t, now))
        tunnel_close(t, CLOSE_message_cut, 0, slice_text(""), now);
    else if (flaps && !gets_on(t))
        tunnel_close(t, CLOSE_flapping, 0, slice_text(""), now);
    else if (flaps && t->seek == SEEK_NOTHING)
        redial_begin_slowly(&t->redial, t->settings->redial.budget, now);
    else if (t->seek != SEEK_NOTHING)
        redial_renew(&t->redial, t->settings->redial.budget, now);
    else
        redial_begin(&t->redial, t->settings->redial.budget, now);
}

static void redial_now(struct tunnel *t, uint64_t now)
{
    tunnel_redial(t, now);
    if (t->state == TUNNEL_REDIALLING && t->seek == SEEK_NOTHING)
        tunnel_seek_again(t, now);
}

static void settle(struct tunnel *t, unsigned code, struct slice text, uint64_t now)
{
    t->state = TUNNEL_SETTLING;
    t->close_at = now + t->settings->settle;
    t->pending_code = code;
    buffer_free(&t->pending_close);
    if (!buffer_put(&t->pending_close, text))
        t->pending_code = WS_NO_CODE;
    tunnel_ask(t, now);
    tunnel_watch_now(t, now);
}

void tunnel_settled(struct tunnel *t, uint64_t now)
{
    tunnel_tell_adapter(t, ADAPTER_NO_MORE, now);
    tunnel_close(t, CLOSE_session_ended, t->pending_code, buffer_slice(&t->pending_close), now);
}

enum judgement { JUDGED_END, JUDGED_LOSS, JUDGED_SETTLE };

/* A worker that got to an abandoned dial late has taken the session from the one that was dialled instead: it is
 * dialled again, once. */
static bool taken_by_ourselves(struct tunnel *t, uint64_t now)
{
    bool taken = t->abandoned_at && now - t->abandoned_at < LATE;
    t->abandoned_at = 0;
    return taken;
}

/* The table "Losing the upstream" of relay.md. */
static enum judgement judge(struct tunnel *t, unsigned code, enum close_reason *reason, uint64_t now)
{
    *reason = CLOSE_session_ended;
    if (t->seek != SEEK_NOTHING)
        return JUDGED_LOSS; /* its replacement is being dialled: whatever it says means that it was replaced
                             */
    if (t->end_said) {
        *reason = CLOSE_exec_completed;
        return JUDGED_END;
    }
    switch (code) {
    case CLOSE_TAKEN:
        *reason = CLOSE_taken_over;
        return taken_by_ourselves(t, now) ? JUDGED_LOSS : JUDGED_END;
    case 1011:
        /* its own words, where nobody else is asked */
        return t->one_leg && t->ends_with == CLOSE_not_redialled ? JUDGED_END : JUDGED_LOSS;
    case 1001:
    case 1012:
    case 1013:
    case 1014:
        return JUDGED_LOSS;
    case 1000:
    case WS_NO_CODE:
        /* a worker that says a session's end says it before it closes; this one closes to hand the session
         * over */
        return t->end == HANDOVER_END_CLOSE ? JUDGED_SETTLE : JUDGED_LOSS;
    default:
        break;
    }
    if (code >= 3000)
        return JUDGED_SETTLE;
    *reason = CLOSE_data_refused;
    return JUDGED_END;
}

static void end_by_worker(struct tunnel *t, enum close_reason reason, unsigned code, struct slice text,
                          uint64_t now)
{
    if (reason == CLOSE_exec_completed && text.len == 0) {
        code = 1000;
        text = slice_text(close_reason_info(reason)->text);
    }
    tunnel_tell_adapter(t, ADAPTER_NO_MORE, now);
    tunnel_close(t, reason, code, text, now);
}

/* A worker may let everybody in and look for the session then: what it does not have ends without a word. The first such
 * leg may have ended for a hand-over. */
static bool has_no_session(struct tunnel *t, unsigned code)
{
    bool lacks, before = t->was_empty;

    t->was_empty = t->adapter->empty && t->adapter->empty(t->adapter_state, &lacks);
    return t->was_empty && before && (code == 1000 || code == WS_NO_CODE) && t->seek == SEEK_NOTHING &&
           t->answer != ANSWER_MIGRATING;
}

/* The client answers the worker's Close itself, or what it answers is passed on. */
static void hand_on_close_of_worker(struct tunnel *t, unsigned code, struct slice text, uint64_t now)
{
    t->state = TUNNEL_CLOSING;
    t->reason = CLOSE_session_ended;
    t->close_at = now + t->settings->close_timeout;
    if (!tunnel_send_close(t, CLIENT, code, text, now))
        tunnel_leave_client(t, now);
}

/* A Close that the adapter understands by itself; false: by its code. */
static bool understand_close(struct tunnel *t, unsigned code, struct slice text, uint64_t now)
{
    if (t->adapter->one_leg) {
        hand_on_close_of_worker(t, code, text, now);
        return true;
    }
    if (!t->adapter->numbers)
        return false;
    switch (t->adapter->numbers->closed(t->adapter_state, code)) {
    case ADAPTER_END:
        tunnel_acknowledge_all(t, now);
        tunnel_close(t, CLOSE_session_ended, code, text, now);
        return true;
    case ADAPTER_TAKEN:
        tunnel_close(t, CLOSE_taken_over, code, text, now);
        return true;
    case ADAPTER_REFUSED:
        tunnel_close(t, CLOSE_worker_protocol, 0, slice_text(""), now);
        return true;
    case ADAPTER_LOSS:
        tunnel_answer_worker(t, code, text, now);
        tunnel_worker_gone(t, LOSS_closed, now);
        redial_now(t, now);
        return true;
    default:
        return false;
    }
}

/* What the worker has not acknowledged by now it never will; in the middle of a frame there is nothing left to say. */
static void leave_unacknowledged(struct tunnel *t)
{
    bool cut = send_queue_cut(&t->legs[WORKER].out);

    tunnel_lose_input(t, true);
    if (cut) {
        t->worker_there = false;
        tunnel_drop(t, WORKER);
    }
}

/* The answer to a Close that the client waits for too: of its own, unless it says no more than that another was dialled before that. */
static void answer_close(struct tunnel *t, unsigned code, struct slice text, uint64_t now)
{
    if (t->adapter->numbers)
        leave_unacknowledged(t);
    if (t->reason == CLOSE_client_protocol ||
        (code == CLOSE_TAKEN && t->reason == CLOSE_client_closed && taken_by_ourselves(t, now)))
        tunnel_send_close(t, CLIENT, t->pending_code, buffer_slice(&t->pending_close), now);
    else
        tunnel_send_close(t, CLIENT, code, text, now);
    tunnel_leave_client(t, now);
}

void tunnel_worker_closed(struct tunnel *t, unsigned code, struct slice text, uint64_t now)
{
    enum close_reason reason;

    if (t->state == TUNNEL_CLOSING) {
        answer_close(t, code, text, now);
        return;
    }
    if (understand_close(t, code, text, now))
        return;
    enum judgement judgement = judge(t, code, &reason, now);
    if (judgement == JUDGED_END) {
        end_by_worker(t, reason, code, text, now);
        return;
    }
    if (judgement == JUDGED_LOSS && has_no_session(t, code)) {
        tunnel_close(t, CLOSE_session_not_found, 0, slice_text(""), now);
        return;
    }
    tunnel_answer_worker(t, code, text, now);
    tunnel_worker_gone(t, LOSS_closed, now);
    if (judgement == JUDGED_SETTLE)
        settle(t, code, text, now);
    else
        redial_now(t, now);
}

void tunnel_worker_lost(struct tunnel *t, enum loss how, uint64_t now)
{
    bool listens = tunnel_hears_client(t);

    t->worker_there = false;
    tunnel_drop(t, WORKER);
    leg_renew(&t->legs[WORKER], now);
    if (t->state == TUNNEL_CLOSING) {
        tunnel_lose_input(t, true);
        if (tunnel_owes_close(t))
            tunnel_send_close(t, CLIENT, t->pending_code, buffer_slice(&t->pending_close), now);
        if (listens)
            tunnel_heard_client(t, now);
        else
            tunnel_leave_client(t, now);
    } else if (t->end_said && t->seek == SEEK_NOTHING) {
        end_by_worker(t, CLOSE_exec_completed, 1000, slice_text(""), now);
    } else {
        tunnel_worker_gone(t, how, now);
        redial_now(t, now);
    }
}
