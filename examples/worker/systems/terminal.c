/* SPDX-License-Identifier: MIT */
/*
 * A terminal of its own for each WebSocket: binary messages are its bytes, text messages are JSON:
 * {"type":"resize"} from the client, {"type":"exit"} to it. When the client leaves, the terminal is hung up.
 * When it is slow, the terminal waits. With Cell-Resume it belongs to the tunnel, whose id is its name.
 */
#include <stdio.h>
#include <sys/random.h>

#include "examples/worker/bridge/bridge.h"
#include "examples/worker/bridge/call.h"
#include "examples/worker/systems/serve.h"
#include "spoa/base/bytes/ascii.h"

#define SCOPE       "terminal"
#define FRAME_MAX   32768
#define COMMAND_MAX 4096
#define EXITED      "process exited"

/* Undoes percent-encoding, and '+' for a space; false when it is wrong or does not fit. */
static bool decode(struct slice text, struct writer *w)
{
    for (size_t i = 0; i < text.len; i++) {
        int value = text.at[i] == '+' ? ' ' : text.at[i];
        if (value == '%') {
            int high = text.len - i > 2 ? ascii_hex_value(text.at[i + 1]) : -1;
            int low = text.len - i > 2 ? ascii_hex_value(text.at[i + 2]) : -1;
            value = high < 0 || low < 0 ? 0 : high * 16 + low;
            i += 2;
        }
        if (value == 0)
            return false;
        writer_u8(w, (uint8_t)value);
    }
    return !w->full;
}

/* The command is split at spaces; there is no shell in between. */
static bool put_command(const struct http_exchange *x, struct writer *argv)
{
    char memory[COMMAND_MAX];
    struct writer w = writer_of(memory, sizeof memory);
    struct slice text = http_parameter(x, "command"), part;
    if (!decode(text.len ? text : SLICE_LITERAL("/bin/bash"), &w))
        return false;
    struct slice rest = writer_slice(&w);
    while (slice_split(&rest, ' ', &part))
        if (part.len)
            manager_put_string(argv, part);
    return !argv->full && argv->len > 1;
}

static void ask(struct bridge *b)
{
    uint8_t memory[COMMAND_MAX + 2];
    struct writer argv = writer_of(memory, sizeof memory);
    uint64_t cols, rows;
    uint32_t number = 0;
    if (!http_number(&b->ws.x, "cols", 80, UINT16_MAX, &cols) ||
        !http_number(&b->ws.x, "rows", 24, UINT16_MAX, &rows) || !put_command(&b->ws.x, &argv) ||
        getrandom(&number, sizeof number, 0) != sizeof number) {
        b->waiting = false;
        return http_refuse(&b->ws.x, 400, "cols, rows or command is wrong");
    }
    snprintf(b->id, sizeof b->id, "%08x", number);
    struct manager_message m = {.type = MANAGER_CREATE,
                                .scope = slice_text(b->scope),
                                .id = slice_text(b->id),
                                .kind = MANAGER_TERMINAL,
                                .flags = MANAGER_START_LATER,
                                .cols = (uint16_t)cols,
                                .rows = (uint16_t)rows,
                                .stall_ms = MANAGER_FOREVER,
                                .linger_ms = 0,
                                .argv = writer_slice(&argv)};
    if (b->leg.binding)
        return resume_leg_ask(&b->leg, &m);
    b->answers = 1;
    manager_client_put(&b->manager, &m);
    m.type = MANAGER_ATTACH;
    m.flags = MANAGER_EXCLUSIVE;
    manager_client_put(&b->manager, &m);
}

static void refused(struct bridge *b, enum manager_code code, const char *text)
{
    (void)text;
    http_refuse(&b->ws.x, call_status(code), "the terminal cannot be started");
}

static void attached(struct bridge *b, const struct manager_message *m)
{
    (void)m;
    bridge_accept(b);
}

static void output(struct bridge *b, const struct manager_message *m)
{
    bridge_send_output(b, -1, m->bytes, FRAME_MAX);
}

static void tell_exit(struct ws_conn *ws, const struct manager_message *m)
{
    char text[64];
    snprintf(text, sizeof text, "{\"type\":\"exit\",\"exit_code\":%u}", m->exit_code);
    ws_conn_send(ws, WS_TEXT, slice_text(text), (struct slice){NULL, 0});
}

static void ended(struct bridge *b, const struct manager_message *m)
{
    tell_exit(&b->ws, m);
    ws_conn_end(&b->ws, 1000, EXITED);
}

static void detached(struct bridge *b, enum manager_code code)
{
    (void)code;
    ws_conn_end(&b->ws, 4001, "taken over");
}

static bool read_resize(const struct json *doc, uint16_t *cols, uint16_t *rows)
{
    struct slice type = {NULL, 0};
    json_text(json_member(json_root(doc), "type"), &type);
    return slice_is(type, "resize") && bridge_read_size(doc, cols, rows);
}

static void data(struct bridge *b, const struct ws_data *piece)
{
    bool bad;
    uint16_t cols, rows;
    if (piece->opcode == WS_BINARY)
        return bridge_input(b, piece->bytes);
    struct json *doc = bridge_collect(b, piece, &bad);
    if (doc && read_resize(doc, &cols, &rows))
        bridge_resize(b, cols, rows);
    else if (doc || bad)
        bridge_send_text(b, "{\"type\":\"error\",\"error\":\"not a message that is known here\"}");
    json_free(doc);
}

struct http_exchange *serve_terminal(struct http_conn *h, const struct slice *parts)
{
    static const struct resume_dialect resume = {tell_exit, read_resize, {1000, EXITED}};
    static const struct dialect dialect = {ask,     attached, output, ended,  detached,
                                           refused, NULL,     data,   &resume};
    (void)parts;
    struct bridge *b = bridge_new(h, &dialect, SCOPE, SLICE_LITERAL(""));
    return b ? &b->ws.x : NULL;
}
