/* SPDX-License-Identifier: MIT */
#include "spoa/relay/tunnel/tunnel_parts.h"

#define SECOND          UINT64_C(1000000)
#define ABSENT_RETRY    (3 * SECOND) /* a worker may hear of a session later than the directory does */
#define UNWATCHED_PAUSE (20 * SECOND)
#define WATCH_PAUSE     SECOND /* before a watch that told nothing new is repeated */
#define HELD_PAUSE      (4 * SECOND / 5) /* at most, give or take a fifth: somebody waits for the first worker */

/* ---- attempts ---- */
static void give_up(struct tunnel *t, uint64_t now)
{
    tunnel_seek_stop(t);
    if (t->state == TUNNEL_OPENING)
        tunnel_refuse(t, t->problem ? t->problem : REFUSAL_worker_unreachable);
    else if (t->state == TUNNEL_REDIALLING)
        tunnel_close(t, CLOSE_unrecoverable, 0, slice_text(""), now);
    else
        target_free(&t->next); /* the old worker serves on: where the sandbox is by now will be news again */
}

/* ends_with is for what is still open; in front of its 101 a client learns no more than that the worker is of
 * no use. */
static void end_dial(struct tunnel *t, enum close_reason reason, uint64_t now)
{
    if (t->state == TUNNEL_OPENING)
        tunnel_refuse(t, REFUSAL_worker_unreachable);
    else
        tunnel_close(t, reason, 0, slice_text(""), now);
}

static void dial(struct tunnel *t, const struct target *target, uint64_t now)
{
    const struct target *known = tunnel_target(t);

    if (target_known(known) && !target_same(known, target)) {
        t->changed_at = now;
        t->retried_absent = false;
        if (redial_changed(&t->redial, now)) {
            end_dial(t, CLOSE_flapping, now);
            return;
        }
    }
    if (!target_set(&t->next, target)) {
        t->problem = REFUSAL_relay_unavailable;
        give_up(t, now);
        return;
    }
    t->seek = SEEK_DIALLING;
    put(t, COMMAND_DIAL);
}

void tunnel_ask(struct tunnel *t, uint64_t now)
{
    t->seek = SEEK_ASKING;
    t->asked_at = now;
    put(t, COMMAND_ASK);
}

void tunnel_seek_again(struct tunnel *t, uint64_t now)
{
    uint64_t most = t->state == TUNNEL_OPENING ? HELD_PAUSE : UINT64_MAX;

    if (!redial_next(&t->redial, &t->settings->redial, most, t->host->random(t->io), now, &t->seek_at))
        give_up(t, now);
    else if (t->seek_at > now)
        t->seek = SEEK_PAUSING;
    else if (t->state == TUNNEL_OPENING && !t->must_ask)
        dial(t, &t->target, now);
    else
        tunnel_ask(t, now);
}

void tunnel_seek_begin(struct tunnel *t, uint64_t budget, uint64_t now)
{
    redial_begin(&t->redial, budget, now);
    tunnel_seek_again(t, now);
}

void tunnel_seek_stop(struct tunnel *t)
{
    if (t->seek == SEEK_DIALLING)
        put(t, COMMAND_HANG_UP);
    t->seek = SEEK_NOTHING;
}

/* ---- what the agent says ---- */

/* The sandbox, or the right to reach it, is gone. */
static bool is_final(const struct answer *answer, enum close_reason *reason, enum refusal *refusal)
{
    if (answer->refused != REFUSAL_NONE) {
        *reason = answer->refused == REFUSAL_token_expired ? CLOSE_token_expired
                  : answer->refused == REFUSAL_not_granted ? CLOSE_not_granted
                                                           : CLOSE_token_revoked;
        *refusal = answer->refused;
    } else if (answer->state == ANSWER_STOPPED) {
        *reason = CLOSE_sandbox_stopped;
        *refusal = REFUSAL_sandbox_stopped;
    } else if (answer->state == ANSWER_ABSENT) {
        *reason = CLOSE_sandbox_not_found;
        *refusal = REFUSAL_sandbox_not_found;
    } else if (answer->state == ANSWER_NOT_ADMITTED) {
        *reason = CLOSE_not_admitted;
        *refusal = REFUSAL_agent_unavailable;
    } else {
        return false;
    }
    return true;
}

static uint64_t wait_until(const struct tunnel *t)
{
    return t->redial.waiting + (t->state == TUNNEL_OPENING ? t->limits.hold : t->settings->migration_budget);
}

static void wait_for_worker(struct tunnel *t, uint64_t now)
{
    t->problem = t->answer == ANSWER_MIGRATING ? REFUSAL_sandbox_migrating : REFUSAL_sandbox_waking;
    t->seek = SEEK_WAITING;
    redial_wait(&t->redial, now);
    tunnel_watch_now(t, now);
}

/* While the agent is away nobody can say where to dial, which is no fault of the worker's: the budget stands
 * still. */
static void no_answer(struct tunnel *t, bool agent_lost, uint64_t now)
{
    t->problem = agent_lost ? REFUSAL_agent_unavailable : REFUSAL_directory_unavailable;
    if (agent_lost && t->state == TUNNEL_REDIALLING)
        redial_wait(&t->redial, t->asked_at);
    if (t->redial.waiting && now >= wait_until(t))
        give_up(t, now);
    else
        tunnel_seek_again(t, now);
}

/* To the worker that serves. */
static bool has_come_back(const struct tunnel *t, const struct answer *answer)
{
    return t->state == TUNNEL_SERVING && target_same(&t->target, &answer->target);
}

/* An answer for somebody who looks for a worker. */
static void use_answer(struct tunnel *t, const struct answer *answer, uint64_t now)
{
    if (answer->state == ANSWER_UNAVAILABLE) {
        no_answer(t, answer->agent_lost, now);
    } else if (!target_known(&answer->target)) {
        wait_for_worker(t, now);
    } else if (has_come_back(t, answer)) {
        tunnel_seek_stop(t);
        target_free(&t->next);
    } else {
        redial_resume(&t->redial, now);
        dial(t, &answer->target, now);
    }
}

static void move(struct tunnel *t, const struct answer *answer, uint64_t now)
{
    if (t->one_leg || (!t->adapter->overlap && !t->overlap)) {
        tunnel_leave_worker(t, 1000, SLICE_LITERAL("moved"), true, now);
        tunnel_worker_gone(t, LOSS_moved, now);
        tunnel_redial(t, now);
    } else {
        redial_begin(&t->redial, t->settings->redial.budget, now);
    }
    if (t->state >= TUNNEL_CLOSING)
        return;
    t->redial.attempts = 1;
    dial(t, &answer->target, now);
}

static void settle_by(struct tunnel *t, const struct answer *answer, bool watch, uint64_t now)
{
    bool moved = target_known(&answer->target) && !target_same(&t->target, &answer->target);

    if (answer->state == ANSWER_UNAVAILABLE || (answer->state == ANSWER_RUNNING && !moved)) {
        /* what a watch says is not the fresh answer */
        if (watch)
            return;
        t->seek = SEEK_NOTHING;
        /* there is time left to be told of a change, for a tunnel that would go on then */
        if (t->one_leg)
            tunnel_settled(t, now);
        return;
    }
    t->seek = SEEK_NOTHING;
    if (moved)
        t->loss = LOSS_moved;
    tunnel_redial(t, now);
    if (t->state == TUNNEL_REDIALLING) {
        t->redial.attempts = 1;
        use_answer(t, answer, now);
    }
}

/* Whether an answer that came unasked matters to somebody who looks for a worker. */
static bool is_news(const struct tunnel *t, const struct answer *answer)
{
    if (!target_known(&answer->target))
        return false;
    return t->seek == SEEK_WAITING ||
           (t->seek != SEEK_ASKING && !target_same(tunnel_target(t), &answer->target));
}

static void use_news(struct tunnel *t, const struct answer *answer, uint64_t now)
{
    if (!is_news(t, answer))
        return;
    if (t->seek == SEEK_NOTHING && !has_come_back(t, answer)) {
        if (t->state == TUNNEL_SERVING)
            move(t, answer, now);
        return;
    }
    if (t->seek == SEEK_DIALLING)
        t->abandoned_at = now;
    tunnel_seek_stop(t);
    use_answer(t, answer, now);
}

/* Spread, or those that the agent has no room for would all ask at once. */
static uint64_t ask_later(struct tunnel *t)
{
    uint64_t pause = t->seek == SEEK_WAITING ? 2 * WATCH_PAUSE : UNWATCHED_PAUSE;
    return pause / 2 + t->host->random(t->io) % pause;
}

void tunnel_answered(struct tunnel *t, const struct answer *answer, bool watch, uint64_t now)
{
    enum close_reason reason;
    enum refusal refusal;
    bool told = answer->state != ANSWER_UNAVAILABLE && answer->epoch != t->watched;

    if (t->state >= TUNNEL_CLOSING || (!watch && t->seek != SEEK_ASKING))
        return;
    if (watch) {
        t->watching = false;
        t->watch_at = answer->unwatched ? now + ask_later(t) : told ? now : now + WATCH_PAUSE;
    }
    if (answer->state != ANSWER_UNAVAILABLE) {
        t->epoch = answer->epoch;
        t->answer = answer->state;
    }
    t->must_ask = true; /* whatever is dialled from now on */
    if (is_final(answer, &reason, &refusal) && t->state == TUNNEL_OPENING)
        tunnel_refuse(t, refusal);
    else if (is_final(answer, &reason, &refusal))
        tunnel_close(t, reason, 0, slice_text(""), now);
    else if (t->state == TUNNEL_SETTLING)
        settle_by(t, answer, watch, now);
    else if (watch)
        use_news(t, answer, now);
    else
        use_answer(t, answer, now);
    if (t->state < TUNNEL_CLOSING && now >= t->watch_at && (watch || t->watching))
        tunnel_watch(t, now);
    tunnel_reading(t, now);
}

void tunnel_watch(struct tunnel *t, uint64_t now)
{
    if (t->watching || now < t->watch_at)
        return;
    t->watching = true;
    t->watched = t->epoch;
    put(t, COMMAND_WATCH);
}

void tunnel_watch_now(struct tunnel *t, uint64_t now)
{
    t->watch_at = now;
    tunnel_watch(t, now);
}

/* ---- what the worker says to the dial ---- */
static void note_resumed(struct tunnel *t, uint64_t now)
{
    uint64_t gap = now - t->lost_at;

    t->redials++;
    if (gap > t->longest_gap)
        t->longest_gap = gap;
    commands_put(t->host->commands, &(struct command){.kind = COMMAND_RESUMED, .loss = t->loss, .time = gap});
}

/* The old worker still serves: it is left in favour of the one that was dialled. */
static bool swap(struct tunnel *t, uint64_t now)
{
    if (!tunnel_mend_message(t, now)) {
        t->seek = SEEK_DIALLING; /* so that what was dialled is closed */
        tunnel_close(t, CLOSE_message_cut, 0, slice_text(""), now);
        return false;
    }
    tunnel_leave_worker(t, 1000, SLICE_LITERAL("moved"), true, now);
    tunnel_worker_gone(t, LOSS_moved, now);
    return true;
}

/* The first worker knows nothing of the adapter's protocol. */
static void be_plain(struct tunnel *t)
{
    t->adapter = &adapter_none;
    t->legs[WORKER].out.keeps = false;
    t->one_leg = !t->named;
    t->ends_with = CLOSE_worker_lost;
}

/* A message over the window can never be acknowledged. */
static void limit_message(struct tunnel *t)
{
    size_t window;

    t->adapter->numbers->room(t->adapter_state, &window);
    if (!t->limits.max_message || t->limits.max_message > window - 16)
        t->limits.max_message = window - 16;
}

static bool go_on(struct tunnel *t, const struct http_head *head, uint64_t now)
{
    if (!t->adapter->answered)
        return true;
    switch (t->adapter->answered(t->adapter_state, head)) {
    case ADAPTER_GOES_ON:
        limit_message(t);
        return true;
    case ADAPTER_PLAIN:
        be_plain(t);
        return true;
    case ADAPTER_EXPIRED:
        end_dial(t, CLOSE_resume_expired, now);
        return false;
    default:
        end_dial(t, CLOSE_worker_protocol, now);
        return false;
    }
}

/* The adapter of a tunnel that is resumed says how, now or later; without one nobody knows. */
static void join(struct tunnel *t, bool resumed)
{
    struct adapter_edit edit = {.outcome = ADAPTER_PENDING};

    if (t->adapter->joined)
        t->adapter->joined(t->adapter_state, &t->legs[WORKER].out, &edit);
    else if (resumed)
        edit = (struct adapter_edit){.outcome = ADAPTER_GAP, .gap = ADAPTER_UNKNOWN};
    tunnel_declare(t, edit.outcome, edit.gap);
}

static void connected(struct tunnel *t, const struct http_head *head, uint64_t now)
{
    enum tunnel_state before = t->state;

    if (!go_on(t, head, now))
        return;
    t->seek = SEEK_NOTHING;
    if (before == TUNNEL_SERVING && !swap(t, now))
        return;
    t->was_empty = t->was_empty && target_same(&t->target, &t->next);
    target_free(&t->target);
    t->target = t->next;
    t->next = (struct target){0};
    t->retried_absent = false;
    t->state = TUNNEL_SERVING;
    t->worker_there = true;
    t->worker_since = now;
    leg_renew(&t->legs[WORKER], now);
    put(t, COMMAND_ADOPT);
    join(t, before != TUNNEL_OPENING);
    t->gaps_before = t->gaps;
    t->progress_before = t->adapter->progress ? t->adapter->progress(t->adapter_state) : 0;
    if (before == TUNNEL_OPENING)
        put(t, COMMAND_ACCEPT);
    else
        note_resumed(t, now);
    t->must_ask = true;
    tunnel_watch(t, now);
    tunnel_acknowledge(t, now);
}

struct slice tunnel_probe(const struct tunnel *t, struct slice target, struct writer *w)
{
    const struct adapter *adapter = t->adapter;
    bool asks = adapter->probe && adapter->probe(t->adapter_state, target, w) && !w->full;
    return asks ? writer_slice(w) : slice_text(NULL);
}

enum dial_outcome tunnel_probed(struct tunnel *t, unsigned status, struct slice body)
{
    uint64_t missing;

    switch (t->adapter->probed(t->adapter_state, status, body, &missing)) {
    case ADAPTER_ALIVE:
        return DIAL_OPEN;
    case ADAPTER_ENDED:
        if (t->state == TUNNEL_REDIALLING)
            tunnel_declare(t, missing ? ADAPTER_GAP : ADAPTER_EXACT, missing);
        return DIAL_ENDED;
    default:
        return DIAL_STATUS;
    }
}

/* Whether the first dial can be repeated although the worker may have seen it: sessions that number know it
 * again. */
static bool is_repeatable(const struct tunnel *t, enum dial_outcome outcome, unsigned status)
{
    return t->adapter->numbers &&
           (outcome == DIAL_INVALID || outcome == DIAL_TIMEOUT || (outcome == DIAL_STATUS && status == 409));
}

static enum refusal problem_of(enum dial_outcome outcome)
{
    return outcome == DIAL_NO_SOCKET || outcome == DIAL_MEMORY ? REFUSAL_relay_unavailable
           : outcome == DIAL_TIMEOUT                           ? REFUSAL_worker_timeout
                                                               : REFUSAL_worker_unreachable;
}

static void first_dial_failed(struct tunnel *t, enum dial_outcome outcome, unsigned status, uint64_t now)
{
    bool again =
        outcome == DIAL_UNREACHABLE || outcome == DIAL_NO_SOCKET || is_repeatable(t, outcome, status);

    t->problem = problem_of(outcome);
    if (!again) {
        tunnel_refuse(t, outcome == DIAL_STATUS ? REFUSAL_NONE : t->problem);
        return;
    }
    t->must_ask = true;
    tunnel_seek_again(t, now);
}

/* What this worker says of the session is final. While the old worker serves, that one decides. */
static void refused_by_worker(struct tunnel *t, enum close_reason reason, uint64_t now)
{
    t->seek = SEEK_NOTHING;
    if (t->state == TUNNEL_REDIALLING)
        tunnel_close(t, reason, 0, slice_text(""), now);
}

/* The worker will say the same again. A conflict is with the leg before, which it may not know to be gone yet. */
static bool is_final_status(unsigned status)
{
    return status >= 400 && status < 500 && status != 408 && status != 409 && status != 425 && status != 429;
}

static void redial_failed(struct tunnel *t, enum dial_outcome outcome, unsigned status, uint64_t now)
{
    bool absent = outcome == DIAL_STATUS && (status == 404 || status == 410);

    if (outcome == DIAL_TIMEOUT || outcome == DIAL_INVALID)
        t->abandoned_at = now;
    if (outcome == DIAL_ENDED)
        refused_by_worker(t, CLOSE_process_exited, now);
    else if (absent && status == 410 && t->adapter->numbers)
        refused_by_worker(t, CLOSE_resume_expired, now);
    else if (absent && !t->retried_absent && t->changed_at && now - t->changed_at < ABSENT_RETRY) {
        t->retried_absent = true;
        tunnel_seek_again(t, now);
    } else if (absent) {
        refused_by_worker(t, CLOSE_session_not_found, now);
    } else if (outcome == DIAL_STATUS && is_final_status(status)) {
        refused_by_worker(t, CLOSE_worker_refused, now);
    } else {
        tunnel_seek_again(t, now);
    }
}

void tunnel_dialled(struct tunnel *t, enum dial_outcome outcome, unsigned status,
                    const struct http_head *head, uint64_t now)
{
    if (t->state >= TUNNEL_CLOSING || t->seek != SEEK_DIALLING)
        return;
    if (outcome != DIAL_OPEN)
        t->seek = SEEK_NOTHING; /* there is nothing to hang up */
    if (outcome == DIAL_OPEN)
        connected(t, head, now);
    else if (t->state == TUNNEL_OPENING)
        first_dial_failed(t, outcome, status, now);
    else
        redial_failed(t, outcome, status, now);
    tunnel_reading(t, now);
}

/* ---- times ---- */
static bool wants_watch(const struct tunnel *t)
{
    return !t->watching &&
           (t->state != TUNNEL_OPENING || t->seek == SEEK_WAITING || t->seek == SEEK_PAUSING);
}

void tunnel_seek_tick(struct tunnel *t, uint64_t now)
{
    if (t->seek == SEEK_PAUSING && now >= t->seek_at)
        tunnel_ask(t, now);
    else if (t->seek == SEEK_WAITING && now >= wait_until(t))
        give_up(t, now);
    if (t->state < TUNNEL_CLOSING && wants_watch(t))
        tunnel_watch(t, now);
}

uint64_t tunnel_seek_due(const struct tunnel *t)
{
    uint64_t due = t->seek == SEEK_PAUSING   ? t->seek_at
                   : t->seek == SEEK_WAITING ? wait_until(t)
                                             : UINT64_MAX;
    return wants_watch(t) && t->watch_at < due ? t->watch_at : due;
}
