/* SPDX-License-Identifier: MIT */
#include "spoa/relay/tunnel/connector.h"

#include <stdlib.h>

#define ABSENT_RETRY    (3 * SECOND) /* a worker may learn of a session later than the directory does */
#define UNWATCHED_PAUSE (20 * SECOND)
#define WATCH_PAUSE     SECOND /* before a watch that reported nothing new is repeated */
/* longest pause, plus or minus a fifth: a client waits for its first worker */
#define HELD_PAUSE (4 * SECOND / 5)
#define LATE       (10 * SECOND) /* time in which a worker may still accept a cancelled dial */

static const struct connector_result goes_on = {.how = CONNECTOR_GOES_ON};

void connector_free(struct connector *c)
{
    target_free(&c->target);
    target_drop(&c->next);
    redial_free(&c->redial);
}

const struct target *connector_target(const struct connector *c)
{
    return c->next ? c->next : &c->target;
}

/* ---- attempts ---- */
static struct connector_result hopeless(enum close_reason reason, enum refusal refusal)
{
    return (struct connector_result){CONNECTOR_HOPELESS, reason, refusal};
}

static struct connector_result give_up(struct connector *c)
{
    connector_stop(c);
    if (c->purpose == CONNECT_FIRST || c->purpose == CONNECT_AGAIN)
        return hopeless(CLOSE_unrecoverable, c->problem ? c->problem : REFUSAL_worker_unreachable);
    target_drop(&c->next); /* the old worker still serves; the agent will report the sandbox's place again */
    return goes_on;
}

static struct connector_result dial(struct connector *c, const struct target *target, uint64_t now)
{
    const struct target *known = connector_target(c);

    if (target_known(known) && !target_same(known, target)) {
        c->changed_at = now;
        c->retried_absent = false;
        if (redial_changed(&c->redial, now))
            return hopeless(CLOSE_flapping, REFUSAL_worker_unreachable);
    }
    if (!target_put(&c->next, target)) {
        c->problem = REFUSAL_relay_unavailable;
        return give_up(c);
    }
    c->phase = CONNECTOR_DIALLING;
    place_put(&c->place, COMMAND_DIAL);
    return goes_on;
}

void connector_ask(struct connector *c, uint64_t now)
{
    c->phase = CONNECTOR_ASKING;
    c->asked_at = now;
    place_put(&c->place, COMMAND_ASK);
}

struct connector_result connector_again(struct connector *c, uint64_t now)
{
    uint64_t most = c->purpose == CONNECT_FIRST ? HELD_PAUSE : UINT64_MAX;

    if (!redial_next(&c->redial, &c->place.settings->redial, most, place_random(&c->place), now,
                     &c->pause_until))
        return give_up(c);
    if (c->pause_until > now)
        c->phase = CONNECTOR_PAUSING;
    else if (c->purpose == CONNECT_FIRST && !c->must_ask)
        return dial(c, &c->target, now);
    else
        connector_ask(c, now);
    return goes_on;
}

struct connector_result connector_begin(struct connector *c, uint64_t budget, uint64_t now)
{
    redial_begin(&c->redial, budget, now);
    return connector_again(c, now);
}

bool connector_lost(struct connector *c, uint64_t lived, bool moved, bool gets_on, uint64_t now)
{
    const struct redial_settings *settings = &c->place.settings->redial;
    bool flaps = !moved && redial_lost(&c->redial, settings, lived, now);

    if (flaps && !gets_on)
        return false;
    if (flaps && c->phase == CONNECTOR_IDLE)
        redial_begin_slowly(&c->redial, settings->budget, now);
    else if (c->phase != CONNECTOR_IDLE)
        redial_renew(&c->redial, settings->budget, now);
    else
        redial_begin(&c->redial, settings->budget, now);
    return true;
}

void connector_stop(struct connector *c)
{
    if (c->phase == CONNECTOR_DIALLING)
        place_put(&c->place, COMMAND_HANG_UP);
    c->phase = CONNECTOR_IDLE;
}

void connector_abandon(struct connector *c, uint64_t now)
{
    if (c->phase != CONNECTOR_IDLE)
        c->abandoned_at = now;
    connector_stop(c);
}

bool connector_took_itself(struct connector *c, uint64_t now)
{
    bool taken = c->abandoned_at && now - c->abandoned_at < LATE;

    c->abandoned_at = 0;
    return taken;
}

/* ---- what the agent says ---- */
/* Returns true if the sandbox, or the right to reach it, is gone; `*result` is then final. */
static bool is_final(const struct answer *answer, struct connector_result *result)
{
    enum close_reason *reason = &result->reason;
    enum refusal *refusal = &result->refusal;

    result->how = CONNECTOR_HOPELESS;
    if (answer->refused != REFUSAL_NONE) {
        *reason = answer->refused == REFUSAL_token_expired      ? CLOSE_token_expired
                  : answer->refused == REFUSAL_not_granted      ? CLOSE_not_granted
                  : answer->refused == REFUSAL_too_many_tunnels ? CLOSE_too_many_tunnels
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

static uint64_t wait_until(const struct connector *c)
{
    return c->redial.waiting + (c->purpose == CONNECT_FIRST ? c->hold : c->place.settings->migration_budget);
}

static void wait_for_worker(struct connector *c, uint64_t now)
{
    c->problem = c->answer == ANSWER_MIGRATING ? REFUSAL_sandbox_migrating : REFUSAL_sandbox_waking;
    c->phase = CONNECTOR_WAITING;
    redial_wait(&c->redial, now);
    connector_watch_now(c, now);
}

/* Handles an agent that cannot answer. The budget stands still while the agent is away, because nobody else knows the worker and the
 * worker is not at fault. */
static struct connector_result no_answer(struct connector *c, bool agent_lost, uint64_t now)
{
    c->problem = agent_lost ? REFUSAL_agent_unavailable : REFUSAL_directory_unavailable;
    if (agent_lost && c->purpose == CONNECT_AGAIN)
        redial_wait(&c->redial, c->asked_at);
    return c->redial.waiting && now >= wait_until(c) ? give_up(c) : connector_again(c, now);
}

/* Returns true if the sandbox has moved back to the serving worker. */
static bool has_come_back(const struct connector *c, const struct answer *answer)
{
    return c->purpose == CONNECT_ASIDE && target_same(&c->target, &answer->target);
}

struct connector_result connector_use(struct connector *c, const struct answer *answer, uint64_t now)
{
    if (answer->state == ANSWER_UNAVAILABLE)
        return no_answer(c, answer->agent_lost, now);
    if (!target_known(&answer->target)) {
        wait_for_worker(c, now);
        return goes_on;
    }
    if (has_come_back(c, answer)) {
        connector_stop(c);
        target_drop(&c->next);
        return goes_on;
    }
    redial_found(&c->redial, now);
    return dial(c, &answer->target, now);
}

/* Handles an answer during the grace period. A watch's answer may be old, so only the answer to a question confirms that the session
 * ended. */
static struct connector_result use_in_grace(struct connector *c, const struct answer *answer, bool watch)
{
    bool moved = target_known(&answer->target) && !target_same(&c->target, &answer->target);
    bool stays = answer->state == ANSWER_UNAVAILABLE || (answer->state == ANSWER_RUNNING && !moved);

    if (stays && watch)
        return goes_on;
    c->phase = CONNECTOR_IDLE;
    return (struct connector_result){.how = stays ? CONNECTOR_STAYS : CONNECTOR_MOVED};
}

/* Returns true if a watch's answer is of use to the search. */
static bool matters(const struct connector *c, const struct answer *answer)
{
    if (!target_known(&answer->target))
        return false;
    return c->phase == CONNECTOR_WAITING ||
           (c->phase != CONNECTOR_ASKING && !target_same(connector_target(c), &answer->target));
}

static struct connector_result use_change(struct connector *c, const struct answer *answer, uint64_t now)
{
    if (c->fixed || !matters(c, answer))
        return goes_on;
    if (c->phase == CONNECTOR_IDLE && !has_come_back(c, answer))
        return (struct connector_result){.how = c->purpose == CONNECT_ASIDE ? CONNECTOR_MOVED
                                                                            : CONNECTOR_GOES_ON};
    if (c->phase == CONNECTOR_DIALLING)
        c->abandoned_at = now;
    connector_stop(c);
    return connector_use(c, answer, now);
}

bool connector_would_move(const struct connector *c, const struct answer *answer)
{
    struct connector_result final;

    return c->purpose == CONNECT_ASIDE && c->phase == CONNECTOR_IDLE && !c->fixed && matters(c, answer) &&
           !is_final(answer, &final);
}

/* Returns a random pause before polling. Without it, all tunnels for which the agent has no watch slot would ask at once. */
static uint64_t ask_later(struct connector *c)
{
    uint64_t pause = c->phase == CONNECTOR_WAITING ? 2 * WATCH_PAUSE : UNWATCHED_PAUSE;
    return pause / 2 + place_random(&c->place) % pause;
}

struct connector_result connector_answered(struct connector *c, const struct answer *answer, bool watch,
                                           uint64_t now)
{
    bool told = answer->state != ANSWER_UNAVAILABLE && answer->epoch != c->watched;
    struct connector_result final;

    if (!watch && c->phase != CONNECTOR_ASKING)
        return goes_on;
    if (watch) {
        c->watching = false;
        c->watch_at = answer->unwatched ? now + ask_later(c) : told ? now : now + WATCH_PAUSE;
    }
    if (answer->state != ANSWER_UNAVAILABLE) {
        c->epoch = answer->epoch;
        c->answer = answer->state;
    }
    c->must_ask = true; /* the agent is asked before each further dial */
    if (is_final(answer, &final))
        return final;
    if (c->purpose == CONNECT_GRACE)
        return use_in_grace(c, answer, watch);
    return watch ? use_change(c, answer, now) : connector_use(c, answer, now);
}

/* ---- the watch ---- */
void connector_watch(struct connector *c, uint64_t now)
{
    if (c->watching || now < c->watch_at)
        return;
    c->watching = true;
    c->watched = c->epoch;
    place_put(&c->place, COMMAND_WATCH);
}

void connector_watch_now(struct connector *c, uint64_t now)
{
    c->watch_at = now;
    connector_watch(c, now);
}

void connector_watch_on(struct connector *c, bool watch, uint64_t now)
{
    if (watch || c->watching)
        connector_watch(c, now);
}

static bool wants_watch(const struct connector *c)
{
    return !c->watching &&
           (c->purpose != CONNECT_FIRST || c->phase == CONNECTOR_WAITING || c->phase == CONNECTOR_PAUSING);
}

/* ---- what the worker says to the dial ---- */
void connector_connected(struct connector *c)
{
    c->phase = CONNECTOR_IDLE;
    c->redial.give_up = 0; /* the search is over */
    c->retried_absent = false;
    c->must_ask = true;
    if (c->next) {
        target_free(&c->target);
        c->target = *c->next;
        *c->next = (struct target){0};
        target_drop(&c->next);
    }
}

/* Returns true if the first dial can be repeated although the worker may have seen it. */
static bool is_repeatable(const struct connector *c, enum dial_outcome outcome, unsigned status)
{
    return c->resumes &&
           (outcome == DIAL_INVALID || outcome == DIAL_TIMEOUT || (outcome == DIAL_STATUS && status == 409));
}

static enum refusal problem_of(const struct connector *c, enum dial_outcome outcome)
{
    if (outcome == DIAL_NO_SOCKET || outcome == DIAL_MEMORY)
        return REFUSAL_relay_unavailable;
    if (outcome == DIAL_TIMEOUT)
        return c->fixed ? REFUSAL_destination_timeout : REFUSAL_worker_timeout;
    return c->fixed ? REFUSAL_destination_unreachable : REFUSAL_worker_unreachable;
}

static struct connector_result first_failed(struct connector *c, enum dial_outcome outcome, unsigned status,
                                            uint64_t now)
{
    bool again =
        outcome == DIAL_UNREACHABLE || outcome == DIAL_NO_SOCKET || is_repeatable(c, outcome, status);

    again = again && !c->fixed;
    c->problem = problem_of(c, outcome);
    if (!again)
        return hopeless(CLOSE_unrecoverable, outcome == DIAL_STATUS ? REFUSAL_NONE : c->problem);
    c->must_ask = true;
    return connector_again(c, now);
}

/* Handles a worker's final answer about the session. While the old worker serves, the new one's answer does not end the tunnel. */
static struct connector_result refused(const struct connector *c, enum close_reason reason)
{
    return c->purpose == CONNECT_AGAIN ? hopeless(reason, REFUSAL_NONE) : goes_on;
}

/* Returns true if the worker would answer the same again. A 409 can come from the previous leg, which the worker may not know to be gone
 * yet. */
static bool is_final_status(unsigned status)
{
    return status >= 400 && status < 500 && status != 408 && status != 409 && status != 425 && status != 429;
}

struct connector_result connector_failed(struct connector *c, enum dial_outcome outcome, unsigned status,
                                         uint64_t now)
{
    bool absent = outcome == DIAL_STATUS && (status == 404 || status == 410);

    c->phase = CONNECTOR_IDLE; /* the failed dial needs no COMMAND_HANG_UP */
    if (c->purpose == CONNECT_FIRST)
        return first_failed(c, outcome, status, now);
    if (outcome == DIAL_TIMEOUT || outcome == DIAL_INVALID)
        c->abandoned_at = now;
    if (outcome == DIAL_ENDED)
        return refused(c, CLOSE_process_exited);
    if (status == 410 && absent && c->resumes)
        return refused(c, CLOSE_resume_expired);
    if (absent && !c->retried_absent && c->changed_at && now - c->changed_at < ABSENT_RETRY) {
        c->retried_absent = true;
        return connector_again(c, now);
    }
    if (absent)
        return refused(c, CLOSE_session_not_found);
    if (outcome == DIAL_STATUS && is_final_status(status))
        return refused(c, CLOSE_worker_refused);
    return connector_again(c, now);
}

/* ---- times ---- */
struct connector_result connector_tick(struct connector *c, uint64_t now)
{
    if (c->phase == CONNECTOR_PAUSING && now >= c->pause_until) {
        connector_ask(c, now);
    } else if (c->phase == CONNECTOR_WAITING && now >= wait_until(c)) {
        struct connector_result result = give_up(c);
        if (result.how != CONNECTOR_GOES_ON)
            return result;
    }
    if (wants_watch(c))
        connector_watch(c, now);
    return goes_on;
}

uint64_t connector_due(const struct connector *c)
{
    uint64_t due = c->phase == CONNECTOR_PAUSING   ? c->pause_until
                   : c->phase == CONNECTOR_WAITING ? wait_until(c)
                                                   : UINT64_MAX;
    return wants_watch(c) && c->watch_at < due ? c->watch_at : due;
}

/* ---- in another process ---- */
void connector_take_over(struct connector *c, uint64_t now)
{
    c->watching = false;
    if (c->phase == CONNECTOR_DIALLING)
        c->abandoned_at = now;
    if (c->phase == CONNECTOR_DIALLING || c->phase == CONNECTOR_ASKING)
        connector_ask(c, now);
    if (wants_watch(c))
        connector_watch_now(c, now);
}

static bool holds(const void *object)
{
    const struct connector *c = object;
    return !c->next || target_known(c->next);
}

static const struct image_field fields[] = {
    IMAGE_DERIVED(struct connector, place), /* tunnel_place */
    IMAGE_USUALLY(struct connector, purpose, CONNECT_AGAIN, CONNECT_ASIDE),
    IMAGE_NUMBER(struct connector, phase, CONNECTOR_WAITING),
    IMAGE_NUMBER(struct connector, answer, ANSWER_NOT_ADMITTED),
    IMAGE_NUMBER(struct connector, problem, REFUSAL_COUNT - 1),
    IMAGE_FLAG(struct connector, resumes),
    IMAGE_FLAG(struct connector, must_ask),
    IMAGE_FLAG(struct connector, fixed),
    IMAGE_FLAG(struct connector, retried_absent),
    IMAGE_FLAG(struct connector, watching),
    IMAGE_USUALLY(struct connector, hold, UINT64_MAX, 30 * SECOND),
    IMAGE_PART(struct connector, target, &target_table),
    IMAGE_OWNED(struct connector, next, &target_table),
    IMAGE_SIGNED(struct connector, epoch),
    IMAGE_PART(struct connector, redial, &redial_table),
    IMAGE_TIME(struct connector, pause_until),
    IMAGE_TIME(struct connector, asked_at),
    IMAGE_TIME(struct connector, changed_at),
    IMAGE_TIME(struct connector, abandoned_at),
    IMAGE_SIGNED(struct connector, watched),
    IMAGE_TIME(struct connector, watch_at),
};
IMAGE_TABLE(connector_table, struct connector, fields, .holds = holds);
