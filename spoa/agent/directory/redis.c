/* SPDX-License-Identifier: MIT */
/*
 * The directory kind `redis`. The record of a sandbox is a JSON text at key {prefix}{id}; whoever changes a record publishes the id on
 * channel {prefix}events. The kind has two connections, one for commands and one for the channel (redis_link.h).
 *
 * Values are read by GETRANGE: a value that is too large is not transferred, and a value of another type is an error
 * and not an absent record.
 */
#include <stdio.h>
#include <stdlib.h>

#include "spoa/agent/directory/kind.h"
#include "spoa/agent/directory/redis_link.h"
#include "spoa/agent/model/record_json.h"

/* After the prefix, the key of the list of revoked tokens, and the message that announces its change. No sandbox has this name. */
#define REVOKED "#revoked"

enum {
    COMMANDS_MAX = 512, /* look-ups in flight */
    KEY_MAX_LEN = 255,
    PREFIX_MAX = 255,
    VALUE_MAX = RESP_TEXT - 1, /* maximum size of a value; one byte more shows that it is larger */
    RECORD_DEPTH = 6
};

struct directory_redis_options {
    struct directory_common common;
    char *server, *user, *password_file, *prefix;
    int64_t database, timeout; /* number for SELECT; of an answer [ms] */
};

struct directory_redis {
    const struct directory_redis_options *options;
    struct directory *directory;
    struct log *log;
    struct dns *dns;
    struct dns_options dns_options;
    struct redis_link *commands, *events;
    struct directory_questions waiting; /* questions until the command link is ready */
    char channel[PREFIX_MAX + sizeof "events"];
    char last_problem[128];    /* why the event link was lost; empty: it is ready */
    char why[128];             /* why the command link was lost */
    bool known;                /* the command link's first attempt has ended */
    uint64_t complained;       /* time of the last log line about a bad record (loop_clock) */
    struct redis_command list; /* the look-up of the revoked tokens */
    bool listing;              /* the look-up of the list is in flight */
    bool list_again;           /* ask again after it, or when the link is ready */
    uint8_t scratch[128 * 1024];
};

struct look_up {
    struct directory_question question;
    struct redis_command command;
    struct directory_redis *kind;
};

/* ---- answers ---- */

/* Logs a bad record, at most once in a second: whoever breaks one record may break a million. */
static void complain(struct directory_redis *d, struct slice key, const char *why)
{
    uint64_t now = loop_clock();
    if (d->complained && now - d->complained < SECOND)
        return;
    d->complained = now;
    log_write(d->log, LOG_ERROR, "a record in Redis cannot be used", LOG_SLICE("sandbox", key),
              LOG_TEXT("why", why));
}

/* Ends a look-up without an answer, and logs why. */
static void finish_badly(struct look_up *l, const char *why)
{
    complain(l->kind, l->question.key, why);
    directory_answer(&l->question, LOOKUP_UNAVAILABLE, NULL, 0);
}

/* Ends a look-up by the text of its record. */
static void finish_with(struct look_up *l, struct slice text)
{
    struct directory_redis *d = l->kind;
    struct writer scratch = writer_of(d->scratch, sizeof d->scratch);
    struct record record;
    struct fail why;
    struct json *doc = json_parse(text, "record", 0, (struct json_limits){VALUE_MAX, RECORD_DEPTH}, &why);
    if (doc && record_from_json(doc, json_root(doc), &scratch, &record, &why))
        directory_answer(&l->question, LOOKUP_FOUND, &record, 0);
    else
        finish_badly(l, why.text);
    json_free(doc);
}

static void on_reply(struct redis_command *command, const struct resp *reply)
{
    struct look_up *l = (struct look_up *)(void *)((char *)command - offsetof(struct look_up, command));
    if (!reply)
        directory_answer(&l->question, LOOKUP_UNAVAILABLE, NULL, 0);
    else if (reply->kind == RESP_ERROR)
        finish_badly(l, slice_starts(reply->parts[0].text, "WRONGTYPE") ? "the value is not a string"
                                                                        : "the server refuses the look-up");
    else if (reply->kind != RESP_STRING)
        finish_badly(l, "the server's answer is not a text");
    else if (reply->parts[0].text.len == 0) /* GETRANGE answers so for a key that does not exist */
        directory_answer(&l->question, LOOKUP_ABSENT, NULL, 0);
    else if (reply->parts[0].text.len > VALUE_MAX)
        finish_badly(l, "the value is over 64 KiB");
    else
        finish_with(l, reply->parts[0].text);
}

/* Sends the look-up of {prefix}{key}. Returns false if the link is not ready or too much is in flight. */
static bool send_get(struct directory_redis *d, struct slice key, struct redis_command *command)
{
    uint8_t memory[PREFIX_MAX + KEY_MAX_LEN];
    struct writer whole = writer_of(memory, sizeof memory);
    char last[16];
    writer_text(&whole, d->options->prefix);
    writer_put(&whole, key);
    snprintf(last, sizeof last, "%d", VALUE_MAX);
    const struct slice words[] = {SLICE_LITERAL("GETRANGE"), writer_slice(&whole), SLICE_LITERAL("0"),
                                  slice_text(last)};
    return redis_link_send(d->commands, words, sizeof words / sizeof *words, command);
}

/* ---- revoked tokens ---- */

static void on_list(struct redis_command *command, const struct resp *reply);

/* Asks for the list of revoked tokens. If that cannot be done now, it is asked for after the present answer or when the link is ready. */
static void ask_list(struct directory_redis *d)
{
    d->list.replied = on_list;
    d->list_again = d->listing || !send_get(d, SLICE_LITERAL(REVOKED), &d->list);
    d->listing = d->listing || !d->list_again;
}

/* Takes the list. A list that is missing does not revoke less, because the server may have lost its data. */
static void on_list(struct redis_command *command, const struct resp *reply)
{
    struct directory_redis *d =
        (struct directory_redis *)(void *)((char *)command - offsetof(struct directory_redis, list));
    struct slice text = {NULL, 0};
    struct fail why = {"the value of " REVOKED " is not a string, or is over 64 KiB"};
    d->listing = false;
    if (!reply)
        return;
    if (reply->kind == RESP_STRING)
        text = reply->parts[0].text;
    if (reply->kind != RESP_STRING || text.len > VALUE_MAX ||
        (text.len > 0 && !directory_revoked_tokens(d->directory, text, true, &why)))
        complain(d, SLICE_LITERAL(REVOKED), why.text);
    if (d->list_again)
        ask_list(d);
}

/* ---- questions ---- */

static void send_look_up(struct look_up *l)
{
    l->command.replied = on_reply;
    if (!send_get(l->kind, l->question.key, &l->command))
        directory_answer(&l->question, LOOKUP_UNAVAILABLE, NULL, 0);
}

static void redis_ask(void *self, struct directory_question *q)
{
    struct look_up *l = (struct look_up *)(void *)q;
    struct directory_redis *d = l->kind = self;
    if (redis_link_ready(d->commands) || redis_link_pausing(d->commands))
        send_look_up(l); /* fails at once while the link pauses */
    else
        directory_questions_put(&d->waiting, q);
}

/* Sends the questions that waited for the link; they fail if it was lost. */
static void end_waiting(struct directory_redis *d)
{
    for (struct directory_question *q; (q = directory_questions_take(&d->waiting));)
        send_look_up((struct look_up *)(void *)q);
}

/* ---- the two links ---- */

/* Reports health once the command link's first attempt has ended. */
static void redis_tell_health(struct directory_redis *d)
{
    bool answering = redis_link_ready(d->commands);
    if (d->known)
        directory_health(d->directory, answering, redis_link_ready(d->events),
                         answering ? d->last_problem : d->why);
}

static void on_commands_ready(void *context)
{
    struct directory_redis *d = context;
    d->known = true;
    redis_tell_health(d);
    ask_list(d);
    end_waiting(d);
}

static void on_commands_lost(void *context, const char *why)
{
    struct directory_redis *d = context;
    snprintf(d->why, sizeof d->why, "%s: %s", d->options->server, why);
    d->known = true;
    redis_tell_health(d);
    end_waiting(d);
}

static void on_events_ready(void *context)
{
    struct directory_redis *d = context;
    d->last_problem[0] = '\0';
    directory_missed(d->directory); /* before the health report promises pushes */
    ask_list(d);
    redis_tell_health(d);
}

static void on_events_lost(void *context, const char *why)
{
    struct directory_redis *d = context;
    snprintf(d->last_problem, sizeof d->last_problem, "%s: changes are not announced: %s", d->options->server,
             why);
    redis_tell_health(d);
}

/* Takes a message of the channel: the id of a changed record. Anything that cannot be a key is ignored. */
static void on_message(void *context, struct slice message)
{
    struct directory_redis *d = context;
    for (size_t i = 0; i < message.len; i++)
        if (message.at[i] <= ' ' || message.at[i] == 0x7f)
            return;
    if (slice_is(message, REVOKED))
        ask_list(d);
    else if (message.len > 0 && message.len <= KEY_MAX_LEN)
        directory_announced(d->directory, message);
}

/* ---- life ---- */

static void redis_stop(void *self)
{
    struct directory_redis *d = self;
    dns_free(d->dns);
    redis_link_free(d->events);
    redis_link_free(d->commands);
    for (struct directory_question *q; (q = directory_questions_take(&d->waiting));)
        directory_answer(q, LOOKUP_UNAVAILABLE, NULL, 0);
    free(d);
}

/* Prepares the name look-ups and both links. Returns false with *why. */
static bool redis_prepare(struct directory_redis *d, struct loop *loop, struct fail *why)
{
    const struct directory_redis_options *o = d->options;
    struct redis_link_options link = {.loop = loop,
                                      .database = o->database,
                                      .user = o->user,
                                      .password_file = o->password_file,
                                      .timeout = (uint64_t)o->timeout * MILLISECOND,
                                      .context = d};
    d->dns_options.timeout = link.timeout;
    d->dns = link.dns = dns_new(loop, &d->dns_options, why);
    if (!d->dns || !redis_server_parse(slice_text(o->server), &link.server, why))
        return false;
    link.ready = on_commands_ready;
    link.lost = on_commands_lost;
    d->commands = redis_link_new(&link);
    snprintf(d->channel, sizeof d->channel, "%sevents", o->prefix);
    link.channel = slice_text(d->channel);
    link.ready = on_events_ready;
    link.lost = on_events_lost;
    link.message = on_message;
    d->events = redis_link_new(&link);
    return (d->commands && d->events) || fail(why, "out of memory");
}

static void *redis_start(const void *options, struct directory *directory, struct loop *loop, struct log *log,
                         struct fail *why)
{
    struct directory_redis *d = calloc(1, sizeof *d);
    if (!d) {
        fail(why, "out of memory");
        return NULL;
    }
    d->options = options;
    d->directory = directory;
    d->log = log;
    if (redis_prepare(d, loop, why))
        return d;
    redis_stop(d);
    return NULL;
}

/* ---- options ---- */

static const char *check_server(struct slice value)
{
    struct redis_server server;
    struct fail why;
    return redis_server_parse(value, &server, &why) ? NULL
                                                    : "\"HOST:PORT\", \"[IPv6]:PORT\" or \"unix@/PATH\"";
}

static bool redis_check(const void *options, struct fail *why)
{
    const struct directory_redis_options *o = options;
    return !o->user || o->password_file || fail(why, "directory.user: a user needs a password_file");
}

static const struct option options[] = {
    DIRECTORY_KIND_OPTION(struct directory_redis_options, "redis"),
    {.key = "server",
     .type = OPTION_TEXT,
     .offset = offsetof(struct directory_redis_options, server),
     .fallback = "127.0.0.1:6379",
     .help = "`HOST:PORT`, `[IPv6]:PORT` or `unix@/PATH`",
     .min = 1,
     .max = 300,
     .check = check_server},
    {.key = "user",
     .type = OPTION_TEXT,
     .offset = offsetof(struct directory_redis_options, user),
     .fallback = OPTION_NONE,
     .help = "user name; not set: Redis's default user",
     .min = 1,
     .max = 255},
    {.key = "password_file",
     .type = OPTION_PATH,
     .offset = offsetof(struct directory_redis_options, password_file),
     .fallback = OPTION_NONE,
     .help = "its first line is the password; read for each connection",
     .secret = true},
    {.key = "database",
     .type = OPTION_INT,
     .offset = offsetof(struct directory_redis_options, database),
     .fallback = "0",
     .help = "number of the database; channels do not belong to one",
     .min = 0,
     .max = 65535},
    {.key = "prefix",
     .type = OPTION_TEXT,
     .offset = offsetof(struct directory_redis_options, prefix),
     .fallback = "cellgate:sandbox:",
     .help = "prefix of the records' keys and of the channel's name",
     .min = 1,
     .max = PREFIX_MAX},
    {.key = "timeout",
     .type = OPTION_DURATION,
     .offset = offsetof(struct directory_redis_options, timeout),
     .fallback = "1s",
     .help = "maximum time until a connection is ready, and for each answer",
     .min = 50,
     .max = OPTION_MINUTE},
    DIRECTORY_CACHE_OPTIONS(struct directory_redis_options, "10s"),
};

const struct directory_kind directory_kind_redis = {
    .name = "redis",
    .options = options,
    .options_count = sizeof options / sizeof *options,
    .options_size = sizeof(struct directory_redis_options),
    .check = redis_check,
    .absence_is_doubt = true,
    .start = redis_start,
    .question_size = sizeof(struct look_up),
    .ask = redis_ask,
    .look_ups_at_once = COMMANDS_MAX,
    .stop = redis_stop,
};
