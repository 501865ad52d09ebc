/* SPDX-License-Identifier: MIT */
#include "spoa/service/control.h"

#include <stdlib.h>

#include "spoa/base/json_write.h"
#include "spoa/net/exchange.h"

struct control {
    const struct control_command *commands;
    size_t count;
    struct exchange *exchange;
};

/* ---- answers ---- */

static void put_refusal(struct buffer *to, const char *error)
{
    bool good = buffer_put(to, SLICE_LITERAL("{\"ok\":false,\"error\":")) &&
                json_write_text(to, slice_text(error)) && buffer_put(to, SLICE_LITERAL("}\n"));
    if (!good)
        buffer_free(to);
}

static void put_success(struct buffer *to, struct slice members)
{
    bool good = buffer_put(to, SLICE_LITERAL("{\"ok\":true")) && buffer_put(to, members) &&
                buffer_put(to, SLICE_LITERAL("}\n"));
    if (!good)
        buffer_free(to);
}

static void run(const struct control_command *command, const struct json *doc, struct buffer *to)
{
    struct buffer members = buffer_with_limit(CONTROL_MEMBERS_MAX);
    struct fail why = {"the command failed"};
    if (command->run(command->context, doc, json_root(doc), &members, &why))
        put_success(to, buffer_slice(&members));
    else
        put_refusal(to, why.text);
    buffer_free(&members);
}

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
            run(&commands[i], doc, to);
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

static bool on_request(void *context, struct slice bytes, struct buffer *answer)
{
    const struct control *control = context;
    return control_respond(control->commands, control->count, bytes, answer);
}

static void on_refuse(void *context, enum exchange_end end, struct buffer *answer)
{
    (void)context;
    put_refusal(answer,
                end == EXCHANGE_TOO_SLOW ? "the request did not come in time" : "the request is too long");
}

struct control *control_new(struct loop *loop, int listener, const struct control_command *commands,
                            size_t count)
{
    struct control *control = calloc(1, sizeof *control);
    struct exchange_protocol protocol = {CONTROL_REQUEST_MAX, on_request, on_refuse, control};
    struct exchange *exchange = exchange_new(loop, listener, &protocol);
    if (!control || !exchange) {
        exchange_free(exchange);
        free(control);
        return NULL;
    }
    *control = (struct control){commands, count, exchange};
    return control;
}

void control_free(struct control *control)
{
    if (!control)
        return;
    exchange_free(control->exchange);
    free(control);
}
