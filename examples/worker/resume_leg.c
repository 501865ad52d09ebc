/* SPDX-License-Identifier: MIT */
#include "examples/worker/resume_leg.h"

#include <stdio.h>

#include "examples/worker/bridge.h"
#include "examples/worker/call.h"
#include "examples/worker/web_server.h"
#include "spoa/proto/ws_handshake.h"

#define REPEAT_EVERY 25.0 /* seconds: a browser sees no Ping, and is to hear something within a minute */

/* ---- the request ---- */

static void refuse(struct bridge *b, unsigned status)
{
    b->waiting = false;
    if (b->leg.binding != RESUME_BY_BROWSER)
        return http_refuse(&b->ws.x, status, "the tunnel cannot go on here");
    ws_conn_open(&b->ws, SLICE_LITERAL(CELL_RESUME_SUBPROTOCOL)); /* a page cannot read a status */
    ws_conn_end(&b->ws, CELL_RESUME_CLOSE_REFUSED + status, "");
}

static enum cell_resume_found find(struct bridge *b)
{
    const struct http_head *head = b->ws.x.head;
    b->leg.binding = RESUME_BY_HEADER;
    if (slice_present(http_get(head, CELL_RESUME_HEADER)))
        return cell_resume_read_head(head, CELL_RESUME_REQUEST, &b->leg.terms);
    b->leg.binding = RESUME_BY_BROWSER;
    if (!ws_handshake_offers(http_get(head, "Sec-WebSocket-Protocol"),
                             SLICE_LITERAL(CELL_RESUME_SUBPROTOCOL)))
        return CELL_RESUME_ABSENT;
    return cell_resume_read_query(b->ws.x.query, &b->leg.terms);
}

bool resume_leg_read(struct bridge *b)
{
    enum cell_resume_found found = b->dialect->resume ? find(b) : CELL_RESUME_ABSENT;
    if (found == CELL_RESUME_ABSENT)
        b->leg.binding = RESUME_NONE;
    if (found == CELL_RESUME_MALFORMED)
        refuse(b, 400);
    return found != CELL_RESUME_MALFORMED;
}

void resume_leg_ask(struct bridge *b, const struct manager_message *create)
{
    const struct cell_resume_terms *terms = &b->leg.terms;
    struct manager_message m = *create;
    snprintf(b->id, sizeof b->id, "%.*s", SLICE_PRINTF(terms->tunnel));
    m.type = MANAGER_RESUME;
    m.id = slice_text(b->id);
    m.flags = terms->has_recv ? MANAGER_RECEIVED : 0;
    m.number = terms->attempt;
    m.since = terms->recv;
    m.buffer = terms->buffer < UINT32_MAX ? (uint32_t)terms->buffer : UINT32_MAX;
    manager_client_put(&b->manager, &m);
}

bool resume_leg_lost(struct bridge *b)
{
    if (!b->leg.binding || !b->waiting)
        return false;
    refuse(b, 503);
    return true;
}

static void put_field(struct bridge *b, const struct cell_resume_terms *terms)
{
    struct writer w = writer_of(b->leg.fields, sizeof b->leg.fields - 1); /* a NUL stays behind it */
    cell_resume_put_field(&w, terms);
}

/* It is over: the caller may wait for nothing but to hear that its own end was consumed. */
static void refuse_over(struct bridge *b, uint64_t consumed)
{
    put_field(b, &(struct cell_resume_terms){.recv = consumed, .has_recv = true});
    http_answer(&b->ws.x, 410, "application/json", b->leg.fields,
                SLICE_LITERAL("{\"error\":\"the tunnel has ended\"}"));
}

static void end_leg(struct bridge *b, enum cell_resume_close code)
{
    ws_conn_end(&b->ws, code, cell_resume_reason(code));
}

bool resume_leg_error(struct bridge *b, const struct manager_message *m)
{
    enum manager_code code = (enum manager_code)m->code;
    if (!b->leg.binding)
        return false;
    if (b->waiting && code == MANAGER_OVER && b->leg.binding == RESUME_BY_HEADER)
        refuse_over(b, m->number);
    else if (b->waiting)
        refuse(b, call_status(code));
    else if (code == MANAGER_WRONG)
        end_leg(b, CELL_RESUME_CLOSE_PROTOCOL);
    else if (code == MANAGER_TOO_BIG)
        end_leg(b, CELL_RESUME_CLOSE_TOO_BIG);
    else
        ws_conn_end(&b->ws, 1011, "session manager failed");
    return true;
}

/* ---- to the client ---- */

static void say(struct bridge *b, enum cell_resume_say what, uint64_t number)
{
    uint8_t memory[CELL_RESUME_TEXT_MAX];
    struct writer w = writer_of(memory, sizeof memory);
    if (b->leg.binding == RESUME_BY_HEADER) {
        cell_resume_put_pong(&w, what, number);
        ws_conn_control(&b->ws, WS_PONG, writer_slice(&w));
    } else {
        cell_resume_put_message(&w, what, number);
        ws_conn_send(&b->ws, WS_TEXT, writer_slice(&w), (struct slice){NULL, 0});
    }
}

static void repeat_due(void *owner)
{
    struct bridge *b = owner;
    if (!b->leg.begun)
        say(b, CELL_RESUME_RECV, b->leg.told);
    loop_timer_set(&b->leg.repeat, REPEAT_EVERY);
}

static struct cell_resume_terms accepted(const struct manager_message *m)
{
    return (struct cell_resume_terms){
        .recv = m->since, .has_recv = true, .next = m->number, .buffer = m->buffer};
}

static void accept_by_header(struct bridge *b, const struct manager_message *m)
{
    struct cell_resume_terms terms = accepted(m);
    put_field(b, &terms);
    b->ws.fields = b->leg.fields;
    ws_conn_open(&b->ws, (struct slice){NULL, 0});
}

static void accept_browser(struct bridge *b, const struct manager_message *m)
{
    uint8_t memory[CELL_RESUME_TEXT_MAX];
    struct writer w = writer_of(memory, sizeof memory);
    struct cell_resume_terms terms = accepted(m);
    cell_resume_put_greeting(&w, &terms);
    ws_conn_open(&b->ws, SLICE_LITERAL(CELL_RESUME_SUBPROTOCOL));
    ws_conn_send(&b->ws, WS_TEXT, writer_slice(&w), (struct slice){NULL, 0});
    if (!ws_conn_is_open(&b->ws))
        return;
    loop_timer_open(&b->leg.repeat, web_server_loop(web_server_of(b->ws.x.conn)), repeat_due, b);
    loop_timer_set(&b->leg.repeat, REPEAT_EVERY);
}

static void send_part(struct bridge *b, const struct manager_message *m)
{
    bool last = m->flags & MANAGER_LAST;
    ws_conn_begin(&b->ws, b->leg.begun ? WS_CONTINUATION : WS_BINARY, last, m->bytes.len);
    ws_conn_piece(&b->ws, m->bytes);
    b->leg.begun = !last;
}

static void acknowledge(struct bridge *b, uint64_t number)
{
    b->leg.told = number;
    say(b, CELL_RESUME_RECV, number);
    if (b->leg.closing && number >= b->leg.closing)
        ws_conn_end(&b->ws, b->leg.code, "");
}

static void end(struct bridge *b, uint64_t number)
{
    b->leg.ended = number;
    say(b, CELL_RESUME_END, number);
    ws_conn_close_first(&b->ws, b->dialect->resume->end.code, slice_text(b->dialect->resume->end.reason));
}

static void detached(struct bridge *b, enum manager_code code)
{
    if (code == MANAGER_TAKEN_OVER)
        end_leg(b, CELL_RESUME_CLOSE_TAKEN);
    else
        ws_conn_end(&b->ws, 1011, "session manager failed");
}

static void on_open(struct bridge *b, const struct manager_message *m)
{
    if (m->type == MANAGER_DETACHED)
        detached(b, (enum manager_code)m->code);
    else if (m->type == MANAGER_ACKNOWLEDGE)
        acknowledge(b, m->number);
    else if (b->leg.closing)
        return; /* the client listens no more */
    else if (m->type == MANAGER_ITEM)
        send_part(b, m);
    else if (m->type == MANAGER_EXIT)
        b->dialect->resume->tell_exit(b, m);
    else if (m->type == MANAGER_END)
        end(b, m->number);
}

bool resume_leg_message(struct bridge *b, const struct manager_message *m)
{
    if (!b->leg.binding)
        return false;
    b->leg.told = m->type == MANAGER_RESUMED ? m->since : b->leg.told;
    if (m->type != MANAGER_RESUMED && ws_conn_is_open(&b->ws))
        on_open(b, m);
    else if (m->type == MANAGER_RESUMED && web_server_is_draining(web_server_of(b->ws.x.conn)))
        refuse(b, 503); /* since it was asked for: it goes on elsewhere */
    else if (m->type == MANAGER_RESUMED && b->leg.binding == RESUME_BY_HEADER)
        accept_by_header(b, m);
    else if (m->type == MANAGER_RESUMED)
        accept_browser(b, m);
    return true;
}

/* ---- from the client ---- */

static void hear(struct bridge *b, enum cell_resume_say what, uint64_t number)
{
    if (what == CELL_RESUME_RECV)
        manager_client_put(&b->manager,
                           &(struct manager_message){.type = MANAGER_ACKNOWLEDGE, .number = number});
    else if (what == CELL_RESUME_END)
        b->leg.mark = number;
}

static void pass_text(struct bridge *b)
{
    struct manager_message m = {.type = MANAGER_MESSAGE, .flags = MANAGER_LAST};
    m.size = b->leg.size < UINT32_MAX ? (uint32_t)b->leg.size : UINT32_MAX;
    struct json *doc = bridge_parse(b);
    if (doc && !b->dialect->resume->read_resize(doc, &m.cols, &m.rows))
        m.cols = m.rows = 0;
    json_free(doc);
    manager_client_put(&b->manager, &m);
}

/* A text is read whole before it is known whose it is. */
static void on_text(struct bridge *b, const struct ws_data *data)
{
    uint64_t number = 0;
    b->leg.size = (data->first ? 0 : b->leg.size) + data->bytes.len;
    if (!bridge_gather(b, data))
        return;
    if (b->leg.binding != RESUME_BY_BROWSER || !cell_resume_is_message(buffer_slice(&b->text))) {
        b->leg.mark = 0;
        return pass_text(b);
    }
    enum cell_resume_say what = cell_resume_read_message(buffer_slice(&b->text), &number);
    buffer_free(&b->text);
    if (what == CELL_RESUME_NOTHING)
        return end_leg(b, CELL_RESUME_CLOSE_PROTOCOL);
    hear(b, what, number);
}

void resume_leg_data(struct bridge *b, const struct ws_data *data)
{
    if (b->ws.closing)
        return; /* it had not seen our Close yet */
    if (data->opcode == WS_TEXT)
        return on_text(b, data);
    b->leg.mark = 0;
    manager_client_put(&b->manager, &(struct manager_message){.type = MANAGER_MESSAGE,
                                                              .flags = data->last ? MANAGER_LAST : 0,
                                                              .bytes = data->bytes});
}

/* A page can say nothing behind the session's Close: its answer, which has the same code, acknowledges that. A Close
 * with another one was on its way before, and whoever sent it may not have heard of the end. */
static bool answers_end(const struct bridge *b)
{
    return b->leg.ended && b->leg.binding == RESUME_BY_BROWSER &&
           b->ws.decoder.close_code == b->dialect->resume->end.code;
}

/* A Close behind a mark is an item: it is answered when the session manager has it. Any other ends the leg alone. */
static bool on_close(struct bridge *b)
{
    if (answers_end(b))
        hear(b, CELL_RESUME_RECV, b->leg.ended);
    if (!b->leg.mark)
        return false;
    manager_client_put(&b->manager, &(struct manager_message){.type = MANAGER_END, .number = b->leg.mark});
    if (b->leg.ended)
        return false; /* the two have crossed: the client hears no more */
    b->leg.closing = b->leg.mark;
    b->leg.code = b->ws.decoder.close_code;
    return true;
}

bool resume_leg_control(struct bridge *b, enum ws_opcode opcode, struct slice payload)
{
    uint64_t number = 0;
    if (opcode == WS_CLOSE)
        return on_close(b);
    if (b->leg.binding != RESUME_BY_HEADER || !cell_resume_is_own(payload))
        return false;
    if (opcode == WS_PING) {
        end_leg(b, CELL_RESUME_CLOSE_PROTOCOL);
        return true;
    }
    enum cell_resume_say what = cell_resume_read_pong(payload, &number);
    hear(b, what, number);
    return true;
}

void resume_leg_close(struct resume_leg *leg)
{
    loop_timer_close(&leg->repeat);
}
