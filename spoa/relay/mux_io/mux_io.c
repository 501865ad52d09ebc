/* SPDX-License-Identifier: MIT */
#include "spoa/base/table/list.h"
#include "spoa/relay/mux_io/mux_parts.h"

#include <stdlib.h>

#define IN_MOST ((size_t)64 << 10) /* largest unhandled input of an answer, in bytes */
/* bytes of an answer that one event handles at most, because a chunk may be tiny; the same of an event stream, each
 * event of which becomes a message */
#define BODY_MOST   ((size_t)16 << 10)
#define EVENTS_MOST ((size_t)2 << 10)
/* bytes waiting for the client from which on nothing more is read, and down to which they must shrink before reading resumes */
#define OUT_HIGH  ((size_t)256 << 10)
#define OUT_LOW   ((size_t)64 << 10)
#define IDLE      (60 * SECOND) /* default idle time; there must be one, because anybody may open a socket */
#define TICK_MOST (5 * SECOND)  /* longest time between two ticks */
/* size in bytes from which on an output buffer must become empty, and free its memory, before the next answer is put into it */
#define LARGE      ((size_t)1 << 20)
#define BODY_AHEAD ((size_t)64 << 10) /* largest part of a request's body in the stream's output, in bytes */
/* bytes held for unfinished answers from which on only one answer is read at a time, until it is complete */
#define CROWDED    ((size_t)4 << 20)
#define LAST_WORDS (5 * SECOND) /* longest time in which a closing peer takes none of the unsent bytes */

static const char *const ends[] = {
#define X(name, label, text) [MUX_END_##name] = (text),
    MUX_ENDS(X)
#undef X
};

/* ---- memory ---- */

struct buffer *mux_out(struct mux_io *io)
{
    return io->again ? &io->again->numbers.kept : &io->leg->stream.out;
}

void mux_note_request(struct mux_request *r)
{
    size_t held =
        stream_held(&r->up) + r->body.size + mux_answer_held(&r->answer) + mux_response_held(&r->v1.response);
    r->io->requests_held += held - r->held;
    r->held = held;
}

struct slice mux_handover(const struct mux_request *r)
{
    return mux_response_handover(r->io && r->io->v1 ? &r->v1.response : &r->answer.response);
}

/* ---- the end of a request ---- */

static void free_request(void *owner)
{
    struct mux_request *r = owner;
    mux_answer_free(&r->answer);
    mux_response_free(&r->v1.response);
    buffer_free(&r->body);
    free(r);
}

void mux_drop(struct mux_request *r, enum mux_outcome outcome)
{
    struct mux_io *io = r->io;
    metrics_add(io->thread->shard, METRIC_MUX_REQUESTS, METRIC_INDEX(outcome), 1);
    limits_leave(io->thread->limits, &io->owner);
    mux_watch_end(r);
    io->requests_held -= r->held;
    io->count--;
    io->busy = loop_clock();
    LIST_UNLINK_FROM(io->requests_last, r);
    r->io = NULL;
    stream_close(&r->up);
}

/* ---- the end of a socket ---- */

void mux_free(struct mux_io *io)
{
    struct relay_thread *thread = io->thread;
    mux_resume_free(io);
    mux_limits_leave(io);
    time_shares_give(&thread->shares, io->share);
    loop_timer_close(&io->tick);
    loop_timer_close(&io->watches);
    LIST_UNLINK(io);
    metrics_add(thread->shard, METRIC_MUX, METRIC_PLAIN, -1);
    free(io->upgrade);
    free(io->latest);
    free(io);
}

static void log_end(const struct mux_io *io, enum mux_end why)
{
    const struct handover *h = &io->upgrade->handover;
    log_write(io->thread->log, LOG_INFO, "mux ended", LOG_SLICE("id", h->id), LOG_SLICE("route", h->route),
              LOG_SLICE("org", io->owner.org), LOG_TEXT("client", io->source_text),
              LOG_U64("requests", io->total), LOG_U64("unanswered", io->count),
              LOG_SECONDS("seconds", (double)(loop_clock() - io->began) / 1e6), LOG_TEXT("why", ends[why]));
}

static void free_later(void *context)
{
    mux_free(context);
}

/* Returns true if the relay ends a resumable socket for good, so that its client must not come back. */
static bool is_final(enum mux_end why)
{
    return why == MUX_END_IDLE || why == MUX_END_AGE || why == MUX_END_RESTARTING;
}

static void end_leg(struct mux_io *io, enum mux_end why, unsigned code, const char *reason)
{
    const struct stream_linger linger = {.step = LAST_WORDS,
                                         .grace = SECOND,
                                         .drain = 1 << 20,
                                         .most = LINGERING_MOST_TIME,
                                         .rest = mux_leg_announced(io->leg)};
    struct stream *s = &io->leg->stream;
    uint8_t frame[WS_CONTROL_FRAME_MAX];
    buffer_free(&io->leg->message);
    mux_text_free(&io->leg->reading);
    if (code && !buffer_put(&s->out, slice_of(frame, ws_encode_close(frame, code, slice_text(reason), NULL))))
        why = MUX_END_BROKEN;
    if (why == MUX_END_BROKEN)
        stream_close(s);
    else
        stream_finish(s, &linger);
}

/* Ends the socket: cuts its requests, delivers the output that waits as far as the client reads it, then sends a Close with `code`, or
 * none if that is 0. */
void mux_end_socket(struct mux_io *io, enum mux_end why, unsigned code, const char *reason)
{
    if (!io->over && io->again && io->leg && is_final(why))
        mux_resume_say_end(io);
    if (io->over)
        return;
    io->over = true;
    log_end(io, why);
    metrics_add(io->thread->shard, METRIC_MUX_ENDED, METRIC_INDEX(why), 1);
    while (io->requests)
        mux_drop(io->requests, MUX_OUTCOME_CUT);
    loop_timer_stop(&io->tick);
    loop_timer_stop(&io->watches);
    if (io->again)
        mux_resume_close(io);
    if (io->leg)
        end_leg(io, why, code, reason);
    else
        loop_defer(io->thread->loop, &io->freeing);
    io->wants = false;
    mux_account(io);
}

void mux_end_for_memory(struct mux_io *io)
{
    mux_end_socket(io, MUX_END_MEMORY, 1013, "relay memory short");
}

/* ---- back-pressure ---- */

static void pause_request(struct mux_request *r, bool paused)
{
    if (r->paused != paused)
        stream_pause(&r->up, paused);
    r->paused = paused;
}

/* Returns a request whose answer is complete but not yet put into the output, or NULL. */
static struct mux_request *whole_of(const struct mux_io *io)
{
    struct mux_request *r = io->requests;
    while (r && !mux_answer_is_whole(&r->answer))
        r = r->next;
    return r;
}

void mux_finish_whole(struct mux_io *io)
{
    struct mux_request *r = buffer_len(mux_out(io)) ? NULL : whole_of(io);
    if (!r)
        return;
    mux_answer_finish(&r->answer, mux_out(io));
    mux_drop(r, MUX_OUTCOME_ANSWERED);
}

/* Applies back-pressure: a client that does not read its output pauses the reading of answers, and of its own messages. If the
 * unfinished answers are large together, they are completed one after another. */
void mux_set_flow(struct mux_io *io)
{
    const struct buffer *out = mux_out(io);
    size_t waits = buffer_len(out),
           low = io->again                      ? MUX_NUMBERS_LOW
                 : out->size > LARGE && !io->v1 ? 0
                                                : OUT_LOW,
           high = io->again ? MUX_NUMBERS_HIGH : OUT_HIGH;
    /* A large answer that waits for an empty buffer goes first: nothing else may be added to the buffer. */
    bool full = whole_of(io) || (io->full ? waits > low : waits >= high),
         crowded = io->requests_held >= CROWDED && !io->v1, /* cellgate.mux.v1 streams answers in parts */
        first = true;
    io->full = full;
    bool stopped = mux_limits_look(io) || full;
    if (stopped != io->stopped && !io->again)
        stream_pause(&io->leg->stream, stopped);
    io->stopped = stopped;
    for (struct mux_request *r = io->requests; r; r = r->next) {
        bool gathers = mux_answer_gathers(&r->answer);
        bool queues = crowded && !(gathers && first) && !mux_answer_streams(&r->answer);
        pause_request(r, full || queues || mux_answer_is_whole(&r->answer) || mux_limits_lacks(io, r));
        first = first && !gathers;
    }
}

/* Call after any change of requests or output: sends the output, and applies back-pressure. */
void mux_settle(struct mux_io *io)
{
    if (io->over)
        return;
    if (io->again)
        mux_resume_pump(io);
    if (io->over)
        return;
    mux_finish_whole(io);
    if (io->leg)
        stream_send_soon(&io->leg->stream);
    mux_set_flow(io);
}

bool mux_say_error(struct mux_io *io, struct slice id, uint32_t number, const char *code, const char *message,
                   unsigned status)
{
    struct buffer *out = mux_out(io);
    if (io->v1 ? mux_frame_put_error(out, number, code, message, status)
               : mux_put_error(out, id, code, message, status))
        return true;
    mux_end_for_memory(io);
    return false;
}

/* ---- an answer ---- */

void mux_refuse_answer(struct mux_request *r)
{
    if (mux_say_error(r->io, r->answer.id, r->v1.number, "INTERNAL_ERROR",
                      "The gate has no memory for the answer.", 503))
        mux_drop(r, MUX_OUTCOME_FAILED);
}

void mux_conclude(struct mux_request *r, enum mux_step step, bool fits)
{
    struct mux_io *io = r->io;
    mux_limits_learn(io, mux_handover(r));
    if (step == MUX_MORE || step == MUX_WHOLE) {
        mux_watch_begin(r);
        mux_note_request(r);
        if (!mux_limits_fits(io, &r->answer.text)) { /* only this request fails; the socket's others go on */
            mux_refuse_answer(r);
            mux_settle(io);
            return;
        }
    }
    if (step == MUX_DONE || step == MUX_BROKEN)
        mux_drop(r, step == MUX_DONE ? MUX_OUTCOME_ANSWERED : MUX_OUTCOME_FAILED);
    if (!fits)
        mux_end_for_memory(io);
    mux_settle(io);
}

static void on_answer(void *owner)
{
    struct mux_request *r = owner;
    struct slice bytes = buffer_slice(&r->up.in);
    bool fits = true;
    if (!r->io)
        return;
    if (r->io->v1) {
        mux_v1_answer(r);
        return;
    }
    if (mux_answer_is_whole(&r->answer)) { /* bytes after the answer are ignored */
        stream_consume(&r->up, bytes.len);
        return;
    }
    struct slice some = slice_sub(bytes, 0, mux_answer_streams(&r->answer) ? EVENTS_MOST : BODY_MOST);
    enum mux_step step = mux_answer_feed(&r->answer, some, mux_out(r->io), &fits);
    stream_consume(&r->up, some.len);
    if (some.len < bytes.len)
        stream_offer_again(&r->up);
    mux_conclude(r, step, fits);
}

static void on_answer_ended(void *owner, int error)
{
    struct mux_request *r = owner;
    bool fits = true;
    (void)error;
    if (!r->io || mux_answer_is_whole(&r->answer))
        return;
    if (r->io->v1) {
        r->v1.cut = true;
        mux_v1_answer(r);
        return;
    }
    enum mux_step step = mux_answer_end(&r->answer, mux_out(r->io), &fits);
    mux_conclude(r, step, fits);
}

static void on_asked(void *owner)
{
    (void)owner;
}

/* Moves the next part of a large body to the stream's output, as far as BODY_AHEAD has room. Returns false if memory is short. */
static bool feed_body(struct mux_request *r)
{
    size_t waits = buffer_len(&r->up.out), room = waits < BODY_AHEAD ? BODY_AHEAD - waits : 0;
    struct slice piece = slice_sub(buffer_slice(&r->body), 0, room);
    bool good = buffer_put(&r->up.out, piece);
    buffer_consume(&r->body, good ? piece.len : 0);
    return good;
}

static void on_request_sent(void *owner)
{
    struct mux_request *r = owner;
    if (!r->io)
        return;
    if (buffer_len(&r->body) && !feed_body(r)) {
        mux_end_for_memory(r->io);
        return;
    }
    mux_note_request(r);
    if (r->io->v1)
        mux_v1_sent(r);
}

static const struct stream_user request_user = {.connected = on_asked,
                                                .input = on_answer,
                                                .sent = on_request_sent,
                                                .ended = on_answer_ended,
                                                .gone = free_request,
                                                .read_size = 16 << 10,
                                                .hears_out = true};

/* ---- a request ---- */

struct mux_request *mux_find(const struct mux_io *io, struct slice id, uint32_t number)
{
    struct mux_request *r = io->requests;
    while (r && !(io->v1 ? r->v1.number == number : slice_equal(r->answer.id, id)))
        r = r->next;
    return r;
}

/* Puts the request's body into the stream's output. A large body is not copied: r->body takes over the memory of the client's message,
 * of which `body` must be a part. Returns false if memory is short. */
static bool put_body(struct mux_request *r, struct slice body)
{
    struct buffer *message = r->io->incoming;
    if (body.len <= BODY_AHEAD || !message)
        return !body.len || buffer_put(&r->up.out, body);
    r->body = buffer_with_limit(body.len);
    size_t start = (size_t)(body.at - buffer_slice(message).at);
    buffer_swap(&r->body, message);
    buffer_consume(&r->body, start);
    buffer_cut(&r->body, body.len);
    return true;
}

/* Writes a PROXY header with the client's address, the request's head and its body for HAProxy. Returns false if the head is too large
 * or memory is short. */
static bool put_request(struct mux_request *r, const struct mux_message *m)
{
    static _Thread_local uint8_t memory[UPGRADE_HEAD_MAX];
    struct mux_io *io = r->io;
    const struct address here = {.family = io->source.family};
    struct writer w = writer_of(memory, sizeof memory);
    struct slice proof = io->proof_len ? slice_of(io->proof, io->proof_len) : slice_text(NULL);
    proxy_header_write(&w, &io->source, &here, io->port, slice_text(NULL), proof);
    mux_message_head(m, &io->asks, &w);
    /* The limit has room for the credit of a body that follows, and for the chunk heads around its pieces. */
    buffer_set_limit(&r->up.out, w.len + (m->follows ? 8 * MUX_FRAME_UPLOAD : BODY_AHEAD));
    return !w.full && buffer_put(&r->up.out, writer_slice(&w)) && put_body(r, m->body);
}

static struct mux_request *new_request(struct mux_io *io, const struct mux_message *m, uint32_t number)
{
    struct mux_request *r = calloc(1, sizeof *r);
    if (!r)
        return NULL;
    r->io = io;
    r->up = (struct stream){.user = &request_user, .owner = r, .in = buffer_with_limit(IN_MOST)};
    if (io->v1) {
        mux_v1_begin(r, m, number);
        return r;
    }
    memcpy(r->id, m->id.at, m->id.len);
    mux_answer_init(&r->answer, slice_of(r->id, m->id.len), io->most);
    return r;
}

static void add_request(struct mux_io *io, struct mux_request *r)
{
    LIST_APPEND(io->requests_last, r);
    io->count++;
    io->total++;
}

/* Counts the request like a tunnel, because it uses at least as many descriptors of the relay and of HAProxy. Returns false if a limit
 * is reached. */
static bool may_start(struct mux_io *io)
{
    enum limit limit = limits_enter(io->thread->limits, &io->owner);
    if (limit != LIMIT_NONE && limit != LIMIT_MEMORY)
        metrics_add(io->thread->shard, METRIC_LIMITED, METRIC_INDEX(limit), 1);
    return limit == LIMIT_NONE;
}

static void start(struct mux_io *io, const struct mux_message *m, uint32_t number)
{
    struct fail why;
    io->busy = loop_clock();
    struct mux_request *r = new_request(io, m, number);
    int fd = r ? net_connect(&io->thread->settings.mux, &why) : -1;
    bool good = fd >= 0 && put_request(r, m);
    if (!good) {
        bool large = fd >= 0;
        if (fd >= 0)
            close(fd);
        if (r) {
            buffer_free(&r->up.out);
            free_request(r);
        }
        limits_leave(io->thread->limits, &io->owner);
        metrics_add(io->thread->shard, METRIC_MUX_REQUESTS, METRIC_INDEX(MUX_OUTCOME_FAILED), 1);
        if (large)
            (void)mux_say_error(io, m->id, number, "INVALID_REQUEST", "The request's head is too large.",
                                431);
        else
            (void)mux_say_error(io, m->id, number, "INTERNAL_ERROR",
                                "The gate cannot take requests at the moment.", 503);
        return;
    }
    add_request(io, r);
    stream_open(&r->up, io->thread->loop, fd);
    stream_join(&r->up, io->share);
    mux_note_request(r);
    pause_request(r, io->full);
}

void mux_ask(struct mux_io *io, const struct mux_message *m, uint32_t number)
{
    enum mux_outcome refused = MUX_OUTCOME_REFUSED;
    if (mux_find(io, m->id, number)) {
        (void)mux_say_error(io, slice_text(NULL), 0, "INVALID_REQUEST",
                            "The id belongs to a request that is on its way.", 400);
    } else if (io->thread->draining) {
        (void)mux_say_error(io, m->id, number, "RESTARTING", "The gate is being restarted. Connect again.",
                            503);
    } else if (io->count >= io->thread->settings.mux_requests) {
        (void)mux_say_error(io, m->id, number, "TOO_MANY_REQUESTS",
                            "Too many requests are on their way in this socket.", 429);
    } else if (!may_start(io)) {
        (void)mux_say_error(io, m->id, number, "TOO_MANY_REQUESTS",
                            "Too many requests are on their way of this owner or address.", 429);
    } else {
        start(io, m, number);
        return;
    }
    metrics_add(io->thread->shard, METRIC_MUX_REQUESTS, METRIC_INDEX(refused), 1);
}

static void cancel(struct mux_io *io, struct slice id)
{
    struct mux_request *r = mux_find(io, id, 0);
    if (r)
        mux_drop(r, MUX_OUTCOME_CANCELLED);
}

void mux_take_message(struct mux_io *io, struct slice message)
{
    mux_v1_take(io, message);
}

void mux_take_text(struct mux_io *io, struct mux_text *text, struct buffer *message)
{
    struct mux_message m = mux_text_end(text, buffer_slice(message));
    io->incoming = message;
    switch (m.kind) {
    case MUX_REQUEST:
        mux_ask(io, &m, 0);
        break;
    case MUX_CANCEL:
        cancel(io, m.id);
        break;
    case MUX_NO_JSON:
        (void)mux_say_error(io, slice_text(NULL), 0, "PARSE_ERROR", "Invalid JSON message", 400);
        break;
    case MUX_NO_MESSAGE:
        (void)mux_say_error(io, slice_text(NULL), 0, "INVALID_REQUEST", "Message must be a valid WSRequest",
                            400);
        break;
    case MUX_NO_MEMORY:
        mux_end_for_memory(io);
    }
    io->incoming = NULL;
    mux_message_free(&m);
}

/* ---- time ---- */

static uint64_t idle_of(const struct mux_io *io)
{
    int64_t own = io->upgrade->handover.idle;
    uint64_t all = io->thread->settings.tunnel.limits.idle;
    return own > 0 ? (uint64_t)own * MILLISECOND : all ? all : IDLE;
}

static uint64_t smaller(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static void set_tick(struct mux_io *io, uint64_t most)
{
    const struct tunnel_settings *s = &io->thread->settings.tunnel;
    uint64_t least = smaller(smaller(s->keepalive, s->dead_after), smaller(idle_of(io), TICK_MOST)),
             step = (io->again ? smaller(least, io->thread->settings.mux_grace) : least) / 2;
    loop_timer_set(&io->tick, smaller(step > 20 * MILLISECOND ? step : 20 * MILLISECOND, most));
}

static bool is_over(uint64_t since, uint64_t time, uint64_t now)
{
    return now - since >= time;
}

static void ping(struct mux_io *io, uint64_t now)
{
    uint8_t frame[WS_CONTROL_FRAME_MAX];
    io->pinged = now;
    if (buffer_put(&io->leg->stream.out,
                   slice_of(frame, ws_encode_control(frame, WS_PING, slice_of("", 0), NULL))))
        stream_send(&io->leg->stream);
}

static bool has_expired(const struct mux_io *io, uint64_t now)
{
    int64_t own = io->upgrade->handover.max_age;
    uint64_t age = own > 0 ? (uint64_t)own * MILLISECOND : io->thread->settings.tunnel.limits.max_age;
    return age && is_over(io->began, age, now);
}

/* Ends the connection of a client that answers no Ping, or that takes no output for too long; sends a Ping to a silent one. */
static void look_at_leg(struct mux_io *io, uint64_t now)
{
    const struct tunnel_settings *s = &io->thread->settings.tunnel;
    bool waits = buffer_len(&io->leg->stream.out) > 0,
         dead = waits ? is_over(io->moved, s->stall, now)
                      : io->pinged && is_over(io->pinged, s->dead_after, now);
    if (dead && io->again)
        mux_resume_lost(io, 1001);
    else if (dead)
        mux_end_socket(io, MUX_END_DEAD, 1001, "no answer");
    else if (!waits && !io->pinged && is_over(io->heard, s->keepalive, now))
        ping(io, now);
}

/* Returns true if the socket has had no request for the idle time. A client that is away has the grace period instead; a client that
 * still has output to read has the stall time in addition. */
static bool is_idle(const struct mux_io *io, uint64_t now)
{
    bool waits = io->again && io->leg && !mux_numbers_end(&io->again->numbers);
    uint64_t time = idle_of(io) + (waits ? io->thread->settings.tunnel.stall : 0);
    return !io->count && (!io->again || io->leg) && is_over(io->busy, time, now);
}

static void on_tick(void *owner)
{
    struct mux_io *io = owner;
    if (io->leg)
        stream_look(
            &io->leg->stream); /* if this thread was delayed, input that has arrived counts as in time */
    if (io->over)
        return;
    uint64_t now = loop_clock();
    if (has_expired(io, now))
        mux_end_socket(io, MUX_END_AGE, 1000, "max age");
    else if (is_idle(io, now))
        mux_end_socket(io, MUX_END_IDLE, 1000, "idle");
    else if (io->leg)
        look_at_leg(io, now);
    if (!io->over && io->again)
        mux_resume_tick(io, now);
    uint64_t most = io->over ? UINT64_MAX : mux_limits_tick(io, now);
    if (!io->over)
        set_tick(io, most);
}

/* ---- the beginning ---- */

static struct slice field_of(const struct upgrade *u, struct slice wanted)
{
    struct slice rest = u->fields, name, value;
    while (target_header(&rest, &name, &value))
        if (http_same_name(name, wanted))
            return value;
    return slice_text(NULL);
}

bool mux_read_source(struct mux_io *io, const struct upgrade *u)
{
    struct slice from = field_of(u, SLICE_LITERAL("x-forwarded-for"));
    char text[sizeof io->source_text] = "";
    struct address source = {0};
    if (!slice_present(from) || from.len >= sizeof text)
        return false;
    memcpy(text, from.at, from.len);
    source.family = inet_pton(AF_INET, text, source.bytes) == 1    ? 4
                    : inet_pton(AF_INET6, text, source.bytes) == 1 ? 6
                                                                   : 0;
    if (!source.family)
        return false;
    struct slice proof = u->handover.source;
    io->proof_len = proof.len <= sizeof io->proof ? proof.len : 0;
    if (io->proof_len)
        memcpy(io->proof, proof.at, io->proof_len);
    io->source = source;
    memcpy(io->source_text, text, sizeof text);
    io->port = slice_is(field_of(u, SLICE_LITERAL("x-forwarded-proto")), "https") ? 443 : 80;
    return true;
}

struct mux_client mux_client_of(const struct upgrade *u)
{
    return (struct mux_client){.host = u->host,
                               .target = u->target,
                               .below = u->handover.below,
                               .protocols = u->protocols,
                               .fields = u->fields};
}

static size_t most_of(const struct mux_io *io)
{
    int64_t own = io->upgrade->handover.max_message;
    uint64_t all = io->thread->settings.tunnel.limits.max_message;
    return io->v1 ? MUX_FRAME_HEAD + MUX_FRAME_MOST
                  : (size_t)smaller(own > 0 ? (uint64_t)own : all, (uint64_t)1 << 30);
}

static struct mux_io *new_io(struct relay_thread *thread, struct upgrade *upgrade, bool resumes)
{
    struct mux_io *io = calloc(1, sizeof *io);
    if (!io)
        return NULL;
    io->thread = thread;
    io->upgrade = upgrade;
    io->asks = mux_client_of(upgrade);
    io->requests_last = &io->requests;
    io->freeing = (struct loop_task){.run = free_later, .context = io};
    io->v1 = resumes || mux_v1_is_offered(upgrade->protocols, MUX_PROTOCOL);
    if (io->v1)
        upgrade->selected = SLICE_LITERAL(MUX_PROTOCOL);
    io->most = most_of(io);
    io->began = io->heard = io->busy = io->moved = loop_clock();
    loop_timer_open(&io->tick, thread->loop, on_tick, io);
    loop_timer_open(&io->watches, thread->loop, mux_watch_due, io);
    return io;
}

static void give_up(struct mux_io *io, int fd, enum refusal refusal)
{
    struct relay_thread *thread = io->thread;
    relay_thread_refuse(thread, fd, io->upgrade, refusal);
    loop_timer_close(&io->tick);
    loop_timer_close(&io->watches);
    free(io->upgrade);
    free(io);
}

static void add(struct mux_io *io)
{
    struct relay_thread *thread = io->thread;
    LIST_PUSH(thread->muxes, io);
    metrics_add(thread->shard, METRIC_MUX, METRIC_PLAIN, 1);
    log_write(thread->log, LOG_INFO, "mux opened", LOG_SLICE("id", io->upgrade->handover.id),
              LOG_SLICE("route", io->upgrade->handover.route), LOG_SLICE("org", io->owner.org),
              LOG_SLICE("sandbox", io->owner.sandbox), LOG_TEXT("client", io->source_text));
}

static bool open_plain(struct mux_io *io, int fd, struct slice early)
{
    uint8_t memory[UPGRADE_HEAD_MAX];
    struct writer w = writer_of(memory, sizeof memory);
    if (!upgrade_accept(io->upgrade, NULL, NULL, &w) || !mux_leg_open(io, fd, writer_slice(&w), early))
        return false;
    mux_leg_read(io->leg);
    return true;
}

/* Returns true if the relay accepts new mux sockets now; otherwise *refusal says why not. */
static bool may_begin(struct relay_thread *thread, const struct upgrade *upgrade, enum refusal *refusal)
{
    *refusal = thread->draining ? REFUSAL_draining : REFUSAL_relay_unavailable;
    if (!thread->settings.mux.len)
        log_write(thread->log, LOG_WARN, "mux refused", LOG_TEXT("why", "relay.mux is not set"));
    return !thread->draining && thread->settings.mux.len && slice_is(upgrade->handover.mux, "sandbox-sdk");
}

void mux_io_begin(struct relay_thread *thread, int fd, struct upgrade *upgrade, struct slice early)
{
    struct cell_resume_terms terms;
    enum refusal refusal;
    if (!may_begin(thread, upgrade, &refusal)) {
        relay_thread_refuse(thread, fd, upgrade, refusal);
        free(upgrade);
        return;
    }
    enum mux_resume_asked asked = mux_resume_look(thread, fd, upgrade, early, &terms);
    if (asked == MUX_RESUME_DONE)
        return;
    struct mux_io *io = new_io(thread, upgrade, asked == MUX_RESUME_NEW);
    if (!io) {
        relay_thread_refuse(thread, fd, upgrade, REFUSAL_relay_unavailable);
        free(upgrade);
        return;
    }
    if (!mux_read_source(io, upgrade)) {
        log_write(thread->log, LOG_WARN, "mux refused",
                  LOG_TEXT("why", "HAProxy does not say who the client is"));
        give_up(io, fd, REFUSAL_bad_request);
        return;
    }
    if (!mux_limits_enter(io)) {
        give_up(io, fd, REFUSAL_too_many_tunnels);
        return;
    }
    add(io);
    io->share = time_shares_take(&thread->shares, &io->owner);
    set_tick(io, UINT64_MAX);
    if (asked == MUX_RESUME_NEW ? !mux_resume_open(io, fd, early, &terms) : !open_plain(io, fd, early)) {
        close(fd);
        mux_end_socket(io, MUX_END_BROKEN, 0, NULL);
    }
}

void mux_ios_drain(struct relay_thread *thread, bool all, bool late)
{
    for (struct mux_io *io = thread->muxes, *next; io; io = next) {
        next = io->next;
        bool waits = io->again && io->leg && buffer_len(mux_out(io)); /* the client has output to read */
        if (all || (!io->count && !waits))
            mux_end_socket(io, MUX_END_RESTARTING, 1012, "restarting");
        if (late && io->leg)
            stream_close(&io->leg->stream);
    }
}
