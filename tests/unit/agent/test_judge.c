/* SPDX-License-Identifier: MIT */
/*
 * A decision that waited equals the decision made with the record at hand, and so does every later one: the test walks needs, forms
 * of address, tokens, kinds of address, states and owners, and the ways in which a record is not there yet when the client comes.
 */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "spoa/agent/decision/decide.h"
#include "spoa/agent/decision_thread/resolve.h"
#include "spoa/agent/model/record_json.h"
#include "spoa/agent/model/record_pack.h"
#include "spoa/agent/model/request_text.h"
#include "spoa/agent/model/system.h"
#include "spoa/agent/token/ticket.h"
#include "spoa/agent/token/tokens.h"
#include "tests/unit/support.h"

#define NOW    1800000000
#define SECRET "letmein"
#define DIGEST "1c8bfe8f801d79745c4631d09fff36c82aa37fc4cce4fc946683d7b336b63032" /* its SHA-256 */
#define OTHER  "2c8bfe8f801d79745c4631d09fff36c82aa37fc4cce4fc946683d7b336b63032"

#define ROUTE(name, path, need, port)                             \
    "{\"name\":\"" name "\",\"path\":\"/" path "/{sandbox}/" port \
    "\",\"upgrade\":true,\"via\":\"relay\",\"auth\":\"keep\",\"need\":\"" need "\"}"
#define ROUTES_OF(path, need) ROUTE(path, path, need, "none") "," ROUTE(path "-port", path, need, "{port}")

static const char config[] =
    "{\"tokens\":[{\"kind\":\"jwt\",\"alg\":\"HS256\",\"secret_file\":\"k\"},"
    "{\"kind\":\"static\",\"everywhere\":true,\"public\":true,\"sources\":[\"X-OC-Preview-Token\"]}],"
    "\"routes\":[" ROUTES_OF("http", "http") "," ROUTES_OF("pty", "pty") "," ROUTES_OF(
        "exec", "exec") "," ROUTES_OF("agent", "agent") "," ROUTES_OF("none",
                                                                      "none") "," ROUTES_OF("init",
                                                                                            "none") "]}";

/* Of routes, and the first part of their paths. `init` needs nothing, and names what at e2b's port is for the host alone. */
static const char *const needs[] = {"http", "pty", "exec", "agent", "none", "init"};
static const char *const ports[] = {"none", "8080", "9001", "44772", "5173"};

/* Where the sandbox is, but for state and owner. */
static const char *const places[] = {
    "\"worker\":\"http://10.0.0.1:9001\"",
    "\"worker\":\"http://10.0.0.1:9001\",\"access\":{\"token_sha256\":\"" DIGEST "\"}",
    "\"worker\":\"http://10.0.0.1:9002\"",
    "\"worker\":\"https://10.0.0.2:9001\",\"serves\":\"application\"",
    "\"worker\":\"http://10.0.0.2:8080\",\"serves\":\"application\",\"access\":{\"token_sha256\":\"" OTHER
    "\"}",
    "\"worker\":\"http://10.0.0.5\",\"headers\":{\"X-A\":\"1\"}",
    "\"worker\":\"http://named.cell:9001\",\"serves\":\"application\"",
    "\"worker\":\"http://10.0.0.3:9001\",\"ports\":{\"5173\":\"http://"
    "10.0.0.3:49983\",\"8080\":{\"url\":\"http://named.cell:9001\","
    "\"access\":{\"token_sha256\":\"" DIGEST "\"}}}",
    "\"ports\":{\"8080\":\"http://10.0.0.4:49983\"}",
    "\"worker\":\"http+unix:/run/w.sock\"",
    "\"worker\":\"http+unix:/run/w.sock\",\"serves\":\"application\"",
    "\"worker\":\"http+unix:/tmp/w.sock\"",
    "\"worker\":\"http://192.0.2.1:9001\"",
    "",
};
static const char *const states[] = {"running", "migrating", "waking", "suspended", "stopped"};
static const char *const owners[] = {NULL, "o1", "o2"};
enum {
    NEEDS = sizeof needs / sizeof *needs,
    PORTS = sizeof ports / sizeof *ports,
    PLACES = sizeof places / sizeof *places,
    STATES = sizeof states / sizeof *states,
    OWNERS = sizeof owners / sizeof *owners,
    RECORDS = PLACES * STATES * OWNERS,
};

/* No needs: the access secret, or with a port no credential at all. */
static const struct credential_case {
    unsigned needs;
    uint16_t port, port2;
    const char *org;
} credentials[] = {
    {NEED_ALL, 0, 0, NULL},
    {NEED_ALL, 8080, 0, NULL},
    {NEED_ALL, 9001, 5173, NULL},
    {NEED_HTTP, 0, 0, "o1"},
    {NEED_HTTP, 8080, 0, "o1"},
    {NEED_HTTP, 9001, 0, NULL},
    {NEED_EXEC, 8080, 0, "o2"},
    {NEED_PTY, 5173, 0, NULL},
    {NEED_HTTP | NEED_EXEC, 0, 0, NULL},
    {NEED_AGENT, 0, 0, "o2"},
    {0, 0, 0, NULL},
    {0, 1, 0, NULL},
};
enum { CREDENTIALS = sizeof credentials / sizeof *credentials };

/* Why no place in the sandbox is known when the client comes. */
enum late { AT_HAND, RECORD_LATE, STATE_ALONE, WAKES, NAME_LATE, LATES };

static struct {
    struct json *doc;
    struct routes *routes;
    struct tokens *tokens;
    struct token_cache *cache;
    struct key *ticket_key;
    struct record records[RECORDS];
    uint8_t texts[RECORDS][512];
    enum late late;
    const struct record *now;
    uint8_t scratch[DECIDE_SCRATCH];
    unsigned waited, led, refused;
} w;

static bool allowed(const void *networks, const struct address *addr)
{
    (void)networks;
    return addr->bytes[0] == 10;
}

static bool socket_allowed(const void *networks, struct slice path)
{
    (void)networks;
    return slice_starts(path, "/run/");
}

static enum lookup find(void *directory, struct slice space, struct slice sandbox, struct record *record)
{
    (void)directory, (void)space, (void)sandbox;
    *record = *w.now;
    if (w.late == WAKES)
        record->state = RECORD_WAKING;
    if (w.late == STATE_ALONE)
        *record = (struct record){.state = RECORD_WAKING, .bare = true};
    return w.late == RECORD_LATE ? LOOKUP_PENDING : LOOKUP_FOUND;
}

static bool resolve_name(void *directory, struct slice host, struct address *addr)
{
    (void)directory;
    *addr = (struct address){.family = 4, .bytes = {10, 0, 0, 9}};
    return w.late != NAME_LATE && slice_is(host, "named.cell");
}

static bool wake(void *directory, struct slice space, struct slice sandbox)
{
    (void)directory, (void)space, (void)sandbox;
    return true;
}

static const struct management management = {
    .ports = {{{44772, 44772}}, 1}, .serves = SERVES_MANAGEMENT, .systems = SYSTEM_BIT(SYSTEM_E2B)};

static struct decide_view view_now(void)
{
    return (struct decide_view){.routes = w.routes,
                                .management = &management,
                                .tokens = w.tokens,
                                .ticket_key = w.ticket_key,
                                .cache = w.cache,
                                .now = NOW,
                                .allowed = allowed,
                                .socket_allowed = socket_allowed,
                                .find = find,
                                .resolve = resolve_name,
                                .wake = wake};
}

/* ---- the world ---- */

static size_t record_at(size_t place, size_t state, size_t owner)
{
    return (place * STATES + state) * OWNERS + owner;
}

static void read_record(size_t place, size_t state, size_t owner)
{
    char text[512];
    struct fail why = {""};
    size_t i = record_at(place, state, owner);
    struct writer packed = writer_of(w.texts[i], sizeof w.texts[i]);
    const char *says = !*places[place] && state == 0 ? "migrating" : states[state]; /* none runs nowhere */
    snprintf(text, sizeof text, "{\"state\":\"%s\"%s%s%s%s%s}", says, *places[place] ? "," : "",
             places[place], owners[owner] ? ",\"org\":\"" : "", owners[owner] ? owners[owner] : "",
             owners[owner] ? "\"" : "");
    struct json *doc = json_parse(slice_text(text), "r", 0, (struct json_limits){4096, 8}, &why);
    struct record seen;
    if (!doc || !record_from_json(doc, json_root(doc), &packed, &seen, &why))
        fail_msg("%s: %s", text, why.text);
    static uint8_t memory[2048];
    struct writer whole = writer_of(memory, sizeof memory);
    record_pack(&whole, &seen);
    assert_true(!whole.full && whole.len <= sizeof w.texts[i]);
    memcpy(w.texts[i], memory, whole.len);
    struct reader r = reader_of(slice_of(w.texts[i], whole.len));
    record_unpack(&r, &w.records[i]);
    json_free(doc);
}

static int set_up(void **state)
{
    char folder[] = "/tmp/test_judge.XXXXXX", path[64];
    struct fail why = {""};
    (void)state;
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/k", folder);
    FILE *key = fopen(path, "w");
    fputs("0123456789abcdef0123456789abcdef", key);
    fclose(key);
    w.doc = json_parse(slice_text(config), "c", 0, (struct json_limits){65536, 8}, &why);
    assert_non_null(w.doc);
    const struct route_nodes nodes = route_nodes_of(json_root(w.doc));
    w.routes = routes_new(w.doc, &nodes, &why);
    w.tokens = tokens_load(w.doc, json_member(json_root(w.doc), "tokens"), folder, "cell", TOKENS_MINT, &why);
    unlink(path);
    rmdir(folder);
    if (!w.routes || !w.tokens)
        fail_msg("%s", why.text);
    w.cache = token_cache_new(256);
    w.ticket_key = key_secret(SLICE_LITERAL("0123456789abcdef0123456789abcdef"), TICKET_SECRET, "t", &why);
    for (size_t i = 0; i < RECORDS; i++)
        read_record(i / STATES / OWNERS, i / OWNERS % STATES, i % OWNERS);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    routes_free(w.routes);
    tokens_free(w.tokens);
    token_cache_free(w.cache);
    key_free(w.ticket_key);
    json_free(w.doc);
    return 0;
}

/* ---- a request ---- */

struct asked {
    char line[2048];
    struct header_line lines[8];
    struct request request;
    uint8_t memory[4096];
    const char *need, *port;
    const struct credential_case *credential;
};

static void write_token(const struct credential_case *c, struct writer *to)
{
    uint8_t packed[4];
    struct fail why;
    struct writer list = writer_of(packed, sizeof packed);
    struct grant grant = {
        .sandbox = SLICE_LITERAL("sb"), .needs = c->needs, .iat = NOW - 60, .exp = NOW + 60};
    if (c->org)
        grant.org = slice_text(c->org);
    if (c->port)
        grant_put_port(&list, c->port);
    if (c->port2)
        grant_put_port(&list, c->port2);
    if (list.len)
        grant.ports = writer_slice(&list);
    if (!tokens_mint(w.tokens, SLICE_LITERAL("jwt"), (struct slice){NULL, 0}, &grant, to, &why))
        fail_msg("%s", why.text);
}

/* Its Authorization is what an application behind the port wants, and by chance the access secret of some records. */
static void ask(struct asked *q, const char *need, const char *port, const struct credential_case *c)
{
    static const char *const upgrade[] = {
        "Upgrade: websocket", "Connection: Upgrade", "Sec-WebSocket-Version: 13",
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==", "Authorization: Bearer " SECRET};
    struct fail why;
    size_t count = 0;
    struct writer line = writer_of((uint8_t *)q->line, sizeof q->line);
    q->need = need;
    q->port = port;
    q->credential = c;
    writer_printf(&line, "GET http://h/%s/sb/%s", need, port);
    if (c->needs) {
        writer_text(&line, "?cellgate_token=");
        write_token(c, &line);
    } else if (!c->port) {
        assert_true(header_line_parse(SLICE_LITERAL("X-OC-Preview-Token: " SECRET), &q->lines[count++]));
    }
    for (size_t i = 0; i < sizeof upgrade / sizeof *upgrade; i++)
        assert_true(header_line_parse(slice_text(upgrade[i]), &q->lines[count++]));
    struct writer memory = writer_of(q->memory, sizeof q->memory);
    if (!request_from_text(writer_slice(&line), q->lines, count, &memory, &q->request, &why))
        fail_msg("%s", why.text);
}

static const char *told(const struct asked *q, enum late late, size_t first, size_t then)
{
    static char text[1024];
    size_t at[] = {first, then};
    int len = snprintf(text, sizeof text, "%s port %s, token needs %u ports %u %u org %s, late %d", q->need,
                       q->port, q->credential->needs, q->credential->port, q->credential->port2,
                       q->credential->org ? q->credential->org : "-", (int)late);
    for (size_t i = 0; i < 2; i++)
        len += snprintf(text + len, sizeof text - (size_t)len, "%s {%s %s %s}", i ? ", then" : ", record",
                        states[at[i] / OWNERS % STATES],
                        owners[at[i] % OWNERS] ? owners[at[i] % OWNERS] : "nobody's",
                        places[at[i] / OWNERS / STATES]);
    return text;
}

/* ---- what comes of it ---- */

struct outcome {
    enum refusal refused;
    bool leads;
    bool sends; /* Authorization to the worker */
    struct worker worker;
    uint16_t port;
    size_t host_len, len;
    uint8_t texts[512]; /* Host, then headers */
};

/* A tunnel as its relay knows it. */
struct tunnel {
    bool open, has_auth;
    enum refusal refused;
    struct handover h;
    uint8_t texts[2048], ticket[64], org[64];
};

static void come(struct tunnel *t, const struct asked *q, enum late late, const struct record *record)
{
    struct writer scratch = writer_of(w.scratch, sizeof w.scratch),
                  texts = writer_of(t->texts, sizeof t->texts);
    struct decide_view view = view_now();
    struct verdict verdict;
    struct fail why;
    w.late = late;
    w.now = record;
    decide(&view, &q->request, &scratch, &verdict);
    w.late = AT_HAND;
    t->refused = verdict.refusal;
    t->open = verdict.kind == VERDICT_RELAY && verdict.refusal == REFUSAL_NONE;
    t->has_auth = slice_present(verdict.auth);
    if (t->open && !handover_decode(&t->h, verdict.handover, &texts, &why))
        fail_msg("%s", why.text);
}

/* Keeps what an answer adds to the tunnel's ticket, as a relay does. */
static void settle(struct tunnel *t, const struct resolve_answer *a)
{
    if (!slice_present(a->ticket))
        return;
    assert_true(a->ticket.len < sizeof t->ticket && a->org.len < sizeof t->org);
    memcpy(t->ticket, a->ticket.at, a->ticket.len);
    t->h.ticket = slice_of(t->ticket, a->ticket.len);
    if (slice_present(a->org)) {
        memcpy(t->org, a->org.at, a->org.len);
        t->h.org = slice_of(t->org, a->org.len);
        t->h.org_of_record = 1;
    }
    if (a->settled)
        t->h.pending = -1;
    if (a->own)
        t->h.port = -1;
}

static struct outcome outcome_of(const struct resolve_answer *a)
{
    struct outcome o = {.refused = a->state == RESOLVE_ABSENT   ? REFUSAL_sandbox_not_found
                                   : a->refused != REFUSAL_NONE ? a->refused
                                   : a->state == RECORD_STOPPED ? REFUSAL_sandbox_stopped
                                                                : REFUSAL_NONE,
                        .leads = a->reachable,
                        .sends = !a->withhold,
                        .worker = a->worker,
                        .port = a->worker.kind == WORKER_UNIX ? 0 : a->port,
                        .host_len = a->host.len};
    struct writer texts = writer_of(o.texts, sizeof o.texts);
    writer_put(&texts, a->host);
    writer_put(&texts, a->headers);
    o.len = texts.len;
    assert_true(!texts.full && (!o.leads || o.refused == REFUSAL_NONE));
    return o;
}

static struct outcome ask_agent(struct tunnel *t, const struct record *record)
{
    struct writer scratch = writer_of(w.scratch, sizeof w.scratch);
    struct decide_view view = view_now();
    struct resolve_question q = {.ticket = t->h.ticket, .epoch = -1, .idle = -1, .settles = 1};
    struct resolve_answer a;
#define X(kind, field, key) q.field = t->h.field;
    HANDOVER_IDENTITY(X)
#undef X
    w.now = record;
    if (!resolve_is_admitted(w.ticket_key, &q))
        fail_msg("a ticket is not good");
    resolve(&view, &q, &scratch, &a);
    settle(t, &a);
    struct outcome o = outcome_of(&a);
    o.sends = o.sends && t->has_auth;
    return o;
}

static bool same(const struct outcome *a, const struct outcome *b)
{
    return a->refused == b->refused && a->leads == b->leads && (!a->leads || a->sends == b->sends) &&
           a->worker.kind == b->worker.kind && slice_equal(a->worker.host, b->worker.host) &&
           memcmp(&a->worker.addr, &b->worker.addr, sizeof a->worker.addr) == 0 && a->port == b->port &&
           a->host_len == b->host_len && slice_equal(slice_of(a->texts, a->len), slice_of(b->texts, b->len));
}

static bool same_TEXT(struct slice a, struct slice b)
{
    return slice_present(a) == slice_present(b) && slice_equal(a, b);
}

static bool same_INT(int64_t a, int64_t b)
{
    return a == b;
}

/* Tunnels in which these are the same are judged alike for ever. A bearer that was withheld is not there to be judged. */
static const char *other_field(const struct handover *a, const struct handover *b)
{
#define X(kind, field, key)                                             \
    if (strcmp(key, "bearer") != 0 && !same_##kind(a->field, b->field)) \
        return key;
    HANDOVER_IDENTITY(X)
#undef X
    return NULL;
}

/* What of a refusal at hand a tunnel that waits is told. Others mean that there is no place yet, or none that may be dialled. */
static enum refusal told_later(enum refusal refusal)
{
    bool final = refusal == REFUSAL_sandbox_not_found || refusal == REFUSAL_sandbox_stopped ||
                 refusal == REFUSAL_not_granted || refusal == REFUSAL_token_revoked;
    if (refusal == REFUSAL_no_route) /* an endpoint for the host alone */
        return REFUSAL_not_granted;
    /* a tunnel by an access secret is told that this is over, a request that it is none */
    bool secret = refusal == REFUSAL_token_invalid || refusal == REFUSAL_token_missing;
    return secret ? REFUSAL_token_revoked : final ? refusal : REFUSAL_NONE;
}

/* A decision with the record at hand, and what the agent says of its tunnel. */
static struct outcome at_hand(struct tunnel *t, const struct asked *q, const struct record *record)
{
    come(t, q, AT_HAND, record);
    if (!t->open)
        return (struct outcome){.refused = told_later(t->refused)};
    struct outcome o = ask_agent(t, record);
    bool dialled = t->h.addr.family != 0;
    assert_int_equal(o.refused, REFUSAL_NONE);
    if (dialled && (!o.leads || memcmp(&t->h.addr, &o.worker.addr, sizeof o.worker.addr) != 0 ||
                    t->h.addr_port != o.port))
        fail_msg("the agent names another worker than it has decided for");
    if (dialled && t->has_auth != o.sends)
        fail_msg("Authorization was judged in two ways");
    return o;
}

static void check_wait(const struct asked *q, enum late late, size_t i)
{
    static struct tunnel whole, waiting;
    const struct record *record = &w.records[i];
    come(&waiting, q, late, record);
    if (!waiting.open || waiting.h.addr.family)
        return;
    struct outcome want = at_hand(&whole, q, record), got = ask_agent(&waiting, record);
    if (!same(&want, &got))
        fail_msg("waited: %d %d %u, at hand: %d %d %u: %s", (int)got.refused, got.leads, got.port,
                 (int)want.refused, want.leads, want.port, told(q, late, i, i));
    const char *other = whole.open && want.leads ? other_field(&whole.h, &waiting.h) : NULL;
    if (other)
        fail_msg("another %s: %s", other, told(q, late, i, i));
    got = ask_agent(&waiting, record);
    if (!same(&want, &got))
        fail_msg("another answer the second time: %s", told(q, late, i, i));
    w.waited++;
    w.led += got.leads;
    w.refused += got.refused != REFUSAL_NONE;
}

static void walk(void (*check)(const struct asked *q))
{
    static struct asked q;
    w.waited = w.led = w.refused = 0;
    for (size_t n = 0; n < NEEDS; n++)
        for (size_t p = 0; p < PORTS; p++)
            for (size_t c = 0; c < CREDENTIALS; c++) {
                ask(&q, needs[n], ports[p], &credentials[c]);
                check(&q);
            }
}

/* A record that is not there may say anything when it comes; of the other ways to wait the last state makes no difference. */
static void check_all_waits(const struct asked *q)
{
    for (size_t i = 0; i < RECORDS; i++)
        for (enum late late = RECORD_LATE; late < LATES; late++)
            if (late == RECORD_LATE || i / OWNERS % STATES == 0)
                check_wait(q, late, i);
}

static void a_decision_that_waited_equals_the_one_with_the_record_at_hand(void **state)
{
    (void)state;
    walk(check_all_waits);
    if (w.waited < 35000 || w.led < 7000 || w.refused < 15000)
        fail_msg("only %u waited, %u led somewhere, %u were refused", w.waited, w.led, w.refused);
}

/* ---- later ---- */

static bool is_owned_otherwise(const struct handover *h, const struct record *record)
{
    return h->org_of_record > 0 && slice_present(record->org) && !slice_equal(h->org, record->org);
}

/* Of a tunnel that was opened under one record, all others: it ends with its owner, and is else judged as its client would be if it
 * came now. A tunnel to the worker's own port is one to no port in particular. */
static void check_changes(const struct asked *q, const struct asked *portless, size_t first)
{
    static struct tunnel opened, now, fresh;
    come(&opened, q, RECORD_LATE, &w.records[first]);
    if (!opened.open)
        come(&opened, q, AT_HAND, &w.records[first]);
    if (!opened.open || !ask_agent(&opened, &w.records[first]).leads)
        return;
    bool own = opened.h.port < 0;
    for (size_t i = 0; i < RECORDS; i++) {
        const struct record *record = &w.records[i];
        now = opened;
        struct outcome want = at_hand(&fresh, own ? portless : q, record), got = ask_agent(&now, record);
        if (is_owned_otherwise(&opened.h, record))
            want = (struct outcome){.refused = REFUSAL_sandbox_not_found};
        want.sends = got.sends; /* what was withheld once is not there any more */
        if (!same(&want, &got))
            fail_msg("open: %d %d %u, asked again: %d %d %u: %s", (int)got.refused, got.leads, got.port,
                     (int)want.refused, want.leads, want.port, told(q, RECORD_LATE, first, i));
        if (got.leads && slice_present(record->org) && !slice_equal(now.h.org, record->org))
            fail_msg("it belongs to nobody: %s", told(q, RECORD_LATE, first, i));
        w.waited++;
        w.led += got.leads;
        w.refused += got.refused != REFUSAL_NONE;
    }
}

static void check_all_changes(const struct asked *q)
{
    static struct asked portless;
    ask(&portless, q->need, "none", q->credential);
    for (size_t place = 0; place < PLACES; place++)
        check_changes(q, &portless, record_at(place, 0, place % 2));
}

static void a_tunnel_is_judged_by_each_later_record_as_if_its_client_came_now(void **state)
{
    (void)state;
    walk(check_all_changes);
    if (w.waited < 70000 || w.led < 5000 || w.refused < 30000)
        fail_msg("only %u judged, %u led somewhere, %u were refused", w.waited, w.led, w.refused);
}

/* Needs alone decide at a management address; an application has a port, or none that a list could name. */
static void a_tokens_ports_bind_where_no_port_is_named(void **state)
{
    static const struct {
        const char *place;
        uint16_t port;
        bool leads;
    } cases[] = {
        {"\"worker\":\"http://10.0.0.2:8080\",\"serves\":\"application\"", 8080, true},
        {"\"worker\":\"http://10.0.0.2:8080\",\"serves\":\"application\"", 9001, false},
        {"\"worker\":\"http://10.0.0.2:8080\"", 9001, true},
        {"\"worker\":\"http+unix:/run/w.sock\",\"serves\":\"application\"", 9001, false},
        {"\"worker\":\"http+unix:/run/w.sock\",\"serves\":\"application\"", 0, true},
        {"\"worker\":\"http+unix:/run/w.sock\"", 9001, true},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        static struct asked q;
        static struct tunnel t;
        char text[256];
        uint8_t packed[512];
        struct fail why;
        struct record record;
        struct writer memory = writer_of(packed, sizeof packed);
        const struct credential_case credential = {NEED_HTTP | NEED_EXEC, cases[i].port, 0, NULL};
        snprintf(text, sizeof text, "{%s}", cases[i].place);
        struct json *doc = json_parse(slice_text(text), "r", 0, (struct json_limits){4096, 8}, &why);
        assert_true(doc && record_from_json(doc, json_root(doc), &memory, &record, &why));
        ask(&q, "http", "none", &credential);
        struct outcome o = at_hand(&t, &q, &record);
        assert_int_equal(o.leads, cases[i].leads);
        assert_int_equal(o.refused, cases[i].leads ? REFUSAL_NONE : REFUSAL_not_granted);
        json_free(doc);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_tokens_ports_bind_where_no_port_is_named),
        cmocka_unit_test(a_decision_that_waited_equals_the_one_with_the_record_at_hand),
        cmocka_unit_test(a_tunnel_is_judged_by_each_later_record_as_if_its_client_came_now),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
