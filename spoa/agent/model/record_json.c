/* SPDX-License-Identifier: MIT */
#include "spoa/agent/model/record_json.h"

#include "spoa/agent/egress/rules_json.h"
#include "spoa/agent/model/record_pack.h"
#include "spoa/agent/model/worker_url.h"
#include "spoa/proto/http.h"

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
    size_t headers; /* total length of all packed headers, in bytes */
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

/* Headers that HAProxy, the relay or the protocol itself set: a record must not set them. */
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

/* Packs the headers into scratch and returns them in *headers. */
static bool read_header_list(struct reading *r, const json_node *node, struct slice *headers)
{
    if (!json_is_object(node))
        return wrong(r, node, "headers is an object of name: value");
    size_t start = r->scratch->len;
    for (const json_node *n = json_first(node); n; n = json_next(n)) {
        struct slice name = slice_text(json_key(n)), value;
        size_t before = r->scratch->len;
        if (!is_token(name) || is_reserved(name))
            return wrong(r, n, "this is no header's name that a record may set");
        if (!json_text(n, &value) || !is_field_value(value))
            return wrong(r, n, "a header's value is a text without control bytes");
        record_pack_header(r->scratch, name, value);
        r->headers += r->scratch->len - before;
        if (r->scratch->full || r->headers > RECORD_HEADERS_MOST)
            return json_fail(r->doc, n, r->why,
                             "headers are over %d bytes, 4 of each beside its name and value",
                             RECORD_HEADERS_MOST);
    }
    *headers = slice_from(writer_slice(r->scratch), start);
    return true;
}

static bool read_headers(struct reading *r, const json_node *node)
{
    return read_header_list(r, node, &r->record->headers);
}

static bool read_secret(struct reading *r, const json_node *node, struct slice *access_sha256)
{
    const json_node *digest = json_member(node, "token_sha256");
    if (json_count(node) != 1 || !json_text(digest, access_sha256))
        return wrong(r, node, "access is {\"token_sha256\": \"...\"}");
    struct slice hex = *access_sha256;
    for (size_t i = 0; i < hex.len; i++)
        if (!strchr("0123456789abcdef", hex.at[i]))
            return wrong(r, digest, "token_sha256 is 64 lower-case hex digits");
    return hex.len == 64 || wrong(r, digest, "token_sha256 is 64 lower-case hex digits");
}

static bool read_access(struct reading *r, const json_node *node)
{
    return read_secret(r, node, &r->record->access_sha256);
}

/* ---- ports ---- */

static bool read_serves(struct reading *r, const json_node *node, enum serves *serves)
{
    struct slice text;
    *serves = json_text(node, &text) ? serves_of(text) : SERVES_UNSAID;
    return *serves != SERVES_UNSAID || wrong(r, node, "serves is management or application");
}

static bool read_own_serves(struct reading *r, const json_node *node)
{
    return read_serves(r, node, &r->record->serves);
}

static bool read_protocol(struct reading *r, const json_node *node, bool *h2)
{
    struct slice text;
    *h2 = json_text(node, &text) && slice_is(text, "h2");
    return *h2 || (json_text(node, &text) && slice_is(text, "h1")) || wrong(r, node, "protocol is h1 or h2");
}

static bool read_own_protocol(struct reading *r, const json_node *node)
{
    return read_protocol(r, node, &r->record->h2);
}

static bool read_management(struct reading *r, const json_node *node)
{
    struct slice text;
    struct fail what;
    struct port_list ports;
    size_t start = r->scratch->len;
    if (!json_text(node, &text) || text.len == 0)
        return wrong(r, node, "management_ports is \"none\", or ports as \"44772,8888\"");
    if (!management_ports(text, &ports, &what))
        return json_fail(r->doc, node, r->why, "management_ports: %s", what.text);
    record_pack_management(r->scratch, &ports);
    r->record->management = slice_from(writer_slice(r->scratch), start);
    return !r->scratch->full || wrong(r, node, "the record is too large");
}

static bool read_egress(struct reading *r, const json_node *node)
{
    size_t start = r->scratch->len;
    if (!egress_policy_read(r->doc, node, NULL, NULL, r->scratch, r->why))
        return false;
    r->record->egress = slice_from(writer_slice(r->scratch), start);
    return !r->scratch->full || wrong(r, node, "the record is too large");
}

static bool read_uid(struct reading *r, const json_node *node)
{
    struct slice *uid = &r->record->uid;
    if (!json_text(node, uid) || uid->len == 0 || uid->len > 64)
        return wrong(r, node, "uid is a text of 1 to 64 bytes");
    return true;
}

/* Messages must not quote the key: it is a secret. */
static bool read_signing_key(struct reading *r, const json_node *node)
{
    struct slice *key = &r->record->signing_key;
    if (!json_text(node, key) || key->len < 16 || key->len > 256)
        return wrong(r, node, "signing_key is a text of 16 to 256 bytes");
    return true;
}

static bool read_sandbox(struct reading *r, const json_node *node)
{
    struct slice *sandbox = &r->record->sandbox;
    if (!json_text(node, sandbox) || sandbox->len == 0 || sandbox->len > 253)
        return wrong(r, node, "sandbox is the name of one, of 1 to 253 bytes");
    return true;
}

static bool read_detail(struct reading *r, const json_node *node, struct record_details *details,
                        const json_node **headers)
{
    const char *key = json_key(node);
    if (strcmp(key, "url") == 0 || strncmp(key, "x-", 2) == 0)
        return true;
    if (strcmp(key, "access") == 0)
        return read_secret(r, node, &details->access_sha256);
    if (strcmp(key, "serves") == 0)
        return read_serves(r, node, &details->serves);
    if (strcmp(key, "protocol") == 0)
        return read_protocol(r, node, &details->h2);
    if (strcmp(key, "headers") == 0) {
        *headers = node;
        return true;
    }
    return wrong(r, node, "no key of a port: they are url, protocol, serves, headers, access and x-...");
}

/* Reads the settings of a port other than its address. The headers come last, so that they are packed in place. */
static bool read_details(struct reading *r, const json_node *node, uint16_t port)
{
    struct record_details details = {.serves = SERVES_UNSAID};
    const json_node *headers = NULL;
    for (const json_node *n = json_first(node); n; n = json_next(n))
        if (!read_detail(r, n, &details, &headers))
            return false;
    record_pack_details(r->scratch, port, &details);
    if (!headers || r->scratch->full)
        return true;
    uint8_t *length = r->scratch->at + r->scratch->len - 2; /* length of the headers, still 0 */
    if (!read_header_list(r, headers, &details.headers))
        return false;
    length[0] = (uint8_t)(details.headers.len >> 8);
    length[1] = (uint8_t)details.headers.len;
    return true;
}

/* Reads a port's address: a text, or the `url` of an object. */
static bool read_port(struct reading *r, const json_node *node, uint16_t port)
{
    struct worker worker;
    const json_node *url = json_is_object(node) ? json_member(node, "url") : node;
    if (!url)
        return wrong(r, node, "a port is an address, or an object with its url");
    if (!read_url(r, url, &worker))
        return false;
    record_pack_port(r->scratch, port, &worker);
    return true;
}

static bool port_of(const json_node *node, uint16_t *port)
{
    uint64_t number;
    struct slice key = slice_text(json_key(node));
    if (!slice_u64(key, 65535, &number) || number == 0 || slice_starts(key, "0"))
        return false;
    *port = (uint16_t)number;
    return true;
}

static bool read_ports(struct reading *r, const json_node *node)
{
    uint16_t port;
    if (!json_is_object(node))
        return wrong(r, node, "ports is an object of port: address");
    size_t start = r->scratch->len;
    for (const json_node *n = json_first(node); n; n = json_next(n)) {
        if (!port_of(n, &port))
            return wrong(r, n, "the keys of ports are ports from 1 to 65535");
        if (!read_port(r, n, port))
            return false;
    }
    r->record->ports = slice_from(writer_slice(r->scratch), start);
    start = r->scratch->len;
    for (const json_node *n = json_first(node); n; n = json_next(n))
        if (json_is_object(n) && port_of(n, &port) && !read_details(r, n, port))
            return false;
    r->record->details = slice_from(writer_slice(r->scratch), start);
    return !r->scratch->full || wrong(r, node, "too many ports");
}

static const struct {
    const char *key;
    bool (*read)(struct reading *r, const json_node *node);
} members[] = {
    {"state", read_state},
    {"worker", read_worker},
    {"epoch", read_epoch},
    {"org", read_org},
    {"not_before", read_not_before},
    {"ports", read_ports},
    {"headers", read_headers},
    {"access", read_access},
    {"serves", read_own_serves},
    {"management_ports", read_management},
    {"protocol", read_own_protocol},
    {"egress", read_egress},
    {"sandbox", read_sandbox},
    {"uid", read_uid},
    {"signing_key", read_signing_key},
};

bool record_from_json(const struct json *doc, const json_node *node, struct writer *scratch,
                      struct record *record, struct fail *why)
{
    struct reading r = {doc, scratch, record, why, 0};
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
                         "no key of a record: they are worker, protocol, state, epoch, org, ports, headers, "
                         "access, serves, management_ports, not_before, egress, sandbox, uid, "
                         "signing_key and x-...");
        }
        if (!members[i].read(&r, n))
            return false;
    }
    if (slice_present(record->sandbox) && json_count(node) != 1)
        return wrong(&r, node,
                     "a record that names a sandbox says nothing else: the sandbox has a record of its own");
    bool needs_worker = record->state == RECORD_RUNNING && !slice_present(record->sandbox);
    if (needs_worker && record->worker.kind == WORKER_NONE && record->ports.len == 0)
        return wrong(&r, node, "a running sandbox needs a worker");
    return true;
}
