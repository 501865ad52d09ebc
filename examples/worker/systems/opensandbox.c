/* SPDX-License-Identifier: MIT */
/*
 * The terminals of OpenSandbox's execd. Binary frames: from the client 00 stdin; to it 01 output, 02 stderr
 * (pipes only), 03 and the offset (8 bytes) the replay, one frame. Text frames are JSON. The order is replay,
 * `connected`, live output, `exit`, Close 1000 `process exited`.
 */
#include <signal.h>
#include <stdio.h>

#include "examples/worker/bridge/bridge.h"
#include "examples/worker/bridge/call.h"
#include "examples/worker/bridge/worker_options.h"
#include "examples/worker/http/web_server.h"
#include "examples/worker/systems/json_text.h"
#include "examples/worker/systems/opensandbox.h"
#include "examples/worker/systems/serve.h"

#define FRAME_MAX   32768
#define SILENCE_MAX 60000000
#define TAKEN_OVER  4001

enum { STDIN = 0, OUTPUT = 1, STDERR = 2, REPLAY = 3 };

static const char *code_of(enum manager_code code)
{
    switch (code) {
    case MANAGER_UNKNOWN_SESSION:
        return "CONTEXT_NOT_FOUND";
    case MANAGER_ALREADY_ATTACHED:
        return "ALREADY_CONNECTED";
    case MANAGER_START_FAILED:
        return "START_FAILED";
    case MANAGER_INPUT_CLOSED:
        return "STDIN_WRITE_FAILED";
    case MANAGER_BAD_REQUEST:
        return "INVALID_REQUEST";
    default:
        return "UNAVAILABLE";
    }
}

void opensandbox_refuse(struct http_exchange *x, enum manager_code code, const char *text)
{
    char memory[MANAGER_TEXT_MAX * 2];
    struct writer w = writer_of(memory, sizeof memory);
    writer_printf(&w, "{\"code\":\"%s\",\"message\":", code_of(code));
    json_text_put(&w, slice_text(text));
    writer_text(&w, "}");
    http_answer(x, call_status(code), "application/json", NULL, writer_slice(&w));
}

/* ---- who may ---- */

static void refuse_caller(struct http_exchange *x)
{
    http_answer(x, 401, "application/json", NULL,
                SLICE_LITERAL(
                    "{\"code\":\"UNAUTHORIZED\",\"message\":\"X-EXECD-ACCESS-TOKEN is missing or wrong\"}"));
}

struct http_exchange *opensandbox_guard(struct http_conn *h, struct http_exchange *x)
{
    const char *token = worker_options(h)->token;
    if (!x || !token ||
        slice_equal_constant_time(http_get(x->head, "X-EXECD-ACCESS-TOKEN"), slice_text(token)))
        return x;
    x->body = NULL;
    x->end = refuse_caller;
    return x;
}

static struct http_exchange *make_call(struct http_conn *h, const struct call_plan *plan, struct slice id)
{
    return opensandbox_guard(h, call_new(h, plan, OPENSANDBOX_SCOPE, id));
}

/* ---- POST /pty ---- */

void opensandbox_put_shell(struct writer *argv, struct slice command)
{
    manager_put_string(argv, SLICE_LITERAL("/bin/bash"));
    if (!command.len)
        return;
    manager_put_string(argv, SLICE_LITERAL("-c"));
    manager_put_string(argv, command);
}

static void ask_create(struct call *c, const json_node *body)
{
    struct slice cwd = SLICE_LITERAL(""), command = SLICE_LITERAL("");
    uint8_t memory[MANAGER_LIST_MAX];
    struct writer argv = writer_of(memory, sizeof memory);
    if (!call_text(c, body, "cwd", &cwd) || !call_text(c, body, "command", &command))
        return;
    opensandbox_put_shell(&argv, command);
    if (argv.full || cwd.len > MANAGER_PATH_MAX)
        return call_fail(c, MANAGER_BAD_REQUEST, "cwd or command is too long");
    manager_client_put(&c->manager, &(struct manager_message){.type = MANAGER_CREATE,
                                                              .scope = slice_text(c->scope),
                                                              .kind = MANAGER_TERMINAL,
                                                              .flags = MANAGER_START_LATER,
                                                              .stall_ms = OPENSANDBOX_STALL_MS,
                                                              .linger_ms = MANAGER_FOREVER,
                                                              .cwd = cwd,
                                                              .argv = writer_slice(&argv)});
}

static void answer_create(struct call *c, const struct manager_message *m)
{
    char memory[256];
    struct writer w = writer_of(memory, sizeof memory);
    writer_printf(&w, "{\"session_id\":\"%.*s\"}", SLICE_PRINTF(m->id));
    call_done(c, 201, writer_slice(&w));
}

struct http_exchange *serve_opensandbox_create(struct http_conn *h, const struct slice *parts)
{
    static const struct call_plan plan = {ask_create, answer_create, opensandbox_refuse};
    (void)parts;
    return make_call(h, &plan, SLICE_LITERAL(""));
}

/* ---- GET and DELETE /pty/:id ---- */

static void ask_about(struct call *c, enum manager_type type)
{
    manager_client_put(
        &c->manager,
        &(struct manager_message){.type = type, .scope = slice_text(c->scope), .id = slice_text(c->id)});
}

static void ask_query(struct call *c, const json_node *body)
{
    (void)body;
    ask_about(c, MANAGER_QUERY);
}

static void answer_query(struct call *c, const struct manager_message *m)
{
    char memory[256];
    struct writer w = writer_of(memory, sizeof memory);
    writer_printf(&w, "{\"session_id\":\"%.*s\",\"running\":%s,\"output_offset\":%llu}", SLICE_PRINTF(m->id),
                  m->state == MANAGER_RUNNING ? "true" : "false", (unsigned long long)m->end);
    call_done(c, 200, writer_slice(&w));
}

struct http_exchange *serve_opensandbox_query(struct http_conn *h, const struct slice *parts)
{
    static const struct call_plan plan = {ask_query, answer_query, opensandbox_refuse};
    return make_call(h, &plan, parts[0]);
}

static void ask_delete(struct call *c, const json_node *body)
{
    (void)body;
    ask_about(c, MANAGER_DELETE);
}

static void answer_delete(struct call *c, const struct manager_message *m)
{
    (void)m;
    call_done(c, 200, SLICE_LITERAL("{}"));
}

struct http_exchange *serve_opensandbox_delete(struct http_conn *h, const struct slice *parts)
{
    static const struct call_plan plan = {ask_delete, answer_delete, opensandbox_refuse};
    return make_call(h, &plan, parts[0]);
}

/* ---- GET /pty/:id/ws ---- */

static void ask(struct bridge *b)
{
    uint64_t since;
    bool takeover = slice_is(http_parameter(&b->ws.x, "takeover"), "1");
    bool pipes = slice_is(http_parameter(&b->ws.x, "pty"), "0");
    if (!http_number(&b->ws.x, "since", 0, UINT64_MAX, &since)) {
        b->waiting = false;
        return opensandbox_refuse(&b->ws.x, MANAGER_BAD_REQUEST, "since is not an offset");
    }
    manager_client_put(&b->manager,
                       &(struct manager_message){.type = MANAGER_ATTACH,
                                                 .scope = slice_text(b->scope),
                                                 .id = slice_text(b->id),
                                                 .since = since,
                                                 .kind = pipes ? MANAGER_PIPES : MANAGER_TERMINAL,
                                                 .flags = takeover ? MANAGER_TAKEOVER : MANAGER_EXCLUSIVE});
}

static void send_error(struct bridge *b, const char *code, const char *text)
{
    char memory[MANAGER_TEXT_MAX * 2];
    struct writer w = writer_of(memory, sizeof memory);
    writer_text(&w, "{\"type\":\"error\",\"error\":");
    json_text_put(&w, slice_text(text));
    writer_printf(&w, ",\"code\":\"%s\"}", code);
    ws_conn_send(&b->ws, WS_TEXT, writer_slice(&w), (struct slice){NULL, 0});
}

/* A shell that cannot be started is reported on the WebSocket, everything else before it. */
static void refused(struct bridge *b, enum manager_code code, const char *text)
{
    if (code != MANAGER_START_FAILED)
        return opensandbox_refuse(&b->ws.x, code, text);
    bridge_accept(b);
    send_error(b, "START_FAILED", text);
    ws_conn_end(&b->ws, 1011, "start failed");
}

static void send_connected(struct bridge *b)
{
    char memory[256];
    struct writer w = writer_of(memory, sizeof memory);
    writer_printf(&w, "{\"type\":\"connected\",\"session_id\":\"%s\",\"mode\":\"%s\"}", b->id, b->mode);
    ws_conn_send(&b->ws, WS_TEXT, writer_slice(&w), (struct slice){NULL, 0});
}

static void attached(struct bridge *b, const struct manager_message *m)
{
    uint8_t memory[9];
    struct writer w = writer_of(memory, sizeof memory);
    b->mode = m->kind == MANAGER_PIPES ? "pipe" : "pty";
    b->ws.silence_max = SILENCE_MAX;
    bridge_accept(b);
    if (!b->replaying)
        return send_connected(b);
    writer_u8(&w, REPLAY);
    writer_be(&w, m->first, 8);
    ws_conn_begin(&b->ws, WS_BINARY, true, w.len + (m->end - m->first));
    ws_conn_piece(&b->ws, writer_slice(&w));
}

static void output(struct bridge *b, const struct manager_message *m)
{
    struct slice live = m->bytes;
    if (b->replaying) {
        struct slice replay = slice_sub(m->bytes, 0, (size_t)(b->replay_end - m->since));
        live = slice_from(m->bytes, replay.len);
        ws_conn_piece(&b->ws, replay);
        b->replaying = m->since + replay.len < b->replay_end;
        if (!b->replaying)
            send_connected(b);
    }
    bridge_send_output(b, m->stream == MANAGER_STDERR ? STDERR : OUTPUT, live, FRAME_MAX);
}

static void ended(struct bridge *b, const struct manager_message *m)
{
    char text[64];
    snprintf(text, sizeof text, "{\"type\":\"exit\",\"exit_code\":%u}", m->exit_code);
    bridge_send_text(b, text);
    ws_conn_end(&b->ws, 1000, "process exited");
}

static void detached(struct bridge *b, enum manager_code code)
{
    if (code == MANAGER_TAKEN_OVER)
        ws_conn_end(&b->ws, TAKEN_OVER, "TAKEN_OVER");
    else
        ws_conn_end(&b->ws, 1013, "too slow");
}

static void error(struct bridge *b, enum manager_code code, const char *text)
{
    if (code == MANAGER_INPUT_CLOSED)
        send_error(b, "STDIN_WRITE_FAILED", text);
}

int opensandbox_signal(struct slice name)
{
    static const struct {
        const char *name;
        int number;
    } signals[] = {{"SIGINT", SIGINT},
                   {"SIGTERM", SIGTERM},
                   {"SIGKILL", SIGKILL},
                   {"SIGQUIT", SIGQUIT},
                   {"SIGHUP", SIGHUP}};
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++)
        if (slice_is(name, signals[i].name))
            return signals[i].number;
    return 0;
}

static bool do_signal(struct bridge *b, const json_node *root)
{
    struct slice name = {NULL, 0};
    int number = json_text(json_member(root, "signal"), &name) ? opensandbox_signal(name) : 0;
    if (number)
        manager_client_put(&b->manager, &(struct manager_message){.type = MANAGER_SIGNAL,
                                                                  .scope = slice_text(b->scope),
                                                                  .id = slice_text(b->id),
                                                                  .signal = (uint8_t)number});
    return number != 0;
}

static bool do_stdin(struct bridge *b, const json_node *root)
{
    struct slice bytes;
    if (!json_text(json_member(root, "data"), &bytes))
        return false;
    bridge_input(b, bytes);
    return true;
}

/* False when it is no message of theirs. */
static bool obey(struct bridge *b, const struct json *doc)
{
    const json_node *root = json_root(doc);
    struct slice type = {NULL, 0};
    json_text(json_member(root, "type"), &type);
    if (slice_is(type, "stdin"))
        return do_stdin(b, root);
    if (slice_is(type, "signal"))
        return do_signal(b, root);
    if (slice_is(type, "resize"))
        return bridge_read_resize(b, doc);
    if (!slice_is(type, "ping"))
        return false;
    bridge_send_text(b, "{\"type\":\"pong\"}");
    return true;
}

static void on_text(struct bridge *b, const struct ws_data *data)
{
    bool bad;
    struct json *doc = bridge_collect(b, data, &bad);
    if (bad || (doc && !obey(b, doc)))
        send_error(b, "INVALID_FRAME", "not a message that is known here");
    json_free(doc);
}

static void on_data(struct bridge *b, const struct ws_data *data)
{
    if (data->opcode == WS_TEXT)
        return on_text(b, data);
    struct slice bytes = bridge_untag(b, data);
    if (b->tag == STDIN)
        bridge_input(b, bytes);
    else if (data->last)
        send_error(b, "INVALID_FRAME", "a binary frame from a client begins with 00");
}

struct http_exchange *serve_opensandbox_ws(struct http_conn *h, const struct slice *parts)
{
    static const struct dialect dialect = {ask,     attached, output,  ended, detached,
                                           refused, error,    on_data, NULL};
    struct bridge *b = bridge_new(h, &dialect, OPENSANDBOX_SCOPE, parts[0]);
    return b ? opensandbox_guard(h, &b->ws.x) : NULL;
}
