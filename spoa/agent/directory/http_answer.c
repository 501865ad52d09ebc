/* SPDX-License-Identifier: MIT */
#include "spoa/agent/directory/http_answer.h"

#include "spoa/agent/model/record_json.h"

#define DEPTH      8             /* an egress rule with header values, and room for x- members around it */
#define TTL_MIN    SECOND        /* the minimum, also for "no-store" */
#define TTL_MAX    (60 * MINUTE) /* the maximum */
#define PAUSE_MAX  (10 * SECOND) /* maximum of Retry-After that is obeyed */
#define STATE_TTL  SECOND        /* lifetime of the states migrating and waking, which end soon */
#define TIME_LIMIT ((int64_t)1 << 53)

static const struct json_limits limits = {.bytes = DIRECTORY_HTTP_BODY_MAX, .depth = DEPTH};

/* ---- header values ---- */

static uint64_t between(uint64_t value, uint64_t least, uint64_t most)
{
    return value < least ? least : value < most ? value : most;
}

/* Reads the lifetime from the directives that a cache of answers must know (RFC 9111 section 5.2.2). Returns 0 if there is none. */
static uint64_t read_ttl(struct slice cache_control)
{
    struct slice rest = cache_control, part;
    uint64_t ttl = 0;
    while (slice_split(&rest, ',', &part)) {
        uint64_t seconds;
        part = slice_trim(part);
        if (slice_equal_nocase(part, SLICE_LITERAL("no-store")) ||
            slice_equal_nocase(part, SLICE_LITERAL("no-cache")))
            return TTL_MIN;
        if (slice_equal_nocase(slice_sub(part, 0, 8), SLICE_LITERAL("max-age=")) &&
            slice_u64(slice_from(part, 8), UINT32_MAX, &seconds))
            ttl = between(seconds * SECOND, TTL_MIN, TTL_MAX);
    }
    return ttl;
}

static bool is_type(struct slice content_type, const char *type)
{
    struct slice bare = slice_trim(slice_sub(content_type, 0, slice_find(content_type, ';')));
    return slice_equal_nocase(bare, slice_text(type));
}

/* ---- answers ---- */

/* Turns the finding into an answer that says nothing about the sandbox. */
static void doubt(struct directory_http_finding *f, enum directory_http_health health)
{
    f->outcome = LOOKUP_UNAVAILABLE;
    f->health = health;
}

static void read_record(const struct directory_http_reply *reply, struct writer *scratch,
                        struct directory_http_finding *f, struct fail *why)
{
    if (reply->too_large) {
        fail(why, "a record is over %zu bytes", DIRECTORY_HTTP_BODY_MAX);
        return doubt(f, DIRECTORY_HTTP_DOUBT);
    }
    f->doc = json_parse(reply->body, "record", 0, limits, why);
    if (!f->doc || !record_from_json(f->doc, json_root(f->doc), scratch, &f->record, why))
        return doubt(f, DIRECTORY_HTTP_DOUBT);
    f->outcome = LOOKUP_FOUND;
    f->ttl = read_ttl(reply->cache_control);
}

/* Turns the finding into a record that has only a state. */
static void be_in_state(struct directory_http_finding *f, enum record_state state)
{
    f->outcome = LOOKUP_FOUND;
    f->record = (struct record){.state = state, .bare = true};
}

/* Reads a 503. {"error":"sandbox_migrating"} is about this sandbox; any other 503 is about the control plane, and returns false. */
static bool read_busy(const struct directory_http_reply *reply, struct directory_http_finding *f)
{
    struct fail why;
    struct slice error = {NULL, 0};
    struct json *doc = reply->too_large ? NULL : json_parse(reply->body, "", 0, limits, &why);
    bool busy = doc && json_text(json_member(json_root(doc), "error"), &error);
    if (busy && slice_is(error, "sandbox_migrating"))
        be_in_state(f, RECORD_MIGRATING);
    else if (busy && slice_is(error, "sandbox_waking"))
        be_in_state(f, RECORD_WAKING);
    else
        busy = false;
    json_free(doc);
    if (busy)
        f->ttl = STATE_TTL;
    return busy;
}

/* Reads a status that says nothing about the sandbox. */
static void refuse_answer(const struct directory_http_reply *reply, struct directory_http_finding *f,
                          struct fail *why)
{
    unsigned status = reply->status;
    if (status == 401 || status == 403)
        fail(why, "it refuses our token (status %u)", status);
    else if (status >= 300 && status < 400)
        fail(why, "it redirects (status %u), which is not followed", status);
    else
        fail(why, "status %u", status);
    /* only seconds: a date would need clocks that agree */
    uint64_t seconds = 0;
    if ((status == 429 || status == 503) && slice_present(reply->retry_after) &&
        slice_u64(reply->retry_after, UINT32_MAX, &seconds))
        f->pause = between(seconds * SECOND, 0, PAUSE_MAX);
    doubt(f, DIRECTORY_HTTP_BAD);
}

void directory_http_answer(const struct directory_http_reply *reply, struct writer *scratch,
                           struct directory_http_finding *f, struct fail *why)
{
    *f = (struct directory_http_finding){.health = DIRECTORY_HTTP_GOOD};
    if (reply->status == 200)
        return read_record(reply, scratch, f, why);
    if (reply->status == 404 && is_type(reply->content_type, "text/html")) {
        /* something in front of the control plane has answered with its own page */
        fail(why, "status 404 with a page of HTML: this is not the control plane's");
        return doubt(f, DIRECTORY_HTTP_BAD);
    }
    if (reply->status == 404)
        f->outcome = LOOKUP_ABSENT;
    else if (reply->status == 410)
        be_in_state(f, RECORD_STOPPED);
    else if (reply->status != 503 || !read_busy(reply, f))
        refuse_answer(reply, f, why);
}

/* ---- events ---- */

/* Returns whether the text may be a part of a key: no blank, no control byte. */
static bool is_key_text(struct slice text)
{
    for (size_t i = 0; i < text.len; i++)
        if (text.at[i] <= 0x20 || text.at[i] == 0x7f)
            return false;
    return text.len > 0;
}

/* Reads the key of an event: {"sandbox": ID} or {"namespace": NAME, "sandbox": ID}. */
static bool read_key(const struct json *doc, struct writer *key, struct fail *why)
{
    const json_node *root = json_root(doc), *space = json_member(root, "namespace");
    struct slice text;
    if (space && !json_is_null(space)) {
        if (!json_text(space, &text) || !is_key_text(text))
            return json_fail(doc, space, why, "namespace is a text without blanks");
        if (!slice_is(text, "default")) { /* look-ups omit this one */
            writer_put(key, text);
            writer_text(key, "/");
        }
    }
    if (!json_text(json_member(root, "sandbox"), &text) || !is_key_text(text))
        return json_fail(doc, root, why, "an event has a sandbox, a text without blanks");
    writer_put(key, text);
    return !key->full || json_fail(doc, root, why, "a sandbox is over %d bytes", DIRECTORY_HTTP_KEY_MAX);
}

/* Reports a changed record. A record that cannot be used is looked up like one that was not sent: it affects its own sandbox only. */
static void tell_update(struct directory *directory, const struct json *doc, struct slice key,
                        struct writer *scratch)
{
    const json_node *node = json_member(json_root(doc), "record");
    struct record record;
    struct fail why;
    if (node && record_from_json(doc, node, scratch, &record, &why))
        directory_changed(directory, key, &record);
    else
        directory_announced(directory, key);
}

/* Reports a revocation: either a list of tokens or a time. */
static bool tell_revoke(struct directory *directory, const struct json *doc, struct slice data,
                        struct fail *why)
{
    if (json_member(json_root(doc), "revoked"))
        return directory_revoked_tokens(directory, data, false, why);
    const json_node *node = json_member(json_root(doc), "not_before");
    int64_t seconds;
    if (!json_int(doc, node, 0, TIME_LIMIT, &seconds))
        return json_fail(doc, json_root(doc), why, "not_before is a time in Unix seconds");
    /* if memory is short, the stream ends, and begins with this revocation when it is opened again */
    return directory_revoked(directory, seconds) || fail(why, "out of memory");
}

bool directory_http_event(struct directory *directory, struct slice name, struct slice data,
                          struct writer *scratch, struct fail *why)
{
    char memory[DIRECTORY_HTTP_KEY_MAX];
    struct writer key = writer_of(memory, sizeof memory);
    bool update = slice_is(name, "update"), removal = slice_is(name, "remove"),
         revoke = slice_is(name, "revoke");
    if (!update && !removal && !revoke)
        return true; /* an event of a later version, or a sign of life */
    struct json *doc = json_parse(data, "event", 0, limits, why);
    bool good = doc && (revoke || read_key(doc, &key, why));
    if (good && update)
        tell_update(directory, doc, writer_slice(&key), scratch);
    else if (good && removal)
        directory_removed(directory, writer_slice(&key));
    else if (good)
        good = tell_revoke(directory, doc, data, why);
    json_free(doc);
    return good;
}
