/* SPDX-License-Identifier: MIT */
#include "examples/worker/bridge/bridge.h"

#include <stdio.h>

#include "examples/worker/bridge/worker_options.h"

/* ---- from the session manager ---- */

static void on_session(struct bridge *b, const struct manager_message *m)
{
    if (b->answers) {
        b->answers--;
        return;
    }
    b->waiting = false;
    b->replay_end = m->end;
    b->replaying = m->first < m->end;
    b->dialect->attached(b, m);
}

static void on_error(struct bridge *b, const struct manager_message *m)
{
    char text[MANAGER_TEXT_MAX + 1];
    snprintf(text, sizeof text, "%.*s", SLICE_PRINTF(m->text));
    if (resume_leg_error(&b->leg, m)) {
        b->waiting = false;
    } else if (b->waiting) {
        b->waiting = false;
        b->dialect->refused(b, (enum manager_code)m->code, text);
    } else if (b->dialect->error && ws_conn_is_open(&b->ws)) {
        b->dialect->error(b, (enum manager_code)m->code, text);
    }
}

static void on_message(void *user, const struct manager_message *m)
{
    struct bridge *b = user;
    if (m->type == MANAGER_SESSION)
        on_session(b, m);
    else if (m->type == MANAGER_ERROR)
        on_error(b, m);
    else if (resume_leg_message(&b->leg, m))
        b->waiting = false;
    else if (!ws_conn_is_open(&b->ws))
        return;
    else if (m->type == MANAGER_OUTPUT)
        b->dialect->output(b, m);
    else if (m->type == MANAGER_EXIT)
        b->dialect->ended(b, m);
    else if (m->type == MANAGER_DETACHED)
        b->dialect->detached(b, (enum manager_code)m->code);
    if (ws_conn_is_full(&b->ws))
        manager_client_pause(&b->manager, true);
}

static void on_manager_room(void *user)
{
    struct bridge *b = user;
    if (ws_conn_is_open(&b->ws))
        ws_conn_pause(&b->ws, false);
}

static void on_lost(void *user)
{
    struct bridge *b = user;
    if (!resume_leg_lost(&b->leg)) {
        if (b->waiting)
            b->dialect->refused(b, MANAGER_OUT_OF_MEMORY, "the session manager is not there");
        else
            ws_conn_end(&b->ws, 1011, "session manager lost");
    }
    b->waiting = false;
}

/* ---- from the client ---- */

static void on_data(struct ws_conn *w, const struct ws_data *data)
{
    struct bridge *b = (struct bridge *)w;
    if (b->leg.binding)
        resume_leg_data(&b->leg, data);
    else
        b->dialect->data(b, data);
    if (w->open && manager_client_is_full(&b->manager))
        ws_conn_pause(w, true);
}

static void on_room(struct ws_conn *w)
{
    manager_client_pause(&((struct bridge *)w)->manager, false);
}

static bool on_control(struct ws_conn *w, enum ws_opcode opcode, struct slice payload)
{
    struct bridge *b = (struct bridge *)w;
    return b->leg.binding && resume_leg_control(&b->leg, opcode, payload);
}

static void on_left(struct ws_conn *w)
{
    resume_leg_close(&((struct bridge *)w)->leg);
    manager_client_close(&((struct bridge *)w)->manager);
}

static void on_end(struct http_exchange *x)
{
    struct bridge *b = (struct bridge *)x;
    struct web_server *server = web_server_of(x->conn);
    if (!ws_conn_check(x))
        return;
    b->waiting = true;
    if (!manager_client_open(&b->manager, server, worker_options(x->conn)->manager))
        return on_lost(b);
    if (resume_leg_read(&b->leg))
        b->dialect->ask(b);
    else
        b->waiting = false;
}

static void on_close(struct http_exchange *x)
{
    struct bridge *b = (struct bridge *)x;
    b->waiting = false;
    ws_conn_close(&b->ws);
    resume_leg_close(&b->leg);
    manager_client_close(&b->manager);
    text_message_free(&b->text);
}

struct bridge *bridge_new(struct http_conn *h, const struct dialect *dialect, const char *scope,
                          struct slice id)
{
    struct bridge *b = http_exchange_new(sizeof *b, h);
    if (!b)
        return NULL;
    b->ws.x.end = on_end;
    b->ws.x.close = on_close;
    b->ws.data = on_data;
    b->ws.control = on_control;
    b->ws.room = on_room;
    b->ws.left = on_left;
    b->manager.message = on_message;
    b->manager.room = on_manager_room;
    b->manager.lost = on_lost;
    b->manager.user = b;
    b->dialect = dialect;
    b->text = text_message_empty();
    b->leg = (struct resume_leg){
        .ws = &b->ws, .manager = &b->manager, .text = &b->text, .dialect = dialect->resume};
    snprintf(b->scope, sizeof b->scope, "%s", scope);
    snprintf(b->id, sizeof b->id, "%.*s", SLICE_PRINTF(id));
    return b;
}

/* ---- for dialects ---- */

void bridge_accept(struct bridge *b)
{
    ws_conn_open(&b->ws, (struct slice){NULL, 0});
    if (web_server_is_draining(
            web_server_of(b->ws.x.conn))) /* since it was asked for: all others have been told */
        b->ws.x.leave(&b->ws.x);
}

void bridge_send_output(struct bridge *b, int tag, struct slice bytes, size_t max)
{
    uint8_t byte = (uint8_t)tag;
    while (bytes.len) {
        struct slice part = slice_sub(bytes, 0, max);
        ws_conn_send(&b->ws, WS_BINARY, slice_of(&byte, tag < 0 ? 0 : 1), part);
        bytes = slice_from(bytes, part.len);
    }
}

void bridge_send_text(struct bridge *b, const char *text)
{
    ws_conn_send(&b->ws, WS_TEXT, slice_text(text), (struct slice){NULL, 0});
}

struct slice bridge_untag(struct bridge *b, const struct ws_data *data)
{
    if (data->first)
        b->tag = BRIDGE_NO_TAG;
    if (b->tag != BRIDGE_NO_TAG || !data->bytes.len)
        return data->bytes;
    b->tag = data->bytes.at[0];
    return slice_from(data->bytes, 1);
}

void bridge_input(struct bridge *b, struct slice bytes)
{
    manager_client_put_input(&b->manager, bytes);
}

void bridge_resize(struct bridge *b, uint16_t cols, uint16_t rows)
{
    manager_client_put(&b->manager, &(struct manager_message){.type = MANAGER_RESIZE,
                                                              .scope = slice_text(b->scope),
                                                              .id = slice_text(b->id),
                                                              .cols = cols,
                                                              .rows = rows});
}

struct json *bridge_collect(struct bridge *b, const struct ws_data *data, bool *bad)
{
    struct json *doc = NULL;
    bool complete = text_message_add(&b->text, data);
    if (complete)
        doc = text_message_parse(&b->text);
    *bad = complete && !doc;
    return doc;
}

bool bridge_read_size(const struct json *doc, uint16_t *cols, uint16_t *rows)
{
    int64_t wide, high;
    const json_node *root = json_root(doc);
    if (!json_int(doc, json_member(root, "cols"), 1, UINT16_MAX, &wide) ||
        !json_int(doc, json_member(root, "rows"), 1, UINT16_MAX, &high))
        return false;
    *cols = (uint16_t)wide;
    *rows = (uint16_t)high;
    return true;
}

bool bridge_read_resize(struct bridge *b, const struct json *doc)
{
    uint16_t cols, rows;
    if (!bridge_read_size(doc, &cols, &rows))
        return false;
    bridge_resize(b, cols, rows);
    return true;
}
