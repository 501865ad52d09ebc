/* SPDX-License-Identifier: MIT */
#include "spoa/agent/directory/redis_link.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "spoa/agent/model/worker_url.h"
#include "spoa/base/os/file.h"
#include "spoa/net/backoff.h"
#include "spoa/net/stream.h"

#define BACKOFF_MIN  (50 * MILLISECOND)
#define BACKOFF_MAX  SECOND
#define READ_SIZE    4096
#define PASSWORD_MAX 1024
#define INPUT_MAX    (4 * RESP_TEXT) /* bytes that are read ahead */
#define OUTPUT_MAX   (8u << 20)      /* bytes of commands that wait for the socket */

struct redis_link {
    struct redis_link_options options;
    enum { LINK_PAUSING, LINK_RESOLVING, LINK_CONNECTING, LINK_GREETING, LINK_READY } state;
    bool failed; /* the last attempt failed */
    struct stream stream;
    struct loop_timer timer;                    /* pauses, connects and checks; set by the state */
    struct redis_command *flight, **flight_end; /* commands without a reply, in order */
    struct redis_command hello, ping;           /* commands of the link itself */
    unsigned greetings;                         /* number of replies that the greeting still waits for */
    bool pinged;                                /* a PING is in flight */
    uint64_t heard; /* last time that the server sent something, or began to owe an answer */
    struct backoff backoff;
    unsigned attempt; /* number of lost connections; tells whether a call-back has lost this one */
};

/* ---- the server's address ---- */

bool redis_server_parse(struct slice text, struct redis_server *server, struct fail *why)
{
    uint64_t port;
    struct fail inner;
    *server = (struct redis_server){0};
    if (net_parse(text, &server->address, &inner))
        return true;
    server->address.len = 0;
    server->host = slice_sub(text, 0, slice_find(text, ':'));
    if (!hostname_valid(server->host) || !slice_u64(slice_from(text, server->host.len + 1), 65535, &port) ||
        port == 0)
        return fail(why, "a server is \"HOST:PORT\", \"[IPv6]:PORT\" or \"unix@/PATH\"");
    server->port = (uint16_t)port;
    return true;
}

/* ---- losing the connection ---- */

/* Replies to all commands with NULL. A call-back may send no command, because the link is not ready. */
static void drop_flight(struct redis_link *l)
{
    while (l->flight) {
        struct redis_command *command = l->flight;
        if (!(l->flight = command->next))
            l->flight_end = &l->flight;
        command->replied(command, NULL);
    }
}

/* Ends the connection, and plans the next attempt. */
static void lose(struct redis_link *l, const char *why)
{
    l->state = LINK_PAUSING;
    l->failed = true;
    l->attempt++;
    stream_close(&l->stream);
    loop_timer_set(&l->timer, backoff_next(&l->backoff));
    drop_flight(l);
    l->options.lost(l->options.context, why);
}

/* ---- writing ---- */

/* Sends a command, and starts the time for its answer if none is due. Returns false if too much waits for the socket. */
static bool put(struct redis_link *l, const struct slice *words, size_t count, struct redis_command *command)
{
    if (!resp_command(&l->stream.out, words, count))
        return false;
    bool first = !l->flight;
    command->next = NULL;
    *l->flight_end = command;
    l->flight_end = &command->next;
    if (first) {
        l->heard = loop_clock();
        loop_timer_set(&l->timer, l->options.timeout);
    }
    stream_send_soon(&l->stream);
    return true;
}

bool redis_link_send(struct redis_link *l, const struct slice *words, size_t count,
                     struct redis_command *command)
{
    return l->state == LINK_READY && put(l, words, count, command);
}

/* ---- greeting ---- */

/* Returns why a server refuses, by the first word of its error. The error itself is never repeated, because a server that does not know
 * AUTH repeats the password, or a part of it. */
static const char *refusal_of(const struct resp *reply)
{
    static const char *const known[][2] = {
        {"WRONGPASS", "WRONGPASS: wrong user or password"},
        {"NOAUTH", "NOAUTH: a password is needed"},
        {"NOPERM", "NOPERM: the user may not do this"},
        {"LOADING", "LOADING: the server still loads its data"},
        {"MASTERDOWN", "MASTERDOWN: a replica without its master"},
        {"CLUSTERDOWN", "CLUSTERDOWN"},
        {"MOVED", "MOVED: a node of a cluster"},
        {"DENIED", "DENIED: protected mode"},
        {"BUSY", "BUSY: a script runs"},
        {"MISCONF", "MISCONF"},
        {"ERR", "ERR"},
    };
    struct slice said = reply->parts[0].text, code = slice_sub(said, 0, slice_find(said, ' '));
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (slice_is(code, known[i][0]))
            return known[i][1];
    return "an error that is not known here";
}

static void lose_by(struct redis_link *l, const struct resp *reply)
{
    char why[96];
    snprintf(why, sizeof why, "the server refuses: %s", refusal_of(reply));
    lose(l, why);
}

static void on_greeted(struct redis_command *command, const struct resp *reply)
{
    struct redis_link *l = (void *)((uint8_t *)command - offsetof(struct redis_link, hello));
    if (!reply)
        return;
    if (reply->kind == RESP_ERROR) {
        lose_by(l, reply);
        return;
    }
    if (--l->greetings)
        return;
    l->state = LINK_READY;
    l->failed = false;
    backoff_reset(&l->backoff);
    loop_timer_set(&l->timer, l->options.timeout);
    l->options.ready(l->options.context);
}

/* Adds one command to the greeting. */
static bool greet_word(struct redis_link *l, const struct slice *words, size_t count)
{
    l->greetings++;
    return resp_command(&l->stream.out, words, count);
}

/* Adds AUTH with the first line of the password's file, if there is one. */
static bool put_password(struct redis_link *l, struct fail *why)
{
    struct slice secret;
    if (!l->options.password_file)
        return true;
    if (!file_read_secret(l->options.password_file, PASSWORD_MAX, FILE_READABLE, &secret, why))
        return false;
    struct slice line = slice_sub(secret, 0, slice_find(secret, '\n'));
    struct slice words[3] = {SLICE_LITERAL("AUTH"), slice_text(l->options.user), line};
    if (!l->options.user)
        words[1] = line;
    bool good = greet_word(l, words, l->options.user ? 3 : 2) || fail(why, "out of memory");
    file_free(secret);
    return good;
}

/* Writes the commands of the greeting. */
static bool put_greeting(struct redis_link *l, struct fail *why)
{
    char number[24];
    snprintf(number, sizeof number, "%lld", (long long)l->options.database);
    const struct slice database[] = {SLICE_LITERAL("SELECT"), slice_text(number)};
    /* a PING shows at once if a password is missing or the server still loads its data */
    const struct slice ping[] = {SLICE_LITERAL("PING")};
    const struct slice subscribe[] = {SLICE_LITERAL("SUBSCRIBE"), l->options.channel};
    bool events = slice_present(l->options.channel);
    l->greetings = 0;
    if (!put_password(l, why))
        return false;
    if (l->options.database && !events && !greet_word(l, database, 2))
        return fail(why, "out of memory");
    return greet_word(l, events ? subscribe : ping, events ? 2 : 1) || fail(why, "out of memory");
}

static void on_connected(void *owner)
{
    struct redis_link *l = owner;
    struct fail why;
    if (!put_greeting(l, &why)) {
        lose(l, why.text);
        return;
    }
    l->state = LINK_GREETING;
    stream_send(&l->stream);
}

/* ---- reading ---- */

/* Returns whether the value is a message on the channel, not a reply. */
static bool is_message(const struct redis_link *l, const struct resp *value)
{
    return slice_present(l->options.channel) && value->kind == RESP_ARRAY && value->count == 3 &&
           slice_is(value->parts[0].text, "message");
}

/* Passes on one value. Returns false if the connection was lost by it, or nobody asked for it. */
static bool take_value(struct redis_link *l, const struct resp *value)
{
    unsigned attempt = l->attempt;
    l->heard = loop_clock();
    if (is_message(l, value)) {
        if (slice_equal(value->parts[1].text, l->options.channel))
            l->options.message(l->options.context, value->parts[2].text);
        return true;
    }
    struct redis_command *command = l->flight;
    if (l->state == LINK_GREETING)
        command = &l->hello;
    else if (command && !(l->flight = command->next))
        l->flight_end = &l->flight;
    if (!command) {
        lose(l, value->kind == RESP_ERROR ? "the server refuses" : "the server says what it was not asked");
        return false;
    }
    command->replied(command, value);
    return l->attempt == attempt;
}

static void on_input(void *owner)
{
    struct redis_link *l = owner;
    struct slice in = buffer_slice(&l->stream.in);
    size_t before = in.len;
    for (;;) {
        struct resp value;
        enum resp_result result = resp_next(&in, &value);
        if (result == RESP_BROKEN)
            lose(l, "the server does not speak the protocol of Redis");
        if (result == RESP_MORE)
            stream_consume(&l->stream, before - in.len);
        if (result != RESP_VALUE || !take_value(l, &value))
            return;
    }
}

static void on_ended(void *owner, int error)
{
    lose(owner, error == ENOMEM ? "out of memory"
                : error         ? strerror(error)
                                : "the server ended the connection");
}

/* A server that takes no more clients says why before it closes, so what it sent is read to the end. */
static const struct stream_user stream_user = {.connected = on_connected,
                                               .input = on_input,
                                               .ended = on_ended,
                                               .read_size = READ_SIZE,
                                               .hears_out = true};

/* ---- connecting ---- */

static void connect_to(struct redis_link *l, const struct net_address *address)
{
    struct fail why;
    int fd = net_connect(address, &why);
    if (fd < 0) {
        lose(l, why.text);
        return;
    }
    l->state = LINK_CONNECTING;
    l->stream = (struct stream){.user = &stream_user,
                                .owner = l,
                                .in = buffer_with_limit(INPUT_MAX),
                                .out = buffer_with_limit(OUTPUT_MAX)};
    stream_open(&l->stream, l->options.loop, fd);
}

static void on_resolved(void *owner, const struct dns_answer *answer)
{
    struct redis_link *l = owner;
    struct net_address address;
    if (l->state != LINK_RESOLVING)
        return; /* this attempt has ended; a newer one that resolves may use the answer */
    if (answer->result != DNS_FOUND) {
        lose(l, answer->result == DNS_ABSENT ? "the server's name has no address"
                                             : "the server's name cannot be looked up");
        return;
    }
    const struct address *to = &answer->addresses[0];
    net_from_ip(slice_of(to->bytes, to->family == 4 ? 4 : 16), l->options.server.port, &address);
    connect_to(l, &address);
}

/* Begins an attempt. */
static void begin_link(struct redis_link *l)
{
    const struct redis_server *server = &l->options.server;
    loop_timer_set(&l->timer, l->options.timeout);
    l->state = LINK_RESOLVING;
    if (server->address.len)
        connect_to(l, &server->address);
    else if (!dns_ask(l->options.dns, server->host, (struct fair_owner){.rank = FAIR_IN_USE}, on_resolved, l))
        lose(l, "out of memory");
}

/* ---- timeouts ---- */

static void on_pong(struct redis_command *command, const struct resp *reply)
{
    struct redis_link *l = (void *)((uint8_t *)command - offsetof(struct redis_link, ping));
    l->pinged = false;
    if (reply && reply->kind == RESP_ERROR)
        lose_by(l, reply);
}

/* Returns for how long the server has owed its next answer [µs], or 0 if it owes none. */
static uint64_t silence(const struct redis_link *l)
{
    return l->flight ? loop_clock() - l->heard : 0;
}

/* Checks a ready connection. A server that has sent something within `timeout` needs no PING, and a command in flight serves as one. */
static void check_ready(struct redis_link *l)
{
    const struct slice ping[] = {SLICE_LITERAL("PING")};
    unsigned attempt = l->attempt;
    if (silence(l) >= l->options.timeout)
        stream_look(&l->stream); /* this thread may have been late, and the answer may be there */
    if (l->attempt != attempt)
        return;
    uint64_t silent = silence(l);
    if (silent >= l->options.timeout) {
        lose(l, "the server does not answer");
        return;
    }
    if (!l->flight && !l->pinged) {
        l->ping = (struct redis_command){.replied = on_pong};
        l->pinged = put(l, ping, 1, &l->ping);
    }
    loop_timer_set(&l->timer, l->options.timeout - silent);
}

static void on_timer(void *owner)
{
    struct redis_link *l = owner;
    if (l->state == LINK_PAUSING)
        begin_link(l);
    else if (l->state == LINK_READY)
        check_ready(l);
    else
        lose(l, l->state == LINK_GREETING ? "the server does not answer"
                                          : "the server cannot be reached in time");
}

/* ---- life ---- */

struct redis_link *redis_link_new(const struct redis_link_options *options)
{
    struct redis_link *l = calloc(1, sizeof *l);
    if (!l)
        return NULL;
    l->options = *options;
    l->backoff = (struct backoff){.least = BACKOFF_MIN, .most = BACKOFF_MAX, .jitter = 50};
    l->flight_end = &l->flight;
    l->hello.replied = on_greeted;
    loop_timer_open(&l->timer, options->loop, on_timer, l);
    loop_timer_set(&l->timer, 0);
    return l;
}

void redis_link_free(struct redis_link *l)
{
    if (!l)
        return;
    loop_timer_close(&l->timer);
    stream_close(&l->stream);
    drop_flight(l);
    free(l);
}

bool redis_link_ready(const struct redis_link *l)
{
    return l->state == LINK_READY;
}

bool redis_link_pausing(const struct redis_link *l)
{
    return l->state == LINK_PAUSING && l->failed;
}
