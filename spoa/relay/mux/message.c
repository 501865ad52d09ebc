/* SPDX-License-Identifier: MIT */
#include "spoa/relay/mux/message.h"

#include <inttypes.h>

#include "spoa/base/json/json_write.h"
#include "spoa/proto/http.h"
#include "spoa/relay/mux/frame.h"
#include "spoa/relay/tunnel/target.h"
#include "spoa/relay/tunnel/upgrade.h"

enum { PATH_MOST = 8192 };

#define BEARER_PROTOCOL  "cellgate.bearer."
#define BEARER_PARAMETER "cellgate_token="

/* ---- reading ---- */

static bool text_member(const json_node *root, const char *key, struct slice *value)
{
    return json_text(json_member(root, key), value);
}

static bool is_method(struct slice method)
{
    return slice_is(method, "GET") || slice_is(method, "POST") || slice_is(method, "PUT") ||
           slice_is(method, "DELETE") || slice_is(method, "PATCH");
}

static bool is_method_v1(struct slice method)
{
    return is_method(method) || slice_is(method, "HEAD") || slice_is(method, "OPTIONS");
}

static bool has_body(struct slice method)
{
    return slice_is(method, "POST") || slice_is(method, "PUT") || slice_is(method, "PATCH");
}

static bool is_path(struct slice path)
{
    return path.len && path.len <= PATH_MOST && path.at[0] == '/' && http_is_target_part(path);
}

static bool is_value(struct slice value)
{
    for (size_t i = 0; i < value.len; i++)
        if (http_is_control(value.at[i]))
            return false;
    return true;
}

static bool are_headers(const json_node *headers)
{
    struct slice value;
    if (!json_is_object(headers))
        return false;
    for (const json_node *n = json_first(headers); n; n = json_next(n))
        if (!http_is_token(slice_text(json_key(n))) || !json_text(n, &value) || !is_value(value))
            return false;
    return true;
}

/* Returns the member, or NULL if the member is missing or null. */
static const json_node *member_if(const json_node *root, const char *key)
{
    const json_node *node = json_member(root, key);
    return json_is_null(node) ? NULL : node;
}

static bool read_request(struct mux_message *m, const json_node *root)
{
    m->kind = MUX_REQUEST;
    m->headers = member_if(root, "headers");
    if (!text_member(root, "method", &m->method) || !text_member(root, "path", &m->path) ||
        !is_method(m->method) || !is_path(m->path) || (m->headers && !are_headers(m->headers)))
        return false;
    if (!has_body(m->method))
        m->body = slice_text(NULL);
    return true;
}

static bool read_members(struct mux_message *m)
{
    const json_node *root = json_root(m->doc);
    struct slice type;
    if (!text_member(root, "type", &type) || !text_member(root, "id", &m->id) || !m->id.len ||
        m->id.len > MUX_ID_MOST)
        return false;
    if (slice_is(type, "cancel")) {
        m->kind = MUX_CANCEL;
        return true;
    }
    return slice_is(type, "request") && read_request(m, root);
}

/* Reads the announcement of a body. Returns an error sentence, or NULL if the announcement is valid. */
static const char *read_body_v1(struct mux_message *m, const json_node *root)
{
    const json_node *length = member_if(root, "length"), *window = member_if(root, "window"),
                    *follows = member_if(root, "body");
    m->length = m->window = -1;
    if (follows && !json_bool(follows, &m->follows))
        return "`body` is neither true nor false.";
    if (m->follows && (slice_is(m->method, "GET") || slice_is(m->method, "HEAD")))
        return "GET and HEAD have no body.";
    if (length && !json_int(m->doc, length, 0, INT64_MAX, &m->length))
        return "`length` is no number of bytes.";
    if (window && !json_int(m->doc, window, 0, MUX_FRAME_CREDIT_MOST, &m->window))
        return "`window` is no number of bytes up to 1073741824.";
    return NULL;
}

static const char *read_v1(struct mux_message *m)
{
    const json_node *root = json_root(m->doc);
    m->kind = MUX_REQUEST;
    m->headers = member_if(root, "headers");
    if (!json_is_object(root))
        return "The payload is no JSON object.";
    if (!text_member(root, "method", &m->method) || !is_method_v1(m->method))
        return "`method` is missing or not allowed.";
    if (!text_member(root, "path", &m->path) || !is_path(m->path))
        return "`path` is missing or malformed.";
    if (m->headers && !are_headers(m->headers))
        return "`headers` is no object of names and strings.";
    return read_body_v1(m, root);
}

/* ---- a message while it arrives ---- */

static const char *const known_sdk[] = {"type", "id", "method", "path", "headers", "body", NULL};
static const char *const known_v1[] = {"method", "path", "headers", "body", "length", "window", NULL};

static struct mux_text begin(const char *const *known)
{
    return (struct mux_text){
        .feed = json_feed_of(MUX_DEPTH), .words = buffer_with_limit(MUX_KNOWN_MOST), .known = known};
}

struct mux_text mux_text_begin(void)
{
    return begin(known_sdk);
}

void mux_text_free(struct mux_text *t)
{
    buffer_free(&t->words);
}

size_t mux_text_held(const struct mux_text *t)
{
    return t->words.size;
}

/* Marks the message as invalid and returns false, for mux_text_feed. */
static bool refuse(struct mux_text *t, enum mux_kind kind)
{
    t->wrong = true;
    t->kind = kind;
    mux_text_free(t);
    return false;
}

/* Returns the index of the key in t->known, or the index of the NULL after the last. */
static unsigned find_known(const struct mux_text *t, struct slice all)
{
    struct slice key = slice_sub(all, t->feed.key, t->feed.key_len);
    unsigned i = 0;
    while (t->known[i] && !slice_is(key, t->known[i]))
        i++;
    return i;
}

/* Returns true if the known member is a body. In cellgate.mux.v1, `body` is only a flag. */
static bool is_body(const struct mux_text *t, unsigned which)
{
    return t->known == known_sdk && t->known[which] && strcmp(t->known[which], "body") == 0;
}

static bool take_key(struct mux_text *t, struct slice all)
{
    unsigned which = find_known(t, all);
    if (!t->known[which])
        return true;
    if (t->seen & 1u << which)
        return refuse(t, MUX_NO_JSON); /* the key occurs twice */
    t->seen |= 1u << which;
    t->in_body = is_body(t, which);
    return true;
}

static bool take_value(struct mux_text *t, struct slice all)
{
    unsigned which = find_known(t, all);
    struct slice value = slice_sub(all, t->feed.value, t->feed.value_len);
    if (is_body(t, which)) {
        t->in_body = false;
        t->body = t->feed.value;
        t->body_len = value.len;
        return true;
    }
    if (!t->known[which] ||
        (json_write(&t->words, "%s\"%s\":", buffer_len(&t->words) ? "," : "{", t->known[which]) &&
         buffer_put(&t->words, value)))
        return true;
    return refuse(t, MUX_NO_MESSAGE);
}

/* Returns the number of parsed bytes outside the body. */
static size_t count_words(const struct mux_text *t)
{
    return t->in_body ? t->feed.key + t->feed.key_len : t->feed.at - t->body_len;
}

bool mux_text_feed(struct mux_text *t, struct slice all)
{
    struct slice rest = slice_from(all, t->feed.at);
    enum json_feed_event event = JSON_FEED_KEY;
    bool good = !t->wrong;
    while (good && event != JSON_FEED_MORE) {
        event = json_feed(&t->feed, &rest);
        if (event == JSON_FEED_BAD)
            return refuse(t, MUX_NO_JSON);
        if (event == JSON_FEED_KEY)
            good = take_key(t, all);
        else if (event == JSON_FEED_VALUE)
            good = take_value(t, all);
    }
    return good && (count_words(t) <= MUX_WORDS_MOST || refuse(t, MUX_NO_MESSAGE));
}

/* Parses the known members. Returns NULL and sets *why if they are too large or memory is short. */
static struct json *build(struct mux_text *t, struct fail *why)
{
    const struct json_limits limits = {MUX_KNOWN_MOST, 3};
    if (!json_write(&t->words, buffer_len(&t->words) ? "}" : "{}"))
        return NULL;
    return json_parse(buffer_slice(&t->words), "message", 0, limits, why);
}

struct mux_message mux_text_end(struct mux_text *t, struct slice all)
{
    struct mux_message m = {.kind = t->kind};
    struct fail why = {""};
    if (!t->wrong) {
        bool whole = json_feed_is_whole(&t->feed);
        m.doc = whole && t->feed.object ? build(t, &why) : NULL;
        m.kind = !whole ? MUX_NO_JSON : fail_of_memory(&why) ? MUX_NO_MEMORY : MUX_NO_MESSAGE;
    }
    mux_text_free(t);
    if (!m.doc)
        return m;
    if (t->body_len)
        m.body = slice_sub(all, t->body, t->body_len);
    if (read_members(&m))
        return m;
    mux_message_free(&m);
    return (struct mux_message){.kind = MUX_NO_MESSAGE};
}

struct mux_message mux_message_read_v1(struct slice text)
{
    struct mux_text t = begin(known_v1);
    struct mux_message m = {.kind = MUX_NO_MESSAGE, .v1 = true};
    struct fail why;
    bool good = mux_text_feed(&t, text) && json_feed_is_whole(&t.feed) && t.feed.object;
    const char *wrong = "The payload is no JSON object.";
    m.doc = good ? build(&t, &why) : NULL;
    mux_text_free(&t);
    if (m.doc)
        wrong = read_v1(&m);
    if (!wrong)
        return m;
    mux_message_free(&m);
    return (struct mux_message){.kind = MUX_NO_MESSAGE, .v1 = true, .wrong = wrong};
}

struct mux_message mux_message_read(struct slice text)
{
    struct mux_text t = mux_text_begin();
    return mux_text_end(&t, mux_text_feed(&t, text) ? text : slice_of("", 0));
}

void mux_message_free(struct mux_message *m)
{
    json_free(m->doc);
    m->doc = NULL;
}

/* ---- the request ---- */

static bool among(struct slice name, const char *const *names)
{
    for (; *names; names++)
        if (http_same_name(name, slice_text(*names)))
            return true;
    return false;
}

/* Returns true for fields that describe a connection, or that HAProxy sets itself; neither side may send them. */
static bool is_left_out(struct slice name)
{
    static const char *const names[] = {"accept-encoding",
                                        "connection",
                                        "content-length",
                                        "expect",
                                        "forwarded",
                                        "host",
                                        "http2-settings",
                                        "keep-alive",
                                        "proxy",
                                        "proxy-authenticate",
                                        "proxy-authorization",
                                        "proxy-connection",
                                        "te",
                                        "trailer",
                                        "transfer-encoding",
                                        "upgrade",
                                        NULL};
    return among(name, names) || http_name_starts(name, "x-forwarded-") ||
           http_name_starts(name, "x-cell-") || http_name_starts(name, "sec-websocket-");
}

/* Returns true for fields that belong to the upgrade alone, or that each message sets itself. */
static bool is_the_upgrades(struct slice name)
{
    static const char *const names[] = {"accept", "cache-control", "cell-resume", "content-type",
                                        "pragma", "x-request-id",  NULL};
    return is_left_out(name) || among(name, names) || http_name_starts(name, "sec-fetch-");
}

static void put_field(struct writer *w, struct slice name, struct slice value)
{
    writer_put(w, name);
    writer_text(w, ": ");
    writer_put(w, value);
    writer_text(w, "\r\n");
}

static bool client_has(const struct mux_client *client, struct slice wanted)
{
    struct slice rest = client->fields, name, value;
    while (target_header(&rest, &name, &value))
        if (http_same_name(name, wanted) && !is_the_upgrades(name))
            return true;
    return false;
}

/* Returns the token in the subprotocols or the query; absent if there is none. */
static struct slice bearer_of(const struct mux_client *client)
{
    struct slice rest = client->protocols, part;
    while (slice_split(&rest, ',', &part))
        if (slice_starts(slice_trim(part), BEARER_PROTOCOL) && http_is_target_part(slice_trim(part)))
            return slice_from(slice_trim(part), strlen(BEARER_PROTOCOL));
    rest = slice_from(client->target, slice_find(client->target, '?') + 1);
    while (slice_split(&rest, '&', &part))
        if (slice_starts(part, BEARER_PARAMETER))
            return slice_from(part, strlen(BEARER_PARAMETER));
    return slice_text(NULL);
}

/* Returns true if the message may add this field. A field of the upgrade, maybe a credential, must not be replaced. */
static bool may_add(const struct mux_client *client, struct slice name, bool has_bearer)
{
    bool authorization = http_same_name(name, SLICE_LITERAL("authorization"));
    return !is_left_out(name) && !client_has(client, name) && !(authorization && has_bearer);
}

void mux_message_head(const struct mux_message *m, const struct mux_client *client, struct writer *w)
{
    struct slice rest = client->fields, name, value, bearer = bearer_of(client);
    bool typed = false;
    writer_put(w, m->method);
    writer_text(w, " ");
    writer_put(w, slice_sub(client->below, 0,
                            client->below.len -
                                (client->below.len && client->below.at[client->below.len - 1] == '/')));
    writer_put(w, m->path);
    bool foreign = bearer.len && client_has(client, SLICE_LITERAL("authorization"));
    /* the header belongs to the application: the token goes into the query, and the agent removes it there */
    if (foreign) {
        writer_text(w, slice_find(m->path, '?') < m->path.len ? "&" BEARER_PARAMETER : "?" BEARER_PARAMETER);
        writer_put(w, bearer);
    }
    writer_text(w, " HTTP/1.1\r\n");
    put_field(w, SLICE_LITERAL("Host"), client->host);
    while (target_header(&rest, &name, &value))
        if (!is_the_upgrades(name))
            put_field(w, name, value);
    bool has_bearer = bearer.len && !foreign;
    if (has_bearer) {
        writer_text(w, "Authorization: Bearer ");
        writer_put(w, bearer);
        writer_text(w, "\r\n");
    }
    for (const json_node *n = m->headers ? json_first(m->headers) : NULL; n; n = json_next(n)) {
        name = slice_text(json_key(n));
        if (!json_text(n, &value) || !may_add(client, name, has_bearer))
            continue;
        typed = typed || http_same_name(name, SLICE_LITERAL("content-type"));
        put_field(w, name, slice_trim(value));
    }
    if (!typed && !m->v1)
        writer_text(w, "Content-Type: application/json\r\n");
    if (m->v1)
        writer_text(w, "TE: trailers\r\n");
    if (m->follows && m->length < 0)
        writer_text(w, "Transfer-Encoding: chunked\r\n");
    else if (m->follows)
        writer_printf(w, "Content-Length: %" PRId64 "\r\n", m->length);
    else if (has_body(m->method))
        writer_printf(w, "Content-Length: %zu\r\n", m->body.len);
    writer_text(w, "Connection: close\r\n\r\n");
}

/* ---- who asks ---- */

/* Returns true for fields that differ on each connection. Cf-Access-* is no such field: it identifies the client. */
static bool is_of_the_way(struct slice name)
{
    static const char *const names[] = {"cdn-loop", "traceparent",     "tracestate", "true-client-ip",
                                        "via",      "x-amzn-trace-id", "x-real-ip",  NULL};
    bool cloudflares = http_name_starts(name, "cf-") && !http_name_starts(name, "cf-access-");
    return is_the_upgrades(name) || among(name, names) || cloudflares;
}

static void put_text(struct writer *w, struct slice text)
{
    writer_be(w, text.len, 4);
    writer_put(w, text);
}

static void put_client(const struct mux_client *client, struct writer *w)
{
    struct slice rest = client->fields, name, value;
    put_text(w, client->host);
    put_text(w, slice_sub(client->target, 0, slice_find(client->target, '?')));
    put_text(w, client->below);
    put_text(w, bearer_of(client));
    while (target_header(&rest, &name, &value)) {
        if (is_of_the_way(name))
            continue;
        put_text(w, name);
        put_text(w, value);
    }
}

bool mux_client_is(const struct mux_client *one, const struct mux_client *other)
{
    static _Thread_local uint8_t memory[2][UPGRADE_HEAD_MAX];
    struct writer a = writer_of(memory[0], sizeof memory[0]), b = writer_of(memory[1], sizeof memory[1]);
    put_client(one, &a);
    put_client(other, &b);
    return !a.full && !b.full && slice_equal_constant_time(writer_slice(&a), writer_slice(&b));
}

/* ---- trailers ---- */

/* Returns false for fields that authenticate the client or frame the message; RFC 9110 section 6.5.1 forbids them in trailers. */
static bool is_trailer(const json_node *node)
{
    static const char *const names[] = {"authorization",
                                        "cache-control",
                                        "content-encoding",
                                        "content-range",
                                        "content-type",
                                        "cookie",
                                        "max-forwards",
                                        "range",
                                        "set-cookie",
                                        "te",
                                        NULL};
    struct slice name = slice_text(json_key(node));
    return !is_left_out(name) && !among(name, names);
}

bool mux_trailers_read(struct slice text, struct writer *lines)
{
    struct fail why;
    struct slice value;
    if (!text.len)
        return true;
    struct json *doc = json_parse(text, "end", 0, (struct json_limits){MUX_KNOWN_MOST, 3}, &why);
    const json_node *trailers = doc ? member_if(json_root(doc), "trailers") : NULL;
    bool good = doc && json_is_object(json_root(doc)) && (!trailers || are_headers(trailers));
    for (const json_node *n = good && trailers ? json_first(trailers) : NULL; n; n = json_next(n))
        if (is_trailer(n) && json_text(n, &value))
            put_field(lines, slice_text(json_key(n)), slice_trim(value));
    json_free(doc);
    return good && !lines->full;
}
