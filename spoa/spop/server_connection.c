/* SPDX-License-Identifier: MIT */
#include "spoa/spop/server_parts.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "spoa/base/table/list.h"

#define LINGER SECOND /* longest time in state LINGER */
/* Unsent answers to tickets may exceed options.output, up to this multiple. */
#define OUTPUT_FACTOR 16

/* Counts why a connection was ended. */
static void count_status(struct server *server, uint64_t status)
{
    struct server_counters *counters = &server->counters;
    switch (status) {
    case SPOP_STATUS_NORMAL:
        break;
    case SPOP_STATUS_TIMEOUT:
        server_add(&counters->errors_timeout, 1);
        break;
    case SPOP_STATUS_TOO_BIG:
        server_add(&counters->errors_size, 1);
        break;
    case SPOP_STATUS_NO_VERSION:
    case SPOP_STATUS_NO_FRAME_SIZE:
    case SPOP_STATUS_NO_CAPABILITIES:
    case SPOP_STATUS_BAD_VERSION:
    case SPOP_STATUS_BAD_FRAME_SIZE:
        server_add(&counters->errors_hello, 1);
        break;
    case SPOP_STATUS_RESOURCE:
        server_add(&counters->errors_resource, 1);
        break;
    default:
        server_add(&counters->errors_frame, 1);
    }
}

/* ---- times ---- */
static void deadline_set(struct connection *c, enum deadline which, uint64_t timeout)
{
    c->due[which] = timeout ? loop_clock() + timeout : 0;
}

/* Sets the timer for the first deadline. A timer that is already set for an earlier time stays, so it may fire early and never late:
 * most deadlines are moved or cleared before they are due, and this saves resetting the timer. */
static void arm(struct connection *c)
{
    uint64_t first = UINT64_MAX;
    for (int i = 0; i < DEADLINES; i++)
        if (c->due[i] && c->due[i] < first)
            first = c->due[i];
    if (first >= c->timer_due)
        return;
    uint64_t now = loop_clock();
    c->timer_due = first;
    stream_set_time(&c->stream, first > now ? first - now : 0);
}

/* ---- turns: a connection with many frames must delay neither the others nor the thread ---- */
static void begin_turn(struct server *server)
{
    server->turn_end = loop_clock() + server->options.turn;
}

static bool has_turns(const struct server *server)
{
    return server->options.turn > 0;
}

static bool turn_is_over(const struct server *server)
{
    return has_turns(server) && loop_clock() >= server->turn_end;
}

static void set_ready(struct connection *c)
{
    struct server *server = c->server;
    if (c->ready)
        return;
    if (!server->ready)
        server->ready_end = &server->ready;
    c->ready = true;
    LIST_APPEND(server->ready_end, c);
    loop_defer(server->loop, &server->ready_task);
}

/* Removes a connection from the list of ready ones. */
static void not_ready(struct connection *c)
{
    if (!c->ready)
        return;
    c->ready = false;
    LIST_UNLINK_FROM(c->server->ready_end, c);
}

/* ---- the end ---- */
void connection_close(struct connection *c)
{
    if (c->state == CONNECTION_CLOSED)
        return;
    c->state = CONNECTION_CLOSED;
    not_ready(c);
    stream_close(&c->stream);
    server_add(&c->server->counters.waiting, -(uint64_t)c->waiting);
    server_forget(c->server, c->slot);
}

static void close_failed(struct connection *c, enum spop_status status)
{
    count_status(c->server, status);
    connection_close(c);
}

static void close_reset(struct connection *c)
{
    if (c->state == CONNECTION_OPEN && !c->health_check)
        server_add(&c->server->counters.resets, 1);
    connection_close(c);
}

/* ---- writing ---- */
/* Returns true if too many answers are unsent to read further frames. */
static bool stopped(const struct connection *c)
{
    return buffer_len(&c->stream.out) >= c->server->options.output;
}

/* Decides what the connection waits for and until when. Call after everything that may change that. */
static void settle(struct connection *c)
{
    if (c->state == CONNECTION_CLOSED || c->state == CONNECTION_LINGER)
        return;
    bool unsent = buffer_len(&c->stream.out) > 0;
    if (c->state == CONNECTION_ENDING && !unsent && c->waiting == 0) {
        static const struct stream_linger how = {.grace = LINGER, .drain = SIZE_MAX};
        c->state = CONNECTION_LINGER;
        stream_finish(&c->stream, &how);
        return;
    }
    stream_pause(&c->stream, c->state != CONNECTION_OPEN || stopped(c) || c->ready);
    if (!unsent)
        c->due[DEADLINE_WRITE] = 0;
    else if (!c->due[DEADLINE_WRITE])
        deadline_set(c, DEADLINE_WRITE, c->server->options.write_timeout);
    arm(c);
}

/* Counts the bytes of `out` that the kernel took. Returns true if there were any: reading may then continue. */
static bool count_sent(struct connection *c)
{
    size_t left = buffer_len(&c->stream.out), sent = c->unsent - left;
    server_add(&c->server->counters.writes, 1);
    server_add(&c->server->counters.bytes_out, sent);
    c->unsent = left;
    if (sent)
        c->due[DEADLINE_WRITE] = 0; /* the deadline bounds the time without progress */
    return sent;
}

/* Sends the answers of one read, after earlier unsent ones, and empties the writer. */
static void send_answers(struct connection *c, struct writer *answers)
{
    struct slice bytes = writer_slice(answers);
    answers->len = 0;
    if (bytes.len == 0)
        return;
    bool first = buffer_len(&c->stream.out) == 0;
    if (!buffer_put(&c->stream.out, bytes)) {
        close_failed(c, SPOP_STATUS_RESOURCE);
        return;
    }
    c->unsent += bytes.len;
    if (first) {
        stream_send(&c->stream);
        count_sent(c);
    }
}

void connection_send_later(struct connection *c)
{
    loop_defer(c->server->loop, &c->turn_end);
}

/* ---- answering ---- */
size_t connection_ack_begin(struct connection *c, struct writer *out, const struct spop_frame *frame,
                            struct spop_actions *actions)
{
    *actions = (struct spop_actions){.out = out,
                                     .prefix_len = c->server->options.prefix_len,
                                     .most = out->len + SPOP_LENGTH_BYTES + c->conversation.agreed};
    return spop_frame_begin(out, SPOP_TYPE_ACK, frame->stream_id, frame->frame_id);
}

void connection_ack_end(struct connection *c, size_t begin, const struct spop_frame *frame,
                        struct spop_actions *actions)
{
    struct server *server = c->server;
    struct writer *out = actions->out;
    server_add(&server->counters.acks, 1);
    if (actions->count > 0 && spop_frame_end(out, begin, c->conversation.agreed))
        return;
    server_add(&server->counters.fallbacks, 1);
    out->len = begin;
    out->full = false;
    connection_ack_begin(c, out, frame, actions);
    spop_set_var(actions, SPOP_TRANSACTION, slice_text(server->options.fallback_name),
                 spop_text(slice_text(server->options.fallback_value)));
    bool fits = spop_frame_end(out, begin, c->conversation.agreed);
    assert(fits); /* server_new has checked the fallback */
    (void)fits;
}

/* Passes the messages of a NOTIFY to the handler, and writes the ACK unless the handler answers later. Returns a status other than
 * SPOP_STATUS_NORMAL if the payload is malformed. */
static enum spop_status answer(struct connection *c, const struct spop_frame *frame, struct writer *out)
{
    struct server *server = c->server;
    struct spop_actions actions;
    size_t begin = connection_ack_begin(c, out, frame, &actions);
    struct server_ticket ticket = {c->slot, server->slots[c->slot].generation, frame->stream_id,
                                   frame->frame_id};
    struct reader payload = reader_of(frame->payload);
    struct spop_message message;
    server_add(&server->counters.notifies, 1);
    while (spop_message_next(&payload, &message)) {
        enum server_reply reply =
            server->handler.message(server->handler.context, message.name, message.args, &actions, &ticket);
        if (reply == SERVER_LATER) {
            c->waiting++;
            server_add(&server->counters.waiting, 1);
            out->len = begin;
            out->full = false;
            return SPOP_STATUS_NORMAL;
        }
    }
    if (payload.failed) {
        out->len = begin;
        out->full = false;
        return SPOP_STATUS_INVALID;
    }
    connection_ack_end(c, begin, frame, &actions);
    return SPOP_STATUS_NORMAL;
}

/* ---- reading ---- */
/* Stops reading and voids the tickets; `out` is still written. */
static void end(struct connection *c)
{
    if (c->state == CONNECTION_CLOSED)
        return;
    c->state = CONNECTION_ENDING;
    c->due[DEADLINE_HELLO] = c->due[DEADLINE_FRAME] = c->due[DEADLINE_IDLE] = 0;
    server_add(&c->server->counters.waiting, -(uint64_t)c->waiting);
    c->waiting = 0;
}

/* Ends the connection with a DISCONNECT. */
static void end_saying(struct connection *c, enum spop_status status, struct writer *out)
{
    if (c->state == CONNECTION_CLOSED)
        return;
    count_status(c->server, status);
    spop_conversation_end(&c->conversation, status, out);
    end(c);
}

/* Handles one frame of *in. Returns false if there is no whole frame, or if the connection ends. */
static bool take_frame(struct connection *c, struct slice *in, struct writer *out)
{
    struct server_counters *counters = &c->server->counters;
    struct spop_conversation_event event;
    enum spop_status status = SPOP_STATUS_NORMAL;
    switch (spop_conversation_next(&c->conversation, in, &event, out)) {
    case SPOP_CONVERSATION_MORE:
        return false;
    case SPOP_CONVERSATION_HELLO:
        c->health_check = event.offer.healthcheck;
        if (!c->health_check)
            c->due[DEADLINE_HELLO] = 0;
        server_add(c->health_check ? &counters->health_checks : &counters->hellos, 1);
        return true;
    case SPOP_CONVERSATION_NOTIFY:
        status = answer(c, &event.frame, out);
        if (status == SPOP_STATUS_NORMAL)
            return true;
        end_saying(c, status, out);
        return false;
    case SPOP_CONVERSATION_DISCONNECT:
        server_add(&counters->disconnects, 1);
        end(c);
        return false;
    case SPOP_CONVERSATION_REFUSED:
        count_status(c->server, event.status);
        end(c);
        return false;
    }
    return false;
}

/* Handles the frames that were read, until too many answers are unsent or the turn is over. The others stay in stream.in. */
static void take(struct connection *c)
{
    struct server *server = c->server;
    struct writer out = writer_of(server->output, SERVER_WRITE);
    struct slice bytes = buffer_slice(&c->stream.in);
    size_t had = bytes.len;
    bool more = true;
    if (server->handler.begin)
        server->handler.begin(server->handler.context);
    while (c->state == CONNECTION_OPEN && !stopped(c) && (more = take_frame(c, &bytes, &out))) {
        if (out.size - out.len < SERVER_FRAME)
            send_answers(c, &out);
        if (turn_is_over(server))
            break;
    }
    if (c->state != CONNECTION_CLOSED)
        send_answers(c, &out);
    if (c->state != CONNECTION_OPEN)
        return;
    stream_consume(&c->stream, had - bytes.len);
    c->held = bytes.len;
    if (bytes.len < had)
        deadline_set(c, DEADLINE_IDLE, server->options.idle_timeout);
    bool cut = more && bytes.len && !stopped(c); /* the turn is over, and a whole frame may be left */
    if (cut)
        set_ready(c);
    if (bytes.len == 0 || stopped(c) || cut)
        c->due[DEADLINE_FRAME] = 0;
    else if (bytes.len < had || !c->due[DEADLINE_FRAME])
        deadline_set(c, DEADLINE_FRAME, server->options.frame_timeout);
}

/* The peer has closed its sending side. Answers are still sent, unless the peer has visibly closed altogether; over TCP only a write
 * shows that. */
static void on_half_close(struct connection *c)
{
    if (buffer_len(&c->stream.in)) {
        struct writer out = writer_of(c->server->output, SERVER_WRITE);
        end_saying(c, SPOP_STATUS_IO, &out);
        send_answers(c, &out);
    } else if ((c->waiting == 0 && buffer_len(&c->stream.out) == 0) || stream_is_broken(&c->stream)) {
        close_reset(c);
    } else {
        c->state = CONNECTION_ENDING;
    }
}

/* Handles the frames of the last read that were not handled yet. */
static void resume(struct connection *c)
{
    not_ready(c);
    if (c->state == CONNECTION_OPEN && buffer_len(&c->stream.in))
        take(c);
}

/* Handles the frames of the last read that were not handled yet, and all frames that have arrived since. */
static void catch_up(struct connection *c)
{
    c->catching_up = true;
    resume(c);
    if (c->state == CONNECTION_OPEN && !c->ready && !stopped(c)) {
        stream_pause(&c->stream, false);
        stream_look(&c->stream);
    }
    c->catching_up = false;
}

/* Continues with the frames of the last read, if reading was stopped for unsent answers and these are fewer now. */
static void resume_if_stopped(struct connection *c, bool was_stopped)
{
    if (!was_stopped || stopped(c))
        return;
    if (has_turns(c->server))
        set_ready(c);
    else
        resume(c);
}

void connections_turn(void *context)
{
    struct server *server = context;
    begin_turn(server);
    for (struct connection *c = server->ready; c; c = turn_is_over(server) ? NULL : server->ready) {
        resume(c);
        settle(c);
    }
    if (server->ready)
        loop_defer(server->loop, &server->ready_task);
}

/* ---- events ---- */
static void on_input(void *owner)
{
    struct connection *c = owner;
    server_add(&c->server->counters.reads, 1);
    server_add(&c->server->counters.bytes_in, buffer_len(&c->stream.in) - c->held);
    c->held = buffer_len(&c->stream.in);
    if (has_turns(c->server) && !c->catching_up)
        set_ready(c);
    else
        take(c);
    settle(c);
}

static void on_sent(void *owner)
{
    struct connection *c = owner;
    bool was_stopped = c->unsent >= c->server->options.output;
    if (c->state == CONNECTION_CLOSED || c->state == CONNECTION_LINGER)
        return;
    count_sent(c);
    resume_if_stopped(c, was_stopped);
    settle(c);
}

static void on_ended(void *owner, int error)
{
    struct connection *c = owner;
    if (error == 0)
        on_half_close(c);
    else if (error == ENOMEM)
        close_failed(c, SPOP_STATUS_RESOURCE);
    else
        close_reset(c);
    settle(c);
}

static void on_turn_end(void *owner)
{
    struct connection *c = owner;
    if (c->state == CONNECTION_CLOSED)
        return;
    if (buffer_len(&c->stream.out) > 0) {
        bool was_stopped = stopped(c);
        stream_send(&c->stream);
        if (count_sent(c))
            resume_if_stopped(c, was_stopped);
    }
    if (c->state == CONNECTION_OPEN && c->server->draining)
        connection_drain(c, false);
    settle(c);
}

static void on_gone(void *owner)
{
    connection_close(owner);
    free(owner);
}

static void end_now(struct connection *c, enum spop_status status)
{
    struct writer out = writer_of(c->server->output, SERVER_WRITE);
    end_saying(c, status, &out);
    send_answers(c, &out);
    settle(c);
}

static bool due(const struct connection *c, enum deadline which)
{
    return c->due[which] && c->due[which] <= loop_clock();
}

static void on_late(void *owner)
{
    struct connection *c = owner;
    c->timer_due = UINT64_MAX;
    begin_turn(c->server);
    /* frames that have already arrived count: if this thread was late to read them, the peer did not time out */
    if (c->state == CONNECTION_OPEN && !stopped(c))
        resume(c);
    if (c->state == CONNECTION_CLOSED)
        return;
    if (due(c, DEADLINE_WRITE))
        close_failed(c, SPOP_STATUS_TIMEOUT);
    else if (due(c, DEADLINE_HELLO) || due(c, DEADLINE_FRAME))
        end_now(c, c->health_check ? SPOP_STATUS_NORMAL : SPOP_STATUS_TIMEOUT);
    else if (due(c, DEADLINE_IDLE) && c->waiting == 0)
        end_now(c, SPOP_STATUS_NORMAL);
    else if (due(c, DEADLINE_IDLE))
        deadline_set(c, DEADLINE_IDLE, c->server->options.idle_timeout);
    settle(c);
}

static const struct stream_user stream_user = {.input = on_input,
                                               .sent = on_sent,
                                               .ended = on_ended,
                                               .late = on_late,
                                               .gone = on_gone,
                                               .read_size = SERVER_READ};

/* ---- for the server ---- */
struct connection *connection_new(struct server *server, uint32_t slot, int fd)
{
    struct connection *c = calloc(1, sizeof *c);
    if (!c) {
        close(fd);
        return NULL;
    }
    c->server = server;
    c->slot = slot;
    c->stream = (struct stream){
        .user = &stream_user,
        .owner = c,
        .in = buffer_with_limit(SERVER_READ + SERVER_FRAME),
        .out = buffer_with_limit(server->options.output * OUTPUT_FACTOR + SERVER_WRITE),
    };
    c->turn_end = (struct loop_task){.run = on_turn_end, .context = c};
    c->timer_due = UINT64_MAX;
    stream_open(&c->stream, server->loop, fd);
    deadline_set(c, DEADLINE_HELLO, server->options.hello_timeout);
    settle(c);
    return c;
}

void connection_drain(struct connection *c, bool now)
{
    if (c->state == CONNECTION_ENDING && now) { /* a half-closed connection stays only for its tickets */
        end(c);
        settle(c);
    }
    if (c->state != CONNECTION_OPEN || (c->waiting && !now))
        return;
    begin_turn(c->server);
    /* NOTIFYs that have already arrived are answered, because HAProxy fails a request whose NOTIFY gets no ACK */
    if (!stopped(c))
        catch_up(c);
    if (c->state == CONNECTION_OPEN && (c->waiting == 0 || now))
        end_now(c, SPOP_STATUS_NORMAL);
    settle(c);
}
