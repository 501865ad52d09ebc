/* SPDX-License-Identifier: MIT */
#include "examples/worker/http_conn.h"

#include <stdio.h>
#include <stdlib.h>


#define IDLE      75.0 /* seconds between two requests */
#define HEAD_TIME 10.0 /* seconds for a head to arrive */

enum state {
    HEAD,   /* the next request is awaited */
    BODY,   /* its body is being read */
    ANSWER, /* it is complete, the answer is not */
    RAW,    /* upgraded */
};

struct http_conn {
    struct client client;
    struct http_server *server;
    struct http_conn *next, **link;
    enum state state;
    struct http_reader reader;
    uint8_t *head_bytes;
    struct http_head head;
    uint64_t left; /* of a body with a length */
    struct http_chunked chunked;
    struct exchange *exchange;
    struct loop_timer idle;
    /* of the answer: */
    bool begun, answered, chunks, last; /* `last`: no other follows */
    uint64_t unsent;                    /* of a body with a length */
};

static void serve_next(struct http_conn *h)
{
    h->state = HEAD;
    h->reader = http_reader_of(HTTP_REQUEST, HTTP_HEAD_MAX);
    h->begun = h->answered = h->chunks = h->last = false;
    loop_timer_set(&h->idle, IDLE);
}

static void drop_exchange(struct http_conn *h)
{
    struct exchange *x = h->exchange;
    h->exchange = NULL;
    if (x && x->close)
        x->close(x);
    if (x)
        loop_defer(h->client.loop, &x->bury);
    free(h->head_bytes);
    h->head_bytes = NULL;
}

/* ---- requests ---- */

static void put_plain_refusal(struct http_conn *h, const char *status)
{
    char text[160];
    int len =
        snprintf(text, sizeof text, "HTTP/1.1 %s\r\nContent-Length: 0\r\nConnection: close\r\n\r\n", status);
    client_send(&h->client, slice_of(text, (size_t)len));
    client_finish(&h->client);
}

/* The head is needed for as long as its request is being served, the input is not: a copy of the head is
 * kept. */
static bool keep_head(struct http_conn *h, struct slice bytes)
{
    struct http_reader reader = http_reader_of(HTTP_REQUEST, HTTP_HEAD_MAX);
    h->head_bytes = (uint8_t *)slice_dup(bytes);
    return h->head_bytes && http_read(&reader, slice_of(h->head_bytes, bytes.len), &h->head) == HTTP_DONE;
}

static void begin_body(struct http_conn *h)
{
    h->state = BODY;
    h->chunked = (struct http_chunked){0};
    h->left = h->head.has_length ? h->head.length : 0;
    if (http_has_token(&h->head, "Expect", "100-continue") && http_framing(&h->head, false) != HTTP_NO_BODY)
        client_send(&h->client, SLICE_LITERAL("HTTP/1.1 100 Continue\r\n\r\n"));
}

static size_t read_head(struct http_conn *h, struct slice bytes)
{
    if (h->reader.scanned == 0)
        loop_timer_set(&h->idle, HEAD_TIME);
    enum http_result result = http_read(&h->reader, bytes, &h->head);
    if (result == HTTP_MORE)
        return 0;
    if (result != HTTP_DONE)
        return put_plain_refusal(h, result == HTTP_BAD ? "400 Bad Request"
                                                       : "431 Request Header Fields Too Large"),
               0;
    size_t len = h->head.len;
    loop_timer_stop(&h->idle);
    if (!keep_head(h, slice_sub(bytes, 0, len)) || !(h->exchange = h->server->route(h->server, h)))
        return client_abort(&h->client), 0;
    begin_body(h);
    return len;
}

static void give_body(struct http_conn *h, struct slice piece)
{
    loop_timer_set(&h->idle, IDLE);
    if (piece.len && h->exchange && h->exchange->body)
        h->exchange->body(h->exchange, piece);
}

static void finish_answer(struct http_conn *h)
{
    if (!h->answered || h->state != ANSWER)
        return;
    drop_exchange(h);
    if (h->last || h->server->draining)
        return client_finish(&h->client);
    serve_next(h);
    client_pause(&h->client, false);
    client_look_again(&h->client);
}

static void end_body(struct http_conn *h)
{
    h->state = ANSWER;
    loop_timer_stop(&h->idle);
    if (!h->answered && h->exchange->end)
        h->exchange->end(h->exchange);
    finish_answer(h);
}

static size_t read_chunked(struct http_conn *h, struct slice bytes)
{
    struct slice in = bytes, data;
    enum http_result result = HTTP_MORE;
    while (in.len && result == HTTP_MORE && !h->client.paused) {
        result = http_chunked_read(&h->chunked, &in, &data);
        give_body(h, data);
    }
    size_t taken = bytes.len - in.len;
    if (result == HTTP_DONE)
        end_body(h);
    else if (result != HTTP_MORE)
        client_abort(&h->client);
    return taken;
}

static size_t read_sized(struct http_conn *h, struct slice bytes)
{
    struct slice piece = slice_sub(bytes, 0, h->left < bytes.len ? (size_t)h->left : bytes.len);
    h->left -= piece.len;
    give_body(h, piece);
    if (h->left == 0)
        end_body(h);
    return piece.len;
}

static size_t input(void *user, struct slice bytes)
{
    struct http_conn *h = user;
    switch (h->state) {
    case HEAD:
        return read_head(h, bytes);
    case BODY:
        return h->head.chunked ? read_chunked(h, bytes) : read_sized(h, bytes);
    case RAW:
        return h->exchange->raw(h->exchange, bytes);
    case ANSWER:
        break;
    }
    return 0;
}

/* A request without a body is complete with its head, and no input will tell. */
static size_t input_and_end(void *user, struct slice bytes)
{
    struct http_conn *h = user;
    size_t taken = input(user, bytes);
    if (h->state == BODY && !h->head.chunked && h->left == 0 && client_is_open(&h->client))
        end_body(h);
    return taken;
}

static void room(void *user)
{
    struct http_conn *h = user;
    if (h->exchange && h->exchange->room && (h->state == RAW || (h->begun && !h->answered)))
        h->exchange->room(h->exchange);
}

static void gone(void *user)
{
    struct http_conn *h = user;
    drop_exchange(h);
    loop_timer_close(&h->idle);
    *h->link = h->next;
    if (h->next)
        h->next->link = h->link;
    h->server->gone(h->server);
    free(h);
}

static void idle_due(void *owner)
{
    struct http_conn *h = owner;
    client_finish(&h->client);
}

struct http_conn *http_conn_new(struct http_server *server, struct loop *loop, int fd)
{
    struct http_conn *h = calloc(1, sizeof *h);
    if (!h)
        return NULL;
    h->server = server;
    h->client.input = input_and_end;
    h->client.room = room;
    h->client.gone = gone;
    h->client.user = h;
    loop_timer_open(&h->idle, loop, idle_due, h);
    h->link = &server->conns;
    h->next = *h->link;
    if (h->next)
        h->next->link = &h->next;
    *h->link = h;
    client_open(&h->client, loop, fd);
    serve_next(h);
    return h;
}

struct http_server *http_server(struct http_conn *h)
{
    return h->server;
}

struct client *http_client(struct http_conn *h)
{
    return &h->client;
}

struct http_conn *http_conn_next(struct http_conn *h)
{
    return h->next;
}

void http_conn_leave(struct http_conn *h)
{
    if (h->state == HEAD)
        client_finish(&h->client);
    else if (h->exchange && h->exchange->leave && (h->state == RAW || h->begun))
        h->exchange->leave(h->exchange);
}

void *http_exchange_new(size_t size, struct http_conn *h)
{
    struct exchange *x = calloc(1, size);
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

static bool is_to_head(const struct exchange *x)
{
    return slice_is(x->head->method, "HEAD");
}

void http_begin(struct exchange *x, unsigned status, const char *type, const char *fields, uint64_t length)
{
    struct http_conn *h = x->conn;
    char memory[2048];
    struct writer w = writer_of(memory, sizeof memory);
    if (status >= 400 || h->head.minor == 0 || http_has_token(&h->head, "Connection", "close") ||
        h->server->draining)
        h->last = true;
    writer_printf(&w, "HTTP/1.1 %u %s\r\nServer: %s\r\n", status, reason_of(status), h->server->name);
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
        return client_abort(&h->client);
    client_send(&h->client, writer_slice(&w));
}

void http_piece(struct exchange *x, struct slice bytes)
{
    struct http_conn *h = x->conn;
    char size[24];
    bytes = slice_sub(bytes, 0, h->unsent < bytes.len ? (size_t)h->unsent : bytes.len);
    if (bytes.len == 0)
        return;
    if (h->unsent != HTTP_UNKNOWN_LENGTH)
        h->unsent -= bytes.len;
    if (h->chunks)
        client_send(&h->client, slice_of(size, (size_t)snprintf(size, sizeof size, "%zx\r\n", bytes.len)));
    client_send(&h->client, bytes);
    if (h->chunks)
        client_send(&h->client, SLICE_LITERAL("\r\n"));
}

void http_end(struct exchange *x)
{
    struct http_conn *h = x->conn;
    if (h->chunks && !is_to_head(x))
        client_send(&h->client, SLICE_LITERAL("0\r\n\r\n"));
    if (h->unsent && h->unsent != HTTP_UNKNOWN_LENGTH)
        return client_abort(&h->client); /* less than was promised */
    h->answered = true;
    if (h->state != ANSWER && h->last)
        client_finish(&h->client); /* the rest of a refused body is not waited for */
    else
        finish_answer(h);
}

void http_answer(struct exchange *x, unsigned status, const char *type, const char *fields, struct slice body)
{
    http_begin(x, status, type, fields, body.len);
    http_piece(x, body);
    http_end(x);
}

void http_refuse(struct exchange *x, unsigned status, const char *text)
{
    char body[256];
    int len = snprintf(body, sizeof body, "{\"error\":\"%s\"}", text);
    http_answer(x, status, "application/json", NULL, slice_of(body, (size_t)len));
}

bool http_is_full(const struct exchange *x)
{
    return client_is_full(&x->conn->client);
}

void http_upgraded(struct exchange *x)
{
    x->conn->state = RAW;
    client_look_again(&x->conn->client);
}

/* ---- queries ---- */

struct slice http_parameter(const struct exchange *x, const char *name)
{
    struct slice rest = x->query, part;
    while (slice_split(&rest, '&', &part)) {
        size_t equals = slice_find(part, '=');
        if (slice_is(slice_sub(part, 0, equals), name))
            return equals < part.len ? slice_from(part, equals + 1) : slice_of(part.at, 0);
    }
    return (struct slice){NULL, 0};
}

bool http_number(const struct exchange *x, const char *name, uint64_t otherwise, uint64_t max,
                 uint64_t *value)
{
    struct slice text = http_parameter(x, name);
    *value = otherwise;
    return !slice_present(text) || slice_u64(text, max, value);
}
