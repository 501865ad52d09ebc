/* SPDX-License-Identifier: MIT */
#include "spoa/spop/server_parts.h"

#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#define LINGER_SECONDS 1.0
/* Answers of tickets may pass the mark at which reading stops, up to this many times. */
#define OUTPUT_FACTOR 16

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
static void deadline_set(struct connection *c, enum deadline which, double seconds)
{
    c->due[which] = seconds > 0 ? loop_clock() + (uint64_t)(seconds * 1e6) : 0;
}

/* The timer may fire early, never late: it is moved only towards now. */
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
    loop_timer_set(&c->timer, first > now ? (double)(first - now) / 1e6 : 0);
}

/* ---- turns: nobody who has much to say holds up the others, or the thread ---- */
static void begin_turn(struct server *server)
{
    server->turn_end = loop_clock() + (uint64_t)(server->options.turn * 1e6);
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
    c->ready_next = NULL;
    c->ready_link = server->ready_end;
    *server->ready_end = c;
    server->ready_end = &c->ready_next;
    loop_defer(server->loop, &server->ready_task);
}

static void not_ready(struct connection *c)
{
    if (!c->ready)
        return;
    c->ready = false;
    *c->ready_link = c->ready_next;
    if (c->ready_next)
        c->ready_next->ready_link = c->ready_link;
    else
        c->server->ready_end = c->ready_link;
}

/* ---- the end ---- */
void connection_close(struct connection *c)
{
    if (c->state == CONNECTION_CLOSED)
        return;
    c->state = CONNECTION_CLOSED;
    not_ready(c);
    loop_io_close(&c->io);
    loop_timer_close(&c->timer);
    buffer_free(&c->in);
    buffer_free(&c->out);
    server_add(&c->server->counters.waiting, -(uint64_t)c->waiting);
    server_forget(c->server, c->slot);
    loop_defer(c->server->loop, &c->turn_end);
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

static void linger(struct connection *c)
{
    c->state = CONNECTION_LINGER;
    for (int i = 0; i < DEADLINES; i++)
        c->due[i] = 0;
    if (c->half_closed || shutdown(loop_io_fd(&c->io), SHUT_WR) != 0) {
        connection_close(c);
        return;
    }
    deadline_set(c, DEADLINE_LINGER, LINGER_SECONDS);
}

/* ---- writing ---- */
static bool stopped(const struct connection *c)
{
    return buffer_len(&c->out) >= c->server->options.output;
}

/* What the connection waits for now, and until when; called after anything that may change it. */
static void settle(struct connection *c)
{
    if (c->state == CONNECTION_CLOSED)
        return;
    bool unsent = buffer_len(&c->out) > 0;
    if (c->state == CONNECTION_ENDING && !unsent && c->waiting == 0)
        linger(c);
    if (c->state == CONNECTION_CLOSED)
        return;
    bool reading = c->state == CONNECTION_LINGER ||
                   (c->state == CONNECTION_OPEN && !c->half_closed && !stopped(c) && !c->ready);
    if (!unsent)
        c->due[DEADLINE_WRITE] = 0;
    else if (!c->due[DEADLINE_WRITE])
        deadline_set(c, DEADLINE_WRITE, c->server->options.write_timeout);
    loop_io_want(&c->io, (reading ? LOOP_READ : 0) | (unsent ? LOOP_WRITE : 0));
    arm(c);
}

/* How much of the bytes the kernel took; the connection is closed when it takes none any more. */
static size_t send_now(struct connection *c, struct slice bytes)
{
    ssize_t n = send(loop_io_fd(&c->io), bytes.at, bytes.len, MSG_NOSIGNAL);
    server_add(&c->server->counters.writes, 1);
    if (n < 0) {
        if (errno != EAGAIN && errno != EINTR)
            close_reset(c);
        return 0;
    }
    server_add(&c->server->counters.bytes_out, (uint64_t)n);
    return (size_t)n;
}

/* The answers of one read, behind those that wait already; the writer is empty afterwards. */
static void send_answers(struct connection *c, struct writer *answers)
{
    struct slice bytes = writer_slice(answers);
    answers->len = 0;
    if (bytes.len == 0)
        return;
    if (buffer_len(&c->out) == 0)
        bytes = slice_from(bytes, send_now(c, bytes));
    if (c->state != CONNECTION_CLOSED && !buffer_put(&c->out, bytes))
        close_failed(c, SPOP_STATUS_RESOURCE);
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
    assert(fits); /* server_new has tried it */
    (void)fits;
}

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
static void end(struct connection *c)
{
    if (c->state == CONNECTION_CLOSED)
        return;
    c->state = CONNECTION_ENDING;
    c->due[DEADLINE_HELLO] = c->due[DEADLINE_FRAME] = c->due[DEADLINE_IDLE] = 0;
    server_add(&c->server->counters.waiting, -(uint64_t)c->waiting);
    c->waiting = 0;
}

static void end_saying(struct connection *c, enum spop_status status, struct writer *out)
{
    if (c->state == CONNECTION_CLOSED)
        return;
    count_status(c->server, status);
    spop_conversation_end(&c->conversation, status, out);
    end(c);
}

static void on_hello(struct connection *c, const struct spop_offer *offer)
{
    c->health_check = offer->healthcheck;
    if (!offer->healthcheck)
        c->due[DEADLINE_HELLO] = 0;
    struct server_counters *counters = &c->server->counters;
    server_add(offer->healthcheck ? &counters->health_checks : &counters->hellos, 1);
}

/* One frame of *in; false: there is no further one, or the connection ends. */
static bool take_frame(struct connection *c, struct slice *in, struct writer *out)
{
    struct spop_conversation_event event;
    enum spop_status status = SPOP_STATUS_NORMAL;
    switch (spop_conversation_next(&c->conversation, in, &event, out)) {
    case SPOP_CONVERSATION_MORE:
        return false;
    case SPOP_CONVERSATION_HELLO:
        on_hello(c, &event.offer);
        return true;
    case SPOP_CONVERSATION_NOTIFY:
        status = answer(c, &event.frame, out);
        if (status == SPOP_STATUS_NORMAL)
            return true;
        end_saying(c, status, out);
        return false;
    case SPOP_CONVERSATION_DISCONNECT:
        server_add(&c->server->counters.disconnects, 1);
        end(c);
        return false;
    case SPOP_CONVERSATION_REFUSED:
        count_status(c->server, event.status);
        end(c);
        return false;
    }
    return false;
}

/* All frames of the bytes, as long as answers can be sent; what is left is held. */
static void take(struct connection *c, struct slice bytes)
{
    struct server *server = c->server;
    struct writer out = writer_of(server->output, SERVER_WRITE);
    size_t had = bytes.len;
    bool more = true;
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
    buffer_free(&c->in);
    if (!buffer_put(&c->in, bytes)) {
        close_failed(c, SPOP_STATUS_RESOURCE);
        return;
    }
    if (bytes.len < had)
        deadline_set(c, DEADLINE_IDLE, server->options.idle_timeout);
    bool cut = more && bytes.len && !stopped(c); /* the turn is over, there may be a whole frame left */
    if (cut)
        set_ready(c);
    if (bytes.len == 0 || stopped(c) || cut)
        c->due[DEADLINE_FRAME] = 0;
    else if (bytes.len < had || !c->due[DEADLINE_FRAME])
        deadline_set(c, DEADLINE_FRAME, server->options.frame_timeout);
}

/* Whether the peer has closed altogether, not only its sending side. Over TCP that shows only when we write.
 */
static bool gone(const struct connection *c)
{
    struct pollfd p = {.fd = loop_io_fd(&c->io)};
    return poll(&p, 1, 0) == 1 && (p.revents & (POLLHUP | POLLERR));
}

static void on_half_close(struct connection *c)
{
    c->half_closed = true;
    if (buffer_len(&c->in)) {
        struct writer out = writer_of(c->server->output, SERVER_WRITE);
        end_saying(c, SPOP_STATUS_IO, &out);
        send_answers(c, &out);
    } else if ((c->waiting == 0 && buffer_len(&c->out) == 0) || gone(c)) {
        close_reset(c);
    } else {
        c->state = CONNECTION_ENDING;
    }
}

static void throw_away(struct connection *c)
{
    ssize_t n = recv(loop_io_fd(&c->io), c->server->input, SERVER_READ, 0);
    if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR))
        connection_close(c);
}

static void receive(struct connection *c)
{
    struct server *server = c->server;
    struct slice held = buffer_slice(&c->in);
    if (held.len)
        memcpy(server->input, held.at, held.len);
    ssize_t n = recv(loop_io_fd(&c->io), server->input + held.len, SERVER_READ, 0);
    server_add(&server->counters.reads, 1);
    if (n > 0) {
        server_add(&server->counters.bytes_in, (uint64_t)n);
        take(c, slice_of(server->input, held.len + (size_t)n));
    } else if (n == 0) {
        on_half_close(c);
    } else if (errno != EAGAIN && errno != EINTR) {
        close_reset(c);
    }
}

/* There is room for answers again: the frames that were held are next, before anything is read. */
static void resume(struct connection *c)
{
    struct slice held = buffer_slice(&c->in);
    if (c->state != CONNECTION_OPEN || held.len == 0)
        return;
    memcpy(c->server->input, held.at, held.len);
    take(c, slice_of(c->server->input, held.len));
}

/* What was left of the last read, then what has arrived since. */
static void catch_up(struct connection *c)
{
    bool left = c->ready;
    not_ready(c);
    if (left)
        resume(c);
    if (c->state == CONNECTION_OPEN && !c->ready && !stopped(c))
        receive(c);
}

static void send_held(struct connection *c)
{
    if (buffer_len(&c->out) == 0)
        return;
    bool was_stopped = stopped(c);
    size_t sent = send_now(c, buffer_slice(&c->out));
    if (c->state == CONNECTION_CLOSED || sent == 0)
        return;
    buffer_consume(&c->out, sent);
    c->due[DEADLINE_WRITE] = 0; /* there was progress */
    if (was_stopped && !stopped(c) && has_turns(c->server))
        set_ready(c);
    else if (was_stopped && !stopped(c))
        resume(c);
}

void connections_turn(void *context)
{
    struct server *server = context;
    begin_turn(server);
    for (struct connection *c = server->ready; c; c = turn_is_over(server) ? NULL : server->ready) {
        catch_up(c);
        settle(c);
    }
    if (server->ready)
        loop_defer(server->loop, &server->ready_task);
}

/* ---- events ---- */
static void on_io(void *owner, int events)
{
    struct connection *c = owner;
    if (events & LOOP_WRITE)
        send_held(c);
    if (events & LOOP_READ) {
        if (c->state == CONNECTION_LINGER)
            throw_away(c);
        else if (c->state == CONNECTION_OPEN && has_turns(c->server))
            set_ready(c);
        else if (c->state == CONNECTION_OPEN && !stopped(c))
            receive(c);
    }
    settle(c);
}

static void on_turn_end(void *owner)
{
    struct connection *c = owner;
    if (c->state == CONNECTION_CLOSED) {
        free(c);
        return;
    }
    send_held(c);
    if (c->state == CONNECTION_OPEN && c->server->draining)
        connection_drain(c, false);
    settle(c);
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

static void on_due(void *owner)
{
    struct connection *c = owner;
    c->timer_due = UINT64_MAX;
    begin_turn(c->server);
    /* the peer is not to blame when it was this thread that had no time: what has arrived counts */
    if (c->state == CONNECTION_OPEN && !stopped(c))
        catch_up(c);
    if (c->state == CONNECTION_CLOSED)
        return;
    if (due(c, DEADLINE_LINGER))
        connection_close(c);
    else if (due(c, DEADLINE_WRITE))
        close_failed(c, SPOP_STATUS_TIMEOUT);
    else if (due(c, DEADLINE_HELLO) || due(c, DEADLINE_FRAME))
        end_now(c, c->health_check ? SPOP_STATUS_NORMAL : SPOP_STATUS_TIMEOUT);
    else if (due(c, DEADLINE_IDLE) && c->waiting == 0)
        end_now(c, SPOP_STATUS_NORMAL);
    else if (due(c, DEADLINE_IDLE))
        deadline_set(c, DEADLINE_IDLE, c->server->options.idle_timeout);
    settle(c);
}

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
    c->in = buffer_with_limit(SERVER_READ + SERVER_FRAME);
    c->out = buffer_with_limit(server->options.output * OUTPUT_FACTOR + SERVER_WRITE);
    c->turn_end = (struct loop_task){.run = on_turn_end, .context = c};
    c->timer_due = UINT64_MAX;
    loop_io_open(&c->io, server->loop, fd, on_io, c);
    loop_timer_open(&c->timer, server->loop, on_due, c);
    deadline_set(c, DEADLINE_HELLO, server->options.hello_timeout);
    settle(c);
    return c;
}

void connection_drain(struct connection *c, bool now)
{
    if (c->state == CONNECTION_ENDING && now) { /* half-closed: only its tickets kept it */
        end(c);
        settle(c);
    }
    if (c->state != CONNECTION_OPEN || (c->waiting && !now))
        return;
    begin_turn(c->server);
    /* NOTIFYs that have arrived already are answered: HAProxy fails what it has sent and gets no ACK for */
    if (!stopped(c))
        catch_up(c);
    if (c->state == CONNECTION_OPEN && (c->waiting == 0 || now))
        end_now(c, SPOP_STATUS_NORMAL);
    settle(c);
}
