/* SPDX-License-Identifier: MIT */
/*
 * The terminals and commands of an OpenComputer worker. Frames are binary.
 * Terminal: raw bytes both ways; a new client goes on where the last one stopped; the end is Close 1000
 * without reason. Command: 01 stdout, 02 stderr, 04 the replay is complete, 03 and four bytes the exit code;
 * from the client 00 stdin.
 */
#include <signal.h>
#include <stdio.h>
#include <time.h>

#include "examples/worker/bridge/bridge.h"
#include "examples/worker/bridge/call.h"
#include "examples/worker/bridge/worker_options.h"
#include "examples/worker/systems/attach_loss.h"
#include "examples/worker/systems/json_text.h"
#include "examples/worker/systems/serve.h"

#define FRAME_MAX 4096  /* bytes of output in a frame */
#define STALL_MS  10000 /* a client that takes nothing for so long is let go */

enum { STDIN = 0, STDOUT = 1, STDERR = 2, EXIT = 3, REPLAYED = 4 };

/* ---- who is meant ---- */

/* "SANDBOX/pty" or "SANDBOX/exec"; false when the path holds no names. */
static bool scope_of(char scope[MANAGER_NAME_MAX + 1], const struct slice *parts, const char *kind)
{
    int len = snprintf(scope, MANAGER_NAME_MAX + 1, "%.*s/%s", SLICE_PRINTF(parts[0]), kind);
    return manager_is_name(parts[0]) && len <= MANAGER_NAME_MAX;
}

static void refuse(struct http_exchange *x, enum manager_code code, const char *text)
{
    char memory[MANAGER_TEXT_MAX * 2];
    struct writer w = writer_of(memory, sizeof memory);
    writer_text(&w, "{\"error\":");
    json_text_put(&w, slice_text(code == MANAGER_UNKNOWN_SESSION ? "session not found" : text));
    writer_text(&w, "}");
    http_answer(x, call_status(code), "application/json", NULL, writer_slice(&w));
}

static struct http_exchange *make_call(struct http_conn *h, const struct call_plan *plan,
                                       const struct slice *parts, const char *kind, bool has_id)
{
    char scope[MANAGER_NAME_MAX + 1];
    if (!scope_of(scope, parts, kind) || (has_id && !manager_is_name(parts[1])))
        return web_server_not_found(h);
    return call_new(h, plan, scope, has_id ? parts[1] : SLICE_LITERAL(""));
}

static struct slice sandbox_of(const struct call *c)
{
    struct slice scope = slice_text(c->scope);
    return slice_sub(scope, 0, slice_find(scope, '/'));
}

/* ---- POST .../pty ---- */

static void ask_pty(struct call *c, const json_node *body)
{
    int64_t cols = 80, rows = 24;
    struct slice shell = SLICE_LITERAL("/bin/bash");
    uint8_t memory[MANAGER_PATH_MAX];
    struct writer argv = writer_of(memory, sizeof memory);
    if (!call_number(c, body, "cols", 1, UINT16_MAX, &cols) ||
        !call_number(c, body, "rows", 1, UINT16_MAX, &rows) || !call_text(c, body, "shell", &shell))
        return;
    manager_put_string(&argv, shell);
    if (argv.full)
        return call_fail(c, MANAGER_BAD_REQUEST, "the shell's name is too long");
    manager_client_put(&c->manager, &(struct manager_message){.type = MANAGER_CREATE,
                                                              .scope = slice_text(c->scope),
                                                              .kind = MANAGER_TERMINAL,
                                                              .cols = (uint16_t)cols,
                                                              .rows = (uint16_t)rows,
                                                              .stall_ms = STALL_MS,
                                                              .linger_ms = MANAGER_FOREVER,
                                                              .argv = writer_slice(&argv)});
}

static void answer_pty(struct call *c, const struct manager_message *m)
{
    char memory[512];
    struct writer w = writer_of(memory, sizeof memory);
    writer_printf(&w, "{\"sessionID\":\"%.*s\",\"sandboxID\":\"%.*s\"}", SLICE_PRINTF(m->id),
                  SLICE_PRINTF(sandbox_of(c)));
    call_done(c, 201, writer_slice(&w));
}

struct http_exchange *serve_opencomputer_pty_create(struct http_conn *h, const struct slice *parts)
{
    static const struct call_plan plan = {ask_pty, answer_pty, refuse};
    return make_call(h, &plan, parts, "pty", false);
}

/* ---- POST .../exec ---- */

/* False when the call has been refused. */
static bool put_arguments(struct call *c, const json_node *body, struct writer *argv)
{
    struct slice text = {NULL, 0};
    if (!call_text(c, body, "cmd", &text))
        return false;
    manager_put_string(argv, text);
    for (const json_node *arg = json_first(json_member(body, "args")); arg; arg = json_next(arg)) {
        if (!json_text(arg, &text))
            argv->full = true;
        manager_put_string(argv, text);
    }
    return true;
}

static void ask_exec(struct call *c, const json_node *body)
{
    uint8_t memory[2][MANAGER_LIST_MAX];
    struct writer argv = writer_of(memory[0], MANAGER_LIST_MAX), env = writer_of(memory[1], MANAGER_LIST_MAX);
    int64_t timeout = 0, linger = 0, longest = UINT32_MAX / 1000 - 1;
    struct slice cwd = SLICE_LITERAL("");
    call_environment(body, &env);
    if (!put_arguments(c, body, &argv) || !call_text(c, body, "cwd", &cwd) ||
        !call_number(c, body, "timeout", 0, longest, &timeout) ||
        !call_number(c, body, "maxRunAfterDisconnect", 0, longest, &linger))
        return;
    if (argv.len < 2 || argv.full || env.full || cwd.len > MANAGER_PATH_MAX)
        return call_fail(c, MANAGER_BAD_REQUEST, "cmd, args or envs is missing, wrong or too long");
    manager_client_put(&c->manager, &(struct manager_message){.type = MANAGER_CREATE,
                                                              .scope = slice_text(c->scope),
                                                              .kind = MANAGER_PIPES,
                                                              .stall_ms = STALL_MS,
                                                              .linger_ms = linger ? (uint32_t)linger * 1000
                                                                                  : MANAGER_FOREVER,
                                                              .timeout_ms = (uint32_t)timeout * 1000,
                                                              .cwd = cwd,
                                                              .argv = writer_slice(&argv),
                                                              .env = writer_slice(&env)});
}

static void put_started(struct writer *w, const json_node *body)
{
    struct slice text = {NULL, 0};
    struct timespec now;
    struct tm tm;
    char stamp[32];
    json_text(json_member(body, "cmd"), &text);
    writer_text(w, "\"command\":");
    json_text_put(w, text);
    writer_text(w, ",\"args\":[");
    const json_node *first = json_first(json_member(body, "args"));
    for (const json_node *arg = first; arg; arg = json_next(arg)) {
        json_text(arg, &text);
        writer_text(w, arg == first ? "" : ",");
        json_text_put(w, text);
    }
    clock_gettime(CLOCK_REALTIME, &now);
    strftime(stamp, sizeof stamp, "%Y-%m-%dT%H:%M:%S", gmtime_r(&now.tv_sec, &tm));
    writer_printf(w, "],\"running\":true,\"startedAt\":\"%s.%09ldZ\"}", stamp, now.tv_nsec);
}

static void answer_exec(struct call *c, const struct manager_message *m)
{
    char memory[2 * CALL_BODY_MAX];
    struct writer w = writer_of(memory, sizeof memory);
    writer_printf(&w, "{\"sessionID\":\"%.*s\",\"sandboxID\":\"%.*s\",", SLICE_PRINTF(m->id),
                  SLICE_PRINTF(sandbox_of(c)));
    put_started(&w, json_root(c->json));
    call_done(c, 201, writer_slice(&w));
}

struct http_exchange *serve_opencomputer_exec_create(struct http_conn *h, const struct slice *parts)
{
    static const struct call_plan plan = {ask_exec, answer_exec, refuse};
    return make_call(h, &plan, parts, "exec", false);
}

/* ---- kill, resize, delete ---- */

static struct manager_message request(const struct call *c, enum manager_type type)
{
    return (struct manager_message){.type = type, .scope = slice_text(c->scope), .id = slice_text(c->id)};
}

static void answer_nothing(struct call *c, const struct manager_message *m)
{
    (void)m;
    call_done(c, 204, SLICE_LITERAL(""));
}

static void ask_kill(struct call *c, const json_node *body)
{
    int64_t number = SIGKILL;
    struct manager_message m = request(c, MANAGER_SIGNAL);
    if (!call_number(c, body, "signal", 1, 31, &number))
        return;
    m.signal = (uint8_t)number;
    manager_client_put(&c->manager, &m);
}

struct http_exchange *serve_opencomputer_exec_kill(struct http_conn *h, const struct slice *parts)
{
    static const struct call_plan plan = {ask_kill, answer_nothing, refuse};
    return make_call(h, &plan, parts, "exec", true);
}

static void ask_resize(struct call *c, const json_node *body)
{
    int64_t cols = 0, rows = 0;
    struct manager_message m = request(c, MANAGER_RESIZE);
    if (!call_number(c, body, "cols", 1, UINT16_MAX, &cols) ||
        !call_number(c, body, "rows", 1, UINT16_MAX, &rows))
        return;
    m.cols = (uint16_t)cols;
    m.rows = (uint16_t)rows;
    manager_client_put(&c->manager, &m);
}

static void answer_resize(struct call *c, const struct manager_message *m)
{
    (void)m;
    call_done(c, 200, SLICE_LITERAL("{}"));
}

struct http_exchange *serve_opencomputer_pty_resize(struct http_conn *h, const struct slice *parts)
{
    static const struct call_plan plan = {ask_resize, answer_resize, refuse};
    return make_call(h, &plan, parts, "pty", true);
}

static void ask_delete(struct call *c, const json_node *body)
{
    struct manager_message m = request(c, MANAGER_DELETE);
    (void)body;
    manager_client_put(&c->manager, &m);
}

struct http_exchange *serve_opencomputer_pty_delete(struct http_conn *h, const struct slice *parts)
{
    static const struct call_plan plan = {ask_delete, answer_nothing, refuse};
    return make_call(h, &plan, parts, "pty", true);
}

/* ---- both WebSockets ---- */

static void put_attach(struct bridge *b, uint8_t flags)
{
    manager_client_put(&b->manager, &(struct manager_message){.type = MANAGER_ATTACH,
                                                              .scope = slice_text(b->scope),
                                                              .id = slice_text(b->id),
                                                              .flags = flags});
}

static bool replays_late(const struct bridge *b)
{
    return worker_options(b->ws.x.conn)->replay_late;
}

static bool is_lossy(const struct bridge *b)
{
    return worker_options(b->ws.x.conn)->lossy_attach;
}

static void end_replay(struct bridge *b)
{
    static const uint8_t replayed = REPLAYED;
    b->replaying = false;
    attach_loss_subscribe(b);
    ws_conn_send(&b->ws, WS_BINARY, slice_of(&replayed, 1), (struct slice){NULL, 0});
}

static void refused(struct bridge *b, enum manager_code code, const char *text)
{
    if (code != MANAGER_UNKNOWN_SESSION || !replays_late(b)) {
        refuse(&b->ws.x, code, text);
        return;
    }
    bridge_accept(b);
    if (b->marks_replay)
        end_replay(b);
    ws_conn_end(&b->ws, 1000, "");
}

static void detached(struct bridge *b, enum manager_code code)
{
    if (code == MANAGER_TOO_SLOW)
        ws_conn_end(&b->ws, 1013, "too slow");
    else
        ws_conn_end(&b->ws, 1000, "");
}

static struct http_exchange *make_bridge(struct http_conn *h, const struct dialect *dialect,
                                         const struct slice *parts, const char *kind)
{
    char scope[MANAGER_NAME_MAX + 1];
    if (!scope_of(scope, parts, kind) || !manager_is_name(parts[1]))
        return web_server_not_found(h);
    struct bridge *b = bridge_new(h, dialect, scope, parts[1]);
    return b ? &b->ws.x : NULL;
}

/* ---- the terminal's ---- */

static void pty_ask(struct bridge *b)
{
    put_attach(b, MANAGER_UNREAD);
}

/* A shell that ended is remembered only until its last output has reached somebody. */
static void pty_attached(struct bridge *b, const struct manager_message *m)
{
    if (m->state == MANAGER_ENDED && m->first == m->end)
        refused(b, MANAGER_UNKNOWN_SESSION, "");
    else
        bridge_accept(b);
}

static void pty_output(struct bridge *b, const struct manager_message *m)
{
    bridge_send_output(b, -1, m->bytes, FRAME_MAX);
}

static void pty_ended(struct bridge *b, const struct manager_message *m)
{
    (void)m;
    ws_conn_end(&b->ws, 1000, "");
}

static void pty_data(struct bridge *b, const struct ws_data *data)
{
    bridge_input(b, data->bytes);
}

struct http_exchange *serve_opencomputer_pty(struct http_conn *h, const struct slice *parts)
{
    static const struct dialect dialect = {pty_ask, pty_attached, pty_output, pty_ended, detached,
                                           refused, NULL,         pty_data,   NULL};
    return make_bridge(h, &dialect, parts, "pty");
}

/* ---- the command's ---- */

static void exec_ask(struct bridge *b)
{
    b->marks_replay = true;
    put_attach(b, 0);
}

static void exec_attached(struct bridge *b, const struct manager_message *m)
{
    (void)m;
    bridge_accept(b);
    b->loss.filling = is_lossy(b) && attach_loss_begin(b);
    if (!b->replaying || replays_late(b) || b->loss.filling)
        end_replay(b);
}

static void exec_output(struct bridge *b, const struct manager_message *m)
{
    int tag = m->stream == MANAGER_STDERR ? STDERR : STDOUT;

    if (is_lossy(b))
        attach_loss_send(b, tag, m->bytes, m->since < b->replay_end);
    else
        bridge_send_output(b, tag, m->bytes, FRAME_MAX);
    if (b->replaying && m->since + m->bytes.len >= b->replay_end)
        end_replay(b);
}

static void exec_ended(struct bridge *b, const struct manager_message *m)
{
    uint8_t memory[5];
    struct writer w = writer_of(memory, sizeof memory);
    writer_u8(&w, EXIT);
    writer_be(&w, m->exit_code, 4);
    ws_conn_send(&b->ws, WS_BINARY, writer_slice(&w), (struct slice){NULL, 0});
    ws_conn_end(&b->ws, 1000, "");
}

static void exec_data(struct bridge *b, const struct ws_data *data)
{
    struct slice bytes = bridge_untag(b, data);
    if (b->tag == STDIN && data->opcode == WS_BINARY)
        bridge_input(b, bytes);
}

struct http_exchange *serve_opencomputer_exec(struct http_conn *h, const struct slice *parts)
{
    static const struct dialect dialect = {exec_ask, exec_attached, exec_output, exec_ended, detached,
                                           refused,  NULL,          exec_data,   NULL};
    return make_bridge(h, &dialect, parts, "exec");
}
