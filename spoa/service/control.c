/* SPDX-License-Identifier: MIT */
#include "spoa/service/control.h"

#include <stdlib.h>
#include <unistd.h>

#include "spoa/base/json/json_write.h"
#include "spoa/base/table/list.h"
#include "spoa/net/listener.h"
#include "spoa/net/stream.h"

#define READ_SIZE      4096
#define ANSWER_MAX     ((size_t)64 << 20) /* bytes */
#define CONNECTIONS    64                 /* connections at a time; others wait in the backlog */
#define ACCEPTS_A_TURN 16
#define PATIENCE       (5 * SECOND) /* time for the request, and for each step of the answer */

/* One connection, which carries one line each way. */
struct conversation {
    struct control *control; /* NULL after control_free */
    struct conversation *next,
        **link; /* list of the control's connections, and the pointer that points here */
    struct stream stream;
};

struct control {
    const struct control_command *commands;
    size_t count;
    struct loop *loop;
    struct listener listener;
    struct conversation *conversations;
    unsigned open; /* number of connections */
};

/* ---- answers ---- */

/* Writes an error, or nothing if there is no room. */
static void put_refusal(struct buffer *to, const char *error)
{
    bool good = buffer_put(to, SLICE_LITERAL("{\"ok\":false,\"error\":")) &&
                json_write_text(to, slice_text(error)) && buffer_put(to, SLICE_LITERAL("}\n"));
    if (!good)
        buffer_free(to);
}

/* Runs a command and writes its answer, or nothing if there is no room. */
static void run_command(const struct control_command *command, const struct json *doc, struct buffer *to)
{
    struct buffer members = buffer_with_limit(CONTROL_MEMBERS_MAX);
    struct fail why = {"the command failed"};
    if (command->run(command->context, doc, json_root(doc), &members, &why)) {
        if (!buffer_put(to, SLICE_LITERAL("{\"ok\":true")) || !buffer_put(to, buffer_slice(&members)) ||
            !buffer_put(to, SLICE_LITERAL("}\n")))
            buffer_free(to);
    } else {
        put_refusal(to, why.text);
    }
    buffer_free(&members);
}

/* Writes the answer to one line. */
static void answer_line(const struct control_command *commands, size_t count, struct slice line,
                        struct buffer *to)
{
    struct fail why;
    struct slice name;
    struct json *doc = json_parse(line, "request", 0, (struct json_limits){CONTROL_REQUEST_MAX, 8}, &why);
    size_t i = 0;
    if (!doc) {
        put_refusal(to, why.text);
        return;
    }
    if (json_text(json_member(json_root(doc), "command"), &name)) {
        while (i < count && !slice_is(name, commands[i].name))
            i++;
        if (i < count)
            run_command(&commands[i], doc, to);
        else
            put_refusal(to, "unknown command");
    } else {
        put_refusal(to, "the request must be an object with a \"command\"");
    }
    json_free(doc);
}

bool control_respond(const struct control_command *commands, size_t count, struct slice bytes,
                     struct buffer *answer)
{
    size_t end = slice_find(bytes, '\n');
    if (end == bytes.len)
        return false;
    answer_line(commands, count, slice_sub(bytes, 0, end), answer);
    return true;
}

/* ---- the server ---- */

/* Sends the answer and closes the connection. An answer that did not fit closes it at once. */
static void answer(struct conversation *c)
{
    static const struct stream_linger linger = {.step = PATIENCE, .grace = PATIENCE, .drain = 1 << 20};
    if (buffer_len(&c->stream.out))
        stream_finish(&c->stream, &linger);
    else
        stream_close(&c->stream);
}

static void refuse(struct conversation *c, const char *why)
{
    put_refusal(&c->stream.out, why);
    answer(c);
}

static void on_input(void *owner)
{
    struct conversation *c = owner;
    struct slice in = buffer_slice(&c->stream.in);
    if (control_respond(c->control->commands, c->control->count, in, &c->stream.out))
        answer(c);
    else if (in.len >= CONTROL_REQUEST_MAX)
        refuse(c, "the request is too long");
}

static void on_ended(void *owner, int error)
{
    struct conversation *c = owner;
    (void)error;
    stream_close(&c->stream);
}

static void on_late(void *owner)
{
    refuse(owner, "the request did not come in time");
}

static void on_gone(void *owner)
{
    struct conversation *c = owner;
    if (c->control) {
        LIST_UNLINK(c);
        c->control->open--;
        listener_hold(&c->control->listener, false);
    }
    free(c);
}

static const struct stream_user stream_user = {
    .input = on_input, .ended = on_ended, .late = on_late, .gone = on_gone, .read_size = READ_SIZE};

static void on_accepted(void *owner, int fd)
{
    struct control *control = owner;
    struct conversation *c = calloc(1, sizeof *c);
    if (!c) {
        close(fd);
        return;
    }
    *c = (struct conversation){.control = control,
                               .stream = {.user = &stream_user,
                                          .owner = c,
                                          /* room for what one read may bring after the last byte that fits */
                                          .in = buffer_with_limit(CONTROL_REQUEST_MAX + READ_SIZE),
                                          .out = buffer_with_limit(ANSWER_MAX)}};
    LIST_PUSH(control->conversations, c);
    if (++control->open == CONNECTIONS)
        listener_hold(&control->listener, true);
    stream_open(&c->stream, control->loop, fd);
    stream_set_time(&c->stream, PATIENCE);
}

struct control *control_new(struct loop *loop, int listener, const struct control_command *commands,
                            size_t count)
{
    struct control *control = calloc(1, sizeof *control);
    if (!control) {
        net_unlisten(listener);
        return NULL;
    }
    *control = (struct control){.commands = commands, .count = count, .loop = loop};
    control->listener = (struct listener){.accepted = on_accepted, .owner = control, .batch = ACCEPTS_A_TURN};
    listener_open(&control->listener, loop, listener);
    return control;
}

void control_free(struct control *control)
{
    if (!control)
        return;
    for (struct conversation *c = control->conversations; c; c = c->next) {
        c->control = NULL;
        stream_close(&c->stream);
    }
    net_unlisten(listener_release(&control->listener)); /* removes the socket's file too */
    free(control);
}
