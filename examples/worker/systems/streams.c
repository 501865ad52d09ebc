/* SPDX-License-Identifier: MIT */
/* Bodies that are never held: a pattern to download, a hash of what is uploaded, events one by one. */
#include <stdio.h>

#include "examples/worker/http/web_server.h"
#include "examples/worker/systems/digest.h"
#include "examples/worker/systems/serve.h"

/* ---- /bytes?n=N&chunked=1: byte i is i modulo 251 ---- */

#define PATTERN   251
#define BYTES_MAX (UINT64_C(1) << 40)

struct bytes {
    struct http_exchange x;
    uint64_t at, end;
};

static void bytes_room(struct http_exchange *x)
{
    struct bytes *b = (struct bytes *)x;
    uint8_t piece[PATTERN * 64];
    for (size_t i = 0; i < sizeof piece; i++)
        piece[i] = (uint8_t)((b->at + i) % PATTERN);
    while (b->at < b->end && !http_is_full(x)) { /* whole patterns, so that each piece begins alike */
        uint64_t left = b->end - b->at;
        size_t len = left < sizeof piece ? (size_t)left : sizeof piece;
        http_piece(x, slice_of(piece, len));
        b->at += len;
    }
    if (b->at == b->end)
        http_end(x);
}

static void bytes_end(struct http_exchange *x)
{
    struct bytes *b = (struct bytes *)x;
    if (!http_number(x, "n", 1024, BYTES_MAX, &b->end))
        return http_refuse(x, 400, "n is not a number of bytes");
    bool chunked = slice_is(http_parameter(x, "chunked"), "1");
    http_begin(x, 200, "application/octet-stream", NULL, chunked ? HTTP_UNKNOWN_LENGTH : b->end);
    if (slice_is(x->head->method, "HEAD"))
        return http_end(x);
    bytes_room(x);
}

struct http_exchange *serve_bytes(struct http_conn *h, const struct slice *parts)
{
    struct bytes *b = http_exchange_new(sizeof *b, h);
    (void)parts;
    if (!b)
        return NULL;
    b->x.end = bytes_end;
    b->x.room = bytes_room;
    return &b->x;
}

/* ---- /events?n=N&interval=100ms: server-sent events ---- */

#define EVENTS_MAX   1000000
#define INTERVAL_MAX 60000

struct events {
    struct http_exchange x;
    struct loop_timer timer;
    uint64_t sent, count, interval_ms;
    bool held; /* one is due, and waits for the client to take those before */
};

static void events_due(void *owner)
{
    struct events *e = owner;
    char text[96];
    e->held = http_is_full(&e->x);
    if (e->held)
        return;
    e->sent++;
    int len = snprintf(text, sizeof text, "id: %llu\ndata: {\"n\":%llu}\n\n", (unsigned long long)e->sent,
                       (unsigned long long)e->sent);
    http_piece(&e->x, slice_of(text, (size_t)len));
    if (e->sent >= e->count)
        http_end(&e->x);
    else
        loop_timer_set(&e->timer, e->interval_ms * MILLISECOND);
}

static void events_room(struct http_exchange *x)
{
    struct events *e = (struct events *)x;
    if (e->held)
        events_due(e);
}

static bool events_read(struct events *e)
{
    struct slice interval = http_parameter(&e->x, "interval");
    e->interval_ms = 100;
    if (interval.len > 2 && slice_is(slice_from(interval, interval.len - 2), "ms"))
        interval.len -= 2;
    return http_number(&e->x, "n", 10, EVENTS_MAX, &e->count) && e->count > 0 &&
           (!slice_present(interval) || slice_u64(interval, INTERVAL_MAX, &e->interval_ms));
}

static void events_end(struct http_exchange *x)
{
    struct events *e = (struct events *)x;
    if (!events_read(e))
        return http_refuse(x, 400, "n or interval is wrong");
    http_begin(x, 200, "text/event-stream", "Cache-Control: no-store\r\n", HTTP_UNKNOWN_LENGTH);
    loop_timer_open(&e->timer, web_server_loop(web_server_of(x->conn)), events_due, e);
    events_due(e);
}

static void events_close(struct http_exchange *x)
{
    loop_timer_close(&((struct events *)x)->timer);
}

struct http_exchange *serve_events(struct http_conn *h, const struct slice *parts)
{
    struct events *e = http_exchange_new(sizeof *e, h);
    (void)parts;
    if (!e)
        return NULL;
    e->x.end = events_end;
    e->x.room = events_room;
    e->x.leave = http_end;
    e->x.close = events_close;
    return &e->x;
}

/* ---- /upload: length and hash of the body ---- */

struct upload {
    struct http_exchange x;
    struct digest digest;
};

static void upload_body(struct http_exchange *x, struct slice piece)
{
    digest_add(&((struct upload *)x)->digest, piece);
}

static void upload_end(struct http_exchange *x)
{
    struct upload *u = (struct upload *)x;
    char hash[DIGEST_TEXT], text[160];
    if (!digest_text(&u->digest, hash))
        return http_refuse(x, 500, "out of memory");
    int len = snprintf(text, sizeof text, "{\"length\":%llu,\"sha256\":\"%s\"}\n",
                       (unsigned long long)u->digest.length, hash);
    http_answer(x, 200, "application/json", NULL, slice_of(text, (size_t)len));
}

static void upload_close(struct http_exchange *x)
{
    digest_free(&((struct upload *)x)->digest);
}

struct http_exchange *serve_upload(struct http_conn *h, const struct slice *parts)
{
    struct upload *u = http_exchange_new(sizeof *u, h);
    (void)parts;
    if (!u)
        return NULL;
    digest_begin(&u->digest);
    u->x.body = upload_body;
    u->x.end = upload_end;
    u->x.close = upload_close;
    return &u->x;
}
