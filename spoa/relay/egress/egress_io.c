/* SPDX-License-Identifier: MIT */
#include "spoa/relay/egress/egress_parts.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "spoa/base/table/list.h"
#include "spoa/proto/proxy_header.h"

#define BUFFER_FAST   ((size_t)8 << 10)   /* bytes read from a fast destination; the rest is spliced */
#define BUFFER_LEAST  ((size_t)2 << 10)   /* smallest read, in bytes */
#define LEFT_MOST     ((size_t)16 << 10)  /* bytes that an evicted connection still delivers */
#define LOOK_FOR_ROOM (100 * MILLISECOND) /* time between two looks while memory is short */
#define ASK_AGAIN     SECOND              /* time between two questions if the agent keeps no subscription */
#define LAST_WORDS    (5 * SECOND) /* longest time in which a closing peer takes none of the unsent bytes */
#define TLS_HANDSHAKE 22           /* type of a TLS handshake record, its first byte (RFC 8446 section 5.1) */
#define FAREWELL      (250 * MILLISECOND) /* time for HAProxy to notify the client inside a denied connection */
#define UNSEEN_TIMES  4                   /* largest number of splices per event, of EGRESS_BUFFER_MOST bytes each */
#define HALF_CLOSED   (300 * SECOND)      /* longest silence of one side after the other has ended */

static const char *const ends[] = {
#define X(name, label, text) [EGRESS_##name] = (text),
    EGRESS_ENDS(X)
#undef X
};

static bool is_inspected(const struct egress_io *io)
{
    return io->handover.inspect >= 0;
}

/* ---- the end ---- */

static void note_held(struct egress_io *io)
{
    size_t held = stream_held(&io->client) + stream_held(&io->destination);
    relay_metrics_hold(io->thread->shard, io->thread->limits, (int64_t)held - (int64_t)io->held);
    io->held = held;
    limits_use_set(io->thread->limits, &io->use, held, false);
}

static void close_inside(struct egress_io *io)
{
    if (io->inside >= 0)
        close(io->inside);
    io->inside = -1;
}

static void free_io(struct egress_io *io)
{
    struct relay_thread *thread = io->thread;
    relay_metrics_hold(thread->shard, thread->limits, -(int64_t)io->held);
    limits_use_end(thread->limits, &io->use);
    loop_timer_close(&io->look);
    loop_timer_close(&io->again);
    loop_timer_close(&io->expires);
    limits_leave(thread->limits, &io->owner);
    time_shares_give(&thread->shares, io->share);
    close_inside(io);
    LIST_UNLINK(io);
    thread->egress_count--;
    metrics_add(thread->shard, METRIC_EGRESS, METRIC_PLAIN, -1);
    free(io->texts);
    free(io);
}

static void on_stream_gone(void *owner)
{
    struct egress_io *io = owner;
    if (--io->streams == 0)
        free_io(io);
}

static void log_end(const struct egress_io *io, enum egress_end why)
{
    const struct handover *h = &io->handover;
    char address[INET6_ADDRSTRLEN] = "";
    inet_ntop(h->addr.family == 4 ? AF_INET : AF_INET6, h->addr.bytes, address, sizeof address);
    log_audit(io->thread->log, why == EGRESS_INSIDE ? LOG_WARN : LOG_INFO, "egress ended",
              LOG_SLICE("id", h->id), LOG_SLICE("sandbox", h->sandbox), LOG_SLICE("namespace", h->space),
              LOG_SLICE("to", h->egress), LOG_TEXT("address", address), LOG_U64("sent", io->sent),
              LOG_U64("received", io->received),
              LOG_SECONDS("seconds", (double)(loop_clock() - io->began) / 1e6), LOG_TEXT("why", ends[why]));
}

/* Ends the connection and logs why. The client still gets the output that waits, and the destination too if it was the client that
 * ended. */
static void end(struct egress_io *io, enum egress_end why)
{
    static const struct stream_linger linger = {.step = LAST_WORDS, .grace = SECOND, .drain = 1 << 20};
    if (io->over)
        return;
    io->over = true;
    log_end(io, why);
    metrics_add(io->thread->shard, METRIC_EGRESS_ENDED, METRIC_INDEX(why), 1);
    agent_client_drop(io->thread->agent, &io->watch);
    loop_timer_stop(&io->again);
    loop_timer_stop(&io->expires);
    loop_timer_stop(&io->look);
    stream_finish(&io->client, &linger);
    if (io->connected && why == EGRESS_CLIENT)
        stream_finish(&io->destination, &linger);
    else
        stream_close(&io->destination);
    note_held(io);
}

/* Ends the connection with a refusal as the answer to the CONNECT. Call only before the 200 was sent. */
static void refuse(struct egress_io *io, enum egress_end why, enum refusal refusal)
{
    uint8_t memory[UPGRADE_HEAD_MAX];
    struct writer w = writer_of(memory, sizeof memory);
    relay_metrics_refused(io->thread->shard, refusal);
    upgrade_refuse(NULL, refusal, &w);
    if (!buffer_put(&io->client.out, writer_slice(&w)))
        stream_close(&io->client);
    end(io, why);
}

/* ---- bytes ---- */

/* Moves up to `most` bytes to the other side's output, and adds their number to *count. Returns that number. */
static size_t move_some(struct stream *from, struct stream *to, size_t most, uint64_t *count)
{
    struct slice bytes = slice_sub(buffer_slice(&from->in), 0, most);
    size_t held = buffer_len(&to->out), room = to->out.limit > held ? to->out.limit - held : 0;
    bytes = slice_sub(bytes, 0, room);
    if (bytes.len == 0)
        return 0;
    if (held == 0 && bytes.len == buffer_len(&from->in)) /* the buffers change places instead of a copy */
        buffer_swap(&from->in, &to->out);
    else if (buffer_put(&to->out, bytes))
        buffer_consume(&from->in, bytes.len);
    else
        return 0;
    *count += bytes.len;
    stream_consume(from, 0);
    stream_send(to);
    return bytes.len;
}

/* Splices further bytes of the destination from socket to socket, as long as HAProxy takes them. Bytes that HAProxy does not take are put
 * into the client's output. */
static void pass_unseen(struct egress_io *io)
{
    struct stream *from = &io->destination, *to = &io->client;
    size_t passed = 1;
    bool kept = true;
    size_t before = io->received;
    for (int i = 0; i < UNSEEN_TIMES && kept && passed && buffer_len(&to->out) == 0 && stream_is_open(to);
         i++) {
        kept =
            pipes_pass(&io->thread->pipes, stream_fd(from), stream_fd(to), to->out.limit, &to->out, &passed);
        io->received += passed;
    }
    io->fast = io->received > before;
    if (kept)
        stream_send(to);
    else
        end(io, EGRESS_MEMORY);
}

/* Moves up to `most` bytes from `from` to `to` and returns the number moved; the sender is paused when `to` is full. If writing frees
 * room at once, moving continues here, because `sent` is not called for that, and the rest would wait for ever. */
static size_t move(struct stream *from, struct stream *to, size_t most, uint64_t *count)
{
    size_t sum = 0, moved;
    while ((moved = move_some(from, to, most - sum, count)) > 0)
        sum += moved;
    return sum;
}

/* Half-closes `to` once `from` has ended and all its input was moved. */
static void end_side(struct stream *from, struct stream *to, bool ended)
{
    if (ended && buffer_len(&from->in) == 0 && stream_is_open(to))
        stream_half_close(to);
}

static bool is_done(const struct egress_io *io)
{
    return io->client_ended && io->destination_ended && buffer_len(&io->client.in) == 0 &&
           buffer_len(&io->destination.in) == 0 && buffer_len(&io->client.out) == 0 &&
           buffer_len(&io->destination.out) == 0;
}

static bool names_host(const struct egress_io *io, struct slice name)
{
    if (name.len && name.at[name.len - 1] == '.')
        name.len--;
    return slice_equal_nocase(name, io->handover.host);
}

/* Sends a fatal TLS alert unrecognized_name (RFC 6066 section 3) to a client that has asked for another host. */
static void send_alert(struct egress_io *io)
{
    static const uint8_t alert[] = {21, 3, 3, 0, 2, 2, 112};
    if (!buffer_put(&io->client.out, slice_of(alert, sizeof alert)))
        stream_close(&io->client);
}

/* Returns true if the policy admits this ClientHello, or a protocol other than TLS. */
static bool admits(const struct egress_io *io, enum client_hello hello, struct slice name)
{
    if (hello == CLIENT_HELLO_UNNAMED)
        return slice_is(io->handover.sni, "any");
    return hello == CLIENT_HELLO_FOREIGN || (hello == CLIENT_HELLO_NAMED && names_host(io, name));
}

/* Judges a ClientHello that is not complete: MORE, or if no more bytes can arrive, BAD; FOREIGN if no byte is left to be judged. */
static enum client_hello wait_for_more(const struct egress_io *io)
{
    size_t len = buffer_len(&io->client.in);
    if (io->client_ended)
        return io->hello.begun || len == 0 ? CLIENT_HELLO_FOREIGN : CLIENT_HELLO_BAD;
    return len - io->cleared < EGRESS_BUFFER_MOST ? CLIENT_HELLO_MORE : CLIENT_HELLO_BAD;
}

/* Advances `cleared` over the client's bytes that may be forwarded. Ends the connection if a TLS client asks for another host than the
 * allowed one. */
static void judge(struct egress_io *io)
{
    static _Thread_local uint8_t memory[CLIENT_HELLO_MAX];
    enum client_hello said;
    do {
        struct slice name, bytes = slice_from(buffer_slice(&io->client.in), io->cleared);
        struct writer message = writer_of(memory, sizeof memory);
        size_t clear;
        said = hello_watch_client(&io->hello, bytes, &message, &name, &clear);
        io->cleared += clear;
        if (said == CLIENT_HELLO_MORE && (said = wait_for_more(io)) == CLIENT_HELLO_FOREIGN)
            io->cleared = buffer_len(&io->client.in);
        if (said != CLIENT_HELLO_MORE && !admits(io, said, name)) {
            send_alert(io);
            end(io, EGRESS_NAME);
        }
    } while (!io->over && (said == CLIENT_HELLO_NAMED || said == CLIENT_HELLO_UNNAMED));
}

/* Shows the destination's answer to `hello`: after a HelloRetryRequest the client sends a second ClientHello, which must be judged. */
static void hear_answer(struct egress_io *io)
{
    if (io->hello.done)
        return;
    hello_watch_server(&io->hello, slice_from(buffer_slice(&io->destination.in), io->heard));
    io->heard = buffer_len(&io->destination.in);
}

/* Ends the time limit of the client once its TLS handshake is complete. HAProxy before 3.0 limits a handshake only by the idle time-out,
 * so the relay limits it to the time of a request's head. */
static void watch_handshake(struct egress_io *io)
{
    if (io->handshake.done)
        return;
    data_watch_client(&io->handshake,
                      slice_sub(buffer_slice(&io->client.in), io->shown, io->cleared - io->shown));
    io->shown = io->cleared;
    if (io->handshake.done)
        stream_stop_time(&io->client);
}

/* Sets the sizes of both input buffers by the memory that the limits have left. Only input is bounded: output frees memory. A buffer that
 * holds more than its new limit keeps its bytes, and is not read until it holds less. */
static void set_limits(struct egress_io *io)
{
    size_t room = limits_room(io->thread->limits, &io->use, io->held) / 2; /* for each side */
    io->room = room >= EGRESS_BUFFER_MOST ? EGRESS_BUFFER_MOST : room >= BUFFER_LEAST || io->held ? room : BUFFER_LEAST;
    /* The buffer must have room for a whole ClientHello, or the connection could never go on. */
    io->client.in.limit = (uint32_t)(io->room && !io->hello.done ? EGRESS_BUFFER_MOST : io->room);
    io->destination.in.limit = (uint32_t)(io->fast && io->room > BUFFER_FAST ? BUFFER_FAST : io->room);
    if (!io->room && !loop_timer_active(&io->look))
        loop_timer_set(&io->look, LOOK_FOR_ROOM);
}

/* Limits the silence of a half-closed connection: HAProxy and the destination have no time-out of their own for it. */
static void set_patience(struct egress_io *io)
{
    if (io->client_ended != io->destination_ended)
        stream_set_time(&io->destination, HALF_CLOSED);
}

/* Opens the connection to the HAProxy listener that reads an inspected connection, with TLS or without, and sends a PROXY header with
 * the destination. Returns false if that fails. */
static bool open_inside(struct egress_io *io, bool tls)
{
    uint8_t memory[PROXY_HEADER_MAX];
    const struct handover *h = &io->handover;
    struct writer w = writer_of(memory, sizeof memory);
    struct fail why;
    int fd = tls ? io->inside : net_connect(&io->thread->settings.egress_http, &why);
    if (tls)
        io->inside = -1;
    close_inside(io);
    if (fd < 0)
        return false;
    proxy_header_write(&w, NULL, &h->addr, (uint16_t)h->addr_port, h->host, h->inside);
    if (w.full || !buffer_put(&io->destination.out, writer_slice(&w))) {
        close(fd);
        return false;
    }
    io->streams++;
    io->handshake.done = !tls;
    if (tls)
        stream_set_time(&io->client, io->thread->settings.head_time);
    else
        stream_stop_time(&io->client);
    stream_open(&io->destination, io->thread->loop, fd);
    stream_join(&io->destination, io->share);
    stream_set_time(&io->destination, io->thread->settings.dial_timeout);
    return true;
}

/* Chooses the HAProxy listener of an inspected connection by the client's first byte. */
static void look_inside(struct egress_io *io)
{
    if (io->inside < 0 || buffer_len(&io->client.in) == 0)
        return;
    judge(io);
    if (io->over || io->cleared == 0)
        return;
    if (!open_inside(io, buffer_slice(&io->client.in).at[0] == TLS_HANDSHAKE))
        end(io, EGRESS_INSIDE);
}

static void pass(struct egress_io *io)
{
    if (!io->over && !io->connected)
        look_inside(io);
    if (io->over || !io->connected)
        return;
    set_limits(io);
    hear_answer(io);
    size_t moved = move(&io->destination, &io->client, SIZE_MAX, &io->received);
    io->heard -= io->hello.done ? 0 : moved;
    if (io->room && moved >= io->destination.in.limit && io->hello.done && !is_inspected(io) &&
        !io->destination_ended)
        pass_unseen(io);
    else if (moved)
        io->fast = false;
    end_side(&io->destination, &io->client, io->destination_ended);
    if (io->denied || io->over)
        return;
    judge(io);
    if (io->over)
        return;
    watch_handshake(io);
    moved = move(&io->client, &io->destination, io->cleared, &io->sent);
    io->cleared -= moved;
    io->shown -= io->handshake.done ? 0 : moved;
    end_side(&io->client, &io->destination, io->client_ended);
    if (io->over)
        return;
    set_patience(io);
    if (is_done(io))
        end(io, EGRESS_DONE);
}

static void pump(struct egress_io *io)
{
    note_held(io);
    pass(io);
    note_held(io);
    if (!io->over)
        set_limits(io);
    stream_consume(&io->client, 0); /* starts or stops reading by the new limit */
    stream_consume(&io->destination, 0);
}

static void on_bytes(void *owner)
{
    pump(owner);
}

static void on_client_ended(void *owner, int error)
{
    struct egress_io *io = owner;
    io->client_ended = true;
    if (io->inside >= 0 && buffer_len(&io->client.in) == 0)
        end(io, EGRESS_DONE); /* the client has sent nothing */
    else if (!error && !io->connected && !is_inspected(io))
        end(io, EGRESS_CLIENT); /* the CONNECT has no answer yet, and HAProxy waits for none */
    else if (error)
        end(io, error == ENOMEM ? EGRESS_MEMORY : EGRESS_CLIENT);
    else
        pump(io);
}

static void on_destination_ended(void *owner, int error)
{
    struct egress_io *io = owner;
    io->destination_ended = true;
    if (error && !io->connected && is_inspected(io)) {
        end(io, EGRESS_INSIDE);
    } else if (error && !io->connected) {
        refuse(io, EGRESS_UNREACHABLE, REFUSAL_destination_unreachable);
    } else if (error) {
        /* The client gets the bytes that the destination sent before the error. */
        move(&io->destination, &io->client, SIZE_MAX, &io->received);
        end(io, error == ENOMEM ? EGRESS_MEMORY : EGRESS_DESTINATION);
    } else {
        pump(io);
    }
}

static bool accept_connect(struct egress_io *io)
{
    if (!buffer_put(&io->client.out, SLICE_LITERAL("HTTP/1.1 200 Connection established\r\n\r\n"))) {
        end(io, EGRESS_MEMORY);
        return false;
    }
    stream_send(&io->client);
    return true;
}

static void on_connected(void *owner)
{
    struct egress_io *io = owner;
    bool answered = io->connected; /* in the process that has handed it over */
    io->connected = true;
    stream_stop_time(&io->destination);
    if (answered || is_inspected(io) || accept_connect(io))
        pump(io);
}

/* Ends an inspected connection whose client sends nothing: its protocol may be one in which the server speaks first, which HAProxy cannot
 * read. The client gets an HTTP refusal only if it has not begun TLS. */
static void on_client_late(void *owner)
{
    struct egress_io *io = owner;
    if (io->inside < 0)
        end(io, EGRESS_SILENT);
    else
        refuse(io, EGRESS_SILENT, REFUSAL_request_timeout);
}

static void on_late(void *owner)
{
    struct egress_io *io = owner;
    if (io->connected)
        end(io, EGRESS_IDLE);
    else if (is_inspected(io))
        end(io, EGRESS_INSIDE);
    else
        refuse(io, EGRESS_TIMEOUT, REFUSAL_destination_timeout);
}

/* Runs before each read: other connections may have taken the memory since the limits were last set. */
static void on_reading(void *owner)
{
    struct egress_io *io = owner;
    note_held(io);
    if (!io->over)
        set_limits(io);
}

static const struct stream_user client_user = {.reading = on_reading,
                                               .input = on_bytes,
                                               .sent = on_bytes,
                                               .ended = on_client_ended,
                                               .late = on_client_late,
                                               .gone = on_stream_gone};
static const struct stream_user destination_user = {.connected = on_connected,
                                                    .reading = on_reading,
                                                    .input = on_bytes,
                                                    .sent = on_bytes,
                                                    .ended = on_destination_ended,
                                                    .late = on_late,
                                                    .gone = on_stream_gone};

/* ---- the agent's decisions while the connection is open ---- */

/* Asks the agent again about this connection, and subscribes to the answer. */
void egress_io_watch(struct egress_io *io)
{
    if (slice_present(io->handover.ticket))
        agent_client_ask(io->thread->agent, &io->watch);
}

static void watch(void *owner)
{
    egress_io_watch(owner);
}

/* Ends a connection that is no longer allowed. A CONNECT without an answer gets a refusal. An inspected connection stays open for
 * FAREWELL, because a WebSocket inside it is another tunnel of the relay, which notifies its client with a Close. */
static void deny(struct egress_io *io)
{
    if (!is_inspected(io) && !io->connected) {
        refuse(io, EGRESS_DENIED, REFUSAL_egress_denied);
        return;
    }
    if (!is_inspected(io) || !io->connected || io->destination_ended) {
        end(io, EGRESS_DENIED);
        return;
    }
    io->denied = true;
    stream_pause(&io->client, true);
    loop_timer_set(&io->expires, FAREWELL);
}

static void on_answered(void *owner, bool watched, const struct answer *answer)
{
    struct egress_io *io = owner;
    (void)watched;
    if (answer->refused != REFUSAL_NONE || answer->state == ANSWER_ABSENT ||
        answer->state == ANSWER_STOPPED || answer->state == ANSWER_NOT_ADMITTED)
        deny(io);
    else if (answer->unwatched || answer->state == ANSWER_UNAVAILABLE)
        loop_timer_set(&io->again, ASK_AGAIN);
    else
        watch(io);
}

static void say(void *owner, bool watched, struct question_text *to)
{
    const struct egress_io *io = owner;
    (void)watched;
    to->handover = io->handover;
    to->addr = io->handover.addr;
}

static const struct question_user question_user = {.say = say, .answered = on_answered};

static void on_expired(void *owner)
{
    struct egress_io *io = owner;
    end(io, io->denied ? EGRESS_DENIED : EGRESS_EXPIRED);
}

/* Ends the connection when the token that opened it expires, as for a tunnel. */
static void set_expiry(struct egress_io *io)
{
    const int64_t years = (int64_t)100 * 365 * 86400;
    int64_t left = io->handover.exp < 0 ? years : io->handover.exp - (int64_t)time(NULL);
    if (left < years)
        loop_timer_set(&io->expires, left > 0 ? (uint64_t)left * SECOND : 0);
}

/* ---- the beginning ---- */

bool egress_io_wants(const struct http_head *head)
{
    return slice_is(head->method, "CONNECT");
}

static void set_owner(struct egress_io *io)
{
    const struct handover *h = &io->handover;
    io->hello.done = !slice_present(h->sni);
    io->owner = (struct limits_owner){.space = h->space,
                                      .sandbox = h->sandbox,
                                      .org = h->org,
                                      .egress = true,
                                      .most = h->most > 0 ? (uint64_t)h->most : 0};
}

/* A metadata service's address is refused here once more, so that no fault of the agent can open it. */
bool egress_io_read(struct egress_io *io, struct slice text, struct fail *why)
{
    io->texts = malloc(text.len);
    if (!io->texts)
        return fail(why, "out of memory");
    struct writer memory = writer_of(io->texts, text.len);
    const struct handover *h = &io->handover;
    if (!handover_decode(&io->handover, text, &memory, why))
        return false;
    if (!slice_present(h->egress) || !slice_present(h->sandbox) || !h->addr.family || h->addr_port < 1 ||
        h->addr_port > 65535)
        return fail(why, HANDOVER_HEADER " names no sandbox, or nowhere to go");
    if (is_inspected(io) && !slice_present(h->inside))
        return fail(why,
                    HANDOVER_HEADER " does not prove whose connection is inspected: is the agent older?");
    set_owner(io);
    return !cidr_is_metadata(&h->addr) || fail(why, "the address is a metadata service's");
}

/* Reads the handover, a header field that HAProxy sets. Returns false if there is not exactly one, or if it is not good. */
static bool read_handover(struct egress_io *io, const struct http_head *head, struct fail *why)
{
    struct slice text = http_get(head, HANDOVER_HEADER);
    if (http_count(head, HANDOVER_HEADER) != 1 || text.len == 0)
        return fail(why, "there is no " HANDOVER_HEADER ", or more than one");
    return egress_io_read(io, text, why);
}

static int dial(const struct egress_io *io, struct fail *why)
{
    struct net_address address;
    const struct address *to = &io->handover.addr;
    net_from_ip(slice_of(to->bytes, to->family == 4 ? 4 : 16), (uint16_t)io->handover.addr_port, &address);
    return net_connect(&address, why);
}

static void add(struct egress_io *io)
{
    struct relay_thread *thread = io->thread;
    LIST_PUSH(thread->egress, io);
    thread->egress_count++;
    io->share = time_shares_take(&thread->shares, &io->owner);
    set_expiry(io);
    metrics_add(thread->shard, METRIC_EGRESS, METRIC_PLAIN, 1);
}

/* Opens an inspected connection: connects to HAProxy before the 200 is sent. HAProxy dials the destination when it has admitted the first
 * request. */
static void open_inspected(struct egress_io *io, int fd, struct slice early)
{
    struct relay_thread *thread = io->thread;
    struct fail why;
    bool kept = early.len == 0 || buffer_put(&io->client.in, early);
    io->streams = 1;
    add(io);
    stream_open(&io->client, thread->loop, fd);
    stream_join(&io->client, io->share);
    io->inside = net_connect(&thread->settings.egress_tls, &why);
    if (io->inside < 0) {
        refuse(io, EGRESS_INSIDE, REFUSAL_relay_unavailable);
        return;
    }
    if (!kept) {
        end(io, EGRESS_MEMORY);
        return;
    }
    watch(io);
    stream_set_time(&io->client, thread->settings.head_time);
    if (accept_connect(io))
        pump(io);
}

void egress_io_open(struct egress_io *io, int client, int destination)
{
    struct relay_thread *thread = io->thread;
    io->streams = destination >= 0 ? 2 : 1;
    add(io);
    stream_open(&io->client, thread->loop, client);
    stream_join(&io->client, io->share);
    if (destination < 0)
        return;
    stream_open(&io->destination, thread->loop, destination);
    stream_join(&io->destination, io->share);
}

static void open_streams(struct egress_io *io, int fd, int to, struct slice early)
{
    bool kept = early.len == 0 || buffer_put(&io->client.in, early);
    egress_io_open(io, fd, to);
    if (to < 0) { /* no descriptor, or no route there */
        refuse(io, EGRESS_UNREACHABLE, REFUSAL_destination_unreachable);
        return;
    }
    stream_set_time(&io->destination, io->thread->settings.dial_timeout);
    if (!kept)
        end(io, EGRESS_MEMORY);
    else
        egress_io_watch(io);
}

struct egress_io *egress_io_new(struct relay_thread *thread)
{
    struct egress_io *io = calloc(1, sizeof *io);
    if (!io)
        return NULL;
    io->thread = thread;
    io->began = loop_clock();
    io->inside = -1;
    io->handshake.done = true; /* open_inside sets it to false for TLS */
    io->handover = handover_none();
    io->client = (struct stream){.user = &client_user,
                                 .owner = io,
                                 .in = buffer_with_limit(EGRESS_BUFFER_MOST + thread->settings.head_size),
                                 .out = buffer_with_limit(EGRESS_BUFFER_MOST)};
    io->destination = (struct stream){.user = &destination_user,
                                      .owner = io,
                                      .in = buffer_with_limit(EGRESS_BUFFER_MOST),
                                      .out = buffer_with_limit(EGRESS_BUFFER_MOST)};
    io->watch = (struct question){.watch = true, .user = &question_user, .owner = io};
    loop_timer_open(&io->again, thread->loop, watch, io);
    loop_timer_open(&io->expires, thread->loop, on_expired, io);
    loop_timer_open(&io->look, thread->loop, on_bytes, io);
    return io;
}

bool egress_io_enter(struct egress_io *io)
{
    const struct relay_thread *thread = io->thread;
    const struct handover *h = &io->handover;
    enum limit limit = limits_enter(thread->limits, &io->owner);
    if (limit == LIMIT_NONE) {
        io->use = limits_use_begin(thread->limits, &io->owner);
        return true;
    }
    if (limit == LIMIT_MEMORY)
        return false;
    metrics_add(thread->shard, METRIC_LIMITED, METRIC_INDEX(limit), 1);
    log_write(thread->log, LOG_INFO, "too many connections", LOG_TEXT("limit", limit_names[limit]),
              LOG_SLICE("id", h->id), LOG_SLICE("sandbox", h->sandbox), LOG_SLICE("org", h->org));
    return false;
}

void egress_io_forget(struct egress_io *io)
{
    loop_timer_close(&io->look);
    loop_timer_close(&io->again);
    loop_timer_close(&io->expires);
    free(io->texts);
    free(io);
}

static void give_up(struct egress_io *io, int fd, enum refusal refusal)
{
    struct relay_thread *thread = io->thread;
    egress_io_forget(io);
    relay_thread_refuse(thread, fd, NULL, refusal);
}

void egress_io_begin(struct relay_thread *thread, int fd, const struct http_head *head, struct slice early)
{
    struct egress_io *io = egress_io_new(thread);
    struct fail why;
    if (!io) {
        relay_thread_refuse(thread, fd, NULL, REFUSAL_relay_unavailable);
        return;
    }
    if (!read_handover(io, head, &why)) {
        log_write(thread->log, LOG_WARN, "CONNECT refused", LOG_TEXT("why", why.text));
        give_up(io, fd, fail_of_memory(&why) ? REFUSAL_relay_unavailable : REFUSAL_bad_request);
        return;
    }
    if (thread->draining) {
        give_up(io, fd, REFUSAL_draining);
        return;
    }
    if (!egress_io_enter(io)) {
        give_up(io, fd, REFUSAL_too_many_connections);
        return;
    }
    if (is_inspected(io))
        open_inspected(io, fd, early);
    else
        open_streams(io, fd, dial(io, &why), early);
}

void egress_ios_end(struct relay_thread *thread, bool late)
{
    for (struct egress_io *io = thread->egress, *next; io; io = next) {
        next = io->next;
        end(io, EGRESS_RESTARTING);
        if (late) {
            stream_close(&io->client);
            stream_close(&io->destination);
        }
    }
}

void egress_io_end(struct egress_io *io)
{
    if (!io->over && !io->connected && !is_inspected(io))
        refuse(io, EGRESS_RESTARTING, REFUSAL_relay_unavailable);
    else
        end(io, EGRESS_RESTARTING);
    stream_send(&io->client); /* nobody sends the rest */
    stream_close(&io->client);
    stream_close(&io->destination);
}

/* ---- eviction ---- */

/* Returns true if evicting the connection would free memory: one that has ended may still hold unsent output. */
static bool may_give_way(const struct egress_io *io)
{
    return !io->over || io->use.held > LEFT_MOST;
}

void egress_ios_look(struct relay_thread *thread, struct limits_round *round)
{
    for (const struct egress_io *io = thread->egress; io; io = io->next)
        if (may_give_way(io))
            limits_round_look(round, &io->use);
}

void egress_ios_give_way(struct relay_thread *thread, struct limits_round *round)
{
    for (struct egress_io *io = thread->egress, *next; io && round->lacking; io = next) {
        next = io->next;
        if (!may_give_way(io) || !limits_round_takes(thread->limits, round, &io->use))
            continue;
        end(io, EGRESS_MEMORY);
        /* More unsent output than this is not worth the memory: its peer did not read it. */
        if (stream_held(&io->client) + stream_held(&io->destination) > LEFT_MOST) {
            stream_close(&io->client);
            stream_close(&io->destination);
        }
    }
}
