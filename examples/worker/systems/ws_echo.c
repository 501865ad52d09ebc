/* SPDX-License-Identifier: MIT */
/* Sends every data frame back as it came: type, fragments and bytes. Nothing is collected. */
#include "examples/worker/http/ws_conn.h"
#include "examples/worker/systems/serve.h"

#define MESSAGE_MAX (16u << 20)

struct echo {
    struct ws_conn ws;
    uint64_t message; /* bytes of it so far, with the frame that has begun */
};

static void on_end(struct http_exchange *x)
{
    struct slice offered = http_get(x->head, "Sec-WebSocket-Protocol"), first = {NULL, 0};
    if (!ws_conn_check(x))
        return;
    if (slice_present(http_parameter(x, "protocol")) && slice_split(&offered, ',', &first))
        first = slice_trim(first);
    ws_conn_open((struct ws_conn *)x, first);
}

static void on_head(struct ws_conn *w, const struct ws_frame *frame)
{
    struct echo *e = (struct echo *)w;
    if (frame->opcode != WS_CONTINUATION)
        e->message = 0;
    if (frame->length > MESSAGE_MAX - e->message)
        return ws_conn_end(w, 1009, "message too big");
    e->message += frame->length;
    ws_conn_begin(w, frame->opcode, frame->fin, frame->length);
}

static void on_data(struct ws_conn *w, const struct ws_data *data)
{
    ws_conn_piece(w, data->bytes);
    if (ws_conn_is_full(w))
        ws_conn_pause(w, true);
}

static void on_room(struct ws_conn *w)
{
    ws_conn_pause(w, false);
}

static void on_left(struct ws_conn *w)
{
    (void)w;
}

static void on_close(struct http_exchange *x)
{
    ws_conn_close((struct ws_conn *)x);
}

struct http_exchange *serve_ws_echo(struct http_conn *h, const struct slice *parts)
{
    struct echo *e = http_exchange_new(sizeof *e, h);
    (void)parts;
    if (!e)
        return NULL;
    e->ws.x.end = on_end;
    e->ws.x.close = on_close;
    e->ws.head = on_head;
    e->ws.data = on_data;
    e->ws.room = on_room;
    e->ws.left = on_left;
    return &e->ws.x;
}
