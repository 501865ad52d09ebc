/* SPDX-License-Identifier: MIT */
#include "spoa/net/http_server.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "spoa/base/bytes/min_max.h"
#include "spoa/base/table/list.h"
#include "spoa/net/net.h"

#define ACCEPTS_A_TURN 16
#define READ_SIZE      16384                /* bytes */
#define INPUT_MAX      ((size_t)64 * 1024)  /* bytes of unconsumed input */
#define OUTPUT_FULL    ((size_t)128 * 1024) /* bytes of unsent output from which on http_is_full is true */
/* longest time for a peer's machine to acknowledge data, in milliseconds */
#define DEAD_BOUND 60000u

enum state {
    HEAD,   /* waiting for the next request */
    BODY,   /* reading the request's body */
    ANSWER, /* the request is complete, and the answer is not */
    RAW,    /* after http_upgraded */
};

struct http_conn {
    struct stream stream;
    struct http_server *server;
    struct http_conn *next, **link;
    enum state state;
    bool paused;
    bool delivering, again; /* deliver is running; it must look at the input again */
    struct http_reader reader;
    uint8_t *head_bytes; /* a copy of the current request's head */
    struct http_head head;
    uint64_t left; /* bytes left of a request body with a length */
    struct http_chunked chunked;
    struct http_exchange *exchange;

    /* the answer */
    bool begun, answered; /* http_begin, http_end */
    bool chunks;          /* the body is sent in chunks */
    bool last;            /* the connection ends after this answer */
    uint64_t unsent;      /* bytes left of an answer with a length */
};

/* ---- the connection ---- */
struct http_server *http_conn_server(struct http_conn *h)
{
    return h->server;
}

struct stream *http_stream(struct http_conn *h)
{
    return &h->stream;
}

void http_send(struct http_conn *h, struct slice bytes)
{
    if (!stream_is_open(&h->stream))
        return;
    if (buffer_put(&h->stream.out, bytes))
        stream_send_soon(&h->stream);
    else
        stream_close(&h->stream);
}

void http_finish(struct http_conn *h)
{
    stream_finish(&h->stream, &h->server->options->linger);
}

static size_t input(struct http_conn *h, struct slice bytes);

/* Passes on the held input until the exchange consumes no more of it. A call from within a call-back of the exchange only sets `again`, for
 * the loop that is running further up the stack. */
static void deliver(struct http_conn *h)
{
    h->again = true;
    if (h->delivering)
        return;
    h->delivering = true;
    while (h->again && stream_is_open(&h->stream) && !h->paused && buffer_len(&h->stream.in)) {
        h->again = false;
        size_t consumed = input(h, buffer_slice(&h->stream.in));
        h->again = h->again || consumed;
        stream_consume(&h->stream, consumed);
    }
    h->delivering = false;
}

void http_pause(struct http_conn *h, bool paused)
{
    h->paused = paused;
    stream_pause(&h->stream, paused);
    deliver(h);
}

bool http_is_paused(const struct http_conn *h)
{
    return h->paused;
}

static void serve_next(struct http_conn *h)
{
    h->state = HEAD;
    h->reader = http_reader_of(HTTP_REQUEST, h->server->options->head_max);
    h->begun = h->answered = h->chunks = h->last = false;
    stream_set_time(&h->stream, h->server->options->idle_time);
}

static void drop_exchange(struct http_conn *h)
{
    struct http_exchange *x = h->exchange;
    h->exchange = NULL;
    if (x && x->close)
        x->close(x);
    if (x)
        loop_defer(h->server->loop, &x->bury);
    free(h->head_bytes);
    h->head_bytes = NULL;
}

/* ---- requests ---- */

static void refuse(struct http_conn *h, unsigned status)
{
    h->server->options->refuse(h->server, status, &h->stream.out);
    http_finish(h);
}

/* Copies the head, which is needed as long as its request is served; the input is not. Returns false if memory is short. */
static bool keep_head(struct http_conn *h, struct slice bytes)
{
    struct http_reader reader = http_reader_of(HTTP_REQUEST, h->server->options->head_max);
    h->head_bytes = (uint8_t *)slice_dup(bytes);
    return h->head_bytes && http_read(&reader, slice_of(h->head_bytes, bytes.len), &h->head) == HTTP_DONE;
}

static void begin_body(struct http_conn *h)
{
    h->chunked = (struct http_chunked){0};
    h->left = h->head.has_length ? h->head.length : 0;
    if (http_has_token(&h->head, "Expect", "100-continue") && http_framing(&h->head, false) != HTTP_NO_BODY)
        http_send(h, SLICE_LITERAL("HTTP/1.1 100 Continue\r\n\r\n"));
}

static size_t read_head(struct http_conn *h, struct slice bytes)
{
    const struct http_server_options *options = h->server->options;
    if (h->reader.scanned == 0 && options->head_time)
        stream_set_time(&h->stream, options->head_time);
    enum http_result result = http_read(&h->reader, bytes, &h->head);
    if (result == HTTP_MORE)
        return 0;
    if (result != HTTP_DONE)
        return refuse(h, result == HTTP_BAD ? 400 : 431), 0;
    size_t len = h->head.len;
    stream_stop_time(&h->stream);
    if (!keep_head(h, slice_sub(bytes, 0, len)) || !(h->exchange = options->route(h->server, h)))
        return stream_close(&h->stream), 0;
    h->state = BODY;
    if (h->exchange->begin)
        h->exchange->begin(h->exchange);
    if (stream_is_open(&h->stream))
        begin_body(h);
    return len;
}

static void give_body(struct http_conn *h, struct slice piece)
{
    stream_set_time(&h->stream, h->server->options->idle_time);
    if (piece.len && h->exchange && h->exchange->body)
        h->exchange->body(h->exchange, piece);
}

static void finish_answer(struct http_conn *h)
{
    if (!h->answered || h->state != ANSWER)
        return;
    drop_exchange(h);
    if (h->last || h->server->draining)
        return http_finish(h);
    serve_next(h);
    http_pause(h, false);
}

static void end_body(struct http_conn *h)
{
    h->state = ANSWER;
    stream_stop_time(&h->stream);
    if (!h->answered && h->exchange->end)
        h->exchange->end(h->exchange);
    finish_answer(h);
}

static size_t read_chunked(struct http_conn *h, struct slice bytes)
{
    struct slice in = bytes, data;
    enum http_result result = HTTP_MORE;
    while (in.len && result == HTTP_MORE && !h->paused) {
        result = http_chunked_read(&h->chunked, &in, &data);
        give_body(h, data);
    }
    size_t taken = bytes.len - in.len;
    if (result == HTTP_DONE)
        end_body(h);
    else if (result != HTTP_MORE)
        stream_close(&h->stream);
    return taken;
}

/* Handles some input. Returns the number of bytes consumed. */
static size_t take(struct http_conn *h, struct slice bytes)
{
    switch (h->state) {
    case HEAD:
        return read_head(h, bytes);
    case BODY:
        if (h->head.chunked)
            return read_chunked(h, bytes);
        struct slice piece = slice_sub(bytes, 0, (size_t)min_u64(h->left, bytes.len));
        h->left -= piece.len;
        give_body(h, piece);
        if (h->left == 0)
            end_body(h);
        return piece.len;
    case RAW:
        return h->exchange->raw(h->exchange, bytes);
    case ANSWER:
        break;
    }
    return 0;
}

/* Like take, and ends a request that has no body: no further input would do that. */
static size_t input(struct http_conn *h, struct slice bytes)
{
    size_t taken = take(h, bytes);
    if (h->state == BODY && !h->head.chunked && h->left == 0 && stream_is_open(&h->stream))
        end_body(h);
    return taken;
}

/* ---- events ---- */
static void on_input(void *owner)
{
    deliver(owner);
}

/* Asks the exchange for more output, if its answer is not complete. */
static void on_sent(void *owner)
{
    struct http_conn *h = owner;
    if (!stream_is_open(&h->stream) || buffer_len(&h->stream.out) >= OUTPUT_FULL)
        return;
    if (h->exchange && h->exchange->room && (h->state == RAW || (h->begun && !h->answered)))
        h->exchange->room(h->exchange);
}

static void on_ended(void *owner, int error)
{
    struct http_conn *h = owner;
    (void)error;
    stream_close(&h->stream);
}

static void on_late(void *owner)
{
    refuse(owner, 408);
}

static void on_gone(void *owner)
{
    struct http_conn *h = owner;
    struct http_server *server = h->server;
    drop_exchange(h);
    LIST_UNLINK(h);
    free(h);
    http_server_leave(server);
}

static const struct stream_user stream_user = {.input = on_input,
                                               .sent = on_sent,
                                               .ended = on_ended,
                                               .late = on_late,
                                               .gone = on_gone,
                                               .read_size = READ_SIZE};

/* ---- the server ---- */
void http_server_enter(struct http_server *server)
{
    if (++server->count >= server->options->connections && !server->options->crowd_out)
        listener_hold(&server->listener, true);
}

void http_server_leave(struct http_server *server)
{
    if (--server->count < server->options->connections)
        listener_hold(&server->listener, false);
    if (server->options->gone)
        server->options->gone(server);
}

/* Evicts a connection: one that is finishing and only waits for the peer to close, else the oldest, which is last in the list. Closed
 * connections still count until the end of the turn, in which only a few more are accepted. */
static void end_oldest(struct http_server *server)
{
    struct http_conn *oldest = NULL, *answered = NULL;
    for (struct http_conn *h = server->conns; h; h = h->next)
        if (stream_is_open(&h->stream))
            oldest = h;
        else if (h->stream.loop)
            answered = h;
    if (answered || oldest)
        stream_close(&(answered ? answered : oldest)->stream);
}

static void on_accepted(void *owner, int fd)
{
    struct http_server *server = owner;
    struct http_conn *h = calloc(1, sizeof *h);
    if (!h) {
        close(fd);
        return;
    }
    if (server->options->crowd_out && server->count >= server->options->connections)
        end_oldest(server);
    setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &(unsigned){DEAD_BOUND}, sizeof(unsigned));
    h->server = server;
    h->stream = (struct stream){.user = &stream_user,
                                .owner = h,
                                .in = buffer_with_limit(INPUT_MAX),
                                .out = buffer_with_limit(server->options->output_max)};
    LIST_PUSH(server->conns, h);
    http_server_enter(server);
    stream_open(&h->stream, server->loop, fd);
    serve_next(h);
}

void http_server_open(struct http_server *server, struct loop *loop, int listener,
                      const struct http_server_options *options)
{
    *server = (struct http_server){.options = options, .loop = loop};
    server->listener = (struct listener){.accepted = on_accepted, .owner = server, .batch = ACCEPTS_A_TURN};
    listener_open(&server->listener, loop, listener);
}

void http_server_check(struct http_server *server)
{
    for (struct http_conn *h = server->conns; h; h = h->next)
        if (h->paused && stream_is_broken(&h->stream))
            stream_close(&h->stream);
}

void http_server_drain(struct http_server *server)
{
    server->draining = true;
    for (struct http_conn *h = server->conns; h; h = h->next) {
        if (h->state == HEAD)
            http_finish(h);
        else if (h->exchange && h->exchange->leave && (h->state == RAW || h->begun))
            h->exchange->leave(h->exchange);
    }
}

int http_server_close(struct http_server *server)
{
    int fd = listener_release(&server->listener);
    for (struct http_conn *h = server->conns; h; h = h->next)
        stream_close(&h->stream);
    return fd;
}

/* ---- exchanges ---- */
void *http_exchange_new(size_t size, struct http_conn *h)
{
    struct http_exchange *x = calloc(1, size);
    if (!x)
        return NULL;
    x->bury = (struct loop_task){.run = free, .context = x};
    x->conn = h;
    x->head = &h->head;
    struct slice target = h->head.target;
    size_t mark = slice_find(target, '?');
    x->path = slice_sub(target, 0, mark);
    x->query = mark < target.len ? slice_from(target, mark + 1) : (struct slice){NULL, 0};
    return x;
}

/* ---- answers ---- */

static const char *reason_of(unsigned status)
{
    static const struct {
        unsigned status;
        const char *reason;
    } reasons[] = {{200, "OK"},
                   {201, "Created"},
                   {204, "No Content"},
                   {400, "Bad Request"},
                   {401, "Unauthorized"},
                   {403, "Forbidden"},
                   {404, "Not Found"},
                   {405, "Method Not Allowed"},
                   {409, "Conflict"},
                   {410, "Gone"},
                   {413, "Content Too Large"},
                   {415, "Unsupported Media Type"},
                   {421, "Misdirected Request"},
                   {426, "Upgrade Required"},
                   {500, "Internal Server Error"},
                   {502, "Bad Gateway"},
                   {503, "Service Unavailable"}};
    for (size_t i = 0; i < sizeof reasons / sizeof *reasons; i++)
        if (reasons[i].status == status)
            return reasons[i].reason;
    return "Unknown";
}

static bool is_to_head(const struct http_exchange *x)
{
    return slice_is(x->head->method, "HEAD");
}

void http_begin(struct http_exchange *x, unsigned status, const char *type, const char *fields,
                uint64_t length)
{
    struct http_conn *h = x->conn;
    char memory[2048];
    struct writer w = writer_of(memory, sizeof memory);
    if (status >= 400 || h->head.minor == 0 || http_has_token(&h->head, "Connection", "close") ||
        h->server->draining)
        h->last = true;
    writer_printf(&w, "HTTP/1.1 %u %s\r\nServer: %s\r\n", status, reason_of(status),
                  h->server->options->name);
    if (type)
        writer_printf(&w, "Content-Type: %s\r\nX-Content-Type-Options: nosniff\r\n", type);
    h->begun = true;
    h->unsent = is_to_head(x) ? 0 : length;
    h->chunks = length == HTTP_UNKNOWN_LENGTH && h->head.minor > 0;
    if (h->chunks)
        writer_text(&w, "Transfer-Encoding: chunked\r\n");
    else if (length == HTTP_UNKNOWN_LENGTH)
        h->last = true;
    else if (status != 204)
        writer_printf(&w, "Content-Length: %llu\r\n", (unsigned long long)length);
    if (h->last)
        writer_text(&w, "Connection: close\r\n");
    if (fields)
        writer_text(&w, fields);
    writer_text(&w, "\r\n");
    if (w.full)
        return stream_close(&h->stream);
    http_send(h, writer_slice(&w));
}

void http_piece(struct http_exchange *x, struct slice bytes)
{
    struct http_conn *h = x->conn;
    char size[24];
    bytes = slice_sub(bytes, 0, h->unsent < bytes.len ? (size_t)h->unsent : bytes.len);
    if (bytes.len == 0)
        return;
    if (h->unsent != HTTP_UNKNOWN_LENGTH)
        h->unsent -= bytes.len;
    if (h->chunks)
        http_send(h, slice_of(size, (size_t)snprintf(size, sizeof size, "%zx\r\n", bytes.len)));
    http_send(h, bytes);
    if (h->chunks)
        http_send(h, SLICE_LITERAL("\r\n"));
}

void http_end(struct http_exchange *x)
{
    struct http_conn *h = x->conn;
    if (h->chunks && !is_to_head(x))
        http_send(h, SLICE_LITERAL("0\r\n\r\n"));
    if (h->unsent && h->unsent != HTTP_UNKNOWN_LENGTH)
        return stream_close(&h->stream); /* the body was shorter than its Content-Length */
    h->answered = true;
    if (h->state != ANSWER && h->last)
        http_finish(h); /* without waiting for the rest of a refused request's body */
    else
        finish_answer(h);
}

void http_answer(struct http_exchange *x, unsigned status, const char *type, const char *fields,
                 struct slice body)
{
    http_begin(x, status, type, fields, body.len);
    http_piece(x, body);
    http_end(x);
}

void http_refuse(struct http_exchange *x, unsigned status, const char *text)
{
    char body[256];
    int len = snprintf(body, sizeof body, "{\"error\":\"%s\"}", text);
    http_answer(x, status, "application/json", NULL, slice_of(body, (size_t)len));
}

bool http_is_full(const struct http_exchange *x)
{
    return buffer_len(&x->conn->stream.out) >= OUTPUT_FULL;
}

void http_upgraded(struct http_exchange *x)
{
    x->conn->state = RAW;
    deliver(x->conn);
}

/* ---- queries ---- */

struct slice http_parameter(const struct http_exchange *x, const char *name)
{
    struct slice rest = x->query, part;
    while (slice_split(&rest, '&', &part)) {
        size_t equals = slice_find(part, '=');
        if (slice_is(slice_sub(part, 0, equals), name))
            return equals < part.len ? slice_from(part, equals + 1) : slice_of(part.at, 0);
    }
    return (struct slice){NULL, 0};
}

bool http_number(const struct http_exchange *x, const char *name, uint64_t otherwise, uint64_t max,
                 uint64_t *value)
{
    struct slice text = http_parameter(x, name);
    *value = otherwise;
    return !slice_present(text) || slice_u64(text, max, value);
}
