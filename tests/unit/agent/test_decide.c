/* SPDX-License-Identifier: MIT */
#include "tests/unit/support.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "spoa/agent/decision/decide.h"
#include "spoa/agent/directory/records.h"
#include "spoa/agent/model/record_json.h"
#include "spoa/agent/model/request_text.h"
#include "spoa/agent/token/mux_proof.h"
#include "spoa/agent/token/tokens.h"
#include "spoa/proto/handover.h"

#define NOW 1800000000

static const char config[] =
    "{\"tokens\":[{\"kind\":\"jwt\",\"alg\":\"HS256\",\"secret_file\":\"k\"},"
    " {\"kind\":\"static\",\"everywhere\":true,\"sources\":[\"X-OC-Preview-Token\",\"DAYTONA_SANDBOX_AUTH_"
    "KEY\",\"cookie\","
    "\"label\"],"
    "  \"need\":[\"http\",\"pty\"]}],"
    "\"systems\":[\"e2b\"],\"domains\":{\"e2b\":[\"e2b.io\"]},\"routes\":[\"defaults\","
    "{\"name\":\"app\",\"host\":\"{sandbox}.app.io\",\"cookie\":true,\"timeout\":\"5m\"},"
    "{\"name\":\"signed\",\"host\":[\"{port}-{token}.day.io\",\"{port}-{sandbox}.day.io\"]},"
    "{\"name\":\"free\",\"path\":\"/free/{sandbox}/{rest...}\",\"to\":\"/"
    "{rest}\",\"need\":\"none\",\"auth\":\"keep\"},"
    "{\"name\":\"cors\",\"path\":\"/cors/{sandbox}/{rest...}\",\"to\":\"/{rest}\",\"cors\":[\"https://"
    "ui.io\"],"
    " \"cookies\":\"keep\",\"auth\":\"keep\",\"set\":{\"X-EXECD-ACCESS-TOKEN\":\"of the route\"}},"
    "{\"name\":\"close\",\"path\":\"/close/"
    "{sandbox}\",\"upgrade\":true,\"refuse\":\"close\",\"need\":\"pty\"},"
    "{\"name\":\"listed\",\"path\":\"/listed/{sandbox}\",\"upgrade\":true,\"origins\":[\"https://ui.io\"]},"
    "{\"name\":\"apps\",\"path\":\"/apps/{sandbox}\",\"upgrade\":true,\"origins\":[\"https://App.Test\","
    "\"https://web.test:443\",\"http://dot.test.\",\"https://odd.test:8443\",\"vscode-webview://1abc\","
    "\"tauri://localhost\",\"capacitor://localhost\",\"null\"]},"
    "{\"name\":\"any\",\"path\":\"/any/{sandbox}\",\"upgrade\":true,\"origins\":[\"*\"]},"
    "{\"name\":\"space\",\"headers\":{\"X-Sandbox-ID\":\"{sandbox}\",\"X-Sandbox-Namespace\":\"{namespace?"
    "default}\","
    " \"X-Sandbox-Port\":\"{port?8888}\"}},"
    "{\"name\":\"pty\",\"path\":\"/api/sandboxes/{sandbox}/pty/"
    "{session}\",\"upgrade\":true,\"via\":\"relay\","
    " \"to\":\"/sandboxes/{sandbox}/pty/{session}\",\"need\":\"pty\"},"
    "{\"name\":\"mux\",\"path\":\"/"
    "mux\",\"upgrade\":true,\"via\":\"relay\",\"need\":\"none\",\"mux\":\"sandbox-sdk\"},"
    "{\"name\":\"odd\",\"path\":\"/odd/{sandbox}/{rest...}\",\"to\":\"/even/{rest...}\"},"
    "{\"name\":\"where\",\"path\":\"/{where}/{sandbox}/x\",\"to\":\"/x\"},"
    "{\"name\":\"proxy\",\"path\":\"[/v1]/sandboxes/{sandbox}/proxy/{port}/{rest...}\",\"to\":\"/"
    "{rest...}\"}]}";

/* of "keyed": the SHA-256 of "letmein" */
#define LETMEIN_SHA256 "1c8bfe8f801d79745c4631d09fff36c82aa37fc4cce4fc946683d7b336b63032"

#define ANOTHER_SHA256 "ae448ac86c4e8e4dec645729708ef41873ae79c6dff84eff73360989487f08e5"

static const char sandboxes[] =
    "{\"sb-1\":{\"worker\":\"http://10.0.0.1:9001\",\"epoch\":3,\"org\":\"o1\","
    "  "
    "\"serves\":\"application\",\"ports\":{\"80\":\"http://10.0.0.1:9001\",\"8888\":\"http://"
    "10.0.0.1:9001\",\"8080\":\"https://"
    "10.0.0.5:49001\"}},"
    "\"own\":{\"worker\":\"http://10.0.0.2\",\"org\":\"o1\"},"
    "\"own6\":{\"worker\":\"https://[fd00::1]\"},"
    "\"named\":{\"worker\":\"https://w1.cell:8443\",\"ports\":{\"80\":\"https://w1.cell:8443\"}},"
    "\"lost\":{\"worker\":\"http://nowhere.cell:1\",\"ports\":{\"80\":\"http://nowhere.cell:1\"}},"
    "\"far\":{\"worker\":\"http://8.8.8.8:80\"},"
    "\"unix\":{\"worker\":\"http+unix:/run/w.sock\",\"ports\":{\"80\":\"http+unix:/run/w.sock\"}},"
    "\"docker\":{\"worker\":\"http+unix:/var/run/docker.sock\",\"ports\":{\"80\":\"http+unix:/var/run/"
    "docker.sock\"}},"
    "\"secret\":{\"worker\":\"http://10.0.0.3:80\",\"headers\":{\"Authorization\":\"Bearer worker\","
    "  \"X-EXECD-ACCESS-TOKEN\":\"of the record\",\"OPENSANDBOX-EGRESS-AUTH\":\"e\",\"X-Other\":\"o\"}},"
    "\"stopped\":{\"state\":\"stopped\",\"org\":\"o1\"},"
    "\"waking\":{\"state\":\"waking\"},"
    "\"asleep\":{\"state\":\"suspended\"},"
    "\"moving\":{\"state\":\"migrating\",\"worker\":\"http://10.0.0.4:80\"},"
    "\"between\":{\"state\":\"migrating\"},"
    "\"fresh\":{\"worker\":\"http://10.0.0.6:80\",\"not_before\":1799999990},"
    "\"keyed\":{\"serves\":\"application\",\"worker\":\"http://"
    "10.0.0.9:80\",\"access\":{\"token_sha256\":\"" LETMEIN_SHA256 "\"}},"
    "\"" LETMEIN_SHA256 "\":{\"ports\":{\"3000\":\"http://10.0.0.10:9\"},"
    "  \"access\":{\"token_sha256\":\"" LETMEIN_SHA256 "\"}},"
    /* of "another": its record has a secret that is not its name's */
    "\"" ANOTHER_SHA256 "\":{\"worker\":\"http://10.0.0.11:80\","
    "  \"access\":{\"token_sha256\":\"" LETMEIN_SHA256 "\"}},"
    "\"ns/sb-1\":{\"worker\":\"http://10.0.0.7\"},"
    "\"ns/box\":{\"worker\":\"http://10.0.0.8\"}}";

/* Tokens by name: what stands behind '$' in a row. */
static const struct {
    const char *name, *sandbox, *org;
    unsigned needs;
    uint16_t port;
    int64_t iat, exp;
} token_table[] = {
    {"all", "*", "o1", NEED_ALL, 0, NOW - 60, NOW + 60},
    {"two", "*", "o2", NEED_ALL, 0, NOW - 60, NOW + 60},
    {"sb1", "sb-1", NULL, NEED_ALL, 0, NOW - 60, NOW + 60},
    {"pty", "sb-1", "o1", NEED_PTY, 0, NOW - 60, NOW + 60},
    {"http", "sb-1", NULL, NEED_HTTP, 0, NOW - 60, NOW + 60},
    {"port", "sb-1", NULL, NEED_ALL, 80, NOW - 60, NOW + 60},
    {"late", "sb-1", NULL, NEED_ALL, 0, NOW - 90, NOW - 60},
    {"gone", "gone", NULL, NEED_ALL, 0, NOW - 60, NOW + 60},
    {"nssb", "ns/sb-1", NULL, NEED_ALL, 0, NOW, NOW + 60},
    {"own", "own", NULL, NEED_ALL, 0, NOW, NOW + 60},
    {"own6", "own6", NULL, NEED_ALL, 0, NOW, NOW + 60},
    {"named", "named", NULL, NEED_ALL, 0, NOW, NOW + 60},
    {"lost", "lost", NULL, NEED_ALL, 0, NOW, NOW + 60},
    {"far", "far", NULL, NEED_ALL, 0, NOW, NOW + 60},
    {"unix", "unix", NULL, NEED_ALL, 0, NOW, NOW + 60},
    {"docker", "docker", NULL, NEED_ALL, 0, NOW, NOW + 60},
    {"secret", "secret", NULL, NEED_ALL, 0, NOW, NOW + 60},
    {"stopped", "stopped", NULL, NEED_ALL, 0, NOW, NOW + 60},
    {"waking", "waking", NULL, NEED_ALL, 0, NOW, NOW + 60},
    {"asleep", "asleep", NULL, NEED_ALL, 0, NOW, NOW + 60},
    {"moving", "moving", NULL, NEED_ALL, 0, NOW, NOW + 60},
    {"between", "between", NULL, NEED_ALL, 0, NOW, NOW + 60},
    {"fresh", "fresh", NULL, NEED_ALL, 0, NOW, NOW + 60},
    {"stale", "fresh", NULL, NEED_ALL, 0, NOW - 60, NOW + 60},
    {"bare", "bare", "o1", NEED_ALL, 0, NOW - 60, NOW + 60},
    {"bareany", "bare", NULL, NEED_ALL, 0, NOW - 60, NOW + 60},
};
enum { TOKENS = sizeof token_table / sizeof *token_table };

struct world {
    char folder[32];
    struct json *doc;
    struct routes *routes;
    struct tokens *tokens;
    struct token_cache *cache;
    struct records *records;
    char token[TOKENS][1024];
    enum lookup lookup; /* what the directory says; LOOKUP_FOUND: what the records say */
    unsigned looked_up, woken;
    bool open, wakes;
    struct auth_failure_limiter *limiter;
    struct key *ticket_key;
    bool mux; /* the relay asks, with this proof, for a client of this address */
    struct slice proof;
    struct address source;
    int64_t not_before;
    const struct decide_trace *trace;
    uint8_t scratch[DECIDE_SCRATCH];
    size_t scratch_size;
    char texts[8][9000];
};

static enum lookup find(void *directory, struct slice space, struct slice sandbox, struct record *record)
{
    struct world *w = directory;
    w->looked_up++;
    if (slice_is(sandbox, "bare")) { /* a control plane that says that it is waking, and nothing else */
        *record = (struct record){.state = RECORD_WAKING, .bare = true};
        return LOOKUP_FOUND;
    }
    return w->lookup == LOOKUP_FOUND ? records_find(w->records, space, sandbox, record) : w->lookup;
}

static bool resolve(void *directory, struct slice host, struct address *addr)
{
    (void)directory;
    *addr = (struct address){.family = 4, .bytes = {10, 9, 9, 9}};
    return slice_is(host, "w1.cell");
}

static bool wake(void *directory, struct slice space, struct slice sandbox)
{
    struct world *w = directory;
    assert_false(slice_present(space));
    assert_true(slice_is(sandbox, "asleep"));
    w->woken += w->wakes;
    return w->wakes;
}

static bool allowed(const void *networks, const struct address *addr)
{
    (void)networks;
    return addr->bytes[0] == 10 || addr->bytes[0] == 0xfd;
}

static bool socket_allowed(const void *networks, struct slice path)
{
    (void)networks;
    return slice_starts(path, "/run/");
}

static void load_records(struct world *w)
{
    struct fail why;
    uint8_t memory[4096];
    struct json *doc = json_parse(slice_text(sandboxes), "r", 0, (struct json_limits){65536, 8}, &why);
    w->records = records_new(16);
    for (const json_node *node = json_first(json_root(doc)); node; node = json_next(node)) {
        struct record record;
        struct writer packed = writer_of(memory, sizeof memory);
        if (!record_from_json(doc, node, &packed, &record, &why) ||
            !records_add(w->records, slice_text(json_key(node)), &record, &why))
            fail_msg("%s", why.text);
    }
    json_free(doc);
}

static void mint_tokens(struct world *w)
{
    for (size_t i = 0; i < TOKENS; i++) {
        struct fail why;
        uint8_t packed[2];
        struct writer ports = writer_of(packed, sizeof packed);
        struct writer text = writer_of(w->token[i], sizeof w->token[i] - 1);
        struct grant grant = {.sandbox = slice_text(token_table[i].sandbox),
                              .org = slice_text(token_table[i].org),
                              .needs = token_table[i].needs,
                              .iat = token_table[i].iat,
                              .exp = token_table[i].exp};
        if (token_table[i].port) {
            grant_put_port(&ports, token_table[i].port);
            grant.ports = writer_slice(&ports);
        }
        if (!tokens_mint(w->tokens, (struct slice){NULL, 0}, (struct slice){NULL, 0}, &grant, &text, &why))
            fail_msg("%s", why.text);
        w->token[i][text.len] = '\0';
    }
}

static void load_tokens(struct world *w, const char *text)
{
    struct fail why = {""};
    struct json *doc = json_parse(slice_text(text), "c", 0, (struct json_limits){65536, 8}, &why);
    tokens_free(w->tokens);
    w->tokens = tokens_load(doc, json_root(doc), w->folder, "cell-a", TOKENS_CHECK, &why);
    if (!w->tokens)
        fail_msg("%s", why.text);
    json_free(doc);
}

static int set_up(void **state)
{
    struct world *w = calloc(1, sizeof *w);
    struct fail why = {""};
    char path[64];
    strcpy(w->folder, "/tmp/test_decide.XXXXXX");
    assert_non_null(mkdtemp(w->folder));
    snprintf(path, sizeof path, "%s/k", w->folder);
    FILE *key = fopen(path, "w");
    fputs("0123456789abcdef0123456789abcdef", key);
    fclose(key);
    w->doc = json_parse(slice_text(config), "c", 0, (struct json_limits){65536, 8}, &why);
    const json_node *root = json_root(w->doc);
    const struct route_nodes nodes = route_nodes_of(root);
    w->routes = routes_new(w->doc, &nodes, &why);
    w->tokens = tokens_load(w->doc, json_member(root, "tokens"), w->folder, "cell-a", TOKENS_MINT, &why);
    if (!w->routes || !w->tokens)
        fail_msg("%s", why.text);
    w->cache = token_cache_new(64);
    w->scratch_size = DECIDE_SCRATCH;
    w->lookup = LOOKUP_FOUND;
    load_records(w);
    mint_tokens(w);
    *state = w;
    return 0;
}

static int tear_down(void **state)
{
    struct world *w = *state;
    char path[64];
    snprintf(path, sizeof path, "%s/k", w->folder);
    unlink(path);
    rmdir(w->folder);
    routes_free(w->routes);
    tokens_free(w->tokens);
    token_cache_free(w->cache);
    auth_failure_limiter_free(w->limiter);
    key_free(w->ticket_key);
    records_release(w->records);
    json_free(w->doc);
    free(w);
    return 0;
}

/* Copies text into the world's i-th place with "$name" replaced by that token. */
static struct slice expand(struct world *w, size_t i, const char *text)
{
    struct writer out = writer_of(w->texts[i], sizeof w->texts[i]);
    for (const char *dollar; (dollar = strchr(text, '$')); text = dollar) {
        writer_put(&out, slice_of(text, (size_t)(dollar - text)));
        size_t len = strspn(++dollar, "abcdefghijklmnopqrstuvwxyz0123456789"), t = 0;
        while (t < TOKENS && !slice_is(slice_of(dollar, len), token_table[t].name))
            t++;
        assert_true(t < TOKENS);
        writer_text(&out, w->token[t]);
        dollar += len;
    }
    writer_text(&out, text);
    return writer_slice(&out);
}

enum { LINES = 7 };
#define WS                                                                    \
    "Upgrade: websocket", "Connection: Upgrade", "Sec-WebSocket-Version: 13", \
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=="

static bool ask(struct world *w, const char *line, const char *const *texts, struct verdict *verdict)
{
    static struct header_line lines[LINES];
    static struct request request;
    struct fail why;
    size_t count = 0;
    for (; count < LINES && texts[count]; count++)
        assert_true(header_line_parse(expand(w, count + 1, texts[count]), &lines[count]));
    static uint8_t memory[32768];
    struct writer text = writer_of(memory, sizeof memory);
    assert_true(request_from_text(expand(w, 0, line), lines, count, &text, &request, &why));
    request.mux = w->mux;
    request.proof = w->proof;
    request.source = w->source;
    struct writer scratch = writer_of(w->scratch, w->scratch_size);
    struct decide_view view = {.routes = w->routes,
                               .tokens = w->tokens,
                               .ticket_key = w->ticket_key,
                               .open = w->open,
                               .cache = w->cache,
                               .limiter = w->limiter,
                               .auth_failures_most = 3,
                               .not_before = w->not_before,
                               .now = NOW,
                               .allowed = allowed,
                               .socket_allowed = socket_allowed,
                               .find = find,
                               .resolve = resolve,
                               .wake = wake,
                               .directory = w,
                               .trace = w->trace};
    return decide(&view, &request, &scratch, verdict);
}

/* "401 token_missing", "direct 10.0.0.1:9001 /path?query", "relay - /path" */
static void verdict_text(const struct verdict *v, char *text, size_t size)
{
    char addr[64] = "-";
    if (v->kind == VERDICT_DENY) {
        snprintf(text, size, "%d %.*s", (int)v->status, SLICE_PRINTF(v->error));
        return;
    }
    if (v->addr.family) {
        inet_ntop(v->addr.family == 4 ? AF_INET : AF_INET6, v->addr.bytes, addr, sizeof addr);
        snprintf(addr + strlen(addr), 8, ":%d", (int)v->addr_port);
    }
    int len = snprintf(text, size, "%s %s %.*s", verdict_kind_text(v->kind), addr, SLICE_PRINTF(v->path));
    if (slice_present(v->query))
        snprintf(text + len, size - (size_t)len, "?%.*s", SLICE_PRINTF(v->query));
    if (v->refusal)
        snprintf(text + strlen(text), size - strlen(text), " %d %.*s", (int)v->status,
                 SLICE_PRINTF(v->error));
}

struct row {
    const char *line;
    const char *lines[LINES];
    const char *want;
};

static void rows_check(struct world *w, const struct row *rows, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        struct verdict verdict;
        char got[9000];
        ask(w, rows[i].line, rows[i].lines, &verdict);
        verdict_text(&verdict, got, sizeof got);
        if (strcmp(got, rows[i].want) != 0)
            fail_msg("%s (%s): '%s', not '%s'", rows[i].line, rows[i].lines[0] ? rows[i].lines[0] : "", got,
                     rows[i].want);
    }
}
#define ROWS_CHECK(w, rows) rows_check((w), (rows), sizeof(rows) / sizeof *(rows))

#define B(name) "Authorization: Bearer $" name
#define PROXY   "http://h/sandboxes/sb-1/proxy/80/"

static void the_request_itself_is_judged_first(void **state)
{
    static const struct row rows[] = {
        {"CONNECT " PROXY, {B("all")}, "405 method_not_allowed"},
        {"TRACE " PROXY, {B("all")}, "405 method_not_allowed"},
        {"GET " PROXY " HTTP/0.9", {B("all")}, "400 bad_request"},
        {"GET " PROXY "a%2", {B("all")}, "400 bad_request"},
        {"GET " PROXY "#f", {B("all")}, "400 bad_request"},
        {"GET " PROXY "a?b#c", {B("all")}, "400 bad_request"},
        {"GET " PROXY "..%2f..%2fx", {B("all")}, "400 bad_request"},
        {"GET " PROXY "../../own/proxy/80/", {B("all")}, "400 bad_request"},
        {"GET " PROXY, {B("all"), "Host: b", "Host: c"}, "400 bad_request"},
        {"GET /sandboxes/sb-1/proxy/80/", {B("all")}, "400 bad_request"},
        {"GET /sandboxes/sb-1/proxy/80/ HTTP/1.0", {B("all")}, "direct 10.0.0.1:9001 /"},
        {"GET " PROXY, {B("all"), "Host: a@b"}, "400 bad_request"},
        {"GET " PROXY, {B("all"), "Origin: http://a", "Origin: http://b"}, "400 bad_request"},
        {"GET " PROXY, {B("all"), B("all")}, "400 bad_request"},
        {"GET " PROXY, {B("all"), "Connection: X-Sandbox-ID"}, "400 bad_request"},
        {"GET " PROXY, {B("all"), "Connection: keep-alive"}, "direct 10.0.0.1:9001 /"},
        {"GET " PROXY, {B("all"), "Upgrade: h2c", "Connection: Upgrade"}, "direct 10.0.0.1:9001 /"},
        {"GET " PROXY " HTTP/2.0", {B("all"), "Upgrade: h2c", "Connection: Upgrade"}, "400 bad_request"},
        {"POST " PROXY, {WS, B("all")}, "405 method_not_allowed"},
        {"GET " PROXY, {"Upgrade: websocket", "Connection: upgrade", B("all")}, "426 upgrade_version"},
        {"GET http://h/nothing", {B("all")}, "404 no_route"},
        {"GET http://h/sandboxes/sb-1/proxy/0/", {B("all")}, "400 bad_request"},
        {"GET http://h/sandboxes/sb-1/proxy/080/", {B("all")}, "400 bad_request"},
        {"GET http://h/sandboxes/sb-1/proxy/65536/", {B("all")}, "400 bad_request"},
        {"GET http://h/sandboxes/sb-1/proxy/x/", {B("all")}, "400 bad_request"},
        {"GET http://h/sandboxes/sb%2F1/proxy/80/", {B("all")}, "400 bad_request"},
        {"GET http://h/sandboxes/sb!1/proxy/80/", {B("all")}, "400 bad_request"},
        {"GET http://h/sandboxes/%2e%2e/proxy/80/", {B("all")}, "400 bad_request"},
        {"GET http://h/x", {B("all"), "X-Sandbox-ID: a/b"}, "400 bad_request"},
        {"GET http://h/x", {B("all"), "X-Sandbox-ID: sb-1", "X-Sandbox-Namespace: a b"}, "400 bad_request"},
    };
    ROWS_CHECK(*state, rows);
}

static void without_a_valid_token_nobody_learns_anything(void **state)
{
    static const struct row rows[] = {
        {"GET " PROXY, {0}, "401 token_missing"},
        {"GET http://h/sandboxes/gone/proxy/80/", {0}, "401 token_missing"},
        {"GET http://h/sandboxes/stopped/proxy/80/", {0}, "401 token_missing"},
        {"GET " PROXY, {"Authorization: Basic x"}, "401 token_missing"},
        {"GET " PROXY, {"Authorization: Bearer x"}, "401 token_invalid"},
        {"GET http://h/sandboxes/gone/proxy/80/", {"Authorization: Bearer x"}, "401 token_invalid"},
        {"GET " PROXY "?cellgate_token=x", {0}, "401 token_invalid"},
        {"GET " PROXY, {B("late")}, "401 token_expired"},
        {"GET " PROXY, {"Cookie: __Host-cellgate=$all"}, "401 token_missing"},
    };
    struct world *w = *state;
    ROWS_CHECK(w, rows);
    assert_int_equal(w->looked_up, 0);
}

static void a_valid_token_is_held_against_the_sandbox(void **state)
{
    static const struct row before[] = {
        {"GET http://h/sandboxes/own/proxy/80/", {B("sb1")}, "403 wrong_sandbox"},
        {"GET http://h/sandboxes/gone/proxy/80/", {B("sb1")}, "403 wrong_sandbox"},
        {"GET " PROXY, {B("pty")}, "403 not_granted"},
        {"GET http://h/sandboxes/sb-1/proxy/8080/", {B("port")}, "403 not_granted"},
        {"GET http://h/x", {B("sb1"), "X-Sandbox-ID: sb-1", "X-Sandbox-Namespace: ns"}, "403 wrong_sandbox"},
        {"GET http://h/x", {B("nssb"), "X-Sandbox-ID: sb-1"}, "403 wrong_sandbox"},
    };
    static const struct row after[] = {
        {"GET http://h/sandboxes/gone/proxy/80/", {B("gone")}, "404 sandbox_not_found"},
        {"GET http://h/sandboxes/gone/proxy/80/", {B("all")}, "404 sandbox_not_found"},
        {"GET " PROXY, {B("two")}, "404 sandbox_not_found"},
        {"GET http://h/sandboxes/stopped/proxy/80/", {B("two")}, "404 sandbox_not_found"},
        {"GET http://h/sandboxes/named/proxy/80/", {B("all")}, "404 sandbox_not_found"},
        {"GET http://h/sandboxes/fresh/proxy/80/", {B("stale")}, "401 token_revoked"},
        {"GET http://h/sandboxes/fresh/proxy/80/", {B("fresh")}, "direct 10.0.0.6:80 /"},
        {"GET " PROXY, {B("sb1")}, "direct 10.0.0.1:9001 /"},
        {"GET " PROXY, {B("http")}, "direct 10.0.0.1:9001 /"},
        {"GET " PROXY, {B("port")}, "direct 10.0.0.1:9001 /"},
        {"GET http://sb-1.app.io/", {B("port")}, "403 not_granted"}, /* it leads to port 9001 */
        {"GET " PROXY, {B("all")}, "direct 10.0.0.1:9001 /"},
        {"GET http://h/sandboxes/sb%2D1/proxy/%38%30/", {B("sb1")}, "direct 10.0.0.1:9001 /"},
        {"GET http://h/x",
         {B("nssb"), "X-Sandbox-ID: sb-1", "X-Sandbox-Namespace: ns"},
         "direct 10.0.0.7:8888 /x"},
        {"GET http://h/x",
         {B("sb1"), "X-Sandbox-ID: sb-1", "X-Sandbox-Namespace: default"},
         "direct 10.0.0.1:9001 /x"},
    };
    struct world *w = *state;
    ROWS_CHECK(w, before);
    assert_int_equal(w->looked_up, 0);
    ROWS_CHECK(w, after);
    w->not_before = NOW - 30;
    static const struct row revoked[] = {{"GET " PROXY, {B("sb1")}, "401 token_revoked"}};
    ROWS_CHECK(w, revoked);
}

#define RELAY(id)  "http://h/api/sandboxes/" id "/pty/s%2F1"
#define DIRECT(id) "http://h/sandboxes/" id "/proxy/80/"
static void the_state_of_the_sandbox_decides(void **state)
{
    static const struct row rows[] = {
        {"GET " RELAY("sb-1"), {WS, B("pty")}, "relay 10.0.0.1:9001 /sandboxes/sb-1/pty/s%2F1"},
        {"GET " DIRECT("stopped"), {B("stopped")}, "410 sandbox_stopped"},
        {"GET " RELAY("stopped"), {WS, B("stopped")}, "410 sandbox_stopped"},
        {"GET " DIRECT("waking"), {B("waking")}, "503 sandbox_waking"},
        {"GET " RELAY("waking"), {WS, B("waking")}, "relay - /sandboxes/waking/pty/s%2F1"},
        {"GET " DIRECT("asleep"), {B("asleep")}, "503 sandbox_waking"},
        {"GET " RELAY("asleep"), {WS, B("asleep")}, "503 sandbox_waking"},
        {"GET " DIRECT("moving"), {B("moving")}, "direct 10.0.0.4:80 /"},
        {"GET " RELAY("moving"), {WS, B("moving")}, "relay 10.0.0.4:80 /sandboxes/moving/pty/s%2F1"},
        {"GET " DIRECT("between"), {B("between")}, "503 sandbox_migrating"},
        {"GET " RELAY("between"), {WS, B("between")}, "relay - /sandboxes/between/pty/s%2F1"},
    };
    ROWS_CHECK(*state, rows);
}

/* Its name is logged, and asked of the directory. */
static void a_token_is_no_name_of_a_sandbox(void **state)
{
    static const char *const tokens[] = {
        "eyJhbGciOiJFZERTQSJ9.eyJzdWIiOiJ1In0.c2ln",
        "v1.eyJucyI6ImRlZmF1bHQiLCJuYW1lIjoiYm94In0.c2lnbmF0dXJl",
        "v2.key-1.eyJucyI6ImRlZmF1bHQiLCJuYW1lIjoiYm94In0.c2lnbmF0dXJl",
        "f1.dGVuYW50LWE.c2FuZGJveC0xMjM.44772.a.AbCdEfGhIjKlMnOpQrStuv",
    };
    static const char *const names[] = {"v1.2.3", "f1.racing.team", "v2.stage.example", "eyJ.a"};
    for (size_t i = 0; i < sizeof tokens / sizeof *tokens; i++) {
        char line[256];
        snprintf(line, sizeof line, "GET http://h/sandboxes/%s/proxy/80/", tokens[i]);
        const struct row row = {line, {B("all")}, "400 bad_request"};
        rows_check(*state, &row, 1);
    }
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char line[256];
        snprintf(line, sizeof line, "GET http://h/sandboxes/%s/proxy/80/", names[i]);
        const struct row row = {line, {B("all")}, "404 sandbox_not_found"};
        rows_check(*state, &row, 1);
    }
}

/* e2b's SDK takes 502 alone for a sandbox that does not run. Who has no good credential gets the same of any sandbox. */
#define E2B(id) "http://80-" id ".e2b.io/"
static void e2b_tells_by_its_statuses_that_a_sandbox_does_not_run(void **state)
{
    static const struct row rows[] = {
        {"GET " E2B("gone"), {B("gone")}, "502 sandbox_not_found"},
        {"GET " E2B("gone"), {B("all")}, "502 sandbox_not_found"},
        {"GET " E2B("sb-1"), {B("two")}, "502 sandbox_not_found"},
        {"GET " E2B("stopped"), {B("stopped")}, "502 sandbox_stopped"},
        {"GET " E2B("asleep"), {B("asleep")}, "502 sandbox_waking"},
        {"GET " E2B("waking"), {B("waking")}, "409 sandbox_waking"},
        {"GET " E2B("between"), {B("between")}, "409 sandbox_migrating"},
        {"GET " E2B("far"), {B("far")}, "502 worker_unreachable"},
        {"GET " E2B("keyed"), {"X-OC-Preview-Token: wrong"}, "502 token_invalid"},
        {"GET " E2B("gone"), {"X-OC-Preview-Token: wrong"}, "502 token_invalid"},
        {"GET " E2B("keyed"), {"X-OC-Preview-Token: letmein"}, "direct 10.0.0.9:80 /"},
        /* what says nothing of a sandbox */
        {"GET " E2B("gone"), {0}, "401 token_missing"},
        {"GET " E2B("keyed"), {0}, "401 token_missing"},
        {"GET " E2B("gone"), {B("late")}, "401 token_expired"},
        {"GET " E2B("gone"), {"Authorization: Bearer x"}, "401 token_invalid"},
        {"GET " E2B("gone"), {B("sb1")}, "403 wrong_sandbox"},
    };
    static const struct row woken[] = {{"GET " E2B("asleep"), {B("asleep")}, "409 sandbox_waking"}};
    struct world *w = *state;
    ROWS_CHECK(w, rows);
    w->wakes = true;
    ROWS_CHECK(w, woken);
}

static void the_worker_is_chosen(void **state)
{
    static const struct row rows[] = {
        {"GET http://h/sandboxes/sb-1/proxy/8080/a", {B("all")}, "direct 10.0.0.5:49001 /a"},
        {"GET http://h/sandboxes/own/proxy/8080/", {B("own")}, "direct 10.0.0.2:8080 /"},
        {"GET http://h/sandboxes/own6/proxy/8443/", {B("own6")}, "direct fd00::1:8443 /"},
        {"GET " RELAY("own"), {WS, B("own")}, "400 bad_request"},
        {"GET " DIRECT("named"), {B("named")}, "direct 10.9.9.9:8443 /"},
        {"GET " DIRECT("lost"), {B("lost")}, "503 directory_unavailable"},
        {"GET " RELAY("lost"), {WS, B("lost")}, "relay - /sandboxes/lost/pty/s%2F1"},
        {"GET " DIRECT("far"), {B("far")}, "502 worker_unreachable"},
        {"GET " RELAY("far"), {WS, B("far")}, "502 worker_unreachable"},
        {"GET " DIRECT("unix"), {B("unix")}, "502 worker_unreachable"},
        {"GET " RELAY("unix"), {WS, B("unix")}, "relay - /sandboxes/unix/pty/s%2F1"},
        {"GET " DIRECT("docker"), {B("docker")}, "502 worker_unreachable"},
        {"GET " RELAY("docker"), {WS, B("docker")}, "502 worker_unreachable"},
    };
    ROWS_CHECK(*state, rows);
}

static void a_directory_that_cannot_say_is_waited_for(void **state)
{
    static const struct row silent[] = {
        {"GET " PROXY, {B("sb1")}, "503 directory_unavailable"},
        {"GET " RELAY("sb-1"), {WS, B("sb1")}, "503 directory_unavailable"},
        {"GET " PROXY, {0}, "401 token_missing"},
    };
    static const struct row later[] = {
        {"GET " PROXY, {B("sb1")}, "503 directory_unavailable"},
        {"GET " RELAY("sb-1"), {WS, B("sb1")}, "relay - /sandboxes/sb-1/pty/s%2F1"},
        {"GET " RELAY("sb-1"), {WS, B("all")}, "503 directory_unavailable"},
        {"GET " RELAY("sb-1"), {WS, B("gone")}, "403 wrong_sandbox"},
    };
    static const char *const token[LINES] = {B("sb1")}, *const lost[LINES] = {B("lost")};
    struct world *w = *state;
    struct verdict verdict;
    assert_false(ask(w, "GET " DIRECT("lost"), lost, &verdict)); /* for its worker's address */
    w->lookup = LOOKUP_UNAVAILABLE;
    ROWS_CHECK(w, silent);
    assert_true(ask(w, "GET " PROXY, token, &verdict));
    w->lookup = LOOKUP_PENDING;
    ROWS_CHECK(w, later);
    assert_false(ask(w, "GET " PROXY, token, &verdict));
    w->not_before = NOW;
    static const struct row revoked[] = {{"GET " RELAY("sb-1"), {WS, B("sb1")}, "401 token_revoked"}};
    ROWS_CHECK(w, revoked);
}

#define KEY(text) "X-OC-Preview-Token: " text
static void a_secret_of_the_record_waits_for_the_record(void **state)
{
    static const struct row found[] = {
        {"GET " DIRECT("keyed"), {KEY("letmein")}, "direct 10.0.0.9:80 /"},
        {"GET " RELAY("keyed"), {WS, KEY("letmein")}, "relay 10.0.0.9:80 /sandboxes/keyed/pty/s%2F1"},
        {"GET " DIRECT("keyed"), {KEY("wrong")}, "401 token_invalid"},
        {"GET " DIRECT("sb-1"), {KEY("letmein")}, "401 token_invalid"},
        {"GET " DIRECT("gone"), {KEY("letmein")}, "401 token_invalid"},
    };
    /* Nobody knows yet who asks: the relay does not wait in his name, and a wrong secret is told nothing else. */
    static const struct row not_yet[] = {
        {"GET " DIRECT("keyed"), {KEY("letmein")}, "503 directory_unavailable"},
        {"GET " DIRECT("keyed"), {KEY("wrong")}, "503 directory_unavailable"},
        {"GET " DIRECT("gone"), {KEY("letmein")}, "503 directory_unavailable"},
        {"GET " RELAY("keyed"), {WS, KEY("letmein")}, "503 directory_unavailable"},
        {"GET " RELAY("keyed"), {WS, KEY("wrong")}, "503 directory_unavailable"},
    };
    static const char *const keyed[LINES] = {KEY("letmein")};
    struct world *w = *state;
    struct verdict verdict;
    ROWS_CHECK(w, found);
    w->lookup = LOOKUP_UNAVAILABLE;
    ROWS_CHECK(w, not_yet);
    assert_true(ask(w, "GET " DIRECT("keyed"), keyed, &verdict));
    w->lookup = LOOKUP_PENDING;
    ROWS_CHECK(w, not_yet);
    assert_false(ask(w, "GET " DIRECT("keyed"), keyed, &verdict));
}

static void a_state_alone_says_nothing_of_owner_and_secret(void **state)
{
    static const char public[] =
        "[{\"kind\":\"jwt\",\"alg\":\"HS256\",\"secret_file\":\"k\"},"
        " {\"kind\":\"static\",\"everywhere\":true,\"public\":true,\"need\":[\"http\",\"pty\"]}]";
    static const struct row named[] = {
        {"GET " DIRECT("bare"), {B("bare")}, "503 sandbox_waking"},
        {"GET " RELAY("bare"), {WS, B("bare")}, "relay - /sandboxes/bare/pty/s%2F1"},
        {"GET " DIRECT("bare"), {B("all")}, "404 sandbox_not_found"},
        {"GET " DIRECT("bare"), {KEY("letmein")}, "401 token_invalid"},
    };
    static const struct row nobody[] = {
        {"GET " DIRECT("own"), {0}, "direct 10.0.0.2:80 /"},
        {"GET " DIRECT("keyed"), {0}, "401 token_missing"},
        {"GET " DIRECT("bare"), {0}, "401 token_missing"},
        {"GET " RELAY("bare"), {WS}, "401 token_missing"},
    };
    struct world *w = *state;
    ROWS_CHECK(w, named);
    load_tokens(w, public);
    ROWS_CHECK(w, nobody);
}

static void whose_owner_is_still_to_be_compared_gets_no_epoch(void **state)
{
    static const char *const owned[LINES] = {WS, B("bare")}, *const any[LINES] = {WS, B("bareany")};
    struct world *w = *state;
    struct verdict verdict;
    assert_true(ask(w, "GET " RELAY("bare"), owned, &verdict));
    assert_int_equal(verdict.kind, VERDICT_RELAY);
    assert_int_equal(verdict.epoch, -1);
    assert_true(ask(w, "GET " RELAY("bare"), any, &verdict));
    assert_true(verdict.epoch > 0);
}

static void only_wrong_secrets_are_counted(void **state)
{
    static const struct row good[] = {{"GET " DIRECT("keyed"), {KEY("letmein")}, "direct 10.0.0.9:80 /"}};
    /* known on whatever port: else one secret, tried on all of them, would push out what is known of others */
    static const struct row elsewhere[] = {
        {"GET http://h/sandboxes/keyed/proxy/81/", {KEY("letmein")}, "403 not_granted"}};
    static const struct row wrong[] = {{"GET " DIRECT("keyed"), {KEY("wrong")}, "401 token_invalid"}};
    static const struct row bounded[] = {{"GET " DIRECT("keyed"), {KEY("wrong")}, "429 too_many_requests"},
                                         {"GET " DIRECT("absent"), {KEY("letmein")}, "429 too_many_requests"},
                                         {"GET " PROXY, {B("sb1")}, "direct 10.0.0.1:9001 /"}};
    static const struct row unknown[] = {{"GET " DIRECT("keyed"), {KEY("letmein")}, "429 too_many_requests"}};
    static const char *const keyed[LINES] = {KEY("letmein")};
    struct world *w = *state;
    struct verdict verdict;
    w->limiter = auth_failure_limiter_new();
    assert_non_null(w->limiter);
    for (int i = 0; i < 12; i++) { /* a page's worth of requests while the record is on its way */
        w->lookup = i % 2 ? LOOKUP_PENDING : LOOKUP_UNAVAILABLE;
        (void)ask(w, "GET " DIRECT("keyed"), keyed, &verdict);
        assert_int_equal(verdict.refusal, REFUSAL_directory_unavailable);
    }
    w->lookup = LOOKUP_FOUND;
    for (int i = 0; i < 12; i++)
        ROWS_CHECK(w, good);
    for (int i = 0; i < 3; i++)
        ROWS_CHECK(w, wrong);
    ROWS_CHECK(w, bounded);
    ROWS_CHECK(w, good); /* who had it right before goes on */
    ROWS_CHECK(w, elsewhere);
    auth_failure_limiter_free(w->limiter);
    w->limiter = auth_failure_limiter_new();
    assert_non_null(w->limiter);
    for (int i = 0; i < 3; i++)
        ROWS_CHECK(w, wrong);
    ROWS_CHECK(w, unknown); /* else trying on would find it */
    ROWS_CHECK(w, bounded);
}

/* Pages of an application ask for their images without a credential; a thousand of these are no guess. */
static void a_request_without_a_credential_never_counts(void **state)
{
    static const char public[] = "[{\"kind\":\"static\",\"everywhere\":true,\"public\":true}]";
    static const struct row none[] = {{"GET " DIRECT("keyed"), {0}, "401 token_missing"},
                                      {"GET " DIRECT("absent"), {0}, "401 token_missing"}};
    static const struct row right[] = {{"GET " DIRECT("keyed"), {KEY("letmein")}, "direct 10.0.0.9:80 /"}};
    static const struct row wrong[] = {{"GET " DIRECT("keyed"), {KEY("wrong")}, "401 token_invalid"}};
    struct world *w = *state;
    w->limiter = auth_failure_limiter_new();
    assert_non_null(w->limiter);
    load_tokens(w, public);
    for (int i = 0; i < 10; i++)
        ROWS_CHECK(w, none);
    ROWS_CHECK(w, right);
    for (int i = 0; i < 3; i++)
        ROWS_CHECK(w, wrong);
    ROWS_CHECK(w, none); /* nor is it refused for what others did */
}

/* Their signatures cannot be guessed: who has a good one is not locked out by neighbours behind one address. */
static void wrong_tokens_are_bounded_and_right_ones_pass(void **state)
{
    static const struct row wrong[] = {{"GET " PROXY, {"Authorization: Bearer wrong"}, "401 token_invalid"},
                                       {"GET " PROXY, {"Authorization: Bearer a.b"}, "401 token_invalid"},
                                       {"GET " PROXY, {"Authorization: Bearer a.b.c"}, "401 token_invalid"}};
    static const struct row others[] = {{"GET " PROXY, {B("late")}, "401 token_expired"},
                                        {"GET " PROXY, {0}, "401 token_missing"},
                                        {"GET " PROXY, {B("gone")}, "403 wrong_sandbox"}};
    static const struct row bounded[] = {
        {"GET " PROXY, {"Authorization: Bearer wrong"}, "429 too_many_requests"},
        {"GET " PROXY, {"Authorization: Bearer a.b"}, "429 too_many_requests"},
        {"GET " PROXY, {B("sb1")}, "direct 10.0.0.1:9001 /"},
        {"GET " DIRECT("keyed"), {KEY("letmein")}, "direct 10.0.0.9:80 /"}};
    struct world *w = *state;
    w->limiter = auth_failure_limiter_new();
    assert_non_null(w->limiter);
    for (int i = 0; i < 5; i++) /* none of these counts */
        ROWS_CHECK(w, others);
    ROWS_CHECK(w, wrong);
    ROWS_CHECK(w, bounded);
    ROWS_CHECK(w, others);
}

/* The handover says whose a mux socket is: the relay charges its organisation for it, and counts any other as a stranger's. */
static bool mux_is_of(struct world *w, const char *credential, const char *org)
{
    const char *const texts[] = {WS, credential, NULL};
    struct verdict v;
    assert_true(ask(w, "GET http://h/mux", texts, &v));
    assert_int_equal(v.kind, VERDICT_RELAY);
    return memmem(v.handover.at, v.handover.len, org, strlen(org));
}

static void a_mux_socket_is_its_token_s_whatever_others_behind_its_address_guess(void **state)
{
    static const struct row wrong[] = {{"GET " PROXY, {"Authorization: Bearer a.b.c"}, "401 token_invalid"}},
                            more[] = {
                                {"GET " PROXY, {"Authorization: Bearer a.b.c"}, "429 too_many_requests"}};
    struct world *w = *state;
    w->limiter = auth_failure_limiter_new();
    assert_non_null(w->limiter);
    for (int i = 0; i < 3; i++)
        ROWS_CHECK(w, wrong);
    ROWS_CHECK(w, more);
    assert_true(mux_is_of(w, B("all"), "org=o1"));
    assert_false(mux_is_of(w, "Authorization: Bearer a.b.c", "org="));
}

/* Writes the proof that w->source opened a mux socket, which lasts until then. */
static void prove(struct world *w, uint8_t memory[static MUX_PROOF_TEXT], int64_t until)
{
    struct writer out = writer_of(memory, MUX_PROOF_TEXT);
    w->proof = mux_proof_write(w->ticket_key, &w->source, until, &out);
}

static void a_request_of_a_mux_socket_names_no_address_that_opened_none(void **state)
{
    static const char *const good[] = {B("all"), NULL};
    static const struct row wrong[] = {{"GET " PROXY, {"Authorization: Bearer a.b.c"}, "401 token_invalid"}},
                            refused[] = {
                                {"GET " PROXY, {"Authorization: Bearer a.b.c"}, "503 agent_unavailable"},
                                {"GET " PROXY, {B("all")}, "503 agent_unavailable"}};
    struct world *w = *state;
    uint8_t memory[MUX_PROOF_TEXT];
    struct fail why;
    struct verdict v;
    w->limiter = auth_failure_limiter_new();
    w->ticket_key = key_secret(SLICE_LITERAL("0123456789abcdef0123456789abcdef"), 32, "test", &why);
    w->source = (struct address){.family = 4, .bytes = {192, 0, 2, 7}};
    assert_non_null(w->limiter);
    assert_non_null(w->ticket_key);
    assert_true(mux_is_of(w, B("all"), "source="));
    w->mux = true;
    ROWS_CHECK(w, refused);
    prove(w, memory, NOW - 1);
    ROWS_CHECK(w, refused);
    prove(w, memory, NOW + 5);
    w->source.bytes[3]++;
    for (int i = 0; i < 5; i++)
        ROWS_CHECK(w, refused);
    assert_true(ask(w, "GET " PROXY, good, &v));
    assert_int_equal(v.source.family, 0); /* nor does it stand in a log */
    w->source.bytes[3]--;
    ROWS_CHECK(w, wrong); /* none of those counted */
    assert_true(ask(w, "GET " PROXY, good, &v));
    assert_int_equal(v.kind, VERDICT_DIRECT);
    assert_int_equal(v.good_until, NOW + 5);
}

static void a_suspended_sandbox_is_woken_by_who_may_use_it(void **state)
{
    static const struct row nobody[] = {
        {"GET " DIRECT("asleep"), {0}, "401 token_missing"},
        {"GET " DIRECT("asleep"), {B("sb1")}, "403 wrong_sandbox"},
    };
    static const struct row somebody[] = {
        {"GET " DIRECT("asleep"), {B("asleep")}, "503 sandbox_waking"},
        {"GET " RELAY("asleep"), {WS, B("asleep")}, "relay - /sandboxes/asleep/pty/s%2F1"},
    };
    struct world *w = *state;
    w->wakes = true;
    ROWS_CHECK(w, nobody);
    assert_int_equal(w->woken, 0);
    ROWS_CHECK(w, somebody);
    assert_int_equal(w->woken, 2);
}

static void the_worker_gets_path_and_query_byte_for_byte(void **state)
{
    static const struct row rows[] = {
        {"GET " PROXY "a//b%2Fc/./d/../e?x=1&x=2&&y",
         {B("all")},
         "direct 10.0.0.1:9001 /a//b%2Fc/./d/../e?x=1&x=2&&y"},
        {"GET " PROXY "?cellgate_token=$all", {0}, "direct 10.0.0.1:9001 /"},
        {"GET " PROXY "?a=%20&cellgate_token=$all&b=c%26", {0}, "direct 10.0.0.1:9001 /?a=%20&b=c%26"},
        {"GET " PROXY "?cellgate_token=$late&b", {B("all")}, "direct 10.0.0.1:9001 /?b"},
        {"GET http://h/sandboxes/sb-1/proxy/80", {B("all")}, "direct 10.0.0.1:9001 /"},
        {"GET http://h/v1/sandboxes/sb-1/proxy/80//x", {B("all")}, "direct 10.0.0.1:9001 //x"},
        {"GET http://sb-1.app.io/a?b", {B("all")}, "direct 10.0.0.1:9001 /a?b"},
        {"GET http://SB-1.App.IO.:8443/a?b", {B("all")}, "direct 10.0.0.1:9001 /a?b"},
    };
    ROWS_CHECK(*state, rows);
}

#define ASSERT_TEXT(slice, text)                                                     \
    do {                                                                             \
        if (!slice_is(slice, text))                                                  \
            fail_msg("'%.*s', not '%s'", SLICE_PRINTF(slice), (const char *)(text)); \
    } while (0)

static struct verdict asked(struct world *w, const char *line, const char *const *lines)
{
    struct verdict verdict;
    ask(w, line, lines, &verdict);
    return verdict;
}
#define ASKED(w, line, ...) asked((w), (line), (const char *const[LINES]){__VA_ARGS__})

static void what_the_worker_gets_besides(void **state)
{
    struct world *w = *state;
    struct verdict v = ASKED(w, "GET http://h/sandboxes/sb-1/proxy/8080/a", B("all"));
    ASSERT_TEXT(v.route, "proxy");
    ASSERT_TEXT(v.sandbox, "sb-1");
    ASSERT_TEXT(v.host, "10.0.0.5:49001");
    ASSERT_TEXT(v.sni, "10.0.0.5");
    ASSERT_TEXT(v.org, "o1");
    assert_true(v.tls && !v.cookies && !v.upgrade && !slice_present(v.auth) && v.refusal == REFUSAL_NONE);
    assert_int_equal(v.port, 8080);
    assert_int_equal(v.epoch, 3);
    assert_int_equal(v.status, -1);
    assert_int_equal(v.timeout, -1);
    v = ASKED(w, "GET http://h/sandboxes/own6/proxy/443/", B("own6"));
    ASSERT_TEXT(v.host, "[fd00::1]");
    v = ASKED(w, "GET http://h/sandboxes/named/proxy/80/", B("named"));
    ASSERT_TEXT(v.host, "w1.cell:8443");
    ASSERT_TEXT(v.sni, "w1.cell");
    v = ASKED(w, "GET http://sb-1.app.io/", B("sb1"));
    assert_true(!slice_present(v.host) && v.cookies);
    assert_int_equal(v.timeout, 300000);
    assert_int_equal(v.port, -1);
    ASSERT_TEXT(v.org, "o1");
    v = ASKED(w, "GET " RELAY("sb-1"), WS, B("pty"));
    ASSERT_TEXT(v.session, "s%2F1");
    ASSERT_TEXT(v.host, "10.0.0.1:9001");
    assert_true(v.upgrade);
}

static void what_the_path_lost_in_front_is_told(void **state)
{
    static const struct {
        const char *line, *prefix; /* NULL: none */
    } rows[] = {
        {"GET " PROXY "a/b?c", "/sandboxes/sb-1/proxy/80"},
        {"GET " PROXY, "/sandboxes/sb-1/proxy/80"},
        {"GET http://h/sandboxes/sb-1/proxy/80", "/sandboxes/sb-1/proxy/80"},
        {"GET http://h/v1/sandboxes/sb-1/proxy/80//x/", "/v1/sandboxes/sb-1/proxy/80"},
        {"GET http://h/v1/sandboxes/%73b-1/proxy/80/x", "/v1/sandboxes/%73b-1/proxy/80"},
        {"GET http://h/odd/sb-1/a/b", NULL},
        {"GET http://h/any;where/sb-1/x", NULL},
        {"GET http://h/any|where/sb-1/x", NULL},
        {"GET http://h/any:where/sb-1/x", "/any:where/sb-1"},
        {"GET http://sb-1.app.io/a?b", NULL},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct verdict v = ASKED(*state, rows[i].line, B("sb1"));
        assert_int_equal(v.kind, VERDICT_DIRECT);
        if (rows[i].prefix)
            ASSERT_TEXT(v.prefix, rows[i].prefix);
        else
            assert_false(slice_present(v.prefix));
    }
}

static void headers_of_the_record_and_of_the_application(void **state)
{
    struct world *w = *state;
    struct verdict v = ASKED(w, "GET " DIRECT("secret"), B("secret"));
    ASSERT_TEXT(v.auth, "Bearer worker");
    ASSERT_TEXT(v.execd, "of the record");
    ASSERT_TEXT(v.egress, "e");
    v = ASKED(w, "GET " RELAY("secret"), WS, B("secret"));
    assert_false(slice_present(v.auth) || slice_present(v.execd) || slice_present(v.egress));
    v = ASKED(w, "GET http://h/cors/sb-1/", B("sb1"));
    ASSERT_TEXT(v.execd, "of the route");
    assert_true(!slice_present(v.auth) && v.cookies);
    v = ASKED(w, "GET http://h/cors/sb-1/?cellgate_token=$sb1", "Authorization: Basic x");
    ASSERT_TEXT(v.auth, "Basic x");
    v = ASKED(w, "GET http://h/sandboxes/sb-1/proxy/80/?cellgate_token=$sb1", "Authorization: Basic x");
    assert_false(slice_present(v.auth));
    v = ASKED(w, "GET http://h/free/sb-1/a", "Authorization: Basic x");
    ASSERT_TEXT(v.auth, "Basic x");
    ASSERT_TEXT(v.path, "/a");
}

/* A JWT that no key of ours has made. */
#define FOREIGN "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJ1In0.Lzb7BNjJZ1JHlGPZX3ziPM2pqaKfrMGsG4JHZbFMFx4"

/* Where the host names the sandbox, applications have logins of their own. */
static void authorization_of_an_application_passes_on_host_forms(void **state)
{
    static const struct {
        const char *line, *lines[3], *auth; /* NULL: refused as `want` says */
        const char *want;
    } cases[] = {
        {"GET http://keyed.app.io/?cellgate_token=$own",
         {"Authorization: Basic x"},
         NULL,
         "403 wrong_sandbox"},
        {"GET http://keyed.app.io/",
         {"X-OC-Preview-Token: letmein", "Authorization: Basic x"},
         "Basic x",
         ""},
        {"GET http://keyed.app.io/",
         {"Cookie: __Host-cellgate=letmein", "Authorization: Basic x"},
         "Basic x",
         ""},
        {"GET http://keyed.app.io/",
         {"Cookie: __Host-cellgate=letmein", "Authorization: Bearer app"},
         "Bearer app",
         ""},
        {"GET http://sb-1.app.io/",
         {"Cookie: __Host-cellgate=$sb1", "Authorization: Bearer " FOREIGN},
         "Bearer " FOREIGN,
         ""},
        {"GET http://80-keyed.e2b.io/",
         {"X-OC-Preview-Token: letmein", "Authorization: Digest q=1"},
         "Digest q=1",
         ""},
        /* none of ours ever */
        {"GET http://sb-1.app.io/", {"Cookie: __Host-cellgate=$sb1", B("sb1")}, "", ""},
        {"GET http://sb-1.app.io/", {B("sb1")}, "", ""},
        {"GET http://keyed.app.io/", {"X-OC-Preview-Token: letmein", B("sb1")}, "", ""},
        {"GET http://keyed.app.io/",
         {"X-OC-Preview-Token: letmein", "Authorization: bearer  $late "},
         "",
         ""},
        {"GET http://keyed.app.io/",
         {"X-OC-Preview-Token: letmein", "Authorization: Bearer letmein"},
         "",
         ""},
        /* alone it has to be one */
        {"GET http://sb-1.app.io/", {B("late")}, NULL, "401 token_expired"},
        {"GET http://sb-1.app.io/", {"Authorization: Bearer app"}, NULL, "401 token_invalid"},
        {"GET http://sb-1.app.io/", {"Authorization: Basic x"}, NULL, "401 token_missing"},
        {"GET http://sb-1.app.io/",
         {"Cookie: __Host-cellgate=$late", "Authorization: Bearer app"},
         NULL,
         "401 token_expired"},
        {"GET http://sb-1.app.io/", {"Cookie: __Host-cellgate=$sb1", B("late")}, NULL, "401 token_expired"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct verdict v;
        char got[9000];
        ask(*state, cases[i].line, cases[i].lines, &v);
        verdict_text(&v, got, sizeof got);
        bool good = cases[i].auth ? v.kind == VERDICT_DIRECT && slice_is(v.auth, cases[i].auth)
                                  : strcmp(got, cases[i].want) == 0;
        if (!good)
            fail_msg("%s, %s: %s, Authorization: %.*s", cases[i].line, cases[i].lines[0], got,
                     SLICE_PRINTF(v.auth));
    }
}

static void where_no_credential_is_needed_authorization_is_the_applications(void **state)
{
    struct world *w = *state;
    struct verdict v;
    load_tokens(w, "[{\"kind\":\"jwt\",\"alg\":\"HS256\",\"secret_file\":\"k\"},"
                   " {\"kind\":\"static\",\"public\":true,\"routes\":[\"app\"],\"sources\":[\"label\"]}]");
    v = ASKED(w, "GET http://own.app.io/", "Authorization: Bearer app");
    assert_int_equal(v.kind, VERDICT_DENY); /* a management address: public is http */
    v = ASKED(w, "GET http://sb-1.app.io/", "Authorization: Bearer app");
    assert_int_equal(v.kind, VERDICT_DIRECT);
    ASSERT_TEXT(v.auth, "Bearer app");
    v = ASKED(w, "GET http://sb-1.app.io/", B("http"));
    assert_int_equal(v.kind, VERDICT_DIRECT);
    assert_false(slice_present(v.auth));
    v = ASKED(w, "GET http://h/free/sb-1/a", B("http"));
    assert_false(slice_present(v.auth));
    v = ASKED(w, "GET http://h/free/sb-1/a", "Authorization: Bearer app");
    ASSERT_TEXT(v.auth, "Bearer app");
    w->open = true;
    v = ASKED(w, "GET http://sb-1.app.io/", "Authorization: Bearer app");
    ASSERT_TEXT(v.auth, "Bearer app");
}

static void the_token_leaves_the_subprotocols(void **state)
{
    struct world *w = *state;
    struct verdict v =
        ASKED(w, "GET " RELAY("sb-1"), WS, "Sec-WebSocket-Protocol: a, cellgate.bearer.$sb1, cellgate, b");
    assert_int_equal(v.kind, VERDICT_RELAY);
    assert_true(v.protocol_edit && v.select_cellgate);
    assert_null(memmem(v.protocol.at, v.protocol.len, "bearer", 6));
    v = ASKED(w, "GET " RELAY("sb-1"), WS, "Sec-WebSocket-Protocol: cellgate.bearer.$sb1");
    assert_true(v.protocol_edit && !slice_present(v.protocol));
    v = ASKED(w, "GET " RELAY("sb-1"), WS, B("sb1"), "Sec-WebSocket-Protocol: a, b");
    assert_false(v.protocol_edit);
    /* several lines are one list (RFC 6455 section 11.3.4) */
    v = ASKED(w, "GET " RELAY("sb-1"), WS, "Sec-WebSocket-Protocol: a", "Sec-WebSocket-Protocol: b, cellgate",
              "Sec-WebSocket-Protocol: cellgate.bearer.$sb1");
    assert_int_equal(v.kind, VERDICT_RELAY);
    assert_true(v.protocol_edit && v.select_cellgate);
    ASSERT_TEXT(v.protocol, "a,b");
    v = ASKED(w, "GET " RELAY("sb-1"), WS, B("sb1"), "Sec-WebSocket-Protocol: a",
              "Sec-WebSocket-Protocol: b");
    ASSERT_TEXT(v.protocol, "a,b");
}

static void listed_origins_are_compared_as_what_they_name(void **state)
{
    static const char *const good[] = {"https://app.test",
                                       "https://app.test:443",
                                       "https://app.test.",
                                       "HTTPS://APP.TEST",
                                       "https://web.test",
                                       "https://web.test:443",
                                       "http://dot.test",
                                       "http://dot.test.:80",
                                       "https://odd.test:8443",
                                       "vscode-webview://1abc",
                                       "tauri://localhost",
                                       "capacitor://localhost",
                                       "null"};
    static const char *const bad[] = {"http://app.test",
                                      "https://app.test:444",
                                      "https://app.test..",
                                      "https://a.app.test",
                                      "https://odd.test",
                                      "vscode-webview://2abc",
                                      "tauri://localhost:1",
                                      "https://localhost",
                                      "Null",
                                      "nullx",
                                      "https://app.test/",
                                      "https://x@app.test",
                                      "https://app.test:0443x",
                                      "https://app.test, null",
                                      "https:/app.test",
                                      "https:app.test",
                                      "://app.test",
                                      ""};
    struct world *w = *state;
    char line[80];
    for (size_t i = 0; i < sizeof good / sizeof *good + sizeof bad / sizeof *bad; i++) {
        bool is_good = i < sizeof good / sizeof *good;
        snprintf(line, sizeof line, "Origin: %s", is_good ? good[i] : bad[i - sizeof good / sizeof *good]);
        struct verdict v = ASKED(w, "GET http://h/apps/sb-1", WS, B("sb1"), line);
        if (v.refusal != (is_good ? REFUSAL_NONE : REFUSAL_origin_refused))
            fail_msg("%s", line);
    }
}

static void answers_of_a_route_with_cors_vary_by_origin(void **state)
{
    struct world *w = *state;
    assert_true(ASKED(w, "GET http://h/cors/sb-1/x", B("sb1")).vary);
    assert_true(ASKED(w, "GET http://h/cors/sb-1/x", B("sb1"), "Origin: https://other.io").vary);
    assert_true(ASKED(w, "GET http://h/cors/sb-1/x").vary); /* 401 */
    assert_false(ASKED(w, "GET " PROXY, B("sb1")).vary);
}

static void browsers_are_held_to_their_origin(void **state)
{
    static const struct row rows[] = {
        {"GET " RELAY("sb-1"),
         {WS, B("sb1"), "Origin: http://h"},
         "relay 10.0.0.1:9001 /sandboxes/sb-1/pty/s%2F1"},
        {"GET " RELAY("sb-1"), {WS, B("sb1"), "Origin: HTTP://h"}, "403 origin_refused"},
        {"GET " RELAY("sb-1"),
         {WS, B("sb1"), "Origin: http://H:80"},
         "relay 10.0.0.1:9001 /sandboxes/sb-1/pty/s%2F1"},
        {"GET " RELAY("sb-1"), {WS, B("sb1"), "Origin: http://h:81"}, "403 origin_refused"},
        {"GET " RELAY("sb-1"), {WS, B("sb1"), "Origin: null"}, "403 origin_refused"},
        {"GET " RELAY("sb-1"), {WS, B("sb1"), "Origin:"}, "403 origin_refused"},
        {"GET " RELAY("sb-1"), {WS, B("sb1"), "Origin: http://h.evil"}, "403 origin_refused"},
        {"GET " RELAY("sb-1"), {WS, B("sb1"), "Origin: http://evil@h"}, "403 origin_refused"},
        {"GET " RELAY("gone"), {WS, B("gone"), "Origin: http://evil"}, "403 origin_refused"},
        {"GET " RELAY("sb-1"), {WS, "Origin: http://evil"}, "401 token_missing"},
        {"GET http://h/listed/sb-1",
         {WS, B("sb1"), "Origin: https://ui.io"},
         "direct 10.0.0.1:9001 /listed/sb-1"},
        {"GET http://h/listed/sb-1", {WS, B("sb1"), "Origin: http://h"}, "403 origin_refused"},
        {"GET http://h/listed/sb-1", {WS, B("sb1")}, "direct 10.0.0.1:9001 /listed/sb-1"},
        {"GET http://h/any/sb-1", {WS, B("sb1"), "Origin: null"}, "direct 10.0.0.1:9001 /any/sb-1"},
        {"GET " PROXY, {B("all"), "Origin: http://evil"}, "direct 10.0.0.1:9001 /"},
        /* a cookie is sent by the browser itself */
        {"GET http://sb-1.app.io/", {"Cookie: __Host-cellgate=$sb1"}, "direct 10.0.0.1:9001 /"},
        {"POST http://sb-1.app.io/", {"Cookie: __Host-cellgate=$sb1"}, "403 origin_refused"},
        {"POST http://sb-1.app.io/",
         {"Cookie: __Host-cellgate=$sb1", "Origin: https://sb-1.app.io"},
         "direct 10.0.0.1:9001 /"},
        {"POST http://sb-1.app.io/",
         {"Cookie: __Host-cellgate=$sb1", "Origin: http://sb-1.app.io"},
         "direct 10.0.0.1:9001 /"},
        {"POST https://sb-1.app.io:443/",
         {"Cookie: __Host-cellgate=$sb1", "Origin: https://sb-1.app.io"},
         "direct 10.0.0.1:9001 /"},
        /* a page that was put in on the way is no page of that host */
        {"POST https://sb-1.app.io/",
         {"Cookie: __Host-cellgate=$sb1", "Origin: http://sb-1.app.io"},
         "403 origin_refused"},
        {"GET https://sb-1.app.io/",
         {WS, "Cookie: __Host-cellgate=$sb1", "Origin: http://sb-1.app.io"},
         "403 origin_refused"},
        {"GET https://sb-1.app.io/", {WS, B("sb1"), "Origin: http://sb-1.app.io"}, "direct 10.0.0.1:9001 /"},
        {"POST http://sb-1.app.io/", {B("sb1")}, "direct 10.0.0.1:9001 /"},
        {"GET http://sb-1.app.io/", {WS, "Cookie: a=b; __Host-cellgate=$sb1"}, "403 origin_refused"},
        {"GET http://sb-1.app.io/",
         {WS, "Cookie: __Host-cellgate=$sb1", "Origin: http://sb-1.app.io"},
         "direct 10.0.0.1:9001 /"},
        {"GET http://own.app.io/", {"Cookie: __Host-cellgate=$sb1"}, "403 wrong_sandbox"},
    };
    ROWS_CHECK(*state, rows);
}

static void a_token_in_the_query_becomes_a_cookie(void **state)
{
    struct world *w = *state;
    char want[2048];
    struct verdict v = ASKED(w, "GET http://sb-1.app.io/a?b&cellgate_token=$sb1&c", NULL);
    assert_int_equal(v.kind, VERDICT_REDIRECT);
    ASSERT_TEXT(v.location, "/a?b&c");
    snprintf(want, sizeof want, "__Host-cellgate=%s; Path=/; Max-Age=65; Secure; HttpOnly; SameSite=Lax",
             w->token[2]);
    ASSERT_TEXT(v.set_cookie, want);
    assert_int_equal(w->looked_up, 1); /* whose it is the record says */
    v = ASKED(w, "GET http://sb-1.app.io/?cellgate_token=$sb1", NULL);
    ASSERT_TEXT(v.location, "/");
    v = ASKED(w, "GET http://sb-1.app.io//evil.io/?cellgate_token=$sb1", NULL);
    ASSERT_TEXT(v.location, "/.//evil.io/");
    v = ASKED(w, "GET http://sb-1.app.io/\\evil.io/?cellgate_token=$sb1", NULL);
    ASSERT_TEXT(v.location, "/./\\evil.io/");
    static const struct row rows[] = {
        {"POST http://sb-1.app.io/?cellgate_token=$sb1", {0}, "direct 10.0.0.1:9001 /"},
        {"GET http://sb-1.app.io/?cellgate_token=$sb1", {WS}, "direct 10.0.0.1:9001 /"},
        {"GET http://sb-1.app.io/?cellgate_token=$late", {0}, "401 token_expired"},
        {"GET http://sb-1.app.io/?cellgate_token=$own", {0}, "403 wrong_sandbox"},
        {"GET " PROXY "?cellgate_token=$sb1", {0}, "direct 10.0.0.1:9001 /"},
    };
    ROWS_CHECK(w, rows);
}

static void a_secret_in_the_query_becomes_a_cookie_where_that_is_listened_to(void **state)
{
    static const char asked_for[] = "GET http://keyed.app.io/a?b&DAYTONA_SANDBOX_AUTH_KEY=let%6Dein&c";
    static const char narrow[] =
        "[{\"kind\":\"jwt\",\"alg\":\"HS256\",\"secret_file\":\"k\"},"
        " {\"kind\":\"static\",\"everywhere\":true,\"sources\":[\"DAYTONA_SANDBOX_AUTH_KEY\"]}]";
    static const struct row rows[] = {
        {"GET http://keyed.app.io/a", {"Cookie: __Host-cellgate=letmein"}, "direct 10.0.0.9:80 /a"},
        {"GET http://keyed.app.io/a?DAYTONA_SANDBOX_AUTH_KEY=wrong", {0}, "401 token_invalid"},
        {"GET http://gone.app.io/a?DAYTONA_SANDBOX_AUTH_KEY=letmein", {0}, "401 token_invalid"},
        {"POST http://keyed.app.io/a?DAYTONA_SANDBOX_AUTH_KEY=letmein", {0}, "direct 10.0.0.9:80 /a"},
        {"GET " DIRECT("keyed") "a?DAYTONA_SANDBOX_AUTH_KEY=letmein&c", {0}, "direct 10.0.0.9:80 /a?c"},
    };
    static const struct row kept[] = {
        {asked_for, {0}, "direct 10.0.0.9:80 /a?b&c"},
        {"GET http://keyed.app.io/a", {"Cookie: __Host-cellgate=letmein"}, "401 token_invalid"},
    };
    struct world *w = *state;
    struct verdict v = ASKED(w, asked_for, NULL);
    assert_int_equal(v.kind, VERDICT_REDIRECT);
    ASSERT_TEXT(v.location, "/a?b&c");
    ASSERT_TEXT(v.set_cookie,
                "__Host-cellgate=letmein; Path=/; Max-Age=86400; Secure; HttpOnly; SameSite=Lax");
    ROWS_CHECK(w, rows);
    /* A cookie that nobody would take must not stand in the way of what is good. */
    load_tokens(w, narrow);
    ROWS_CHECK(w, kept);
}

static void preflights_are_answered_here(void **state)
{
    struct world *w = *state;
#define ASKS "Access-Control-Request-Method: PUT"
    struct verdict v = ASKED(w, "OPTIONS http://h/cors/gone/x", "Origin: https://ui.io", ASKS);
    assert_int_equal(v.kind, VERDICT_PREFLIGHT);
    ASSERT_TEXT(v.cors_origin, "https://ui.io");
    v = ASKED(w, "GET http://h/cors/sb-1/x", B("sb1"), "Origin: https://ui.io");
    assert_int_equal(v.kind, VERDICT_DIRECT);
    ASSERT_TEXT(v.cors_origin, "https://ui.io");
    v = ASKED(w, "GET http://h/cors/sb-1/x", "Origin: https://ui.io");
    assert_int_equal(v.refusal, REFUSAL_token_missing);
    ASSERT_TEXT(v.cors_origin, "https://ui.io");
    v = ASKED(w, "GET http://h/cors/sb-1/x", B("sb1"), "Origin: https://other.io");
    assert_false(slice_present(v.cors_origin));
    static const struct row rows[] = {
        {"OPTIONS http://h/cors/sb-1/x", {"Origin: https://other.io", ASKS}, "403 origin_refused"},
        {"OPTIONS http://h/cors/sb-1/x", {"Origin: https://ui.io"}, "401 token_missing"},
        {"OPTIONS " PROXY, {"Origin: https://ui.io", ASKS}, "401 token_missing"},
        {"OPTIONS " PROXY, {B("all"), ASKS}, "direct 10.0.0.1:9001 /"},
    };
    ROWS_CHECK(w, rows);
}

static void a_token_that_does_not_say_when_it_was_made_is_as_old_as_can_be(void **state)
{
    struct world *w = *state;
    struct fail why = {""};
    char line[1024] = "Authorization: Bearer ";
    struct writer text = writer_of(line, sizeof line - 1);
    const struct grant grant = {
        .sandbox = SLICE_LITERAL("sb-1"), .needs = NEED_UNSAID, .iat = NOW, .exp = NOW + 60};
    text.len = strlen(line);
    load_tokens(w, "[{\"kind\":\"agent-sandbox\",\"secret_file\":\"k\"}]");
    const struct slice any = {NULL, 0};
    if (!tokens_mint(w->tokens, any, any, &grant, &text, &why))
        fail_msg("%s", why.text);
    const struct verdict v = ASKED(w, "GET " RELAY("sb-1"), WS, line);
    assert_int_equal(v.kind, VERDICT_RELAY);
    struct handover h;
    uint8_t memory[1024];
    struct writer texts = writer_of(memory, sizeof memory);
    assert_true(handover_decode(&h, v.handover, &texts, &why));
    assert_false(slice_present(h.kid));
    assert_int_equal(h.iat, 0);
}

/* Limits count by it in any case; only a token's own is held against the record as long as the tunnel lasts. */
static void the_relay_is_told_whose_organisation_it_is(void **state)
{
    static const struct {
        const char *token;
        int64_t of_record;
    } rows[] = {{B("pty"), -1}, {B("sb1"), 1}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const struct verdict v = ASKED(*state, "GET " RELAY("sb-1"), WS, rows[i].token);
        struct handover h;
        struct fail why;
        uint8_t memory[1024];
        struct writer texts = writer_of(memory, sizeof memory);
        assert_int_equal(v.kind, VERDICT_RELAY);
        assert_true(handover_decode(&h, v.handover, &texts, &why));
        ASSERT_TEXT(h.org, "o1");
        assert_int_equal(h.org_of_record, rows[i].of_record);
    }
}

static void refusals_can_be_delivered_by_the_relay(void **state)
{
    static const struct row rows[] = {
        {"GET http://h/close/sb-1", {WS}, "relay - /close/sb-1 401 token_missing"},
        {"GET http://h/close/gone", {WS, B("gone")}, "relay - /close/gone 404 sandbox_not_found"},
        {"GET http://h/close/between", {WS, B("between")}, "relay - /close/between 503 sandbox_migrating"},
        {"GET http://h/close/sb-1", {WS, B("sb1")}, "direct 10.0.0.1:9001 /close/sb-1"},
        {"GET http://h/close/sb-1", {WS, B("http")}, "relay - /close/sb-1 403 not_granted"},
        {"GET http://h/close/sb-1", {"Upgrade: websocket", "Connection: upgrade"}, "426 upgrade_version"},
        {"GET http://h/close/sb-1", {0}, "404 no_route"},
    };
    struct world *w = *state;
    ROWS_CHECK(w, rows);
    struct verdict v = ASKED(w, "GET http://h/close/between", WS, B("between"));
    assert_true(v.retryable && v.retry_after == 1 && v.upgrade);
}

static void a_token_in_the_place_of_the_sandbox_names_it_by_its_hash(void **state)
{
    static const struct row rows[] = {
        {"GET http://3000-letmein.day.io/a?b", {0}, "direct 10.0.0.10:9 /a?b"},
        {"GET http://3000-LETMEIN.day.io/",
         {WS, "Origin: http://3000-letmein.day.io"},
         "direct 10.0.0.10:9 /"},
        {"GET http://3001-letmein.day.io/", {0}, "403 not_granted"},
        {"GET http://0-letmein.day.io/", {0}, "400 bad_request"},
        {"GET http://3000-letmeout.day.io/", {0}, "401 token_invalid"},
        {"GET http://3000-another.day.io/", {0}, "401 token_invalid"},
        {"GET http://3000-" LETMEIN_SHA256 ".day.io/", {0}, "401 token_invalid"},
        {"GET http://3000-sb-1.day.io/", {0}, "401 token_missing"},
        {"GET http://8080-sb-1.day.io/", {B("sb1")}, "direct 10.0.0.5:49001 /"},
    };
    struct world *w = *state;
    ROWS_CHECK(w, rows);
    struct verdict v = ASKED(w, "GET http://3000-letmein.day.io/", NULL);
    ASSERT_TEXT(v.sandbox, LETMEIN_SHA256);
}

static void an_open_cell_needs_no_token(void **state)
{
    struct world *w = *state;
    static const struct row rows[] = {
        {"GET " PROXY, {0}, "direct 10.0.0.1:9001 /"},
        {"GET " PROXY, {"Authorization: Bearer nonsense"}, "direct 10.0.0.1:9001 /"},
        {"GET " PROXY "?cellgate_token=x&y", {0}, "direct 10.0.0.1:9001 /?y"},
        {"GET " RELAY("sb-1"), {WS, "Origin: http://evil"}, "403 origin_refused"},
        {"GET " DIRECT("gone"), {0}, "404 sandbox_not_found"},
        {"GET http://h/free/gone/", {0}, "404 sandbox_not_found"},
    };
    w->open = true;
    ROWS_CHECK(w, rows);
    w->open = false;
    static const struct row free_route[] = {
        {"GET http://h/free/gone/", {0}, "404 sandbox_not_found"},
        {"GET http://h/free/sb-1/a?cellgate_token=x", {0}, "direct 10.0.0.1:9001 /a"},
    };
    ROWS_CHECK(w, free_route);
}

static void texts_that_do_not_fit_are_refused_whole(void **state)
{
    struct world *w = *state;
    bool fitted = false;
    for (w->scratch_size = 0; w->scratch_size <= 4096 && !fitted; w->scratch_size++) {
        struct verdict v = ASKED(w, "GET http://SB-1.app.io/a?b&cellgate_token=$sb1&c", NULL);
        fitted = v.kind == VERDICT_REDIRECT;
        if (fitted)
            break;
        assert_int_equal(v.kind, VERDICT_DENY);
        assert_int_equal(v.refusal, REFUSAL_request_too_large);
        assert_false(slice_present(v.location) || slice_present(v.set_cookie) || slice_present(v.sandbox));
    }
    assert_true(fitted && w->scratch_size > 200);
}

struct told {
    char text[8192];
};

static void tell(void *context, const char *step, const char *text, struct slice detail)
{
    struct told *told = context;
    size_t len = strlen(told->text);
    snprintf(told->text + len, sizeof told->text - len, "%s: %s [%.*s]\n", step, text, SLICE_PRINTF(detail));
}

static void looked(void *context, const struct route *route, enum route_miss miss)
{
    tell(context, route->name, route_miss_text(miss), (struct slice){NULL, 0});
}

static void steps_are_told_without_credentials(void **state)
{
    struct world *w = *state;
    struct told told = {""};
    struct decide_trace trace = {.step = tell, .context = &told, .routes = {looked, &told}};
    w->trace = &trace;
    (void)ASKED(w, "GET " PROXY "?cellgate_token=$sb1", NULL);
    assert_non_null(strstr(told.text, "token: carried by [query]"));
    assert_non_null(strstr(told.text, "proxy: it matches"));
    assert_non_null(strstr(told.text, "app: the host does not match"));
    assert_non_null(strstr(told.text, "worker: without TLS [10.0.0.1]"));
    assert_null(strstr(told.text, w->token[2]));
    told.text[0] = '\0';
    (void)ASKED(w, "GET " PROXY, B("late"));
    assert_non_null(strstr(told.text, "token: "));
    assert_null(strstr(told.text, w->token[6]));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
/* A secret for previews of one system is nothing on routes of another, and there its header is the application's. */
static void a_secret_is_good_where_its_source_belongs_or_its_entry_says(void **state)
{
    static const struct {
        const char *entry, *got[3]; /* proxy and app, which are the operator's own, and e2b-preview */
    } cases[] = {
        {"{\"kind\":\"static\",\"sources\":[\"e2b-traffic-access-token\"]}",
         {"401 token_missing", "401 token_missing", "direct 10.0.0.9:80 /"}},
        {"{\"kind\":\"static\"}", {"401 token_missing", "401 token_missing", "direct 10.0.0.9:80 /"}},
        {"{\"kind\":\"static\",\"routes\":[\"proxy\"]}",
         {"direct 10.0.0.9:80 /", "401 token_missing", "401 token_missing"}},
        {"{\"kind\":\"static\",\"systems\":[\"daytona\"]}",
         {"401 token_missing", "401 token_missing", "401 token_missing"}},
        {"{\"kind\":\"static\",\"systems\":[\"e2b\"],\"routes\":[\"app\"]}",
         {"401 token_missing", "direct 10.0.0.9:80 /", "direct 10.0.0.9:80 /"}},
        {"{\"kind\":\"static\",\"everywhere\":true}",
         {"direct 10.0.0.9:80 /", "direct 10.0.0.9:80 /", "direct 10.0.0.9:80 /"}},
    };
    static const char *const lines[] = {"GET http://h/sandboxes/keyed/proxy/80/", "GET http://keyed.app.io/",
                                        "GET http://80-keyed.e2b.io/"};
    struct world *w = *state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char tokens[512];
        snprintf(tokens, sizeof tokens, "[%s]", cases[i].entry);
        load_tokens(w, tokens);
        for (size_t j = 0; j < 3; j++) {
            const struct row row = {lines[j], {"e2b-traffic-access-token: letmein"}, cases[i].got[j]};
            rows_check(w, &row, 1);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_secret_is_good_where_its_source_belongs_or_its_entry_says, set_up,
                                        tear_down),
        TEST(the_request_itself_is_judged_first),
        TEST(without_a_valid_token_nobody_learns_anything),
        TEST(a_valid_token_is_held_against_the_sandbox),
        TEST(the_state_of_the_sandbox_decides),
        TEST(a_token_is_no_name_of_a_sandbox),
        TEST(e2b_tells_by_its_statuses_that_a_sandbox_does_not_run),
        TEST(the_worker_is_chosen),
        TEST(a_directory_that_cannot_say_is_waited_for),
        TEST(a_secret_of_the_record_waits_for_the_record),
        TEST(a_state_alone_says_nothing_of_owner_and_secret),
        TEST(whose_owner_is_still_to_be_compared_gets_no_epoch),
        TEST(only_wrong_secrets_are_counted),
        TEST(a_request_without_a_credential_never_counts),
        TEST(wrong_tokens_are_bounded_and_right_ones_pass),
        TEST(a_mux_socket_is_its_token_s_whatever_others_behind_its_address_guess),
        TEST(a_request_of_a_mux_socket_names_no_address_that_opened_none),
        TEST(a_suspended_sandbox_is_woken_by_who_may_use_it),
        TEST(the_worker_gets_path_and_query_byte_for_byte),
        TEST(what_the_worker_gets_besides),
        TEST(what_the_path_lost_in_front_is_told),
        TEST(headers_of_the_record_and_of_the_application),
        TEST(authorization_of_an_application_passes_on_host_forms),
        TEST(where_no_credential_is_needed_authorization_is_the_applications),
        TEST(the_token_leaves_the_subprotocols),
        TEST(browsers_are_held_to_their_origin),
        TEST(listed_origins_are_compared_as_what_they_name),
        TEST(answers_of_a_route_with_cors_vary_by_origin),
        TEST(a_token_in_the_query_becomes_a_cookie),
        TEST(a_secret_in_the_query_becomes_a_cookie_where_that_is_listened_to),
        TEST(preflights_are_answered_here),
        TEST(a_token_that_does_not_say_when_it_was_made_is_as_old_as_can_be),
        TEST(the_relay_is_told_whose_organisation_it_is),
        TEST(refusals_can_be_delivered_by_the_relay),
        TEST(a_token_in_the_place_of_the_sandbox_names_it_by_its_hash),
        TEST(an_open_cell_needs_no_token),
        TEST(texts_that_do_not_fit_are_refused_whole),
        TEST(steps_are_told_without_credentials),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
