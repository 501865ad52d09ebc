/* SPDX-License-Identifier: MIT */
/* mux_watch: subscribes to the agent's decisions about a request that takes long, as for a tunnel. The request ends when its token
 * expires, and when its sandbox stops or no longer admits the caller. */
#include <time.h>

#include "spoa/proto/refusal.h"
#include "spoa/relay/mux_io/mux_parts.h"

#define LASTS     SECOND /* age at which a request is watched; most requests are answered before */
#define ASK_AGAIN SECOND /* time between two questions if the agent keeps no subscription */

/* Decodes the request's handover into *h, whose texts the thread's next call overwrites. Returns false if the handover is malformed. */
static bool decode(const struct mux_request *r, struct handover *h)
{
    static _Thread_local uint8_t texts[MUX_HEAD_MOST];
    struct writer memory = writer_of(texts, sizeof texts);
    struct fail why;
    return handover_decode(h, mux_handover(r), &memory, &why);
}

static void say(void *owner, bool watched, struct question_text *to)
{
    const struct mux_request *r = owner;
    (void)watched;
    if (!decode(r, &to->handover))
        to->handover = handover_none();
    to->epoch = r->watch.epoch;
}

static void deny(struct mux_request *r, enum refusal refusal)
{
    const struct refusal_info *info = refusal_info(refusal);
    struct mux_io *io = r->io;
    log_write(io->thread->log, LOG_INFO, "mux request denied", LOG_SLICE("id", io->upgrade->handover.id),
              LOG_TEXT("reason", info->code));
    if (mux_say_error(io, r->answer.id, r->v1.number, "DENIED", info->sentence, (unsigned)info->status))
        mux_drop(r, MUX_OUTCOME_DENIED);
    mux_settle(io);
}

/* ---- time ---- */

static void wake_at(struct mux_io *io, uint64_t when)
{
    if (loop_timer_active(&io->watches) && io->watches_at <= when)
        return;
    io->watches_at = when;
    loop_timer_set_at(&io->watches, when);
}

static void set_time(struct mux_request *r, uint64_t when)
{
    r->watch.at = when;
    wake_at(r->io, when);
}

static uint64_t soonest(uint64_t a, uint64_t b)
{
    return a && (!b || a < b) ? a : b;
}

static void act(struct mux_request *r, uint64_t now)
{
    if (r->watch.ends && r->watch.ends <= now) {
        deny(r, REFUSAL_token_expired);
        return;
    }
    r->watch.at = 0;
    agent_client_ask(r->io->thread->agent, &r->watch.question);
}

void mux_watch_due(void *owner)
{
    struct mux_io *io = owner;
    uint64_t now = loop_clock(), next = 0;
    struct mux_request *r = io->requests;
    while (r) {
        uint64_t when = soonest(r->watch.at, r->watch.ends);
        if (when && when <= now) {
            act(r, now);
            r = io->requests; /* `act` may have ended any request, so the walk begins anew */
            next = 0;
            continue;
        }
        next = soonest(when, next);
        r = r->next;
    }
    if (next)
        wake_at(io, next);
}

/* ---- the agent ---- */

static enum refusal judge(const struct answer *answer)
{
    if (answer->refused != REFUSAL_NONE)
        return answer->refused;
    switch (answer->state) {
    case ANSWER_ABSENT:
        return REFUSAL_sandbox_not_found;
    case ANSWER_STOPPED:
        return REFUSAL_sandbox_stopped;
    case ANSWER_NOT_ADMITTED:
        return REFUSAL_not_granted;
    default:
        return REFUSAL_NONE;
    }
}

static void on_answered(void *owner, bool watched, const struct answer *answer)
{
    struct mux_request *r = owner;
    enum refusal refusal = judge(answer);
    bool news = answer->epoch >= 0 && answer->epoch != r->watch.epoch;
    (void)watched;
    if (refusal != REFUSAL_NONE) {
        deny(r, refusal);
        return;
    }
    if (answer->unwatched || answer->state == ANSWER_UNAVAILABLE || !news) {
        set_time(r, loop_clock() + ASK_AGAIN);
        return;
    }
    r->watch.epoch = answer->epoch;
    agent_client_ask(r->io->thread->agent, &r->watch.question);
}

static const struct question_user question_user = {.say = say, .answered = on_answered};

void mux_watch_begin(struct mux_request *r)
{
    struct handover h;
    if (r->watch.begun || !mux_handover(r).len)
        return;
    r->watch.begun = true;
    if (!decode(r, &h))
        return;
    r->watch.question = (struct question){.user = &question_user, .owner = r, .watch = true};
    r->watch.epoch = h.epoch;
    uint64_t now = loop_clock();
    int64_t left = h.exp < 0 ? INT64_MAX : h.exp - (int64_t)time(NULL);
    if (left <= INT32_MAX) {
        r->watch.ends = now + (left > 0 ? (uint64_t)left : 0) * SECOND;
        wake_at(r->io, r->watch.ends);
    }
    if (slice_present(h.ticket)) /* the agent only answers questions with a ticket */
        set_time(r, now + LASTS);
}

void mux_watch_end(struct mux_request *r)
{
    agent_client_drop(r->io->thread->agent, &r->watch.question);
}
