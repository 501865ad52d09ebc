/* SPDX-License-Identifier: MIT */
/*
 * The commands of OpenSandbox's execd: POST /command, whose answer is the output as server-sent events, and the
 * second form of its terminals. A command is a session in the scope of the terminals, on pipes. Each event's data
 * is a JSON object with its name as `type`. In front of `exit` stands the event by which execd's own clients know
 * the end: `execution_complete`, or `error` with the exit code as `evalue`.
 */
#include <stdio.h>
#include <time.h>

#include "examples/worker/bridge/call.h"
#include "examples/worker/http/web_server.h"
#include "examples/worker/systems/opensandbox.h"
#include "examples/worker/systems/serve.h"
#include "spoa/base/json/json_write.h"

#define CHARACTER_MAX 4 /* bytes of one in UTF-8 */
/* seconds between the comments that keep a silent command's answer open, and by which a proxy on the way learns that its
 * client has left; execd's own number */
#define BEAT      (3 * SECOND)
#define LINGER_MS 1 /* of a command whose client has left; 0 would forget it at its end */
/* of an event: its text, each byte of it escaped, and what is around that */
#define EVENT_MAX (6 * (size_t)(MANAGER_DATA_MAX + CHARACTER_MAX) + 2048)

struct command {
    struct call call;
    struct buffer held[2]; /* by stream: the beginning of a character */
    struct loop_timer beat;
    uint64_t started; /* clock; 0: the stream of events has not begun */
    bool background, tty, attaching;
};

/* ---- events ---- */

static void send_event(struct command *c, struct buffer *event, bool good)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    long long ms = (long long)now.tv_sec * 1000 + now.tv_nsec / 1000000;
    if (good && json_write(event, ",\"timestamp\":%lld}\n\n", ms))
        http_piece(&c->call.x, buffer_slice(event));
    else
        stream_close(http_stream(c->call.x.conn)); /* memory is short: what is missing must not go unseen */
    buffer_free(event);
}

static bool name_event(struct buffer *event, const char *type)
{
    *event = buffer_with_limit(EVENT_MAX);
    return json_write(event, "event: %s\ndata: {\"type\":\"%s\",", type, type);
}

static void send_members(struct command *c, const char *type, const char *members)
{
    struct buffer event;
    send_event(c, &event, name_event(&event, type) && json_write(&event, "%s", members));
}

static void send_text(struct command *c, const char *type, struct slice text)
{
    struct buffer event;
    bool good = name_event(&event, type) && json_write(&event, "\"text\":") && json_write_text(&event, text);
    send_event(c, &event, good);
}

static void send_error(struct command *c, const char *name, const char *value)
{
    struct buffer event;
    bool good = name_event(&event, "error") &&
                json_write(&event, "\"error\":{\"ename\":\"%s\",\"evalue\":", name) &&
                json_write_text(&event, slice_text(value)) && json_write(&event, ",\"traceback\":[]}");
    send_event(c, &event, good);
}

static void send_complete(struct command *c)
{
    char members[64];
    unsigned long long ms = (loop_clock() - c->started) / MILLISECOND;
    snprintf(members, sizeof members, "\"execution_time\":%llu", ms);
    send_members(c, "execution_complete", members);
}

/* How many bytes at the end of the text may be the beginning of a character. */
static size_t unfinished(struct slice text)
{
    for (size_t back = 1; back < CHARACTER_MAX && back <= text.len; back++) {
        uint8_t byte = text.at[text.len - back];
        if (byte < 0x80)
            return 0;
        if (byte >= 0xc0)
            return back < (byte >= 0xf0 ? 4u : byte >= 0xe0 ? 3u : 2u) ? back : 0;
    }
    return 0;
}

static void send_output(struct command *c, unsigned stream, struct slice bytes, bool last)
{
    struct buffer *held = &c->held[stream];
    if (!buffer_put(held, bytes))
        return stream_close(http_stream(c->call.x.conn));
    struct slice text = buffer_slice(held);
    size_t whole = text.len - (last ? 0 : unfinished(text));
    if (whole)
        send_text(c, stream == MANAGER_STDERR ? "stderr" : "stdout", slice_sub(text, 0, whole));
    buffer_consume(held, whole);
}

static void end_events(struct command *c)
{
    c->call.answered = true;
    http_end(&c->call.x);
}

static void send_exit(struct command *c, uint32_t exit_code)
{
    char text[32];
    for (unsigned stream = MANAGER_STDOUT; stream <= MANAGER_STDERR; stream++)
        send_output(c, stream, SLICE_LITERAL(""), true);
    snprintf(text, sizeof text, "%u", exit_code);
    if (exit_code)
        send_error(c, "CommandExecError", text);
    else
        send_complete(c);
    snprintf(text, sizeof text, "\"exit_code\":%u", exit_code);
    send_members(c, "exit", text);
    end_events(c);
}

static void beat_due(void *owner)
{
    struct command *c = owner;
    if (!http_is_full(&c->call.x))
        http_piece(&c->call.x, SLICE_LITERAL(":\n\n"));
    loop_timer_set(&c->beat, BEAT);
}

static void begin_events(struct command *c)
{
    char members[2 * MANAGER_NAME_MAX + 32];
    c->started = loop_clock();
    http_begin(&c->call.x, 200, "text/event-stream", "Cache-Control: no-store\r\nX-Accel-Buffering: no\r\n",
               HTTP_UNKNOWN_LENGTH);
    loop_timer_open(&c->beat, web_server_loop(web_server_of(c->call.x.conn)), beat_due, c);
    loop_timer_set(&c->beat, BEAT);
    snprintf(members, sizeof members, "\"id\":\"%s\",\"text\":\"%s\"", c->call.id, c->call.id);
    send_members(c, "init", members);
}

static void refuse(struct http_exchange *x, enum manager_code code, const char *text)
{
    struct command *c = (struct command *)x;
    if (!c->started)
        return opensandbox_refuse(x, code, text);
    send_error(c, "SessionLost", text);
    end_events(c);
}

/* ---- POST /command ---- */

static bool read_times_and_sizes(struct call *c, const json_node *body, struct manager_message *m)
{
    int64_t timeout = 0, cols = 0, rows = 0;
    bool good = call_number(c, body, "timeout", 0, MANAGER_FOREVER - 1, &timeout) &&
                call_number(c, body, "cols", 1, UINT16_MAX, &cols) &&
                call_number(c, body, "rows", 1, UINT16_MAX, &rows);
    m->timeout_ms = (uint32_t)timeout;
    m->cols = (uint16_t)cols;
    m->rows = (uint16_t)rows;
    return good;
}

/* Who is to run it cannot be chosen here, and is not to be ignored. */
static bool names_a_user(const json_node *body)
{
    const json_node *uid = json_member(body, "uid"), *gid = json_member(body, "gid");
    return (uid && !json_is_null(uid)) || (gid && !json_is_null(gid));
}

static void put_create(struct command *c, struct manager_message *m)
{
    m->type = MANAGER_CREATE;
    m->scope = slice_text(c->call.scope);
    m->kind = c->tty ? MANAGER_TERMINAL : MANAGER_PIPES;
    m->flags = (c->tty ? 0 : MANAGER_NO_INPUT) | (c->background && !c->tty ? 0 : MANAGER_START_LATER);
    m->stall_ms = c->tty ? OPENSANDBOX_STALL_MS : MANAGER_FOREVER;
    m->linger_ms = c->tty || c->background ? MANAGER_FOREVER : LINGER_MS;
    manager_client_put(&c->call.manager, m);
}

static void ask(struct call *call, const json_node *body)
{
    struct command *c = (struct command *)call;
    uint8_t memory[2][MANAGER_LIST_MAX];
    struct writer argv = writer_of(memory[0], MANAGER_LIST_MAX), env = writer_of(memory[1], MANAGER_LIST_MAX);
    struct slice command = SLICE_LITERAL("");
    struct manager_message m = {.cwd = SLICE_LITERAL("")};
    if (!call_text(call, body, "command", &command) || !call_text(call, body, "cwd", &m.cwd) ||
        !call_bool(call, body, "background", &c->background) || !call_bool(call, body, "tty", &c->tty) ||
        !read_times_and_sizes(call, body, &m))
        return;
    if (!command.len && !c->tty)
        return call_fail(call, MANAGER_BAD_REQUEST, "command is missing");
    if (names_a_user(body))
        return call_fail(call, MANAGER_BAD_REQUEST,
                         "commands run as the user of the sandbox: no uid, no gid");
    opensandbox_put_shell(&argv, command);
    call_environment(body, &env);
    if (argv.full || env.full || m.cwd.len > MANAGER_PATH_MAX)
        return call_fail(call, MANAGER_BAD_REQUEST, "command, cwd or envs is wrong or too long");
    m.argv = writer_slice(&argv);
    m.env = writer_slice(&env);
    put_create(c, &m);
}

static void answer_tty(struct command *c)
{
    char body[3 * MANAGER_NAME_MAX];
    int len = snprintf(body, sizeof body, "{\"session_id\":\"%s\",\"path\":\"/pty/%s/ws\"}", c->call.id,
                       c->call.id);
    call_done(&c->call, 201, slice_of(body, (size_t)len));
}

static void created(struct command *c, const struct manager_message *m)
{
    snprintf(c->call.id, sizeof c->call.id, "%.*s", SLICE_PRINTF(m->id));
    if (c->tty)
        return answer_tty(c);
    if (c->background) {
        begin_events(c);
        send_complete(c);
        return end_events(c);
    }
    c->attaching = true;
    manager_client_put(&c->call.manager, &(struct manager_message){.type = MANAGER_ATTACH,
                                                                   .scope = slice_text(c->call.scope),
                                                                   .id = slice_text(c->call.id)});
}

static void answer(struct call *call, const struct manager_message *m)
{
    struct command *c = (struct command *)call;
    if (m->type == MANAGER_SESSION && !c->attaching)
        created(c, m);
    else if (m->type == MANAGER_SESSION)
        begin_events(c);
    else if (m->type == MANAGER_OUTPUT)
        send_output(c, m->stream, m->bytes, false);
    else if (m->type == MANAGER_EXIT)
        send_exit(c, m->exit_code);
    else if (m->type == MANAGER_DETACHED)
        call_fail(call, MANAGER_UNKNOWN_SESSION, "another client has taken the session over");
    if (!call->answered && http_is_full(&call->x))
        manager_client_pause(&call->manager, true);
}

static void room(struct http_exchange *x)
{
    manager_client_pause(&((struct command *)x)->call.manager, false);
}

static void close_command(struct http_exchange *x)
{
    struct command *c = (struct command *)x;
    loop_timer_close(&c->beat);
    buffer_free(&c->held[MANAGER_STDOUT]);
    buffer_free(&c->held[MANAGER_STDERR]);
    call_close(x);
}

struct http_exchange *serve_opensandbox_command(struct http_conn *h, const struct slice *parts)
{
    static const struct call_plan plan = {ask, answer, refuse};
    struct command *c = call_make(sizeof *c, h, &plan, OPENSANDBOX_SCOPE, SLICE_LITERAL(""));
    (void)parts;
    if (!c)
        return NULL;
    for (unsigned stream = MANAGER_STDOUT; stream <= MANAGER_STDERR; stream++)
        c->held[stream] = buffer_with_limit(MANAGER_DATA_MAX + CHARACTER_MAX);
    c->call.x.room = room;
    c->call.x.close = close_command;
    return opensandbox_guard(h, &c->call.x);
}

/* ---- of one that was made ---- */

static void put_about(struct call *c, enum manager_type type, int signal)
{
    manager_client_put(&c->manager, &(struct manager_message){.type = type,
                                                              .scope = slice_text(c->scope),
                                                              .id = slice_text(c->id),
                                                              .signal = (uint8_t)signal});
}

static void answer_nothing(struct call *c, const struct manager_message *m)
{
    (void)m;
    call_done(c, 200, SLICE_LITERAL("{}"));
}

static void ask_query(struct call *c, const json_node *body)
{
    (void)body;
    put_about(c, MANAGER_QUERY, 0);
}

static void answer_query(struct call *c, const struct manager_message *m)
{
    static const char *const states[] = {
        [MANAGER_NEW] = "new", [MANAGER_RUNNING] = "running", [MANAGER_ENDED] = "ended"};
    char memory[256], code[16] = "null";
    struct writer w = writer_of(memory, sizeof memory);
    if (m->state < MANAGER_NEW || m->state > MANAGER_ENDED)
        return call_fail(c, MANAGER_OUT_OF_MEMORY, "the session manager says what is not known here");
    if (m->state == MANAGER_ENDED)
        snprintf(code, sizeof code, "%u", m->exit_code);
    writer_printf(&w, "{\"id\":\"%.*s\",\"state\":\"%s\",\"running\":%s,\"exit_code\":%s}",
                  SLICE_PRINTF(m->id), states[m->state], m->state == MANAGER_RUNNING ? "true" : "false",
                  code);
    call_done(c, 200, writer_slice(&w));
}

struct http_exchange *serve_opensandbox_command_query(struct http_conn *h, const struct slice *parts)
{
    static const struct call_plan plan = {ask_query, answer_query, opensandbox_refuse};
    return opensandbox_guard(h, call_new(h, &plan, OPENSANDBOX_SCOPE, parts[0]));
}

static void ask_signal(struct call *c, const json_node *body)
{
    struct slice name = SLICE_LITERAL("");
    if (!call_text(c, body, "signal", &name))
        return;
    int number = opensandbox_signal(name);
    if (!number)
        return call_fail(c, MANAGER_BAD_REQUEST, "signal is SIGINT, SIGTERM, SIGKILL, SIGQUIT or SIGHUP");
    put_about(c, MANAGER_SIGNAL, number);
}

struct http_exchange *serve_opensandbox_command_signal(struct http_conn *h, const struct slice *parts)
{
    static const struct call_plan plan = {ask_signal, answer_nothing, opensandbox_refuse};
    return opensandbox_guard(h, call_new(h, &plan, OPENSANDBOX_SCOPE, parts[0]));
}

static void ask_delete(struct call *c, const json_node *body)
{
    (void)body;
    if (*c->id)
        put_about(c, MANAGER_DELETE, 0);
    else
        call_fail(c, MANAGER_BAD_REQUEST, "id is missing");
}

static struct http_exchange *make_delete(struct http_conn *h, struct slice id)
{
    static const struct call_plan plan = {ask_delete, answer_nothing, opensandbox_refuse};
    return opensandbox_guard(h, call_new(h, &plan, OPENSANDBOX_SCOPE, id));
}

struct http_exchange *serve_opensandbox_command_delete(struct http_conn *h, const struct slice *parts)
{
    return make_delete(h, parts[0]);
}

struct http_exchange *serve_opensandbox_command_interrupt(struct http_conn *h, const struct slice *parts)
{
    struct http_exchange *x = make_delete(h, SLICE_LITERAL(""));
    struct call *c = (struct call *)x;
    (void)parts;
    if (x)
        snprintf(c->id, sizeof c->id, "%.*s", SLICE_PRINTF(http_parameter(x, "id")));
    return x;
}
