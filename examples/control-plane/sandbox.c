/* SPDX-License-Identifier: MIT */
#include "examples/control-plane/sandbox.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "spoa/base/json/json.h"
#include "spoa/base/json/json_write.h"

#define DEPTH 8

static const char *const states[] = {"running", "migrating", "waking", "suspended", "stopped"};
enum { STATES = sizeof states / sizeof *states };

static const char *state_text(enum sandbox_state state)
{
    return states[state];
}

bool sandbox_id_is_good(struct slice id)
{
    for (size_t i = 0; i < id.len; i++)
        if (id.at[i] <= 0x20 || id.at[i] == 0x7f)
            return false;
    return id.len > 0 && id.len <= SANDBOX_ID_MAX;
}

struct sandbox *sandbox_new(struct slice id)
{
    struct sandbox *s = calloc(1, sizeof *s);
    if (s && !(s->id = slice_dup(id))) {
        free(s);
        return NULL;
    }
    if (s)
        s->rest = s->headers = buffer_with_limit(SANDBOX_RECORD_MAX);
    return s;
}

void sandbox_free(struct sandbox *s)
{
    if (!s)
        return;
    loop_timer_close(&s->waking);
    buffer_free(&s->rest);
    buffer_free(&s->headers);
    free(s->worker);
    free(s->id);
    free(s);
}

void sandbox_touch(struct sandbox *s)
{
    int64_t now = (int64_t)time(NULL);
    s->epoch = s->epoch < now ? now : s->epoch < INT64_MAX ? s->epoch + 1 : INT64_MAX;
}

bool sandbox_set_worker(struct sandbox *s, const char *worker)
{
    char *copy = worker ? strdup(worker) : NULL;
    if (worker && !copy)
        return false;
    free(s->worker);
    s->worker = copy;
    return true;
}

/* ---- reading ---- */

struct reading {
    enum sandbox_state state;
    int64_t epoch;
    char *worker;
    struct buffer rest, headers;
    bool authorizes;
};

static bool read_state(struct slice value, enum sandbox_state *state, struct fail *why)
{
    for (int i = 0; i < STATES; i++)
        if (value.len > 2 && slice_is(slice_sub(value, 1, value.len - 2), states[i])) {
            *state = (enum sandbox_state)i;
            return true;
        }
    return fail(why, "state is running, migrating, waking, suspended or stopped");
}

static bool read_worker(struct slice value, char **worker, struct fail *why)
{
    struct slice text;
    struct json *doc = json_parse(value, "worker", 0, (struct json_limits){SANDBOX_RECORD_MAX, 1}, why);
    if (!doc)
        return false;
    bool none = json_is_null(json_root(doc)), good = none;
    if (json_text(json_root(doc), &text)) {
        good = (slice_starts(text, "http://") || slice_starts(text, "https://")) && text.len < 1024;
        *worker = good ? slice_dup(text) : NULL;
    }
    json_free(doc);
    return (good && (none || *worker)) || fail(why, "worker is http://HOST:PORT or https://HOST:PORT");
}

/* Appends JSON with a space for each line break, because an event, or an answer to a command, is one line. In JSON a raw line break can
 * only stand between two tokens. */
static bool put_on_a_line(struct buffer *to, struct slice json)
{
    while (json.len) {
        size_t len = 0;
        while (len < json.len && json.at[len] != '\n' && json.at[len] != '\r')
            len++;
        if (!buffer_put(to, slice_sub(json, 0, len)) ||
            (len < json.len && !buffer_put(to, SLICE_LITERAL(" "))))
            return false;
        json = slice_from(json, len + 1);
    }
    return true;
}

/* Returns true if agents accept this key. Agents refuse a whole record with an unknown key, so the operator who mistypes one must get an
 * error. */
static bool is_for_agents(struct slice key)
{
    static const char *const keys[] = {"org", "ports", "headers", "access", "not_before"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (slice_is(key, keys[i]))
            return true;
    return slice_starts(key, "x-");
}

/* Sets *authorizes if no Authorization may be added: agents refuse headers that are no object, or that have a name twice. Returns false
 * with *why if the JSON is invalid. */
static bool read_authorizes(struct slice headers, bool *authorizes, struct fail *why)
{
    struct json *doc =
        json_parse(headers, "headers", 0, (struct json_limits){SANDBOX_RECORD_MAX, DEPTH}, why);
    if (!doc)
        return false;
    *authorizes = !json_is_object(json_root(doc));
    for (const json_node *n = json_first(json_root(doc)); n && !*authorizes; n = json_next(n))
        *authorizes = slice_equal_nocase(slice_text(json_key(n)), SLICE_LITERAL("Authorization"));
    json_free(doc);
    return true;
}

static bool read_headers(struct slice value, struct reading *r, struct fail *why)
{
    return read_authorizes(value, &r->authorizes, why) &&
           (put_on_a_line(&r->headers, slice_trim(value)) || fail(why, "the headers are too large"));
}

static bool on_member(void *context, struct slice key, struct slice value, struct fail *why)
{
    struct reading *r = context;
    uint64_t epoch;
    if (slice_is(key, "state"))
        return read_state(slice_trim(value), &r->state, why);
    if (slice_is(key, "worker"))
        return read_worker(value, &r->worker, why);
    if (slice_is(key, "epoch")) {
        if (!slice_u64(slice_trim(value), INT64_MAX, &epoch))
            return fail(why, "epoch is a whole number");
        r->epoch = (int64_t)epoch;
        return true;
    }
    if (slice_is(key, "headers"))
        return read_headers(value, r, why);
    if (!is_for_agents(key))
        return fail(why, "a record has no key \"%.*s\"", SLICE_PRINTF(key));
    return (buffer_put(&r->rest, SLICE_LITERAL(",")) && json_write_text(&r->rest, key) &&
            buffer_put(&r->rest, SLICE_LITERAL(":")) && put_on_a_line(&r->rest, value)) ||
           fail(why, "the record is over %zu bytes", SANDBOX_RECORD_MAX);
}

/* Reads the members of a record. The record is wrapped in an object first: json_stream_object reports each member of an inner object,
 * even duplicates, which a parsed document would hide. */
static bool read_members(struct slice record, struct reading *r, struct fail *why)
{
    static const struct json_limits limits = {SANDBOX_RECORD_MAX, DEPTH};
    struct buffer wrapped = buffer_with_limit(SANDBOX_RECORD_MAX + 16);
    const struct json_stream stream = {.each = on_member, .context = r};
    bool good = json_check(record, "record", 0, limits, why) &&
                ((buffer_put(&wrapped, SLICE_LITERAL("{\"record\":")) && buffer_put(&wrapped, record) &&
                  buffer_put(&wrapped, SLICE_LITERAL("}"))) ||
                 fail(why, "the record is too large")) &&
                json_stream_object(buffer_slice(&wrapped), "record", "record", 0, DEPTH + 1, &stream, why);
    buffer_free(&wrapped);
    return good;
}

bool sandbox_read(struct sandbox *s, struct slice record, struct fail *why)
{
    struct reading r = {.rest = buffer_with_limit(SANDBOX_RECORD_MAX),
                        .headers = buffer_with_limit(SANDBOX_RECORD_MAX)};
    bool good = read_members(record, &r, why) &&
                (r.worker || r.state != RUNNING || fail(why, "a running sandbox needs a worker"));
    if (!good) {
        free(r.worker);
        buffer_free(&r.rest);
        buffer_free(&r.headers);
        return false;
    }
    free(s->worker);
    buffer_free(&s->rest);
    buffer_free(&s->headers);
    s->worker = r.worker;
    s->rest = r.rest;
    s->headers = r.headers;
    s->authorizes = r.authorizes;
    s->state = r.state;
    if (r.epoch > s->epoch)
        s->epoch = r.epoch;
    return true;
}

/* ---- writing ---- */

static bool write_headers(const struct sandbox *s, const char *authorization, struct buffer *to)
{
    struct slice own = slice_trim(buffer_slice(&s->headers));
    if (!authorization || s->authorizes)
        return !own.len || (buffer_put(to, SLICE_LITERAL(",\"headers\":")) && buffer_put(to, own));
    struct slice members = slice_trim(slice_sub(own, 1, own.len > 2 ? own.len - 2 : 0));
    return buffer_put(to, SLICE_LITERAL(",\"headers\":{\"Authorization\":")) &&
           json_write_text(to, slice_text(authorization)) &&
           (!members.len || (buffer_put(to, SLICE_LITERAL(",")) && buffer_put(to, members))) &&
           buffer_put(to, SLICE_LITERAL("}"));
}

bool sandbox_write(const struct sandbox *s, const char *authorization, struct buffer *to)
{
    return json_write(to, "{\"state\":\"%s\",\"epoch\":%lld", state_text(s->state), (long long)s->epoch) &&
           (!s->worker ||
            (buffer_put(to, SLICE_LITERAL(",\"worker\":")) && json_write_text(to, slice_text(s->worker)))) &&
           write_headers(s, authorization, to) && buffer_put(to, buffer_slice(&s->rest)) &&
           buffer_put(to, SLICE_LITERAL("}"));
}
