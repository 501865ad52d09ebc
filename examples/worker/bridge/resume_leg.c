/* SPDX-License-Identifier: MIT */
#include "examples/worker/bridge/resume_leg.h"

#include "examples/worker/bridge/call.h"
#include "examples/worker/http/web_server.h"
#include "spoa/proto/ws_handshake.h"

#define REPEAT_EVERY (25 * SECOND) /* a browser sees no Ping, and is to hear something within a minute */

/* ---- the request ---- */

static void refuse(struct resume_leg *leg, unsigned status)
{
    leg->waiting = false;
    if (leg->binding != RESUME_BY_BROWSER)
        return http_refuse(&leg->ws->x, status, "the tunnel cannot go on here");
    ws_conn_open(leg->ws, SLICE_LITERAL(CELL_RESUME_SUBPROTOCOL)); /* a page cannot read a status */
    ws_conn_end(leg->ws, CELL_RESUME_CLOSE_REFUSED + status, "");
}

static enum cell_resume_found find(struct resume_leg *leg)
{
    const struct http_head *head = leg->ws->x.head;
    leg->binding = RESUME_BY_HEADER;
    if (slice_present(http_get(head, CELL_RESUME_HEADER)))
        return cell_resume_read_head(head, CELL_RESUME_REQUEST, &leg->terms);
    leg->binding = RESUME_BY_BROWSER;
    if (!ws_handshake_offers(http_get(head, "Sec-WebSocket-Protocol"),
                             SLICE_LITERAL(CELL_RESUME_SUBPROTOCOL)))
        return CELL_RESUME_ABSENT;
    return cell_resume_read_query(leg->ws->x.query, &leg->terms);
}

bool resume_leg_read(struct resume_leg *leg)
{
    enum cell_resume_found found = leg->dialect ? find(leg) : CELL_RESUME_ABSENT;
    if (found == CELL_RESUME_ABSENT)
        leg->binding = RESUME_NONE;
    if (found == CELL_RESUME_MALFORMED)
        refuse(leg, 400);
    return found != CELL_RESUME_MALFORMED;
}

void resume_leg_ask(struct resume_leg *leg, const struct manager_message *create)
{
    const struct cell_resume_terms *terms = &leg->terms;
    struct manager_message m = *create;
    m.type = MANAGER_RESUME;
    m.id = terms->tunnel;
    m.flags = terms->has_recv ? MANAGER_RECEIVED : 0;
    m.number = terms->attempt;
    m.since = terms->recv;
    m.buffer = terms->buffer < UINT32_MAX ? (uint32_t)terms->buffer : UINT32_MAX;
    leg->waiting = true;
    manager_client_put(leg->manager, &m);
}

bool resume_leg_lost(struct resume_leg *leg)
{
    if (!leg->binding || !leg->waiting)
        return false;
    refuse(leg, 503);
    return true;
}

static void put_field(struct resume_leg *leg, const struct cell_resume_terms *terms)
{
    struct writer w = writer_of(leg->fields, sizeof leg->fields - 1); /* a NUL stays behind it */
    cell_resume_put_field(&w, terms);
}

/* It is over: the caller may wait for nothing but to hear that its own end was consumed. */
static void refuse_over(struct resume_leg *leg, uint64_t consumed)
{
    leg->waiting = false;
    put_field(leg, &(struct cell_resume_terms){.recv = consumed, .has_recv = true});
    http_answer(&leg->ws->x, 410, "application/json", leg->fields,
                SLICE_LITERAL("{\"error\":\"the tunnel has ended\"}"));
}

static void end_leg(struct resume_leg *leg, enum cell_resume_close code)
{
    ws_conn_end(leg->ws, code, cell_resume_reason(code));
}

bool resume_leg_error(struct resume_leg *leg, const struct manager_message *m)
{
    enum manager_code code = (enum manager_code)m->code;
    if (!leg->binding)
        return false;
    if (leg->waiting && code == MANAGER_OVER && leg->binding == RESUME_BY_HEADER)
        refuse_over(leg, m->number);
    else if (leg->waiting)
        refuse(leg, call_status(code));
    else if (code == MANAGER_WRONG)
        end_leg(leg, CELL_RESUME_CLOSE_PROTOCOL);
    else if (code == MANAGER_TOO_BIG)
        end_leg(leg, CELL_RESUME_CLOSE_TOO_BIG);
    else
        ws_conn_end(leg->ws, 1011, "session manager failed");
    return true;
}

/* ---- to the client ---- */

static void say(struct resume_leg *leg, enum cell_resume_say what, uint64_t number)
{
    uint8_t memory[CELL_RESUME_TEXT_MAX];
    struct writer w = writer_of(memory, sizeof memory);
    if (leg->binding == RESUME_BY_HEADER) {
        cell_resume_put_pong(&w, what, number);
        ws_conn_control(leg->ws, WS_PONG, writer_slice(&w));
    } else {
        cell_resume_put_message(&w, what, number);
        ws_conn_send(leg->ws, WS_TEXT, writer_slice(&w), (struct slice){NULL, 0});
    }
}

static void repeat_due(void *owner)
{
    struct resume_leg *leg = owner;
    if (!leg->begun)
        say(leg, CELL_RESUME_RECV, leg->told);
    loop_timer_set(&leg->repeat, REPEAT_EVERY);
}

static struct cell_resume_terms accepted(const struct manager_message *m)
{
    return (struct cell_resume_terms){
        .recv = m->since, .has_recv = true, .next = m->number, .buffer = m->buffer};
}

static void accept_by_header(struct resume_leg *leg, const struct manager_message *m)
{
    struct cell_resume_terms terms = accepted(m);
    put_field(leg, &terms);
    leg->ws->fields = leg->fields;
    ws_conn_open(leg->ws, (struct slice){NULL, 0});
}

static void accept_browser(struct resume_leg *leg, const struct manager_message *m)
{
    uint8_t memory[CELL_RESUME_TEXT_MAX];
    struct writer w = writer_of(memory, sizeof memory);
    struct cell_resume_terms terms = accepted(m);
    cell_resume_put_greeting(&w, &terms);
    ws_conn_open(leg->ws, SLICE_LITERAL(CELL_RESUME_SUBPROTOCOL));
    ws_conn_send(leg->ws, WS_TEXT, writer_slice(&w), (struct slice){NULL, 0});
    if (!ws_conn_is_open(leg->ws))
        return;
    loop_timer_open(&leg->repeat, web_server_loop(web_server_of(leg->ws->x.conn)), repeat_due, leg);
    loop_timer_set(&leg->repeat, REPEAT_EVERY);
}

static void send_part(struct resume_leg *leg, const struct manager_message *m)
{
    bool last = m->flags & MANAGER_LAST;
    ws_conn_begin(leg->ws, leg->begun ? WS_CONTINUATION : WS_BINARY, last, m->bytes.len);
    ws_conn_piece(leg->ws, m->bytes);
    leg->begun = !last;
}

static void acknowledge(struct resume_leg *leg, uint64_t number)
{
    leg->told = number;
    say(leg, CELL_RESUME_RECV, number);
    if (leg->closing && number >= leg->closing)
        ws_conn_end(leg->ws, leg->code, "");
}

static void end(struct resume_leg *leg, uint64_t number)
{
    leg->ended = number;
    say(leg, CELL_RESUME_END, number);
    ws_conn_close_first(leg->ws, leg->dialect->end.code, slice_text(leg->dialect->end.reason));
}

static void detached(struct resume_leg *leg, enum manager_code code)
{
    if (code == MANAGER_TAKEN_OVER)
        end_leg(leg, CELL_RESUME_CLOSE_TAKEN);
    else
        ws_conn_end(leg->ws, 1011, "session manager failed");
}

static void on_open(struct resume_leg *leg, const struct manager_message *m)
{
    if (m->type == MANAGER_DETACHED)
        detached(leg, (enum manager_code)m->code);
    else if (m->type == MANAGER_ACKNOWLEDGE)
        acknowledge(leg, m->number);
    else if (leg->closing)
        return; /* the client listens no more */
    else if (m->type == MANAGER_ITEM)
        send_part(leg, m);
    else if (m->type == MANAGER_EXIT)
        leg->dialect->tell_exit(leg->ws, m);
    else if (m->type == MANAGER_END)
        end(leg, m->number);
}

bool resume_leg_message(struct resume_leg *leg, const struct manager_message *m)
{
    if (!leg->binding)
        return false;
    leg->told = m->type == MANAGER_RESUMED ? m->since : leg->told;
    if (m->type != MANAGER_RESUMED && ws_conn_is_open(leg->ws))
        on_open(leg, m);
    else if (m->type == MANAGER_RESUMED && web_server_is_draining(web_server_of(leg->ws->x.conn)))
        refuse(leg, 503); /* since it was asked for: it goes on elsewhere */
    else if (m->type == MANAGER_RESUMED && leg->binding == RESUME_BY_HEADER)
        accept_by_header(leg, m);
    else if (m->type == MANAGER_RESUMED)
        accept_browser(leg, m);
    leg->waiting = false;
    return true;
}

/* ---- from the client ---- */

static void hear(struct resume_leg *leg, enum cell_resume_say what, uint64_t number)
{
    if (what == CELL_RESUME_RECV)
        manager_client_put(leg->manager,
                           &(struct manager_message){.type = MANAGER_ACKNOWLEDGE, .number = number});
    else if (what == CELL_RESUME_END)
        leg->mark = number;
}

static void pass_text(struct resume_leg *leg)
{
    struct manager_message m = {.type = MANAGER_MESSAGE, .flags = MANAGER_LAST};
    m.size = leg->size < UINT32_MAX ? (uint32_t)leg->size : UINT32_MAX;
    struct json *doc = text_message_parse(leg->text);
    if (doc && !leg->dialect->read_resize(doc, &m.cols, &m.rows))
        m.cols = m.rows = 0;
    json_free(doc);
    manager_client_put(leg->manager, &m);
}

/* A text is read whole before it is known whose it is. */
static void on_text(struct resume_leg *leg, const struct ws_data *data)
{
    uint64_t number = 0;
    leg->size = (data->first ? 0 : leg->size) + data->bytes.len;
    if (!text_message_add(leg->text, data))
        return;
    if (leg->binding != RESUME_BY_BROWSER || !cell_resume_is_message(buffer_slice(&leg->text->bytes))) {
        leg->mark = 0;
        return pass_text(leg);
    }
    enum cell_resume_say what = cell_resume_read_message(buffer_slice(&leg->text->bytes), &number);
    text_message_free(leg->text);
    if (what == CELL_RESUME_NOTHING)
        return end_leg(leg, CELL_RESUME_CLOSE_PROTOCOL);
    hear(leg, what, number);
}

void resume_leg_data(struct resume_leg *leg, const struct ws_data *data)
{
    if (leg->ws->closing)
        return; /* it had not seen our Close yet */
    if (data->opcode == WS_TEXT)
        return on_text(leg, data);
    leg->mark = 0;
    manager_client_put(leg->manager, &(struct manager_message){.type = MANAGER_MESSAGE,
                                                               .flags = data->last ? MANAGER_LAST : 0,
                                                               .bytes = data->bytes});
}

/* A page can say nothing behind the session's Close: its answer, which has the same code, acknowledges that. A Close
 * with another one was on its way before, and whoever sent it may not have heard of the end. */
static bool answers_end(const struct resume_leg *leg)
{
    return leg->ended && leg->binding == RESUME_BY_BROWSER &&
           leg->ws->decoder.close_code == leg->dialect->end.code;
}

/* A Close behind a mark is an item: it is answered when the session manager has it. Any other ends the leg alone. */
static bool on_close(struct resume_leg *leg)
{
    if (answers_end(leg))
        hear(leg, CELL_RESUME_RECV, leg->ended);
    if (!leg->mark)
        return false;
    manager_client_put(leg->manager, &(struct manager_message){.type = MANAGER_END, .number = leg->mark});
    if (leg->ended)
        return false; /* the two have crossed: the client hears no more */
    leg->closing = leg->mark;
    leg->code = leg->ws->decoder.close_code;
    return true;
}

bool resume_leg_control(struct resume_leg *leg, enum ws_opcode opcode, struct slice payload)
{
    uint64_t number = 0;
    if (opcode == WS_CLOSE)
        return on_close(leg);
    if (leg->binding != RESUME_BY_HEADER || !cell_resume_is_own(payload))
        return false;
    if (opcode == WS_PING) {
        end_leg(leg, CELL_RESUME_CLOSE_PROTOCOL);
        return true;
    }
    enum cell_resume_say what = cell_resume_read_pong(payload, &number);
    hear(leg, what, number);
    return true;
}

void resume_leg_close(struct resume_leg *leg)
{
    loop_timer_close(&leg->repeat);
}
