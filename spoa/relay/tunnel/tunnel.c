/* SPDX-License-Identifier: MIT */
#include "spoa/relay/tunnel/tunnel_parts.h"

#include <stdlib.h>

#define CLOSE_INVALID_DATA 1007
#define MILLISECOND UINT64_C(1000)
#define TURN_PAUSE  UINT64_C(50000)  /* before it is asked again for a turn, and half of that at random */
#define SHORT_PAUSE UINT64_C(100000) /* before it is looked again for memory, and half of that at random */
#define READ_MOMENT UINT64_C(50000)  /* for a worker that is read again, until its silence counts */
#define LAST_WORDS  UINT64_C(1000000) /* for one side to answer what the other has said before its mistake */
#define KEPT_LEAST  16384            /* bytes that are kept for acknowledgement however short memory is */

/* ---- life ---- */
static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* What the route says, else what the relay does. */
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
    size_t limit = o->settings->buffer + LEG_SLACK;

    *t = (struct tunnel){
        .host = o->host,
        .io = o->io,
        .settings = o->settings,
        .adapter = adapter,
        .client_there = true,
        .limits = limits_of(h, &o->settings->limits),
        .end = (enum handover_end)h->end,
        .stream = h->stream,
        .overlap = h->overlap,
        .empty_frame = h->keepalive == HANDOVER_KEEPALIVE_EMPTY_FRAME && !adapter->one_leg,
        .one_leg = adapter->one_leg || h->one_leg,
        .ends_with = adapter->one_leg ? CLOSE_client_resumes : CLOSE_not_redialled,
        .named = slice_present(h->session),
        .epoch = h->epoch,
        .opened = now,
        .used = now,
        .expires = o->expires ? o->expires : UINT64_MAX,
        .pings = pings_none(),
        .pending_close = buffer_with_limit(WS_CONTROL_MAX),
    };
    t->legs[CLIENT] = leg_of(WS_CLIENT, limit + adapter->insert_max, o->host->random(o->io), now);
    t->legs[WORKER] = leg_of(WS_SERVER, limit, o->host->random(o->io), now);
    t->legs[WORKER].out.keeps = adapter->numbers != NULL;
}

static bool start_adapter(struct tunnel *t, const struct tunnel_opening *o)
{
    struct adapter_start start = {.target = o->target, .buffer = o->settings->buffer};

    if (t->adapter->state_len && !(t->adapter_state = calloc(1, t->adapter->state_len)))
        return false;
    for (size_t i = 0; t->adapter->numbers && i < 4; i++)
        start.id[i] = t->host->random(t->io);
    if (t->adapter->start)
        t->adapter->start(t->adapter_state, &start);
    return true;
}

/* A client whose tunnel has ended with its worker comes back at once: it waits here for the next one. */
static uint64_t opening_budget(const struct tunnel *t, const struct handover *h)
{
    uint64_t budget = t->settings->connect_budget;
    return h->waits && t->limits.hold > budget ? t->limits.hold : budget;
}

bool tunnel_open(struct tunnel *t, const struct tunnel_opening *o, uint64_t now)
{
    struct target target = handover_target(o->handover);

    set_up(t, o, now);
    if (!start_adapter(t, o))
        return false;
    if (!target_set(&t->target, &target)) {
        free(t->adapter_state);
        t->adapter_state = NULL;
        return false;
    }
    if (o->handover->refuse >= 400) {
        put(t, COMMAND_ACCEPT);
        tunnel_close(t, CLOSE_refused, 4000 + (unsigned)o->handover->refuse, o->handover->error, now);
        tunnel_reading(t, now);
        return true;
    }
    t->must_ask =
        !target_known(&target) || o->handover->secrets || (target.tls && !slice_present(target.sni));
    tunnel_seek_begin(t, opening_budget(t, o->handover), now);
    tunnel_reading(t, now);
    return true;
}

void tunnel_free(struct tunnel *t)
{
    if (t->adapter->end && t->adapter_state)
        t->adapter->end(t->adapter_state);
    free(t->adapter_state);
    t->adapter_state = NULL;
    leg_free(&t->legs[CLIENT]);
    leg_free(&t->legs[WORKER]);
    target_free(&t->target);
    target_free(&t->next);
    pings_free(&t->pings);
    buffer_free(&t->pending_close);
}

const struct target *tunnel_target(const struct tunnel *t)
{
    return target_known(&t->next) ? &t->next : &t->target;
}

/* ---- its end ---- */
static void ended(struct tunnel *t)
{
    if (t->state == TUNNEL_ENDED)
        return;
    t->state = TUNNEL_ENDED;
}

void tunnel_refuse(struct tunnel *t, enum refusal refusal)
{
    tunnel_seek_stop(t);
    t->client_there = false;
    commands_put(t->host->commands, &(struct command){.kind = COMMAND_REFUSE, .refusal = refusal});
    ended(t);
}

void tunnel_note_unconfirmed(struct tunnel *t, uint64_t bytes)
{
    commands_put(t->host->commands, &(struct command){.kind = COMMAND_UNCONFIRMED, .bytes = bytes});
}

void tunnel_drop(struct tunnel *t, enum side side)
{
    commands_put(t->host->commands, &(struct command){.kind = COMMAND_DROP, .side = side});
}

static void part(struct tunnel *t, enum side side, const struct send_queue *rest, uint64_t unread)
{
    commands_put(t->host->commands,
                 &(struct command){.kind = COMMAND_PART, .side = side, .rest = *rest, .bytes = unread});
}

static struct send_queue take_queue(struct leg *leg)
{
    struct send_queue taken = leg->out;
    leg->out = send_queue_with_limit(taken.frames.limit);
    leg->out.keeps = taken.keeps;
    return taken;
}

/* The last one that is told. */
static void leave_worker_too(struct tunnel *t, uint64_t now)
{
    const struct close_reason_info *info = close_reason_info(t->reason);

    if (tunnel_hears_client(t))
        tunnel_leave_worker(t, info->worker_code, slice_text(info->text), false, now);
    else
        tunnel_leave_worker(t, 1001, slice_text(""), false, now);
}

void tunnel_leave_client(struct tunnel *t, uint64_t now)
{
    struct leg *leg = &t->legs[CLIENT];

    leave_worker_too(t, now);
    if (t->client_there) {
        struct send_queue rest = take_queue(leg);
        t->client_there = false;
        part(t, CLIENT, &rest, 0);
    }
    ended(t);
}

/* Whether it is the client that has left, or had to, and not the session. */
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

/* Whether input that a worker does not read is lost: it is sent again by nobody, and its session goes on. */
static bool loses_input(const struct tunnel *t)
{
    if (t->adapter->one_leg)
        return false;
    return t->state < TUNNEL_CLOSING ? !t->adapter->numbers : ends_client(t->reason);
}

void tunnel_lose_input(struct tunnel *t, bool all)
{
    struct leg *leg = &t->legs[WORKER];
    uint64_t unread = leg_take_unread(leg, all);

    if (all)
        send_queue_free(&leg->out);
    if (unread && loses_input(t))
        tunnel_note_unconfirmed(t, unread);
}

void tunnel_leave_worker(struct tunnel *t, unsigned code, struct slice text, bool keep, uint64_t now)
{
    struct leg *leg = &t->legs[WORKER];
    struct send_queue held = send_queue_with_limit(leg->out.frames.limit);

    if (!t->worker_there)
        return;
    uint64_t unread = leg_take_unread(leg, !keep);
    if (keep)
        held = take_queue(leg);
    /* in the middle of a frame nothing but its rest may be sent: the leg is then cut off without a word */
    bool cut = send_queue_cut(&held);
    if (!cut)
        tunnel_send_close(t, WORKER, code, text, now);
    struct send_queue rest = take_queue(leg);
    t->worker_there = false;
    if (!loses_input(t))
        unread = 0;
    if (cut)
        tunnel_drop(t, WORKER);
    else
        part(t, WORKER, &rest, unread);
    if (cut && unread)
        tunnel_note_unconfirmed(t, unread);
    leg->out = held;
    leg_renew(leg, now);
}

static void drop_client(struct tunnel *t)
{
    t->client_there = false;
    tunnel_drop(t, CLIENT);
}

static void close_client(struct tunnel *t, unsigned code, struct slice text, uint64_t now)
{
    if (t->client_there && (code == CLOSE_NONE || !tunnel_send_close(t, CLIENT, code, text, now)))
        drop_client(t);
    if (!t->client_there) {
        ended(t);
    } else if (t->legs[CLIENT].close_in) {
        tunnel_leave_client(t, now);
    }
}

struct pending_close {
    unsigned code;
    struct slice text;
};

/* What a side gets for its Close if the other one does not answer it: the same, unless its words are none that may be sent. */
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

/* The client's Close goes to the worker, and the worker's answer to the client. */
static bool hand_on_close(struct tunnel *t, unsigned code, struct slice text, uint64_t now)
{
    struct pending_close own = own_answer(code, text);

    t->pending_code = own.code;
    buffer_free(&t->pending_close);
    return t->worker_there && buffer_put(&t->pending_close, own.text) &&
           tunnel_send_close(t, WORKER, code, text, now);
}

/* What the worker has to say to what the client has said before its mistake comes first: its answer to our Close stands
 * behind that. */
static bool ask_last_words(struct tunnel *t, const struct close_reason_info *info, uint64_t now)
{
    struct slice said = slice_text(info->text);

    if (!t->client_there || !t->worker_there || !buffer_put(&t->pending_close, said))
        return false;
    t->pending_code = info->client_code;
    t->close_at = least(t->close_at, now + LAST_WORDS);
    return tunnel_send_close(t, WORKER, info->worker_code, said, now);
}

/* The other way round: the client gets its Close at once, and its answer stands behind its last words. */
static bool hear_client(struct tunnel *t, const struct close_reason_info *info, uint64_t now)
{
    if (!t->client_there || !t->worker_there)
        return false;
    t->close_at = least(t->close_at, now + LAST_WORDS);
    if (tunnel_send_close(t, CLIENT, info->client_code, slice_text(info->text), now))
        return true;
    drop_client(t);
    return false;
}

void tunnel_close(struct tunnel *t, enum close_reason reason, unsigned code, struct slice text, uint64_t now)
{
    const struct close_reason_info *info = close_reason_info(reason);
    struct slice said = slice_text(info->text);

    if (t->state >= TUNNEL_CLOSING)
        return;
    if (t->seek != SEEK_NOTHING)
        t->abandoned_at = now;
    tunnel_seek_stop(t);
    t->state = TUNNEL_CLOSING;
    t->reason = reason;
    t->close_at = now + t->settings->close_timeout;
    if (!t->worker_there)
        tunnel_lose_input(t, true);
    if (ends_client(reason))
        tunnel_mark_end(t, now);
    if (reason == CLOSE_client_closed && hand_on_close(t, code, text, now))
        return;
    if (reason == CLOSE_client_protocol && ask_last_words(t, info, now))
        return;
    if (reason == CLOSE_worker_protocol && hear_client(t, info, now))
        return;
    bool passed = info->client_code == CLOSE_PASSED;
    unsigned worker_code = info->worker_code == CLOSE_PASSED ? (code ? code : 1000) : info->worker_code;
    if (worker_code == CLOSE_NONE)
        worker_code = 1001; /* the one that was to be replaced may still be there */
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
    t->close_at = now + t->settings->close_timeout;
}

/* Nobody has answered our Close, or the worker that of the client. */
static void close_overdue(struct tunnel *t, uint64_t now)
{
    if (t->client_there && tunnel_owes_close(t))
        tunnel_send_close(t, CLIENT, t->pending_code, buffer_slice(&t->pending_close), now);
    tunnel_leave_client(t, now);
}

void tunnel_end(struct tunnel *t, enum close_reason reason, uint64_t now)
{
    if (t->state == TUNNEL_OPENING)
        tunnel_refuse(t, REFUSAL_draining);
    else if (t->state == TUNNEL_CLOSING)
        close_overdue(t, now);
    else
        tunnel_close(t, reason, 0, slice_text(""), now);
    tunnel_reading(t, now);
}

/* ---- losing a side ---- */
static void client_lost(struct tunnel *t, uint64_t now)
{
    drop_client(t);
    if (t->state == TUNNEL_CLOSING) {
        leave_worker_too(t, now);
        ended(t);
    } else {
        tunnel_close(t, CLOSE_client_lost, 0, slice_text(""), now);
    }
}

void tunnel_lost(struct tunnel *t, enum side side, enum loss how, uint64_t now)
{
    if (t->state == TUNNEL_ENDED)
        return;
    if (side == CLIENT && t->client_there)
        client_lost(t, now);
    else if (side == WORKER && t->worker_there)
        tunnel_worker_lost(t, how, now);
    tunnel_reading(t, now);
}

/* ---- reading ---- */

/* What may be taken from the client without that more is sent than the session's window allows. A message costs at
 * most 16 for each 6 bytes of the wire. The rest of a frame that has begun, and does not fit yet, is read as far as
 * there is room; one that nothing is kept before always fits. */
static size_t window_room(const struct tunnel *t)
{
    const struct leg *client = &t->legs[CLIENT];
    size_t window, room = t->adapter->numbers->room(t->adapter_state, &window);
    bool alone = room == window;
    uint64_t cost = client->message_len + 16, rest = ws_untold(&client->in), most;
    size_t partial = buffer_len(&client->partial);

    rest = rest > partial ? rest - partial : 0;
    uint64_t taken = cost > rest ? cost - rest : 0;
    if (cost > room)
        most = room <= taken ? 0 : room - taken < rest ? room - taken : rest;
    else if (!rest && !alone && room - cost < window / 4)
        return 0;
    else
        most = rest + (room - cost) / 8 * 3;
    if (alone && !most)
        return 1;
    return most < LEG_PAUSE ? (size_t)most : LEG_PAUSE;
}

/* Of a message that is acknowledged as one. */
static bool is_inside_kept(const struct tunnel *t)
{
    const struct leg *client = &t->legs[CLIENT];
    return t->adapter->numbers && (client->message_len || buffer_len(&client->partial));
}

/* What fits into memory that it has taken already, with the heads of more fragments; where that is no whole read, 0. */
static size_t spare_room(const struct tunnel *t, enum side from)
{
    size_t spare = t->adapter->numbers ? buffer_spare(&t->legs[other(from)].out.frames) : 0;
    size_t partial = buffer_len(&t->legs[from].partial);
    size_t room = spare > partial ? (spare - partial) / 64 * 63 : 0;

    return room >= READ_LEAST ? room : 0;
}

size_t tunnel_memory(const struct tunnel *t, enum side from)
{
    /* acknowledgements stand behind output: until they are read what is kept cannot be given back */
    bool keeps = t->adapter->numbers && send_queue_len(&t->legs[WORKER].out);
    size_t more =
        t->host->may_hold(t->io, from == CLIENT ? is_inside_kept(t) : keeps || tunnel_needs_turn(t));
    size_t spare = spare_room(t, from);

    return more > spare ? more : spare;
}

/* One decision, with all that follows of it, looks once: other threads take memory and give it back meanwhile. */
static bool has_memory(struct tunnel *t, enum side from)
{
    if (!t->looked[from])
        t->has_memory[from] = tunnel_memory(t, from) > 0;
    t->looked[from] = true;
    return t->has_memory[from];
}

/* Input that is kept until it is acknowledged. */
static bool may_keep(struct tunnel *t)
{
    return send_queue_len(&t->legs[WORKER].out) + buffer_len(&t->legs[CLIENT].partial) + READ_LEAST <=
               KEPT_LEAST ||
           has_memory(t, CLIENT);
}

/* What the relay answers by itself, most of all pings: who does not take that is not read. Without a peer that is all
 * there is to be taken; with one it needs room beside the most that output alone can hold. */
static bool may_answer(struct tunnel *t, enum side from, bool there)
{
    const struct send_queue *out = &t->legs[from].out;

    if (!there)
        return send_queue_len(out) < READ_LEAST || (send_queue_len(out) < LEG_PAUSE && has_memory(t, from));
    return from == WORKER || !t->adapter->numbers || send_queue_len(out) + LEG_PAUSE <= out->frames.limit;
}

/* Held for a peer that is there: not read above LEG_PAUSE, and then not before all of it is sent. */
static bool may_read_for(struct tunnel *t, enum side from)
{
    const struct leg *peer = &t->legs[other(from)];
    bool there = from == CLIENT ? t->worker_there : t->client_there;

    if (!may_answer(t, from, there))
        return false;
    if (t->adapter->numbers && from == CLIENT)
        return window_room(t) > 0 && peer->out.controls < LEG_SPARE &&
               (there ? may_keep(t) : has_memory(t, CLIENT));
    if (send_queue_empty(&peer->out) && (there || !buffer_len(&t->legs[from].partial)))
        return true;
    /* what is not acknowledged comes to an end; pings and acknowledgements behind it are waited for */
    if (t->adapter->numbers && there)
        return send_queue_len(&peer->out) < t->settings->buffer && has_memory(t, from);
    if (there)
        return t->legs[from].reading && send_queue_len(&peer->out) < LEG_PAUSE && has_memory(t, from);
    return send_queue_len(&peer->out) + READ_LEAST <= t->settings->buffer && has_memory(t, from);
}

bool tunnel_needs_turn(const struct tunnel *t)
{
    return t->worker_there && t->state < TUNNEL_CLOSING && t->adapter->collects &&
           t->adapter->collects(t->adapter_state);
}

/* What the worker replays waits with it until it is this tunnel's turn. */
static bool may_collect(struct tunnel *t, uint64_t now)
{
    bool needs = tunnel_needs_turn(t), has = !needs || t->host->take_turn(t->io);

    t->replay_short = needs && has && !tunnel_memory(t, WORKER);
    if (has && !t->replay_short) {
        t->turn_at = 0;
        return true;
    }
    if (now >= t->turn_at)
        t->turn_at = now + TURN_PAUSE + t->host->random(t->io) % (TURN_PAUSE / 2);
    return false;
}

/* Whether nothing but memory that others give back lets it go on: what it holds is given back when it has come to its
 * end, and the rest of it is not read. A worker that acknowledges nothing, or a client that takes nothing,
 * is waited for by its own tunnel alone. */
static bool is_short(struct tunnel *t)
{
    if (t->state != TUNNEL_SERVING || !t->worker_there)
        return false;
    if (t->replay_short || !t->adapter->numbers)
        return t->replay_short;
    return (!t->legs[CLIENT].reading && window_room(t) && !may_keep(t)) ||
           (!t->legs[WORKER].reading && send_queue_len(&t->legs[CLIENT].out) < t->settings->buffer &&
            !has_memory(t, WORKER));
}

/* A moment of room does not end a wait: it shortens it by as much. */
static void note_shortage(struct tunnel *t, uint64_t now)
{
    uint64_t passed = now - t->short_noted;

    t->short_for =
        t->short_at ? least(t->short_for + passed, TUNNEL_SHORT) : t->short_for - least(t->short_for, passed);
    t->short_noted = now;
    if (!is_short(t))
        t->short_at = 0;
    else if (now >= t->short_at)
        t->short_at = now + SHORT_PAUSE + t->host->random(t->io) % (SHORT_PAUSE / 2);
}

bool tunnel_waits(const struct tunnel *t)
{
    return t->state == TUNNEL_SERVING && t->short_at && t->short_for >= TUNNEL_SHORT &&
           (t->replay_short || is_inside_kept(t));
}

bool tunnel_is_open(const struct tunnel *t)
{
    return t->state == TUNNEL_SERVING || t->state == TUNNEL_SETTLING || t->state == TUNNEL_REDIALLING;
}

void tunnel_reading(struct tunnel *t, uint64_t now)
{
    bool hears = tunnel_hears_client(t), closing = t->state == TUNNEL_CLOSING && !hears;
    /* behind its Close a client may end its side at once, and waits for the answer all the same */
    bool done = t->legs[CLIENT].close_in;

    if (t->state == TUNNEL_ENDED)
        return;
    t->looked[CLIENT] = t->looked[WORKER] = false;
    leg_read(&t->legs[CLIENT], t->client_there && !done && (closing || may_read_for(t, CLIENT)), now);
    bool read = t->worker_there && !hears && may_read_for(t, WORKER);
    t->replay_short = false;
    if (!read)
        t->turn_at = 0;
    leg_read(&t->legs[WORKER], read && may_collect(t, now), now);
    note_shortage(t, now);
}

/* For a peer that is not there: at least what is needed for a ping or a Close. */
static size_t hold_room(const struct tunnel *t, size_t held)
{
    size_t most = t->settings->buffer;

    return held + READ_LEAST > most ? READ_LEAST : most - held;
}

/* Since it was decided that this side is read, others may have taken the memory. */
size_t tunnel_room(const struct tunnel *t, enum side from)
{
    bool there = from == CLIENT ? t->worker_there : t->client_there;
    bool closing = t->state == TUNNEL_CLOSING && !tunnel_hears_client(t);
    size_t most = there || closing ? LEG_PAUSE : hold_room(t, send_queue_len(&t->legs[other(from)].out));
    size_t memory = tunnel_memory(t, from);

    if (memory < most)
        most = memory > READ_LEAST ? memory : READ_LEAST;
    size_t window = t->adapter->numbers && from == CLIENT && !closing ? window_room(t) : most;

    return window < most ? window : most;
}

/* ---- times ---- */
static struct leg_settings leg_settings(const struct tunnel *t, enum side side)
{
    return (struct leg_settings){
        .keepalive = t->settings->keepalive,
        .dead_after = t->settings->dead_after,
        .stall = side == CLIENT ? t->settings->stall : 0,
        .empty_frame = side == CLIENT && t->empty_frame,
    };
}

static void check_leg(struct tunnel *t, enum side side, uint64_t now)
{
    struct leg_settings settings = leg_settings(t, side);

    if (t->state == TUNNEL_CLOSING || (side == WORKER && !t->worker_there))
        return;
    switch (leg_check(&t->legs[side], &settings, now)) {
    case LEG_FINE:
        break;
    case LEG_QUIET:
        tunnel_keep_alive(t, side, now);
        break;
    case LEG_STALLED:
        tunnel_close(t, CLOSE_client_too_slow, 0, slice_text(""), now);
        break;
    case LEG_DEAD:
        if (side == CLIENT)
            tunnel_close(t, CLOSE_client_silent, 0, slice_text(""), now);
        else
            tunnel_lost(t, WORKER, LOSS_silent, now);
        break;
    }
}

static uint64_t after(uint64_t since, uint64_t limit)
{
    return limit ? since + limit : UINT64_MAX;
}

/* Whether there is a session no more, or it has nothing more to say to this client. */
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

/* What its session has said last a slow client may take as slowly as before, and type meanwhile: that the kernel has
 * taken all does not say where it is. Its answer to the Close does. */
static uint64_t close_due(const struct tunnel *t)
{
    uint64_t due = t->legs[CLIENT].progress + t->settings->stall;

    if (!t->client_there || t->worker_there || !ends_session(t->reason))
        return t->close_at;
    return due > t->close_at ? due : t->close_at;
}

static void check_limits(struct tunnel *t, uint64_t now)
{
    if (now >= t->expires)
        tunnel_close(t, CLOSE_token_expired, 0, slice_text(""), now);
    else if (now >= after(t->opened, t->limits.max_age))
        tunnel_close(t, CLOSE_max_age, 0, slice_text(""), now);
    else if (now >= after(t->used, t->limits.idle))
        tunnel_close(t, CLOSE_idle, 0, slice_text(""), now);
}

/* What a worker that is not read has to say nobody knows; when it is read again it gets a moment. */
static uint64_t adapter_due(const struct tunnel *t)
{
    const struct leg *worker = &t->legs[WORKER];
    bool waits = t->adapter->due && t->state == TUNNEL_SERVING && t->worker_there && worker->reading;
    uint64_t due = waits ? t->adapter->due(t->adapter_state) : UINT64_MAX, moment = worker->heard + READ_MOMENT;

    return due > moment ? due : moment;
}

static bool lacks_session(const struct tunnel *t)
{
    bool lacks = false;
    return t->state == TUNNEL_SERVING && t->adapter->empty && t->adapter->empty(t->adapter_state, &lacks) && lacks;
}

/* A worker that has nothing of a session that has said something is not one to wait for longer than for any worker. */
static uint64_t lacking_due(const struct tunnel *t)
{
    return lacks_session(t) ? t->worker_since + t->settings->redial.budget : UINT64_MAX;
}

static void check_adapter(struct tunnel *t, uint64_t now)
{
    if (now >= adapter_due(t))
        tunnel_tell_adapter(t, now, now);
    if (now >= lacking_due(t))
        tunnel_close(t, CLOSE_session_not_found, 0, slice_text(""), now);
}

void tunnel_tick(struct tunnel *t, uint64_t now)
{
    if (tunnel_hears_client(t) && now >= close_due(t))
        tunnel_heard_client(t, now);
    else if (t->state == TUNNEL_CLOSING && now >= close_due(t))
        close_overdue(t, now);
    if (t->state == TUNNEL_SETTLING && now >= t->close_at)
        tunnel_settled(t, now);
    if (tunnel_is_open(t))
        check_limits(t, now);
    if (tunnel_is_open(t))
        check_leg(t, CLIENT, now);
    if (tunnel_is_open(t))
        check_leg(t, WORKER, now);
    if (tunnel_is_open(t))
        check_adapter(t, now);
    if (tunnel_is_open(t))
        tunnel_acknowledge(t, now);
    send_queue_trim(&t->legs[WORKER].out);
    if (t->state < TUNNEL_CLOSING)
        tunnel_seek_tick(t, now);
    tunnel_reading(t, now);
}

uint64_t tunnel_judges_at(const struct tunnel *t)
{
    struct leg_settings client = leg_settings(t, CLIENT), worker = leg_settings(t, WORKER);
    uint64_t due = UINT64_MAX;

    if (t->state == TUNNEL_ENDED)
        return due;
    if (t->state == TUNNEL_CLOSING)
        return close_due(t);
    if (t->state == TUNNEL_SETTLING)
        due = t->close_at;
    due = least(due, tunnel_seek_due(t));
    if (!tunnel_is_open(t))
        return due;
    due = least(due, least(after(t->opened, t->limits.max_age), after(t->used, t->limits.idle)));
    due = least(due, t->expires);
    due = least(due, least(adapter_due(t), lacking_due(t)));
    due = least(due, leg_due(&t->legs[CLIENT], &client));
    return t->worker_there ? least(due, leg_due(&t->legs[WORKER], &worker)) : due;
}

uint64_t tunnel_due(const struct tunnel *t)
{
    uint64_t due = tunnel_judges_at(t);

    if (tunnel_is_open(t) && t->turn_at)
        due = least(due, t->turn_at);
    if (tunnel_is_open(t) && t->short_at)
        due = least(due, t->short_at);
    if (!tunnel_is_open(t) || !t->adapter->numbers || !t->worker_there || tunnel_withholds(t))
        return due;
    return least(due, t->adapter->numbers->due(t->adapter_state));
}
