/* SPDX-License-Identifier: MIT */
#include "spoa/spop/spop_agent.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "spoa/net/net.h"
#include "spoa/spop/server.h"

#define CONNECTIONS_MAX UINT16_MAX
#define SECONDS_MAX     86400.0
#define OUTPUT_MAX      ((double)(1 << 30))
#define MODE_BITS       0777u
#define FALLBACK_MAX    128 /* bytes: it must fit into the smallest frame */

struct spop_agent_message {
    struct slice name;
    struct spop_args all, left; /* all arguments, and the rest that spop_agent_next_arg has not returned */
};

struct spop_agent_answer {
    struct spop_agent *agent;
    struct spop_actions actions; /* the actions of an answer that comes later */
    struct spop_actions *into;   /* the server's actions within a handler, else `actions` */
    struct server_ticket ticket;
    bool later; /* spop_agent_later was called */
};

struct handler {
    char *message; /* NULL for all messages without a handler of their own */
    spop_agent_handler *run;
    void *context;
};

struct spop_agent {
    struct loop *loop;
    struct server *server; /* NULL until the agent listens */
    struct server_options options;
    uint64_t grace; /* microseconds */
    char fallback_name[SPOP_VARIABLE_MAX + 1], fallback_value[FALLBACK_MAX + 1];
    struct handler *handlers;
    size_t handler_count;
    /* the answer between spop_agent_answer_begin and _end; owed.agent is NULL otherwise */
    struct spop_agent_answer owed;
    int listener;        /* -1 if none, or if the caller owns it */
    struct loop_io stop; /* an eventfd, to which a signal handler may write */
    bool ran;            /* spop_agent_run was called */
    struct fail why;
};

struct post {
    struct loop_task task;
    void (*run)(void *context);
    void *context;
};

static struct spop_agent_bytes bytes_of_slice(struct slice slice)
{
    return (struct spop_agent_bytes){(const char *)slice.at, slice.len};
}

const char *spop_agent_error(const struct spop_agent *agent)
{
    return agent ? agent->why.text : "out of memory or of descriptors";
}

/* ---- values: struct spop_agent_value is the public form of struct spop_value, with the same numbers ---- */
#define SAME(name) _Static_assert((int)SPOP_AGENT_##name == (int)SPOP_##name, #name)
SAME(NULL);
SAME(BOOL);
SAME(INT32);
SAME(UINT32);
SAME(INT64);
SAME(UINT64);
SAME(IPV4);
SAME(IPV6);
SAME(TEXT);
SAME(BINARY);
_Static_assert((int)SPOP_AGENT_PROC == (int)SPOP_PROCESS && (int)SPOP_AGENT_SESS == (int)SPOP_SESSION &&
                   (int)SPOP_AGENT_TXN == (int)SPOP_TRANSACTION && (int)SPOP_AGENT_REQ == (int)SPOP_REQUEST &&
                   (int)SPOP_AGENT_RES == (int)SPOP_RESPONSE,
               "scopes");

static struct spop_agent_value public_value(struct spop_value value)
{
    return (struct spop_agent_value){(enum spop_agent_kind)value.kind, value.truth, value.number,
                                     bytes_of_slice(value.bytes)};
}

/* Returns false if the value has no form on the wire. */
static bool wire_value(const struct spop_agent_value *value, struct spop_value *wire)
{
    *wire = (struct spop_value){(enum spop_kind)value->kind, value->truth, value->number,
                                slice_of(value->bytes.at, value->bytes.len)};
    switch (value->kind) {
    case SPOP_AGENT_IPV4:
        return value->bytes.len == 4;
    case SPOP_AGENT_IPV6:
        return value->bytes.len == 16;
    default:
        return (unsigned)value->kind <= SPOP_AGENT_BINARY;
    }
}

/* ---- messages ---- */
static const struct handler *handler_of(const struct spop_agent *agent, struct slice message)
{
    const struct handler *others = NULL;
    for (size_t i = 0; i < agent->handler_count; i++) {
        const struct handler *handler = &agent->handlers[i];
        if (!handler->message)
            others = handler;
        else if (slice_is(message, handler->message))
            return handler;
    }
    return others;
}

static enum server_reply on_message(void *context, struct slice name, struct spop_args args,
                                    struct spop_actions *actions, const struct server_ticket *ticket)
{
    struct spop_agent *agent = context;
    const struct handler *handler = handler_of(agent, name);
    if (!handler)
        return SERVER_NOW;
    struct spop_agent_message message = {name, args, args};
    struct spop_agent_answer answer = {.agent = agent, .into = actions, .ticket = *ticket};
    handler->run(handler->context, &message, &answer);
    return answer.later ? SERVER_LATER : SERVER_NOW;
}

bool spop_agent_on(struct spop_agent *agent, const char *message, spop_agent_handler *run, void *context)
{
    for (size_t i = 0; i < agent->handler_count; i++) {
        struct handler *handler = &agent->handlers[i];
        if (message ? handler->message && strcmp(handler->message, message) == 0 : !handler->message) {
            handler->run = run;
            handler->context = context;
            return true;
        }
    }
    struct handler *more = realloc(agent->handlers, (agent->handler_count + 1) * sizeof *more);
    if (!more)
        return fail(&agent->why, "out of memory");
    agent->handlers = more;
    char *name = message ? strdup(message) : NULL;
    if (message && !name)
        return fail(&agent->why, "out of memory");
    agent->handlers[agent->handler_count++] = (struct handler){name, run, context};
    return true;
}

struct spop_agent_bytes spop_agent_name(const struct spop_agent_message *message)
{
    return bytes_of_slice(message->name);
}

bool spop_agent_arg(const struct spop_agent_message *message, const char *name,
                    struct spop_agent_value *value)
{
    struct spop_args args = message->all;
    struct slice found;
    struct spop_value wire;
    while (spop_arg_next(&args, &found, &wire))
        if (slice_is(found, name)) {
            *value = public_value(wire);
            return true;
        }
    return false;
}

bool spop_agent_next_arg(struct spop_agent_message *message, struct spop_agent_bytes *name,
                         struct spop_agent_value *value)
{
    struct slice found;
    struct spop_value wire;
    if (!spop_arg_next(&message->left, &found, &wire))
        return false;
    *name = bytes_of_slice(found);
    *value = public_value(wire);
    return true;
}

/* ---- answers ---- */
/* Returns true as long as the answer can be sent as it was set; otherwise the fallback will be sent. */
static bool fits(const struct spop_actions *actions)
{
    return !actions->out->full && (!actions->most || actions->out->len <= actions->most);
}

bool spop_agent_set(struct spop_agent_answer *answer, enum spop_agent_scope scope, const char *name,
                    const struct spop_agent_value *value)
{
    struct spop_value wire;
    if ((unsigned)scope > SPOP_AGENT_RES || !wire_value(value, &wire)) {
        answer->into->out->full = true;
        return false;
    }
    spop_set_var(answer->into, (enum spop_scope)scope, slice_text(name), wire);
    return fits(answer->into);
}

bool spop_agent_set_text(struct spop_agent_answer *answer, enum spop_agent_scope scope, const char *name,
                         const char *text)
{
    const struct spop_agent_value value = {.kind = SPOP_AGENT_TEXT,
                                           .bytes = bytes_of_slice(slice_text(text))};
    return spop_agent_set(answer, scope, name, &value);
}

bool spop_agent_set_int(struct spop_agent_answer *answer, enum spop_agent_scope scope, const char *name,
                        int64_t number)
{
    return spop_agent_set(answer, scope, name,
                          &(struct spop_agent_value){.kind = SPOP_AGENT_INT64, .number = number});
}

bool spop_agent_set_bool(struct spop_agent_answer *answer, enum spop_agent_scope scope, const char *name,
                         bool truth)
{
    return spop_agent_set(answer, scope, name,
                          &(struct spop_agent_value){.kind = SPOP_AGENT_BOOL, .truth = truth});
}

bool spop_agent_unset(struct spop_agent_answer *answer, enum spop_agent_scope scope, const char *name)
{
    if ((unsigned)scope > SPOP_AGENT_RES) {
        answer->into->out->full = true;
        return false;
    }
    spop_unset_var(answer->into, (enum spop_scope)scope, slice_text(name));
    return fits(answer->into);
}

/* ---- later ---- */
struct spop_agent_ticket spop_agent_later(struct spop_agent_answer *answer)
{
    const struct server_ticket *ticket = &answer->ticket;
    answer->later = true;
    return (struct spop_agent_ticket){(uint64_t)ticket->generation << 32 | ticket->slot, ticket->stream_id,
                                      ticket->frame_id};
}

struct spop_agent_answer *spop_agent_answer_begin(struct spop_agent *agent,
                                                  const struct spop_agent_ticket *ticket)
{
    struct spop_agent_answer *owed = &agent->owed;
    if (owed->agent || !agent->server)
        return NULL;
    *owed = (struct spop_agent_answer){.into = &owed->actions,
                                       .ticket = {(uint32_t)ticket->connection,
                                                  (uint32_t)(ticket->connection >> 32), ticket->stream,
                                                  ticket->frame}};
    if (!server_answer_begin(agent->server, &owed->ticket, &owed->actions))
        return NULL;
    owed->agent = agent;
    return owed;
}

void spop_agent_answer_end(struct spop_agent_answer *answer)
{
    struct spop_agent *agent = answer->agent;
    answer->agent = NULL;
    server_answer_end(agent->server, &answer->ticket, &answer->actions);
}

static void run_post(void *context)
{
    struct post post = *(struct post *)context;
    free(context);
    post.run(post.context);
}

bool spop_agent_post(struct spop_agent *agent, void (*run)(void *context), void *context)
{
    struct post *post = calloc(1, sizeof *post);
    if (!post)
        return false;
    *post = (struct post){.task = {.run = run_post, .context = post}, .run = run, .context = context};
    loop_post(agent->loop, &post->task);
    return true;
}

/* ---- an agent ---- */
static void on_drained(void *context)
{
    loop_stop(((struct spop_agent *)context)->loop);
}

static void unlisten(struct spop_agent *agent)
{
    if (agent->listener >= 0)
        net_unlisten(agent->listener);
    agent->listener = -1;
}

static void on_stop(void *owner, int events)
{
    (void)events;
    struct spop_agent *agent = owner;
    loop_io_want(&agent->stop, 0);
    unlisten(agent);
    server_drain(agent->server, agent->grace, on_drained, agent);
}

void spop_agent_stop(struct spop_agent *agent)
{
    int error = errno; /* kept for the code that a signal has interrupted */
    const uint64_t once = 1;
    ssize_t written = write(loop_io_fd(&agent->stop), &once, sizeof once);
    (void)written; /* an eventfd refuses only the 2^64th write */
    errno = error;
}

struct spop_agent *spop_agent_new(const char *var_prefix)
{
    struct spop_agent *agent = calloc(1, sizeof *agent);
    int stop = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (!agent || stop < 0 || !(agent->loop = loop_new(&agent->why))) {
        if (stop >= 0)
            close(stop);
        free(agent);
        return NULL;
    }
    loop_io_open(&agent->stop, agent->loop, stop, on_stop, agent);
    agent->listener = -1;
    agent->grace = 5 * SECOND;
    agent->options = SERVER_OPTIONS_DEFAULT;
    agent->options.prefix_len = strlen(var_prefix);
    strcpy(agent->fallback_name, "error");
    strcpy(agent->fallback_value, "no_answer");
    agent->options.fallback_name = agent->fallback_name;
    agent->options.fallback_value = agent->fallback_value;
    return agent;
}

void spop_agent_free(struct spop_agent *agent)
{
    if (!agent)
        return;
    unlisten(agent);
    server_free(agent->server);
    /* loop_free runs the call-backs that are still posted, and they must find no connection */
    agent->server = NULL;
    loop_io_close(&agent->stop);
    loop_free(agent->loop);
    for (size_t i = 0; i < agent->handler_count; i++)
        free(agent->handlers[i].message);
    free(agent->handlers);
    free(agent);
}

/* Checks that HAProxy can take the fallback's name, and that its value fits into the smallest frame. */
static bool fallback_sane(struct spop_agent *agent, const char *name, const char *value)
{
    uint8_t memory[SPOP_SIZE_MIN];
    struct writer out = writer_of(memory, sizeof memory);
    struct spop_actions actions = {.out = &out, .prefix_len = agent->options.prefix_len};
    spop_set_var(&actions, SPOP_TRANSACTION, slice_text(name), spop_null());
    if (out.full)
        return fail(
            &agent->why,
            "not a variable: txn.PREFIX.%.64s has letters, digits, '_' and '.', at most %d with its prefix",
            name, SPOP_VARIABLE_MAX);
    if (strlen(value) > FALLBACK_MAX)
        return fail(&agent->why, "the fallback's value has more than %d bytes", FALLBACK_MAX);
    return true;
}

static bool before_listening(struct spop_agent *agent, const char *what)
{
    return !agent->server || fail(&agent->why, "%s after the agent began to listen", what);
}

bool spop_agent_fallback(struct spop_agent *agent, const char *name, const char *value)
{
    if (!before_listening(agent, "a fallback") || !fallback_sane(agent, name, value))
        return false;
    snprintf(agent->fallback_name, sizeof agent->fallback_name, "%s", name);
    snprintf(agent->fallback_value, sizeof agent->fallback_value, "%s", value);
    return true;
}

bool spop_agent_limit(struct spop_agent *agent, enum spop_agent_limit limit, double value)
{
    struct server_options *options = &agent->options;
    const struct {
        const char *name;
        double min, max;
        size_t *number;
        uint64_t *time;
    } limits[] = {
        [SPOP_AGENT_CONNECTIONS] = {"connections", 1, CONNECTIONS_MAX, &options->connections, NULL},
        [SPOP_AGENT_OUTPUT_BYTES] = {"output bytes", 1, OUTPUT_MAX, &options->output, NULL},
        [SPOP_AGENT_HELLO_SECONDS] = {"hello seconds", 0.001, SECONDS_MAX, NULL, &options->hello_timeout},
        [SPOP_AGENT_FRAME_SECONDS] = {"frame seconds", 0.001, SECONDS_MAX, NULL, &options->frame_timeout},
        [SPOP_AGENT_WRITE_SECONDS] = {"write seconds", 0.001, SECONDS_MAX, NULL, &options->write_timeout},
        [SPOP_AGENT_IDLE_SECONDS] = {"idle seconds", 0, SECONDS_MAX, NULL, &options->idle_timeout},
        [SPOP_AGENT_GRACE_SECONDS] = {"grace seconds", 0, SECONDS_MAX, NULL, &agent->grace},
    };
    if (!before_listening(agent, "a limit"))
        return false;
    if ((unsigned)limit >= sizeof limits / sizeof *limits)
        return fail(&agent->why, "there is no limit %d", (int)limit);
    if (!(value >= limits[limit].min && value <= limits[limit].max))
        return fail(&agent->why, "%s: %g is not from %g to %g", limits[limit].name, value, limits[limit].min,
                    limits[limit].max);
    if (limits[limit].number)
        *limits[limit].number = (size_t)value;
    else
        *limits[limit].time = (uint64_t)(value * (double)SECOND);
    return true;
}

bool spop_agent_listen_on(struct spop_agent *agent, int listener)
{
    const struct server_handler handler = {.message = on_message, .context = agent};
    if (!before_listening(agent, "a listener") ||
        !fallback_sane(agent, agent->fallback_name, agent->fallback_value))
        return false;
    agent->server = server_new(agent->loop, listener, &agent->options, &handler);
    return agent->server || fail(&agent->why, "cannot listen: out of memory or of descriptors");
}

bool spop_agent_listen(struct spop_agent *agent, const char *address, unsigned mode)
{
    struct net_address parsed;
    if (!before_listening(agent, "a listener") || !net_parse(slice_text(address), &parsed, &agent->why))
        return false;
    if (mode & ~MODE_BITS)
        return fail(&agent->why, "%o is not the mode of a Unix socket", mode);
    agent->listener = net_listen(&parsed, (mode_t)mode, &agent->why);
    if (agent->listener < 0)
        return false;
    if (!spop_agent_listen_on(agent, agent->listener))
        unlisten(agent);
    return agent->server;
}

bool spop_agent_run(struct spop_agent *agent)
{
    if (!agent->server || agent->ran)
        return fail(&agent->why, agent->ran ? "the agent has run already" : "the agent listens nowhere");
    agent->ran = true;
    loop_io_want(&agent->stop, LOOP_READ);
    loop_run(agent->loop);
    return true;
}

/* ---- counters ---- */
bool spop_agent_counter(const struct spop_agent *agent, unsigned index, const char **name, const char **help,
                        uint64_t *value)
{
    static const struct server_counters none;
    static const struct {
        const char *name, *help;
        size_t at;
    } counters[] = {
#define X(field, type, help) {#field, help, offsetof(struct server_counters, field)},
        SERVER_COUNTERS(X)
#undef X
    };
    const struct server_counters *of = agent->server ? server_counters(agent->server) : &none;
    if (index >= sizeof counters / sizeof *counters)
        return false;
    *name = counters[index].name;
    *help = counters[index].help;
    *value = server_counter((const _Atomic uint64_t *)(const void *)((const char *)of + counters[index].at));
    return true;
}
