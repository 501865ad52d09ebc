/* SPDX-License-Identifier: MIT */
#include <stdlib.h>

#include "spoa/relay/tunnel/tunnel_parts.h"

/* time that a worker gets after it is read again, before its silence counts */
#define READ_MOMENT (50 * MILLISECOND)

/* ---- life ---- */
static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* Returns the route's limit, or the relay's if the route has none. */
static uint64_t limit_of(int64_t said, uint64_t unit, uint64_t fallback)
{
    return said >= 0 ? (uint64_t)said * unit : fallback;
}

static struct tunnel_limits limits_of(const struct handover *h, const struct tunnel_limits *fallback)
{
    return (struct tunnel_limits){
        .hold = limit_of(h->hold, MILLISECOND, fallback->hold),
        .idle = limit_of(h->idle, MILLISECOND, fallback->idle),
        .max_age = limit_of(h->max_age, MILLISECOND, fallback->max_age),
        .max_message = limit_of(h->max_message, 1, fallback->max_message),
    };
}

static struct target handover_target(const struct handover *h)
{
    return (struct target){
        .addr = h->addr,
        .port = (uint16_t)(h->addr_port > 0 ? h->addr_port : 0),
        .tls = h->tls,
        .unix_path = h->unix_path,
        .sni = h->sni,
        .host = h->host,
    };
}

static void set_up(struct tunnel *t, const struct tunnel_opening *o, uint64_t now)
{
    const struct handover *h = o->handover;
    const struct adapter *adapter = adapter_find((enum handover_resume)h->resume, o->client_resumes);
    const struct tunnel_limits limits = limits_of(h, &o->place.settings->limits);
    size_t limit = o->place.settings->buffer + LEG_SLACK;

    *t = (struct tunnel){
        .idle = limits.idle,
        .max_age = limits.max_age,
        .overlap = h->overlap,
        .one_leg = adapter->one_leg || h->one_leg,
        .outside = slice_present(h->egress),
        .ends_with = adapter->one_leg ? CLOSE_client_resumes : CLOSE_not_redialled,
        .named = slice_present(h->session),
        .opened = now,
        .expires = o->expires ? o->expires : UINT64_MAX,
        .pending_close = buffer_with_limit(WS_CONTROL_MAX),
    };
    t->forward = (struct forward){
        .place = o->place,
        .adapter = adapter,
        .there[CLIENT] = true,
        .max_message = limits.max_message,
        .end = (enum handover_end)h->end,
        .stream = h->stream,
        .empty_frame = h->keepalive == HANDOVER_KEEPALIVE_EMPTY_FRAME && !adapter->one_leg,
        .used = now,
    };
    t->forward.legs[CLIENT] = leg_of(WS_CLIENT, limit + adapter->insert_max, place_random(&o->place), now);
    t->forward.legs[WORKER] = leg_of(WS_SERVER, limit, place_random(&o->place), now);
    t->forward.legs[WORKER].out.keeps = adapter->numbers != NULL;
    t->connector = (struct connector){.place = o->place,
                                      .resumes = adapter->numbers != NULL,
                                      .fixed = t->outside,
                                      .hold = limits.hold,
                                      .epoch = h->epoch};
}

static void start_adapter(struct tunnel *t, const struct tunnel_opening *o)
{
    struct adapter_start start = {.target = o->target,
                                  .buffer = o->place.settings->buffer,
                                  .rechecks = o->place.settings->rechecks && !o->handover->one_leg};

    t->forward.adapter_state = o->state;
    for (size_t i = 0; t->forward.adapter->numbers && i < 4; i++)
        start.id[i] = place_random(&o->place);
    if (t->forward.adapter->start)
        t->forward.adapter->start(t->forward.adapter_state, &start);
}

/* Returns the budget of the first search. A client whose tunnel ended with its worker comes back at once and waits here for the next
 * worker. */
static uint64_t opening_budget(const struct tunnel *t, const struct handover *h)
{
    uint64_t budget = t->forward.place.settings->connect_budget;
    return h->waits && t->connector.hold > budget ? t->connector.hold : budget;
}

/* Decides after each event which side is read. Skipped while a side is not attached yet: its held output is no measure, and
 * tunnel_writable follows. */
static void decide_reading(struct tunnel *t, uint64_t now)
{
    const bool *unattached = t->forward.place.host->commands->unattached;

    t->forward.steady[CLIENT] = t->forward.steady[WORKER] = false;
    if (t->state == TUNNEL_ended || unattached[CLIENT] || unattached[WORKER])
        return;
    forward_decide(&t->forward, now);
    for (enum side side = CLIENT; side <= WORKER; side++)
        t->forward.steady[side] = forward_is_steady(&t->forward, side);
}

static bool set_up_with_target(struct tunnel *t, const struct tunnel_opening *o, uint64_t now)
{
    struct target target = handover_target(o->handover);

    set_up(t, o, now);
    start_adapter(t, o);
    return target_set(&t->connector.target, &target);
}

bool tunnel_open(struct tunnel *t, const struct tunnel_opening *o, uint64_t now)
{
    if (!set_up_with_target(t, o, now)) {
        t->state = TUNNEL_ended;
        return false;
    }
    if (o->handover->refuse >= 400) {
        place_put(&t->forward.place, COMMAND_ACCEPT);
        tunnel_close(t, CLOSE_refused, 4000 + (unsigned)o->handover->refuse, o->handover->error, now);
        decide_reading(t, now);
        return true;
    }
    const struct target *target = &t->connector.target;
    t->connector.must_ask =
        !target_known(target) || o->handover->secrets || (target->tls && !slice_present(target->sni));
    tunnel_heed(t, connector_begin(&t->connector, opening_budget(t, o->handover), now), now);
    decide_reading(t, now);
    return true;
}

void tunnel_free(struct tunnel *t)
{
    if (t->forward.adapter->end && t->forward.adapter_state)
        t->forward.adapter->end(t->forward.adapter_state);
    t->forward.adapter_state = NULL;
    leg_free(&t->forward.legs[CLIENT]);
    leg_free(&t->forward.legs[WORKER]);
    connector_free(&t->connector);
    free(t->recheck);
    t->recheck = NULL;
    buffer_free(&t->pending_close);
}

void tunnel_place(struct tunnel *t, const struct tunnel_place *place, void *state)
{
    t->forward.adapter_state = state;
    t->forward.place = t->connector.place = *place;
}

const struct target *tunnel_target(const struct tunnel *t)
{
    return connector_target(&t->connector);
}

bool tunnel_is_open(const struct tunnel *t)
{
    return t->state == TUNNEL_serving || t->state == TUNNEL_grace || t->state == TUNNEL_redialling;
}

/* ---- bytes ---- */
/* Handles the client's Close: it goes to the worker, and the client gets the worker's answer. Without a worker the relay answers. */
static void client_closed(struct tunnel *t, unsigned code, struct slice text, uint64_t now)
{
    if (t->state != TUNNEL_closing) {
        tunnel_close(t, CLOSE_client_closed, code, text, now);
        return;
    }
    /* a client that resumes by itself, or of an egress tunnel, answers the worker's Close itself */
    if ((t->forward.adapter->one_leg || t->outside) && !forward_hears_client(&t->forward))
        forward_send_close(&t->forward, WORKER, code, text, now);
    tunnel_leave_client(t, now);
}

static void read_ended(struct tunnel *t, enum side from, const struct forward_end *end, uint64_t now)
{
    struct slice text = slice_of(end->text, end->text_len);

    switch (end->how) {
    case FORWARD_GOES_ON:
        break;
    case FORWARD_NO_MEMORY:
        tunnel_need(t, false, now);
        break;
    case FORWARD_FAILED:
        if (t->state == TUNNEL_closing && from == CLIENT)
            tunnel_leave_client(t, now);
        else
            tunnel_fail(t, end->reason, now);
        break;
    case FORWARD_CLOSED:
        if (from == CLIENT)
            client_closed(t, end->code, text, now);
        else
            tunnel_worker_closed(t, end->code, text, now);
        break;
    }
}

static void acknowledge(struct tunnel *t, uint64_t now)
{
    if (t->state < TUNNEL_closing)
        tunnel_need(t, forward_acknowledge(&t->forward, now), now);
}

/* Acknowledges if that is due. Returns false if the next acknowledgement is due sooner than before, the worker does not take this one, or
 * memory is short, which ends the tunnel. */
static bool acknowledges(struct tunnel *t, uint64_t due, uint64_t now)
{
    bool memory = forward_acknowledge(&t->forward, now);

    tunnel_need(t, memory, now);
    return memory && send_queue_empty(&t->forward.legs[WORKER].out) &&
           t->forward.adapter->numbers->due(t->forward.adapter_state) >= due;
}

/* Forwards whole messages on the fast path. Returns true if nothing else was read and no deadline is earlier than before. */
static bool read_whole(struct tunnel *t, enum side from, struct slice *bytes, uint64_t now)
{
    struct forward *f = &t->forward;
    const struct adapter_numbers *numbers = f->adapter->numbers;
    uint64_t due = numbers ? numbers->due(f->adapter_state) : 0;
    bool waited = f->legs[from].pinged;

    if (!forward_pass_whole(f, from, bytes, now)) {
        *bytes = slice_from(*bytes, bytes->len);
        tunnel_need(t, false, now);
        return false;
    }
    if (bytes->len || waited || !send_queue_empty(&f->legs[other(from)].out))
        return false;
    return from == CLIENT ? !numbers && !forward_may_ask_how_far(f, now)
                          : !numbers || acknowledges(t, due, now);
}

static void read_any(struct tunnel *t, enum side from, struct slice bytes, uint64_t now)
{
    const struct forward *f = &t->forward;

    if (!bytes.len || t->state == TUNNEL_ended || !f->there[from] ||
        (from == WORKER && forward_hears_client(f)))
        return;
    struct forward_end end = forward_read(&t->forward, from, bytes, now);
    read_ended(t, from, &end, now);
}

bool tunnel_read(struct tunnel *t, enum side from, struct slice bytes, uint64_t now)
{
    if (t->forward.steady[from] && read_whole(t, from, &bytes, now))
        return false;
    read_any(t, from, bytes, now);
    if (from == CLIENT && t->state == TUNNEL_serving)
        tunnel_need(t, forward_ask_how_far(&t->forward, now), now);
    acknowledge(t, now);
    decide_reading(t, now);
    return true;
}

size_t tunnel_unseen(struct tunnel *t, size_t len, uint8_t seen[WS_HEAD_MAX], uint64_t now)
{
    size_t seen_len;

    tunnel_need(t, forward_pass_unseen(&t->forward, len, seen, &seen_len, now), now);
    decide_reading(t, now);
    return seen_len;
}

void tunnel_writable(struct tunnel *t, enum side to, uint64_t now)
{
    if (!t->forward.there[to] || t->forward.place.host->commands->unattached[to])
        return;
    forward_writable(&t->forward, to, now);
    acknowledge(t, now);
    decide_reading(t, now);
}

void tunnel_lost(struct tunnel *t, enum side side, enum loss how, uint64_t now)
{
    if (t->state == TUNNEL_ended)
        return;
    if (side == CLIENT && t->forward.there[CLIENT])
        tunnel_client_lost(t, now);
    else if (side == WORKER && t->forward.there[WORKER])
        tunnel_worker_lost(t, how, now);
    decide_reading(t, now);
}

/* ---- the agent and the dial ---- */
bool tunnel_would_move(const struct tunnel *t, const struct answer *answer)
{
    return t->state == TUNNEL_serving && connector_would_move(&t->connector, answer);
}

bool tunnel_would_leave(const struct tunnel *t, const struct answer *answer)
{
    return tunnel_would_move(t, answer) && !t->one_leg && !tunnel_overlaps(t);
}

void tunnel_answered(struct tunnel *t, const struct answer *answer, bool watch, uint64_t now)
{
    if (t->state >= TUNNEL_closing || (!watch && t->connector.phase != CONNECTOR_ASKING))
        return;
    struct connector_result result = connector_answered(&t->connector, answer, watch, now);
    tunnel_heed(t, result, now);
    if (result.how == CONNECTOR_MOVED)
        tunnel_worker_moved(t, answer, now);
    /* otherwise a tunnel that can go on waits for the rest of the grace period, because a change may still be announced */
    if (result.how == CONNECTOR_STAYS && t->one_leg)
        tunnel_grace_over(t, now);
    if (t->state < TUNNEL_closing)
        connector_watch_on(&t->connector, watch, now);
    decide_reading(t, now);
}

struct slice tunnel_probe(const struct tunnel *t, struct slice target, struct writer *w)
{
    const struct adapter *adapter = t->forward.adapter;
    bool asks = adapter->probe && adapter->probe(t->forward.adapter_state, target, w) && !w->full;
    return asks ? writer_slice(w) : slice_text(NULL);
}

enum dial_outcome tunnel_probed(struct tunnel *t, unsigned status, struct slice body)
{
    uint64_t missing;

    switch (t->forward.adapter->probed(t->forward.adapter_state, status, body, &missing)) {
    case ADAPTER_ALIVE:
        return DIAL_OPEN;
    case ADAPTER_ENDED:
        if (t->state == TUNNEL_redialling)
            forward_declare(&t->forward, missing ? ADAPTER_GAP : ADAPTER_EXACT, missing);
        return DIAL_ENDED;
    default:
        return DIAL_STATUS;
    }
}

void tunnel_dialled(struct tunnel *t, enum dial_outcome outcome, unsigned status,
                    const struct http_head *head, uint64_t now)
{
    if (t->state >= TUNNEL_closing || t->connector.phase != CONNECTOR_DIALLING)
        return;
    if (outcome == DIAL_OPEN)
        tunnel_worker_found(t, head, now);
    else
        tunnel_heed(t, connector_failed(&t->connector, outcome, status, now), now);
    decide_reading(t, now);
}

/* ---- times ---- */
static struct leg_settings leg_settings(const struct tunnel *t, enum side side)
{
    return (struct leg_settings){
        .keepalive = t->forward.place.settings->keepalive,
        .dead_after = t->forward.place.settings->dead_after,
        .stall = side == CLIENT ? t->forward.place.settings->stall : 0,
        .empty_frame = side == CLIENT && t->forward.empty_frame,
    };
}

static void check_leg(struct tunnel *t, enum side side, uint64_t now)
{
    struct leg_settings settings = leg_settings(t, side);

    if (t->state == TUNNEL_closing || (side == WORKER && !t->forward.there[WORKER]))
        return;
    switch (leg_check(&t->forward.legs[side], &settings, now)) {
    case LEG_FINE:
        break;
    case LEG_QUIET:
        tunnel_need(t, forward_keep_alive(&t->forward, side, now), now);
        break;
    case LEG_STALLED:
        tunnel_fail(t, CLOSE_client_too_slow, now);
        break;
    case LEG_DEAD:
        if (side == CLIENT)
            tunnel_fail(t, CLOSE_client_silent, now);
        else
            tunnel_lost(t, WORKER, LOSS_silent, now);
        break;
    }
}

static uint64_t after(uint64_t since, uint64_t limit)
{
    return limit ? since + limit : UINT64_MAX;
}

void tunnel_end_expired(struct tunnel *t, uint64_t now)
{
    if (!tunnel_is_open(t))
        return;
    if (now >= t->expires)
        tunnel_fail(t, CLOSE_token_expired, now);
    else if (now >= after(t->opened, t->max_age))
        tunnel_fail(t, CLOSE_max_age, now);
    decide_reading(t, now);
}

void tunnel_end_idle(struct tunnel *t, uint64_t now)
{
    if (tunnel_is_open(t) && now >= after(t->forward.used, t->idle))
        tunnel_fail(t, CLOSE_idle, now);
    decide_reading(t, now);
}

uint64_t tunnel_limits_due(const struct tunnel *t)
{
    if (!tunnel_is_open(t))
        return UINT64_MAX;
    return least(t->expires, least(after(t->opened, t->max_age), after(t->forward.used, t->idle)));
}

/* Returns the adapter's deadline. A worker that was not read may have sent data that nobody knows, so it gets a moment after reading
 * resumes. */
static uint64_t adapter_due(const struct tunnel *t)
{
    const struct leg *worker = &t->forward.legs[WORKER];
    bool waits =
        t->forward.adapter->due && t->state == TUNNEL_serving && t->forward.there[WORKER] && worker->reading;
    uint64_t due = waits ? t->forward.adapter->due(t->forward.adapter_state) : UINT64_MAX,
             moment = worker->heard + READ_MOMENT;

    return due > moment ? due : moment;
}

static bool lacks_session(const struct tunnel *t)
{
    bool lacks = false;
    return t->state == TUNNEL_serving && t->forward.adapter->empty &&
           t->forward.adapter->empty(t->forward.adapter_state, &lacks) && lacks;
}

/* Returns the time when the relay gives up a worker that has nothing of a session with earlier output; the relay waits no longer than for
 * any worker. */
static uint64_t lacking_due(const struct tunnel *t)
{
    return lacks_session(t) ? t->worker_since + t->forward.place.settings->redial.budget : UINT64_MAX;
}

static void check_adapter(struct tunnel *t, uint64_t now)
{
    tunnel_check_recheck(t, now);
    if (!tunnel_is_open(t))
        return;
    if (now >= adapter_due(t))
        tunnel_need(t, forward_tell_adapter(&t->forward, now, now), now);
    if (now >= lacking_due(t))
        tunnel_fail(t, CLOSE_session_not_found, now);
}

void tunnel_tick(struct tunnel *t, uint64_t now)
{
    if (forward_hears_client(&t->forward) && now >= tunnel_close_due(t))
        tunnel_heard_client(t, now);
    else if (t->state == TUNNEL_closing && now >= tunnel_close_due(t))
        tunnel_close_overdue(t, now);
    if (t->state == TUNNEL_grace && now >= t->close_at)
        tunnel_grace_over(t, now);
    tunnel_end_expired(t, now);
    tunnel_end_idle(t, now);
    if (tunnel_is_open(t))
        check_leg(t, CLIENT, now);
    if (tunnel_is_open(t))
        check_leg(t, WORKER, now);
    if (tunnel_is_open(t))
        check_adapter(t, now);
    if (tunnel_is_open(t))
        acknowledge(t, now);
    send_queue_trim(&t->forward.legs[WORKER].out);
    if (t->state < TUNNEL_closing)
        tunnel_heed(t, connector_tick(&t->connector, now), now);
    decide_reading(t, now);
}

uint64_t tunnel_judges_at(const struct tunnel *t)
{
    struct leg_settings client = leg_settings(t, CLIENT), worker = leg_settings(t, WORKER);
    uint64_t due = UINT64_MAX;

    if (t->state == TUNNEL_ended)
        return due;
    if (t->state == TUNNEL_closing)
        return tunnel_close_due(t);
    if (t->state == TUNNEL_grace)
        due = t->close_at;
    due = least(due, connector_due(&t->connector));
    if (!tunnel_is_open(t))
        return due;
    due = least(due, tunnel_limits_due(t));
    due = least(due, least(adapter_due(t), lacking_due(t)));
    due = least(due, tunnel_recheck_due(t));
    due = least(due, leg_due(&t->forward.legs[CLIENT], &client));
    return t->forward.there[WORKER] ? least(due, leg_due(&t->forward.legs[WORKER], &worker)) : due;
}

uint64_t tunnel_due(const struct tunnel *t)
{
    uint64_t due = tunnel_judges_at(t);

    if (tunnel_is_open(t))
        due = least(due, forward_looks_at(&t->forward));
    if (!tunnel_is_open(t) || !t->forward.adapter->numbers || !t->forward.there[WORKER] ||
        forward_withholds(&t->forward))
        return due;
    return least(due, t->forward.adapter->numbers->due(t->forward.adapter_state));
}

void tunnel_end(struct tunnel *t, enum close_reason reason, uint64_t now)
{
    if (t->state == TUNNEL_opening)
        tunnel_refuse(t, REFUSAL_draining);
    else if (t->state == TUNNEL_closing)
        tunnel_close_overdue(t, now);
    else
        tunnel_fail(t, reason, now);
    decide_reading(t, now);
}
