/* SPDX-License-Identifier: MIT */
#include "spoa/agent/record_json.h"

#include "spoa/agent/record_pack.h"
#include "spoa/agent/worker_url.h"
#include "spoa/lib/http.h"

static const char *const states[] = {[RECORD_RUNNING] = "running",
                                     [RECORD_MIGRATING] = "migrating",
                                     [RECORD_WAKING] = "waking",
                                     [RECORD_SUSPENDED] = "suspended",
                                     [RECORD_STOPPED] = "stopped"};

const char *record_state_text(enum record_state state)
{
    return states[state];
}

struct reading {
    const struct json *doc;
    struct writer *scratch;
    struct record *record;
    struct fail *why;
};

static bool wrong(const struct reading *r, const json_node *node, const char *what)
{
    return json_fail(r->doc, node, r->why, "%s", what);
}

static bool read_state(struct reading *r, const json_node *node)
{
    struct slice text;
    if (json_text(node, &text))
        for (size_t i = 0; i < sizeof states / sizeof *states; i++)
            if (slice_is(text, states[i])) {
                r->record->state = (enum record_state)i;
                return true;
            }
    return wrong(r, node, "state is running, migrating, waking, suspended or stopped");
}

static bool read_url(struct reading *r, const json_node *node, struct worker *worker)
{
    struct slice text;
    struct fail url;
    if (!json_text(node, &text))
        return wrong(r, node, "a worker's address is a text");
    if (!worker_url_parse(text, worker, &url))
        return wrong(r, node, url.text);
    return true;
}

static bool read_worker(struct reading *r, const json_node *node)
{
    return json_is_null(node) || read_url(r, node, &r->record->worker);
}

static bool read_epoch(struct reading *r, const json_node *node)
{
    return json_int(r->doc, node, 1, INT64_MAX, &r->record->epoch) ||
           wrong(r, node, "epoch is a whole number from 1");
}

static bool read_not_before(struct reading *r, const json_node *node)
{
    return json_int(r->doc, node, 0, (int64_t)1 << 53, &r->record->not_before) ||
           wrong(r, node, "not_before is a time in Unix seconds");
}

static bool read_org(struct reading *r, const json_node *node)
{
    if (!json_text(node, &r->record->org) || r->record->org.len == 0 || r->record->org.len > 255)
        return wrong(r, node, "org is a text of 1 to 255 bytes");
    return true;
}

static bool read_ports(struct reading *r, const json_node *node)
{
    if (!json_is_object(node))
        return wrong(r, node, "ports is an object of port: address");
    size_t start = r->scratch->len;
    for (const json_node *n = json_first(node); n; n = json_next(n)) {
        uint64_t port;
        struct worker worker;
        struct slice key = slice_text(json_key(n));
        if (!slice_u64(key, 65535, &port) || port == 0 || slice_starts(key, "0"))
            return wrong(r, n, "the keys of ports are ports from 1 to 65535");
        if (!read_url(r, n, &worker))
            return false;
        record_pack_port(r->scratch, (uint16_t)port, &worker);
    }
    r->record->ports = slice_from(writer_slice(r->scratch), start);
    return !r->scratch->full || wrong(r, node, "too many ports");
}

static bool is_token(struct slice name)
{
    for (size_t i = 0; i < name.len; i++) {
        uint8_t c = name.at[i];
        bool alnum = (c >= '0' && c <= '9') || ((c | 0x20) >= 'a' && (c | 0x20) <= 'z');
        if (!alnum && !(c && strchr("!#$%&'*+-.^_`|~", c)))
            return false;
    }
    return name.len > 0 && name.len <= 255;
}

/* Headers that HAProxy, the relay or the protocol itself own: a record must not set them. */
static bool is_reserved(struct slice name)
{
    static const char *const reserved[] = {"host",   "connection", "upgrade",    "content-length",
                                           "te",     "trailer",    "keep-alive", "transfer-encoding",
                                           "cookie", "expect"};
    for (size_t i = 0; i < sizeof reserved / sizeof *reserved; i++)
        if (http_same_name(name, slice_text(reserved[i])))
            return true;
    return http_name_starts(name, "sec-websocket-") || http_name_starts(name, "x-cell-");
}

static bool is_field_value(struct slice value)
{
    for (size_t i = 0; i < value.len; i++)
        if ((value.at[i] < 0x20 && value.at[i] != '\t') || value.at[i] == 0x7f)
            return false;
    return slice_trim(value).len == value.len && value.len <= 8192;
}

static bool read_headers(struct reading *r, const json_node *node)
{
    if (!json_is_object(node))
        return wrong(r, node, "headers is an object of name: value");
    size_t start = r->scratch->len;
    for (const json_node *n = json_first(node); n; n = json_next(n)) {
        struct slice name = slice_text(json_key(n)), value;
        if (!is_token(name) || is_reserved(name))
            return wrong(r, n, "this is no header's name that a record may set");
        if (!json_text(n, &value) || !is_field_value(value))
            return wrong(r, n, "a header's value is a text without control bytes");
        record_pack_header(r->scratch, name, value);
        if (r->scratch->full || r->scratch->len - start > RECORD_HEADERS_MOST)
            return json_fail(r->doc, n, r->why,
                             "headers are over %d bytes, 4 of each beside its name and value",
                             RECORD_HEADERS_MOST);
    }
    r->record->headers = slice_from(writer_slice(r->scratch), start);
    return true;
}

static bool read_access(struct reading *r, const json_node *node)
{
    const json_node *digest = json_member(node, "token_sha256");
    if (json_count(node) != 1 || !json_text(digest, &r->record->access_sha256))
        return wrong(r, node, "access is {\"token_sha256\": \"...\"}");
    struct slice hex = r->record->access_sha256;
    for (size_t i = 0; i < hex.len; i++)
        if (!strchr("0123456789abcdef", hex.at[i]))
            return wrong(r, digest, "token_sha256 is 64 lower-case hex digits");
    return hex.len == 64 || wrong(r, digest, "token_sha256 is 64 lower-case hex digits");
}

static const struct {
    const char *key;
    bool (*read)(struct reading *r, const json_node *node);
} members[] = {
    {"state", read_state},     {"worker", read_worker},         {"epoch", read_epoch},
    {"org", read_org},         {"not_before", read_not_before}, {"ports", read_ports},
    {"headers", read_headers}, {"access", read_access},
};

bool record_from_json(const struct json *doc, const json_node *node, struct writer *scratch,
                      struct record *record, struct fail *why)
{
    struct reading r = {doc, scratch, record, why};
    *record = (struct record){.state = RECORD_RUNNING};
    if (!json_is_object(node))
        return wrong(&r, node, "a record is an object");
    for (const json_node *n = json_first(node); n; n = json_next(n)) {
        size_t i = 0, count = sizeof members / sizeof *members;
        while (i < count && strcmp(json_key(n), members[i].key) != 0)
            i++;
        if (i == count) {
            if (strncmp(json_key(n), "x-", 2) == 0)
                continue;
            return wrong(&r, n,
                         "no key of a record: they are worker, state, epoch, org, ports, headers, access, "
                         "not_before and x-...");
        }
        if (!members[i].read(&r, n))
            return false;
    }
    bool needs_worker = record->state == RECORD_RUNNING;
    if (needs_worker && record->worker.kind == WORKER_NONE && record->ports.len == 0)
        return wrong(&r, node, "a running sandbox needs a worker");
    return true;
}
