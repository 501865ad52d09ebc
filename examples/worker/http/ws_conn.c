/* SPDX-License-Identifier: MIT */
#include "examples/worker/http/ws_conn.h"

#include "examples/worker/http/web_server.h"
#include "spoa/proto/ws_handshake.h"

#define PIECE      16384
#define HELD_LIMIT 1024
#define WHOLE \
    16384 /* of a shorter frame nothing is taken until it is complete: who sends it again sends it whole */
#define CLOSE_WAIT  (5 * SECOND) /* for the answer to a Close that was sent first */
#define LAST_CHANCE SECOND       /* for a peer that was silent to be heard after all */

static void tell_left(struct ws_conn *w)
{
    w->open = false;
    loop_timer_close(&w->tick);
    if (w->told_left)
        return;
    w->told_left = true;
    w->left(w);
}

/* ---- out ---- */

bool ws_conn_is_open(const struct ws_conn *w)
{
    return w->open;
}

bool ws_conn_is_full(const struct ws_conn *w)
{
    return http_is_full(&w->x);
}

void ws_conn_control(struct ws_conn *w, enum ws_opcode opcode, struct slice payload)
{
    uint8_t frame[WS_CONTROL_FRAME_MAX];
    if (w->closing)
        return;
    struct slice s = slice_of(frame, ws_encode_control(frame, opcode, payload, NULL));
    if (w->frame_left == 0)
        http_send(w->x.conn, s);
    else if (!buffer_put(&w->held, s))
        return; /* a peer that pings faster than it reads gets fewer answers (section 5.5.3) */
}

void ws_conn_begin(struct ws_conn *w, enum ws_opcode opcode, bool fin, uint64_t length)
{
    uint8_t head[WS_HEAD_MAX];
    struct ws_frame frame = {.opcode = opcode, .fin = fin, .length = length};
    http_send(w->x.conn, slice_of(head, ws_encode_head(head, &frame)));
    w->frame_left = length;
}

void ws_conn_piece(struct ws_conn *w, struct slice bytes)
{
    http_send(w->x.conn, bytes);
    w->frame_left -= bytes.len;
    if (w->frame_left)
        return;
    http_send(w->x.conn, buffer_slice(&w->held));
    buffer_free(&w->held);
}

/* An answer to a peer that is being sent a frame comes behind that. As with Pings: who asks faster than it reads
 * gets fewer. */
static void hold(struct ws_conn *w, enum ws_opcode opcode, struct slice head, struct slice bytes)
{
    uint8_t start[WS_HEAD_MAX];
    struct ws_frame frame = {.opcode = opcode, .fin = true, .length = head.len + bytes.len};
    struct slice s = slice_of(start, ws_encode_head(start, &frame));
    size_t len = s.len + head.len + bytes.len, room;
    uint8_t *at = buffer_room(&w->held, len, &room);

    if (!at)
        return;
    struct writer whole = writer_of(at, room);
    writer_put(&whole, s);
    writer_put(&whole, head);
    writer_put(&whole, bytes);
    buffer_commit(&w->held, len);
}

void ws_conn_send(struct ws_conn *w, enum ws_opcode opcode, struct slice head, struct slice bytes)
{
    if (!w->open || w->closing)
        return;
    if (w->frame_left)
        return hold(w, opcode, head, bytes);
    ws_conn_begin(w, opcode, true, head.len + bytes.len);
    ws_conn_piece(w, head);
    if (bytes.len)
        ws_conn_piece(w, bytes);
}

/* The answer to our Close is not waited for longer than for the connection's end. */
void ws_conn_end(struct ws_conn *w, unsigned code, const char *reason)
{
    uint8_t frame[WS_CONTROL_FRAME_MAX];
    if (!w->open)
        return;
    tell_left(w);
    if (w->frame_left)
        return stream_close(http_stream(w->x.conn));
    if (w->closing)
        return http_finish(w->x.conn);
    http_send(w->x.conn, slice_of(frame, ws_encode_close(frame, code, slice_text(reason), NULL)));
    http_finish(w->x.conn);
}

void ws_conn_close_first(struct ws_conn *w, unsigned code, struct slice reason)
{
    uint8_t frame[WS_CONTROL_FRAME_MAX];
    http_send(w->x.conn, slice_of(frame, ws_encode_close(frame, code, reason, NULL)));
    w->closing = true;
    loop_timer_set(&w->tick, CLOSE_WAIT);
}

void ws_conn_pause(struct ws_conn *w, bool paused)
{
    w->heard = loop_clock();
    http_pause(w->x.conn, paused);
}

/* ---- in ---- */

static void give(struct ws_conn *w, const struct ws_piece *piece)
{
    const struct ws_frame *frame = &w->decoder.frame;
    uint8_t plain[PIECE];
    size_t done = 0;
    do {
        struct slice part = slice_sub(piece->bytes, done, sizeof plain);
        ws_mask(plain, part.at, part.len, frame->mask, piece->offset + done);
        done += part.len;
        bool last = piece->last && frame->fin && done == piece->bytes.len;
        struct ws_data data = {w->opcode, slice_of(plain, part.len), w->begins, last};
        w->begins = false;
        w->data(w, &data);
    } while (w->open && done < piece->bytes.len);
}

static void begin_frame(struct ws_conn *w)
{
    const struct ws_frame *frame = &w->decoder.frame;
    if (frame->opcode != WS_CONTINUATION) {
        w->opcode = frame->opcode;
        w->begins = true;
    }
    if (w->head)
        w->head(w, frame);
}

static void on_control(struct ws_conn *w)
{
    if (w->control && w->control(w, w->decoder.frame.opcode, ws_control_payload(&w->decoder)))
        return;
    if (w->decoder.frame.opcode == WS_PING)
        ws_conn_control(w, WS_PONG, ws_control_payload(&w->decoder));
    else if (w->decoder.frame.opcode == WS_CLOSE)
        ws_conn_end(w, w->decoder.close_code, "");
}

static size_t raw(struct http_exchange *x, struct slice bytes)
{
    struct ws_conn *w = (struct ws_conn *)x;
    struct slice in = bytes;
    struct ws_piece piece;
    w->heard = loop_clock();
    w->doubted = false;
    while (w->open && !http_is_paused(w->x.conn)) {
        enum ws_event event = ws_decode(&w->decoder, &in, &piece);
        if (event == WS_MORE)
            break;
        if (event == WS_HEAD)
            begin_frame(w);
        else if (event == WS_PIECE)
            give(w, &piece);
        else if (event == WS_CONTROL)
            on_control(w);
        else
            ws_conn_end(w, w->decoder.close_code, w->decoder.why);
    }
    return bytes.len - in.len;
}

static void on_room(struct http_exchange *x)
{
    struct ws_conn *w = (struct ws_conn *)x;
    if (w->open && w->room)
        w->room(w);
}

static void on_leave(struct http_exchange *x)
{
    ws_conn_end((struct ws_conn *)x, 1001, "worker is stopping");
}

static void tick_due(void *owner)
{
    struct ws_conn *w = owner;
    bool silent = w->silence_max && !http_is_paused(w->x.conn) && loop_clock() - w->heard > w->silence_max;
    if (w->closing)
        return ws_conn_end(w, WS_NO_CODE, "");
    if (silent && w->doubted)
        return stream_close(http_stream(w->x.conn));
    ws_conn_control(w, WS_PING, (struct slice){NULL, 0});
    w->doubted = silent; /* where we were stopped ourselves, what it has said is there and not read yet */
    loop_timer_set(&w->tick, silent ? LAST_CHANCE : WS_PING_EVERY);
}

/* ---- opening ---- */

bool ws_conn_check(struct http_exchange *x)
{
    struct slice key;
    struct fail why;
    unsigned status = ws_handshake_check_request(x->head, &key, &why);
    if (web_server_is_draining(web_server_of(x->conn)))
        http_refuse(x, 503, "draining");
    else if (status == 426)
        http_answer(x, status, "application/json", "Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\n",
                    SLICE_LITERAL("{\"error\":\"not a WebSocket of version 13\"}"));
    else if (status)
        http_refuse(x, status, "not a WebSocket upgrade");
    else
        return true;
    return false;
}

void ws_conn_open(struct ws_conn *w, struct slice protocol)
{
    uint8_t memory[512];
    struct writer head = writer_of(memory, sizeof memory);
    struct slice key = http_get(w->x.head, "Sec-WebSocket-Key");
    w->decoder = ws_decoder_of(WS_CLIENT, WHOLE);
    w->held = buffer_with_limit(HELD_LIMIT);
    w->open = true;
    w->x.raw = raw;
    w->x.room = on_room;
    w->x.leave = on_leave;
    bool put = ws_handshake_put_answer(&head, key, protocol);
    if (w->fields)
        writer_text(&head, w->fields);
    writer_text(&head, "\r\n");
    if (!put || head.full)
        return stream_close(http_stream(w->x.conn));
    http_send(w->x.conn, writer_slice(&head));
    w->heard = loop_clock();
    loop_timer_open(&w->tick, http_stream(w->x.conn)->loop, tick_due, w);
    loop_timer_set(&w->tick, WS_PING_EVERY);
    http_upgraded(&w->x);
}

void ws_conn_close(struct ws_conn *w)
{
    if (w->open)
        tell_left(w);
    buffer_free(&w->held);
}
