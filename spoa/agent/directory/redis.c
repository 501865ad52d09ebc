/* SPDX-License-Identifier: MIT */
#include "spoa/agent/directory/redis.h"

#include <stdio.h>
#include <stdlib.h>

#include "spoa/agent/directory/redis_link.h"
#include "spoa/agent/model/record_json.h"
#include "spoa/base/thread.h"

/* Behind the prefix the key of the list, and on the channel its announcement: no sandbox is called so. */
#define REVOKED "#revoked"

enum {
    KEY_MOST = 255,
    PREFIX_MOST = 255,
    OPEN_MOST = 65536, /* look-ups at a time */
    VALUE_MOST = RESP_TEXT - 1,
    RECORD_DEPTH = 4
};

struct directory_redis_options {
    struct directory_common common;
    char *server, *user, *password_file, *prefix;
    int64_t database, timeout;
};

struct directory_redis {
    const struct directory_redis_options *options;
    const struct directory_sink *sink;
    struct log *log;
    struct loop *loop;
    struct dns *dns;
    struct dns_options dns_options;
    struct redis_link *commands, *events;
    struct look_up *waiting, **waiting_end; /* for the link to be ready */
    struct loop_task end;
    pthread_t thread;
    char channel[PREFIX_MOST + sizeof "events"];
    char last_problem[128], why[128]; /* of the event link, of the command link */
    bool known, told, told_answering, told_pushing,
        stopping;        /* known: how the command link's first attempt went */
    uint64_t complained; /* loop_clock of the last line about a bad record */
    unsigned open;       /* atomic */
    struct redis_command list;    /* the look-up of the revoked tokens */
    bool listing, list_again;     /* it is on its way; what it says may be too old by then */
    uint8_t scratch[128 * 1024];
};

struct look_up {
    struct redis_command command;
    struct loop_task task;
    struct directory_redis *directory;
    struct look_up *next;
    size_t len;
    uint8_t key[];
};

/* ---- answers ---- */

static void finish(struct look_up *l, enum lookup outcome, const struct record *record)
{
    struct directory_redis *d = l->directory;
    if (!d->stopping)
        d->sink->answered(d->sink->context, slice_of(l->key, l->len), outcome, record, -1);
    __atomic_sub_fetch(&d->open, 1, __ATOMIC_RELAXED);
    free(l);
}

/* Once in a second: whoever breaks one record may break a million. */
static void complain(struct directory_redis *d, struct slice key, const char *why)
{
    uint64_t now = loop_clock();
    if (d->complained && now - d->complained < 1000000)
        return;
    d->complained = now;
    log_write(d->log, LOG_ERROR, "a record in Redis is of no use", LOG_SLICE("sandbox", key),
              LOG_TEXT("why", why));
}

static void finish_badly(struct look_up *l, const char *why)
{
    complain(l->directory, slice_of(l->key, l->len), why);
    finish(l, LOOKUP_UNAVAILABLE, NULL);
}

static void finish_with(struct look_up *l, struct slice text)
{
    struct directory_redis *d = l->directory;
    struct writer scratch = writer_of(d->scratch, sizeof d->scratch);
    struct record record;
    struct fail why;
    struct json *doc = json_parse(text, "record", 0, (struct json_limits){VALUE_MOST, RECORD_DEPTH}, &why);
    if (doc && record_from_json(doc, json_root(doc), &scratch, &record, &why))
        finish(l, LOOKUP_FOUND, &record);
    else
        finish_badly(l, why.text);
    json_free(doc);
}

static void finish_refused(struct look_up *l, const struct resp *reply)
{
    bool type = slice_starts(reply->parts[0].text, "WRONGTYPE");
    finish_badly(l, type ? "the value is no string" : "the server refuses to give it");
}

static void on_reply(struct redis_command *command, const struct resp *reply)
{
    struct look_up *l = (struct look_up *)(void *)command;
    if (!reply)
        finish(l, LOOKUP_UNAVAILABLE, NULL);
    else if (reply->kind == RESP_ERROR)
        finish_refused(l, reply);
    else if (reply->kind != RESP_STRING)
        finish_badly(l, "the server's answer is no text");
    else if (reply->parts[0].text.len == 0)
        finish(l, LOOKUP_ABSENT, NULL); /* what GETRANGE says of a key that is not there */
    else if (reply->parts[0].text.len > VALUE_MOST)
        finish_badly(l, "the value is over 64 KiB");
    else
        finish_with(l, reply->parts[0].text);
}

/* ---- revoked tokens ---- */

static void on_list(struct redis_command *command, const struct resp *reply);

static void ask_list(struct directory_redis *d)
{
    uint8_t memory[PREFIX_MOST + sizeof REVOKED];
    struct writer key = writer_of(memory, sizeof memory);
    char last[16];
    if (d->listing || !redis_link_ready(d->commands)) {
        d->list_again = true; /* when that is answered, or the link is ready */
        return;
    }
    writer_text(&key, d->options->prefix);
    writer_text(&key, REVOKED);
    snprintf(last, sizeof last, "%d", VALUE_MOST);
    const struct slice words[] = {SLICE_LITERAL("GETRANGE"), writer_slice(&key), SLICE_LITERAL("0"),
                                  slice_text(last)};
    d->list.replied = on_list;
    d->listing = redis_link_send(d->commands, words, sizeof words / sizeof *words, &d->list);
    d->list_again = !d->listing;
}

/* One that is not there any more is a server that was emptied: what was revoked stays so. */
static void on_list(struct redis_command *command, const struct resp *reply)
{
    struct directory_redis *d =
        (struct directory_redis *)(void *)((char *)command - offsetof(struct directory_redis, list));
    struct slice text = {NULL, 0};
    struct fail why = {"the value of " REVOKED " is no string, or over 64 KiB"};
    d->listing = false;
    if (d->stopping || !reply)
        return;
    if (reply->kind == RESP_STRING)
        text = reply->parts[0].text;
    if (reply->kind != RESP_STRING || text.len > VALUE_MOST ||
        (text.len > 0 && !d->sink->revoked_tokens(d->sink->context, text, true, &why)))
        complain(d, SLICE_LITERAL(REVOKED), why.text);
    if (d->list_again)
        ask_list(d);
}

/* ---- questions ---- */

static void send_look_up(struct look_up *l)
{
    struct directory_redis *d = l->directory;
    uint8_t memory[PREFIX_MOST + KEY_MOST];
    struct writer key = writer_of(memory, sizeof memory);
    writer_text(&key, d->options->prefix);
    writer_put(&key, slice_of(l->key, l->len));
    char last[16];
    snprintf(last, sizeof last, "%d", VALUE_MOST);
    const struct slice words[] = {SLICE_LITERAL("GETRANGE"), writer_slice(&key), SLICE_LITERAL("0"),
                                  slice_text(last)};
    l->command.replied = on_reply;
    if (!redis_link_send(d->commands, words, sizeof words / sizeof *words, &l->command))
        finish(l, LOOKUP_UNAVAILABLE, NULL);
}

static void run_look_up(void *context)
{
    struct look_up *l = context;
    struct directory_redis *d = l->directory;
    if (d->stopping || redis_link_pausing(d->commands)) {
        finish(l, LOOKUP_UNAVAILABLE, NULL);
    } else if (redis_link_ready(d->commands)) {
        send_look_up(l);
    } else {
        *d->waiting_end = l;
        d->waiting_end = &l->next;
    }
}

static bool look_up(void *self, struct slice key)
{
    struct directory_redis *d = self;
    if (key.len > KEY_MOST || __atomic_load_n(&d->open, __ATOMIC_RELAXED) >= OPEN_MOST)
        return false;
    struct look_up *l = calloc(1, sizeof *l + key.len);
    if (!l)
        return false;
    __atomic_add_fetch(&d->open, 1, __ATOMIC_RELAXED);
    l->directory = d;
    l->len = key.len;
    memcpy(l->key, key.at, key.len);
    l->task = (struct loop_task){.run = run_look_up, .context = l};
    loop_post(d->loop, &l->task);
    return true;
}

static void release_waiting(struct directory_redis *d, void (*to)(struct look_up *l))
{
    struct look_up *l = d->waiting;
    d->waiting = NULL;
    d->waiting_end = &d->waiting;
    for (struct look_up *next; l; l = next) {
        next = l->next;
        l->next = NULL;
        to(l);
    }
}

static void finish_lost(struct look_up *l)
{
    finish(l, LOOKUP_UNAVAILABLE, NULL);
}

/* ---- the two links ---- */

static void tell_health(struct directory_redis *d)
{
    bool answering = redis_link_ready(d->commands), pushing = redis_link_ready(d->events);
    if (!d->known || (d->told && answering == d->told_answering && pushing == d->told_pushing))
        return;
    d->told = true;
    d->told_answering = answering;
    d->told_pushing = pushing;
    d->sink->health(d->sink->context, answering, pushing, answering ? d->last_problem : d->why);
}

static void on_commands_ready(void *context)
{
    struct directory_redis *d = context;
    d->known = true;
    tell_health(d);
    ask_list(d);
    release_waiting(d, send_look_up);
}

static void on_commands_lost(void *context, const char *why)
{
    struct directory_redis *d = context;
    if (d->stopping)
        return;
    snprintf(d->why, sizeof d->why, "%s: %s", d->options->server, why);
    d->known = true;
    tell_health(d);
    release_waiting(d, finish_lost);
}

static void on_events_ready(void *context)
{
    struct directory_redis *d = context;
    d->last_problem[0] = '\0';
    d->sink->missed(d->sink->context); /* before anybody trusts in being told */
    ask_list(d);
    tell_health(d);
}

static void on_events_lost(void *context, const char *why)
{
    struct directory_redis *d = context;
    if (d->stopping)
        return;
    snprintf(d->last_problem, sizeof d->last_problem, "%s: changes are not announced: %s", d->options->server,
             why);
    tell_health(d);
}

static void on_message(void *context, struct slice message)
{
    struct directory_redis *d = context;
    for (size_t i = 0; i < message.len; i++)
        if (message.at[i] <= ' ' || message.at[i] == 0x7f)
            return;
    if (slice_is(message, REVOKED))
        ask_list(d);
    else if (message.len > 0 && message.len <= KEY_MOST)
        d->sink->announced(d->sink->context, message);
}

/* ---- its life ---- */

static void end_loop(void *context)
{
    struct directory_redis *d = context;
    d->stopping = true;
    loop_stop(d->loop);
}

static void *run(void *context)
{
    struct directory_redis *d = context;
    loop_run(d->loop);
    return NULL;
}

static void destroy(struct directory_redis *d)
{
    d->stopping = true;
    dns_free(d->dns);
    redis_link_free(d->commands);
    redis_link_free(d->events);
    release_waiting(d, finish_lost);
    loop_free(d->loop);
    free(d);
}

static bool prepare(struct directory_redis *d, struct fail *why)
{
    const struct directory_redis_options *o = d->options;
    struct redis_link_options link = {.database = o->database,
                                      .user = o->user,
                                      .password_file = o->password_file,
                                      .timeout = (double)o->timeout / 1000,
                                      .context = d};
    d->dns_options.timeout = link.timeout;
    if (!(d->loop = loop_new(why)) || !(d->dns = dns_new(d->loop, &d->dns_options, why)) ||
        !redis_server_parse(slice_text(o->server), &link.server, why))
        return false;
    link.loop = d->loop;
    link.dns = d->dns;
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

static void *start(const void *options, const struct directory_sink *sink, struct log *log, struct fail *why)
{
    struct directory_redis *d = calloc(1, sizeof *d);
    if (!d) {
        fail(why, "out of memory");
        return NULL;
    }
    d->options = options;
    d->sink = sink;
    d->log = log;
    d->waiting_end = &d->waiting;
    d->end = (struct loop_task){.run = end_loop, .context = d};
    if (prepare(d, why) && thread_start(&d->thread, run, d, why))
        return d;
    destroy(d);
    return NULL;
}

static void stop(void *self)
{
    struct directory_redis *d = self;
    loop_post(d->loop, &d->end);
    pthread_join(d->thread, NULL);
    destroy(d);
}

/* ---- options ---- */

static const char *check_server(struct slice value)
{
    struct redis_server server;
    struct fail why;
    return redis_server_parse(value, &server, &why) ? NULL
                                                    : "\"HOST:PORT\", \"[IPv6]:PORT\" or \"unix@/PATH\"";
}

static bool check(const void *options, struct fail *why)
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
     .help = "where Redis is: `HOST:PORT`, `[IPv6]:PORT` or `unix@/PATH`",
     .min = 1,
     .max = 300,
     .check = check_server},
    {.key = "user",
     .type = OPTION_TEXT,
     .offset = offsetof(struct directory_redis_options, user),
     .fallback = OPTION_NONE,
     .help = "user in Redis; none: the default user",
     .min = 1,
     .max = 255},
    {.key = "password_file",
     .type = OPTION_PATH,
     .offset = offsetof(struct directory_redis_options, password_file),
     .fallback = OPTION_NONE,
     .help = "the password in its first line; read for each connection",
     .secret = true},
    {.key = "database",
     .type = OPTION_INT,
     .offset = offsetof(struct directory_redis_options, database),
     .fallback = "0",
     .help = "number of the database; channels belong to none",
     .min = 0,
     .max = 65535},
    {.key = "prefix",
     .type = OPTION_TEXT,
     .offset = offsetof(struct directory_redis_options, prefix),
     .fallback = "cellgate:sandbox:",
     .help = "what the keys of records and the name of the channel begin with",
     .min = 1,
     .max = PREFIX_MOST},
    {.key = "timeout",
     .type = OPTION_DURATION,
     .offset = offsetof(struct directory_redis_options, timeout),
     .fallback = "1s",
     .help = "for a connection until it is ready, and for each answer",
     .min = 50,
     .max = OPTION_MINUTE},
    DIRECTORY_CACHE_OPTIONS(struct directory_redis_options, "10s"),
};

const struct directory_kind directory_kind_redis = {
    .name = "redis",
    .options = options,
    .options_count = sizeof options / sizeof *options,
    .options_size = sizeof(struct directory_redis_options),
    .check = check,
    .absence_is_doubt = true,
    .start = start,
    .look_up = look_up,
    .stop = stop,
};
