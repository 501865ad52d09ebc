/* SPDX-License-Identifier: MIT */
#include "spoa/relay/tunnel/tunnel_parts.h"

#define CLOSE_INVALID_DATA 1007
#define LAST_WORDS         SECOND /* time for one side to answer data that the other sent before its error */
#define CLOSE_STALLS       6      /* limit of the wait for a slow client's Close, in multiples of `stall` */

static uint64_t sooner(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* ---- the state ---- */
void tunnel_tell_parts(struct tunnel *t)
{
    static const enum connector_purpose purposes[] = {
        [TUNNEL_opening] = CONNECT_FIRST,
        [TUNNEL_serving] = CONNECT_ASIDE,
        [TUNNEL_grace] = CONNECT_GRACE,
        [TUNNEL_redialling] = CONNECT_AGAIN,
    };

    if (t->state < TUNNEL_closing)
        t->connector.purpose = purposes[t->state];
    t->forward.mode = t->state < TUNNEL_closing
                          ? (t->state == TUNNEL_serving ? FORWARD_SERVING : FORWARD_WAITING)
                          : (t->reason == CLOSE_worker_protocol ? FORWARD_HEARING : FORWARD_CLOSING);
}

void tunnel_enter(struct tunnel *t, enum tunnel_event event)
{
    t->strayed = !tunnel_transition(&t->state, event) || t->strayed;
    tunnel_tell_parts(t);
}

static void end(struct tunnel *t)
{
    if (t->state != TUNNEL_ended)
        tunnel_enter(t, EVENT_done);
}

/* ---- the legs ---- */
static void put(struct tunnel *t, const struct command *command)
{
    commands_put(t->forward.place.host->commands, command);
}

static void note_unconfirmed(struct tunnel *t, uint64_t bytes)
{
    put(t, &(struct command){.kind = COMMAND_UNCONFIRMED, .bytes = bytes});
}

static void drop(struct tunnel *t, enum side side)
{
    t->forward.there[side] = false;
    put(t, &(struct command){.kind = COMMAND_DROP, .side = side});
}

static struct send_queue take_queue(struct leg *leg)
{
    struct send_queue taken = leg->out;
    leg->out = send_queue_with_limit(taken.frames.limit);
    leg->out.keeps = taken.keeps;
    return taken;
}

/* Detaches a side; the owner still sends the output held for it. */
static void part(struct tunnel *t, enum side side, uint64_t unread)
{
    if (!forward_gather(&t->forward, side)) { /* within a frame only its rest may be sent */
        drop(t, side);
        return;
    }
    t->forward.there[side] = false;
    put(t, &(struct command){.kind = COMMAND_PART,
                             .side = side,
                             .rest = take_queue(&t->forward.legs[side]),
                             .announced = leg_announced(&t->forward.legs[side]),
                             .bytes = unread});
}

/* Detaches the worker with a Close, if it is still attached. */
static void leave_worker_too(struct tunnel *t, uint64_t now)
{
    const struct close_reason_info *info = close_reason_info(t->reason);

    if (forward_hears_client(&t->forward))
        tunnel_leave_worker(t, info->worker_code, slice_text(info->text), false, now);
    else
        tunnel_leave_worker(t, 1001, slice_text(""), false, now);
}

void tunnel_leave_client(struct tunnel *t, uint64_t now)
{
    leave_worker_too(t, now);
    if (t->forward.there[CLIENT])
        part(t, CLIENT, 0);
    end(t);
}

/* Returns true if the client ended the tunnel or was made to, and the session goes on. */
static bool ends_client(enum close_reason reason)
{
    switch (reason) {
    case CLOSE_session_ended:
    case CLOSE_exec_completed:
    case CLOSE_taken_over:
    case CLOSE_data_refused:
    case CLOSE_worker_protocol:
    case CLOSE_message_too_big:
    case CLOSE_resume_expired:
        return false;
    default:
        return true;
    }
}

/* Returns true if input that the worker does not read is lost: nobody sends it again, and the session goes on. */
static bool loses_input(const struct tunnel *t)
{
    if (t->forward.adapter->one_leg)
        return false;
    return t->state < TUNNEL_closing ? !t->forward.adapter->numbers : ends_client(t->reason);
}

void tunnel_lose_input(struct tunnel *t, bool all)
{
    struct leg *leg = &t->forward.legs[WORKER];
    uint64_t unread = leg_take_unread(leg, all);

    if (all)
        send_queue_free(&leg->out);
    if (unread && loses_input(t))
        note_unconfirmed(t, unread);
}

void tunnel_leave_worker(struct tunnel *t, unsigned code, struct slice text, bool keep, uint64_t now)
{
    struct leg *leg = &t->forward.legs[WORKER];
    struct send_queue held = send_queue_with_limit(leg->out.frames.limit);

    if (!t->forward.there[WORKER])
        return;
    uint64_t unread = leg_take_unread(leg, !keep);
    if (keep)
        held = take_queue(leg);
    /* within a frame only its rest may be sent: the leg is dropped without a Close */
    bool cut = send_queue_cut(&held);
    if (!cut)
        forward_hold_close(&t->forward, WORKER, code, text, now);
    if (!loses_input(t))
        unread = 0;
    if (cut)
        drop(t, WORKER);
    else
        part(t, WORKER, unread);
    if (cut && unread)
        note_unconfirmed(t, unread);
    leg->out = held;
    leg_renew(leg, now);
}

void tunnel_drop_worker(struct tunnel *t)
{
    drop(t, WORKER);
}

static void close_client(struct tunnel *t, unsigned code, struct slice text, uint64_t now)
{
    if (t->forward.there[CLIENT] &&
        (code == CLOSE_NONE || !forward_send_close(&t->forward, CLIENT, code, text, now)))
        drop(t, CLIENT);
    if (!t->forward.there[CLIENT]) {
        end(t);
    } else if (t->forward.legs[CLIENT].close_in) {
        tunnel_leave_client(t, now);
    }
}

struct pending_close {
    unsigned code;
    struct slice text;
};

/* Returns the answer to a side's Close if the other side does not answer: the same Close, unless its text may not be sent. */
static struct pending_close own_answer(unsigned code, struct slice text)
{
    if (ws_close_reason_legal(text))
        return (struct pending_close){code, text};
    return (struct pending_close){CLOSE_INVALID_DATA, slice_text("")};
}

void tunnel_answer_worker(struct tunnel *t, unsigned code, struct slice text, uint64_t now)
{
    tunnel_leave_worker(t, own_answer(code, text).code, slice_text(""), true, now);
}

/* Passes the client's Close to the worker; the client later gets the worker's answer. Returns false if that is impossible. */
static bool hand_on_close(struct tunnel *t, unsigned code, struct slice text, uint64_t now)
{
    struct pending_close own = own_answer(code, text);

    t->pending_code = own.code;
    buffer_free(&t->pending_close);
    return t->forward.there[WORKER] && buffer_put(&t->pending_close, own.text) &&
           forward_send_close(&t->forward, WORKER, code, text, now);
}

/* Sends the worker a Close after the client's protocol error. The worker's answers to the client's earlier data come before its answer to
 * the Close, so the client gets them first. */
static bool ask_last_words(struct tunnel *t, const struct close_reason_info *info, uint64_t now)
{
    struct slice said = slice_text(info->text);

    if (!t->forward.there[CLIENT] || !t->forward.there[WORKER] || !buffer_put(&t->pending_close, said))
        return false;
    t->pending_code = info->client_code;
    t->close_at = sooner(t->close_at, now + LAST_WORDS);
    return forward_send_close(&t->forward, WORKER, info->worker_code, said, now);
}

/* Sends the client a Close after the worker's protocol error. The client's last data comes before its answer to the Close, so the worker
 * gets that data first. */
static bool hear_client(struct tunnel *t, const struct close_reason_info *info, uint64_t now)
{
    if (!t->forward.there[CLIENT] || !t->forward.there[WORKER])
        return false;
    t->close_at = sooner(t->close_at, now + LAST_WORDS);
    if (forward_send_close(&t->forward, CLIENT, info->client_code, slice_text(info->text), now))
        return true;
    drop(t, CLIENT);
    return false;
}

/* Sends output held for confirmation before the client's Close. Returns false if memory is short. */
static bool release_held(struct tunnel *t, uint64_t now)
{
    const struct leg *client = &t->forward.legs[CLIENT];

    tunnel_end_recheck(t, now);
    return !t->forward.there[CLIENT] || client->close_in || !forward_is_unsettled(&t->forward) ||
           forward_tell_adapter(&t->forward, ADAPTER_NO_MORE, now);
}

void tunnel_close(struct tunnel *t, enum close_reason reason, unsigned code, struct slice text, uint64_t now)
{
    if (t->state >= TUNNEL_closing)
        return;
    if (!release_held(t, now))
        reason = CLOSE_no_memory;
    const struct close_reason_info *info = close_reason_info(reason);
    struct slice said = slice_text(info->text);
    connector_abandon(&t->connector, now);
    t->reason = reason;
    tunnel_enter(t, EVENT_close);
    t->close_at = now + t->forward.place.settings->close_timeout;
    if (!t->forward.there[WORKER])
        tunnel_lose_input(t, true);
    if (ends_client(reason))
        forward_mark_end(&t->forward, now);
    if (reason == CLOSE_client_closed && hand_on_close(t, code, text, now))
        return;
    if (reason == CLOSE_client_protocol && ask_last_words(t, info, now))
        return;
    if (reason == CLOSE_worker_protocol && hear_client(t, info, now))
        return;
    bool passed = info->client_code == CLOSE_PASSED;
    unsigned worker_code = info->worker_code == CLOSE_PASSED ? (code ? code : 1000) : info->worker_code;
    if (worker_code == CLOSE_NONE)
        worker_code = 1001; /* the worker that was being replaced may still be attached */
    struct pending_close to_worker = {worker_code, passed ? text : said};
    struct pending_close to_client = {passed ? code : info->client_code, passed ? text : said};
    if (reason == CLOSE_client_closed)
        to_client = own_answer(to_client.code, to_client.text);
    else
        to_worker = own_answer(to_worker.code, to_worker.text);
    tunnel_leave_worker(t, to_worker.code, to_worker.text, false, now);
    close_client(t, to_client.code, to_client.text, now);
}

void tunnel_heard_client(struct tunnel *t, uint64_t now)
{
    leave_worker_too(t, now);
    t->close_at = now + t->forward.place.settings->close_timeout;
}

bool tunnel_owes_close(const struct tunnel *t)
{
    return t->reason == CLOSE_client_closed || t->reason == CLOSE_client_protocol;
}

void tunnel_pay_close(struct tunnel *t, uint64_t now)
{
    forward_send_close(&t->forward, CLIENT, t->pending_code, buffer_slice(&t->pending_close), now);
}

void tunnel_close_overdue(struct tunnel *t, uint64_t now)
{
    if (t->forward.there[CLIENT] && tunnel_owes_close(t))
        tunnel_pay_close(t, now);
    tunnel_leave_client(t, now);
}

/* Returns true if the session is gone or has no more output for this client. */
static bool ends_session(enum close_reason reason)
{
    switch (reason) {
    case CLOSE_process_exited:
    case CLOSE_session_not_found:
    case CLOSE_sandbox_stopped:
    case CLOSE_sandbox_not_found:
    case CLOSE_worker_lost:
        return true;
    default:
        return !ends_client(reason);
    }
}

/* Returns the end of the wait for the client's Close. A slow client may read the session's last output as slowly as before: only its
 * answer to the Close proves that it arrived, because the kernel taking all of it does not. The wait is bounded, because no more output
 * follows. */
uint64_t tunnel_close_due(const struct tunnel *t)
{
    uint64_t stall = t->forward.place.settings->stall, due = t->forward.legs[CLIENT].progress + stall;

    due = sooner(due, t->close_at + CLOSE_STALLS * stall);

    if (!t->forward.there[CLIENT] || t->forward.there[WORKER] || !ends_session(t->reason))
        return t->close_at;
    return due > t->close_at ? due : t->close_at;
}

void tunnel_fail(struct tunnel *t, enum close_reason reason, uint64_t now)
{
    tunnel_close(t, reason, 0, slice_text(""), now);
}

void tunnel_need(struct tunnel *t, bool memory, uint64_t now)
{
    if (!memory)
        tunnel_fail(t, CLOSE_no_memory, now);
}

void tunnel_pass_close(struct tunnel *t, unsigned code, struct slice text, uint64_t now)
{
    t->reason = CLOSE_session_ended;
    tunnel_enter(t, EVENT_close);
    t->close_at = now + t->forward.place.settings->close_timeout;
    if (!forward_send_close(&t->forward, CLIENT, code, text, now))
        tunnel_leave_client(t, now);
}

void tunnel_client_lost(struct tunnel *t, uint64_t now)
{
    drop(t, CLIENT);
    if (t->state == TUNNEL_closing) {
        leave_worker_too(t, now);
        end(t);
    } else {
        tunnel_fail(t, CLOSE_client_lost, now);
    }
}

/* ---- without a tunnel ---- */
void tunnel_refuse(struct tunnel *t, enum refusal refusal)
{
    connector_stop(&t->connector);
    t->forward.there[CLIENT] = false;
    put(t, &(struct command){.kind = COMMAND_REFUSE, .refusal = refusal});
    tunnel_enter(t, EVENT_refused);
}

/* Closes a tunnel whose session has ended, if no worker can confirm that its output was complete. */
static void end_with_exit(struct tunnel *t, uint64_t now)
{
    const char *text = close_reason_info(CLOSE_exec_completed)->text;
    tunnel_close(t, CLOSE_exec_completed, 1000, slice_text(text), now);
}

void tunnel_heed(struct tunnel *t, struct connector_result result, uint64_t now)
{
    if (result.how != CONNECTOR_HOPELESS)
        return;
    if (t->state == TUNNEL_opening)
        tunnel_refuse(t, result.refusal);
    else if (t->exit_held)
        end_with_exit(t, now);
    else
        tunnel_fail(t, result.reason, now);
}
