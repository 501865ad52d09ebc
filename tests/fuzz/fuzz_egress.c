/* SPDX-License-Identifier: MIT */
/*
 * What programs in sandboxes say, and rules: the first byte chooses. A target has one spelling, which is read as itself; rules
 * that are accepted are unpacked as they were packed; packed bytes of anybody's and a ClientHello in pieces are read within
 * their bounds, and say the same in one piece; so do a client's and a server's first flights. A request, plain or inside of a
 * CONNECT, that is let through goes where its rule says, by a path that is on its list however it is written.
 */
#include "spoa/agent/decision/egress.h"
#include "spoa/agent/egress/match.h"
#include "spoa/agent/egress/reach.h"
#include "spoa/agent/egress/rules_json.h"
#include "spoa/proto/hello_watch.h"
#include "tests/fuzz/fuzz.h"

static void read_target(struct slice text)
{
    struct target target, again;
    char memory[TARGET_HOST_MOST + 16];
    if (target_parse(text, 443, &target))
        return;
    struct slice host = target_host(&target);
    CHECK(host.len > 0 && target.port > 0);
    bool literal = target.address.family == 6;
    int len = snprintf(memory, sizeof memory, literal ? "[%.*s]:%u" : "%.*s:%u", SLICE_PRINTF(host),
                       (unsigned)target.port);
    CHECK(len > 0 && !target_parse(slice_of(memory, (size_t)len), 0, &again));
    CHECK(slice_equal(target_host(&again), host) && again.port == target.port);
    CHECK(memcmp(&again.address, &target.address, sizeof again.address) == 0);
    if (target.address.family)
        CHECK(reach_of(&target.address) <= REACH_NEVER);
}

static void ask(const struct egress_policy *policy, unsigned most)
{
    struct egress_rule rule, match;
    struct slice header, secret;
    struct target target;
    size_t cursor = 0;
    unsigned count = 0;
    CHECK(!target_parse(SLICE_LITERAL("a.b.example.com:443"), 0, &target));
    egress_rules_match(policy, &target, &match);
    egress_rules_deny(policy, &target, 7, &(struct address){4, {10, 1, 2, 3}});
    while (egress_rules_next(policy, &cursor, &rule)) {
        size_t inner = 0;
        CHECK(rule.number == count++);
        egress_rule_method(&rule, SLICE_LITERAL("GET"));
        egress_rule_path(&rule, SLICE_LITERAL("/a/%62/c"));
        while (egress_rule_set(&rule, &inner, &header, &secret))
            ;
    }
    CHECK(count <= most);
}

static void read_rules(struct slice text)
{
    static uint8_t memory[2 * EGRESS_PACKED_MOST];
    struct writer w = writer_of(memory, sizeof memory);
    struct egress_policy policy;
    struct fail why;
    struct json *doc = json_parse(text, "", 0, (struct json_limits){256 * 1024, 8}, &why);
    if (doc && egress_policy_read(doc, json_root(doc), NULL, NULL, &w, &why)) {
        CHECK(egress_policy_unpack(writer_slice(&w), &policy));
        ask(&policy, EGRESS_RULES_MOST);
    }
    json_free(doc);
}

static void read_packed(struct slice bytes)
{
    struct egress_policy policy;
    if (egress_policy_unpack(bytes, &policy))
        ask(&policy, UINT32_MAX);
}

struct seen {
    size_t clear;
    unsigned hellos;
    bool bad;
};

/* One half is the client's, the other the server's, in pieces of so many bytes. */
static struct seen watch_hellos(struct slice bytes, size_t piece)
{
    static uint8_t memory[CLIENT_HELLO_MAX];
    struct hello_watch watch = {.done = false};
    struct seen seen = {0};
    size_t half = bytes.len / 2, from = 0;
    struct slice client = slice_sub(bytes, 0, half), server = slice_from(bytes, half);
    for (size_t n = 0; n < client.len && !seen.bad;) {
        n = n + piece < client.len ? n + piece : client.len;
        enum client_hello said;
        do {
            struct writer w = writer_of(memory, sizeof memory);
            struct slice name;
            size_t clear;
            said = hello_watch_client(&watch, slice_sub(client, from, n - from), &w, &name, &clear);
            CHECK(clear <= n - from);
            CHECK(said != CLIENT_HELLO_NAMED || (name.len > 0 && name.len <= 255));
            from += clear;
            seen.hellos += said == CLIENT_HELLO_NAMED || said == CLIENT_HELLO_UNNAMED;
            seen.bad = said == CLIENT_HELLO_BAD;
        } while (said == CLIENT_HELLO_NAMED || said == CLIENT_HELLO_UNNAMED);
    }
    for (size_t n = 0; n < server.len; n += piece)
        hello_watch_server(&watch, slice_sub(server, n, piece));
    CHECK(!watch.retried || watch.begun);
    seen.clear = from;
    return seen;
}

static void read_flights(struct slice bytes)
{
    struct seen whole = watch_hellos(bytes, SIZE_MAX / 2), pieces = watch_hellos(bytes, 1 + bytes.len % 7);
    CHECK(whole.hellos == pieces.hellos &&
          (whole.bad || !pieces.bad)); /* which may be told with later bytes */
    CHECK(whole.bad || whole.clear == pieces.clear);
}

static void read_hello(struct slice bytes)
{
    static uint8_t memory[CLIENT_HELLO_MAX];
    struct writer w = writer_of(memory, sizeof memory);
    struct slice name;
    enum client_hello whole = client_hello_read(bytes, &w, &name), part = CLIENT_HELLO_MORE;
    CHECK(whole != CLIENT_HELLO_NAMED || (name.len > 0 && name.len <= 255));
    for (size_t n = 0; n <= bytes.len && n < 600 && part == CLIENT_HELLO_MORE; n++)
        part = client_hello_read(slice_sub(bytes, 0, n), &w, &name);
    CHECK(part == CLIENT_HELLO_MORE || part == whole);
    read_flights(bytes);
}

/* ---- requests ---- */

static struct slice packed_rules(void)
{
    static uint8_t memory[EGRESS_PACKED_MOST];
    static struct writer w;
    struct fail why;
    if (w.at)
        return writer_slice(&w);
    w = writer_of(memory, sizeof memory);
    struct json *doc =
        json_parse(SLICE_LITERAL("{\"rules\": [{\"host\": \"a.example.org\", \"ports\": [80, 443],"
                                 " \"inspect\": true, \"access\": \"read-only\","
                                 " \"paths\": [\"/ok/**\"], \"websocket\": false}]}"),
                   "", 0, (struct json_limits){4096, 8}, &why);
    CHECK(doc && egress_policy_read(doc, json_root(doc), NULL, NULL, &w, &why));
    json_free(doc);
    return writer_slice(&w);
}

static enum lookup find(void *directory, struct slice space, struct slice sandbox, struct record *record)
{
    (void)directory;
    (void)space;
    (void)sandbox;
    *record = (struct record){.state = RECORD_RUNNING, .egress = packed_rules()};
    return LOOKUP_FOUND;
}

static enum lookup addresses(void *directory, struct slice space, struct slice sandbox, struct slice host,
                             struct address *found, size_t *count)
{
    (void)directory;
    (void)space;
    (void)sandbox;
    (void)host;
    *found = (struct address){4, {93, 184, 216, 34}};
    *count = 1;
    return LOOKUP_FOUND;
}

static int from_hex(uint8_t c)
{
    const char *digits = "0123456789abcdef",
               *at = c ? strchr(digits, c >= 'A' && c <= 'F' ? c | 0x20 : c) : NULL;
    return at ? (int)(at - digits) : -1;
}

/* As a server would read it that takes off encodings and then resolves dots: not as the judge does. */
static void check_path(struct slice path)
{
    static uint8_t plain[70000];
    size_t len = 0, depth = 0;
    path = slice_sub(path, 0, slice_find(path, '?'));
    for (size_t i = 0; i < path.len && len < sizeof plain; i++) {
        int high = i + 2 < path.len ? from_hex(path.at[i + 1]) : -1,
            low = high < 0 ? -1 : from_hex(path.at[i + 2]);
        bool encoded = path.at[i] == '%' && low >= 0;
        plain[len++] = encoded ? (uint8_t)(high << 4 | low) : path.at[i];
        i += encoded ? 2 : 0;
    }
    struct slice rest = slice_of(plain, len), segment;
    CHECK(slice_starts(rest, "/ok/"));
    while (slice_split(&rest, '/', &segment)) {
        depth++;
        CHECK(!slice_is(segment, "..") && !slice_is(segment, "."));
    }
    CHECK(depth >= 3 && slice_find(slice_of(plain, len), '\\') == len);
}

static void check_passed(const struct egress_request *request, const struct egress_verdict *v)
{
    const char *method = "GET HEAD OPTIONS";
    CHECK(v->kind == EGRESS_DIRECT && slice_is(v->host, "a.example.org") && v->addr.family == 4);
    CHECK(v->port == 443 || v->port == 80);
    CHECK(request->method.len > 2 && memmem(method, strlen(method), request->method.at, request->method.len));
    CHECK(slice_starts(v->authority, "a.example.org") && !v->upgrade && !v->audit);
    for (size_t i = 0; i < v->path.len; i++)
        CHECK(v->path.at[i] > ' ' && v->path.at[i] < 0x7f && v->path.at[i] != '#');
    check_path(v->path);
}

/* Flags, then method, target and the name of TLS, a line each; the rest are the headers. */
static void read_request(struct slice bytes)
{
    static uint8_t memory[DECIDE_SCRATCH];
    struct writer scratch = writer_of(memory, sizeof memory);
    struct decide_view view = {.find = find, .addresses = addresses};
    struct egress_verdict verdict;
    if (bytes.len == 0)
        return;
    uint8_t flags = bytes.at[0];
    struct slice rest = slice_from(bytes, 1);
    struct egress_request request = {.sandbox = SLICE_LITERAL("sb-1"), .version = SLICE_LITERAL("1.1")};
    if (!slice_split(&rest, '\n', &request.method) || !slice_present(rest) ||
        !slice_split(&rest, '\n', &request.target) || !slice_present(rest) ||
        !slice_split(&rest, '\n', &request.sni) || !slice_present(rest))
        return;
    request.headers = rest;
    if (slice_is(request.method, "CONNECT") && !(flags & 1))
        return;
    if (flags & 1) {
        request.inside = true;
        request.tls = flags & 2;
        request.to = request.tls ? SLICE_LITERAL("a.example.org:443") : SLICE_LITERAL("a.example.org:80");
        request.addr = (struct address){4, {93, 184, 216, 34}};
    }
    CHECK(egress_decide(&view, &request, &scratch, &verdict));
    if (verdict.refusal == REFUSAL_NONE)
        check_passed(&request, &verdict);
    else
        CHECK(slice_present(verdict.reason) && verdict.status >= 400);
}

static int read_input(const uint8_t *data, size_t size)
{
    static void (*const readers[])(struct slice) = {read_target, read_rules, read_packed, read_hello,
                                                    read_request};
    if (size > 0)
        readers[data[0] % 5](slice_of(data + 1, size - 1));
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    return fuzz_grown(read_input, data, size);
}
