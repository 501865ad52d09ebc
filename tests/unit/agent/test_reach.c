/* SPDX-License-Identifier: MIT */
/* The table of docs/security.md that says who reaches what with which token: every cell of it is tried, by every
 * form of address that leads there. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "spoa/agent/decision/decide.h"
#include "spoa/agent/directory/records.h"
#include "spoa/agent/model/record_json.h"
#include "spoa/agent/model/request_text.h"
#include "spoa/agent/token/tokens.h"
#include "tests/unit/support.h"

#define NOW    1800000000
#define SECRET "letmein"
/* of it */
#define DIGEST "1c8bfe8f801d79745c4631d09fff36c82aa37fc4cce4fc946683d7b336b63032"
#define ACCESS ",\"access\":{\"token_sha256\":\"" DIGEST "\"}}"

static const char config[] =
    "{\"systems\":[\"opencomputer\",\"opensandbox\",\"sandbox-sdk\",\"agent-sandbox\",\"daytona\",\"e2b\"],"
    "\"domains\":{\"opencomputer\":[\"oc.io\"],\"opensandbox\":[\"os.io\"],\"daytona\":[\"day.io\"],"
    "\"daytona-signed\":[\"signed.io\"],\"e2b\":[\"e2b.io\"]},"
    "\"tokens\":[{\"kind\":\"jwt\",\"alg\":\"HS256\",\"secret_file\":\"k\"},"
    "{\"kind\":\"static\",\"everywhere\":true,\"sources\":[\"X-OC-Preview-Token\"]}],"
    "\"routes\":["
    "{\"name\":\"x-exec\",\"path\":\"/x/exec/{sandbox}/{port}\",\"need\":\"exec\"},"
    "{\"name\":\"x-exec-relay\",\"path\":\"/x/relay/{sandbox}/"
    "{port}\",\"upgrade\":true,\"via\":\"relay\",\"need\":\"exec\"},"
    "{\"name\":\"x-agent\",\"path\":\"/x/agent/{sandbox}/{port}\",\"need\":\"agent\"},"
    "{\"name\":\"x-none\",\"path\":\"/x/none/{sandbox}/{port}\",\"need\":\"none\"},"
    "{\"name\":\"x-http-relay\",\"path\":\"/x/http/{sandbox}/{port}\",\"upgrade\":true,\"via\":\"relay\"},"
    "\"defaults\"]}";

/* The columns: what the page calls them, the record, and the port that is asked for. */
static const struct {
    const char *title, *sandbox, *record;
    unsigned port;
} columns[] = {
    {"worker's own port", "own", "{\"worker\":\"http://10.0.0.1:9001\"" ACCESS, 44772},
    {"the same, an application", "app",
     "{\"worker\":\"http://10.0.0.2:9001\",\"serves\":\"application\"" ACCESS, 9001},
    {"in `ports`", "listed",
     "{\"worker\":\"http://10.0.0.3:9001\",\"ports\":{\"5173\":\"http://10.0.0.3:49000\"}" ACCESS, 5173},
    {"in `ports`, but the worker's own", "trick",
     "{\"worker\":\"http://10.0.0.4:9001\",\"ports\":{\"5173\":{\"url\":\"http://"
     "same.cell:9001\",\"serves\":\"application\"}}" ACCESS,
     5173},
    {"port of an address of its own", "pod", "{\"worker\":\"http://10.0.0.5\"" ACCESS, 5173},
    {"its management port", "pod", "{\"worker\":\"http://10.0.0.5\"" ACCESS, 44772},
    {"a port that is not there", "own", "{\"worker\":\"http://10.0.0.1:9001\"" ACCESS, 5173},
};
enum { COLUMNS = sizeof columns / sizeof *columns };

static const struct {
    const char *title;
    unsigned needs; /* 0: the access secret */
} grants[] = {{"http", NEED_HTTP}, {"exec", NEED_EXEC},   {"http and exec", NEED_HTTP | NEED_EXEC},
              {"pty", NEED_PTY},   {"agent", NEED_AGENT}, {"everything", NEED_ALL},
              {"access secret", 0}};
enum { GRANTS = sizeof grants / sizeof *grants };

/* By need of the route: forms of address, with %s for the sandbox and %u for the port. */
static const struct {
    const char *need, *line, *header;
    bool upgrade, port_first;
} forms[] = {
    {"http", "GET http://h/v1/sandboxes/%s/proxy/%u/a", NULL, false, false},
    {"http", "POST http://h/sandboxes/%s/proxy/%u/sandboxes/sb-1/exec", NULL, false, false},
    {"http", "GET http://h/sandboxes/%s/proxy/%u/ws", NULL, true, false},
    {"http", "GET http://h/terminal?command=id", "X-Sandbox-ID: %s|X-Sandbox-Port: %u", false, false},
    {"http", "GET http://h/terminal?command=id", "X-Sandbox-ID: %s|X-Sandbox-Port: %u", true, false},
    {"http", "GET http://h/a", "OpenSandbox-Ingress-To: %s-%u", false, false},
    {"http", "GET http://h/a", "OPEN-SANDBOX-INGRESS: %s-%u.x", true, false},
    {"http", "GET http://os.io/%s/%u/a", NULL, false, false},
    {"http", "GET http://%s-%u.os.io/a", NULL, false, false},
    {"http", "GET http://%s-p%u.oc.io/a", NULL, true, false},
    {"http", "GET http://%u-%s.day.io/a", NULL, false, true},
    {"http", "GET http://%u-%s.e2b.io/a", NULL, false, true},
    {"http", "GET http://h/a", "E2b-Sandbox-Id: %s|E2b-Sandbox-Port: %u", false, false},
    {"http", "GET http://h/a", "E2b-Sandbox-Id: %s|E2b-Sandbox-Port: %u", true, false},
    {"http", "GET http://h/x/http/%s/%u", NULL, true, false},
    {"pty", "GET http://h/v1/sandboxes/%s/proxy/%u/terminal", NULL, true, false},
    {"pty", "GET http://h/sandboxes/%s/proxy/%u/pty/p/ws", NULL, true, false},
    {"exec", "GET http://h/x/exec/%s/%u", NULL, false, false},
    {"exec", "GET http://h/x/relay/%s/%u", NULL, true, false},
    {"agent", "GET http://h/x/agent/%s/%u", NULL, true, false},
    {"none", "GET http://h/x/none/%s/%u", NULL, false, false},
};
enum { FORMS = sizeof forms / sizeof *forms };

static struct {
    struct json *doc;
    struct routes *routes;
    struct tokens *tokens;
    struct token_cache *cache;
    struct records *records;
    uint8_t scratch[DECIDE_SCRATCH];
    char token[1024];
} w;

static bool allowed(const void *networks, const struct address *addr)
{
    (void)networks;
    return addr->bytes[0] == 10;
}

static enum lookup find(void *directory, struct slice space, struct slice sandbox, struct record *record)
{
    (void)directory, (void)space;
    return records_find(w.records, (struct slice){NULL, 0}, sandbox, record);
}

/* Another name of the worker whose port is listed as an application's. */
static bool resolve_name(void *directory, struct slice host, struct address *addr)
{
    (void)directory;
    *addr = (struct address){.family = 4, .bytes = {10, 0, 0, 4}};
    return slice_is(host, "same.cell");
}

static void load_records(void)
{
    struct fail why = {""};
    uint8_t memory[4096];
    w.records = records_new(16);
    for (size_t i = 0; i < COLUMNS; i++) {
        struct record record;
        struct writer packed = writer_of(memory, sizeof memory);
        struct json *doc =
            json_parse(slice_text(columns[i].record), "r", 0, (struct json_limits){4096, 8}, &why);
        bool good = doc && record_from_json(doc, json_root(doc), &packed, &record, &why);
        if (good)
            (void)!records_add(w.records, slice_text(columns[i].sandbox), &record, &why); /* one stands twice */
        json_free(doc);
        if (!good)
            fail_msg("%s", why.text);
    }
}

static int set_up(void **state)
{
    char folder[] = "/tmp/test_reach.XXXXXX", path[64];
    struct fail why = {""};
    (void)state;
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/k", folder);
    FILE *key = fopen(path, "w");
    fputs("0123456789abcdef0123456789abcdef", key);
    fclose(key);
    w.doc = json_parse(slice_text(config), "c", 0, (struct json_limits){65536, 8}, &why);
    const struct route_nodes nodes = route_nodes_of(json_root(w.doc));
    w.routes = routes_new(w.doc, &nodes, &why);
    w.tokens = tokens_load(w.doc, json_member(json_root(w.doc), "tokens"), folder, "cell", TOKENS_MINT, &why);
    unlink(path);
    rmdir(folder);
    if (!w.routes || !w.tokens)
        fail_msg("%s", why.text);
    w.cache = token_cache_new(64);
    load_records();
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    routes_free(w.routes);
    tokens_free(w.tokens);
    token_cache_free(w.cache);
    records_release(w.records);
    json_free(w.doc);
    return 0;
}

static const char *credential(const char *sandbox, unsigned needs)
{
    static char line[1200];
    struct fail why;
    struct writer text = writer_of((uint8_t *)w.token, sizeof w.token - 1);
    const struct grant grant = {
        .sandbox = slice_text(sandbox), .needs = needs, .iat = NOW - 60, .exp = NOW + 60};
    if (!needs)
        return "X-OC-Preview-Token: " SECRET;
    if (!tokens_mint(w.tokens, SLICE_LITERAL("jwt"), (struct slice){NULL, 0}, &grant, &text, &why))
        fail_msg("%s", why.text);
    snprintf(line, sizeof line, "Authorization: Bearer %.*s", (int)text.len, w.token);
    return line;
}

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
static void place(char *to, size_t size, const char *form, bool port_first, size_t column)
{
    if (port_first)
        snprintf(to, size, form, columns[column].port, columns[column].sandbox);
    else
        snprintf(to, size, form, columns[column].sandbox, columns[column].port);
}
#pragma GCC diagnostic pop

/* "yes", "no", or what else came of it. */
static const char *reach(size_t form, unsigned needs, size_t column)
{
    static const char *const upgrade[] = {"Upgrade: websocket", "Connection: Upgrade",
                                          "Sec-WebSocket-Version: 13",
                                          "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=="};
    static struct header_line lines[8];
    static char line[256], header[256];
    const struct management management = {.ports = {{{44772, 44772}}, 1}, .serves = SERVES_MANAGEMENT};
    const struct decide_view view = {.routes = w.routes,
                                     .management = &management,
                                     .tokens = w.tokens,
                                     .cache = w.cache,
                                     .now = NOW,
                                     .allowed = allowed,
                                     .find = find,
                                     .resolve = resolve_name};
    struct request request;
    struct verdict verdict;
    struct fail why;
    size_t count = 0;
    struct slice rest, part;
    place(line, sizeof line, forms[form].line, forms[form].port_first, column);
    if (forms[form].header) {
        place(header, sizeof header, forms[form].header, false, column);
        for (rest = slice_text(header); slice_split(&rest, '|', &part);)
            assert_true(header_line_parse(part, &lines[count++]));
    }
    for (size_t i = 0; forms[form].upgrade && i < 4; i++)
        assert_true(header_line_parse(slice_text(upgrade[i]), &lines[count++]));
    assert_true(header_line_parse(slice_text(credential(columns[column].sandbox, needs)), &lines[count++]));
    static uint8_t memory[4096];
    struct writer text = writer_of(memory, sizeof memory);
    assert_true(request_from_text(slice_text(line), lines, count, &text, &request, &why));
    struct writer scratch = writer_of(w.scratch, sizeof w.scratch);
    assert_true(decide(&view, &request, &scratch, &verdict));
    if (verdict.refusal == REFUSAL_not_granted)
        return "no";
    if (verdict.refusal != REFUSAL_NONE)
        return refusal_info(verdict.refusal)->code;
    return verdict.kind == VERDICT_DIRECT || verdict.kind == VERDICT_RELAY ? "yes" : "something else";
}

static size_t grant_named(struct slice title)
{
    for (size_t i = 0; i < GRANTS; i++)
        if (slice_is(title, grants[i].title))
            return i;
    fail_msg("the page names a token '%.*s'", SLICE_PRINTF(title));
    return 0;
}

/* Tries one row with one of its tokens, by all forms of its need. */
static unsigned walk_row(struct slice need, struct slice token, struct slice cells)
{
    unsigned tried = 0;
    struct slice cell;
    size_t grant = grant_named(token);
    for (size_t column = 0; column < COLUMNS; column++) {
        assert_true(slice_split(&cells, '|', &cell));
        cell = slice_trim(cell);
        assert_true(slice_is(cell, "yes") || slice_is(cell, "no"));
        for (size_t form = 0; form < FORMS; form++) {
            if (!slice_is(need, forms[form].need))
                continue;
            const char *got = reach(form, grants[grant].needs, column);
            if (!slice_is(cell, got))
                fail_msg("%.*s by '%s' with a token for %s, %s: %s, and the page says %.*s",
                         SLICE_PRINTF(need), forms[form].line, grants[grant].title, columns[column].title,
                         got, SLICE_PRINTF(cell));
            tried++;
        }
    }
    return tried;
}

static void check_titles(struct slice cells)
{
    struct slice cell;
    for (size_t column = 0; column < COLUMNS; column++)
        assert_true(slice_split(&cells, '|', &cell) && slice_is(slice_trim(cell), columns[column].title));
}

static void every_cell_of_the_page_is_so(void **state)
{
    static char page[1 << 17];
    unsigned pairs = 0, tried = 0; /* of a need and a token, and of these with an address */
    (void)state;
    FILE *in = fopen("docs/security.md", "r");
    assert_non_null(in);
    page[fread(page, 1, sizeof page - 1, in)] = '\0';
    fclose(in);
    char *table = strstr(page, "<!-- reach:"), *end = table ? strstr(table, "<!-- end of reach -->") : NULL;
    assert_non_null(end);
    struct slice rest = slice_of(table, (size_t)(end - table)), line, need, tokens, token;
    while (slice_split(&rest, '\n', &line)) {
        if (!slice_starts(line, "| ") || slice_starts(line, "| ---"))
            continue;
        line = slice_from(line, 2);
        slice_split(&line, '|', &need);
        slice_split(&line, '|', &tokens);
        if (slice_is(slice_trim(need), "route asks for")) {
            check_titles(line);
            continue;
        }
        for (; slice_split(&tokens, ';', &token); pairs++)
            tried += walk_row(slice_trim(need), slice_trim(token), line);
    }
    assert_true(pairs > 25 && tried > 800);
}

/* ---- what a system keeps for the sandbox's host ---- */

static const char *ask_line(const struct decide_view *view, const char *line, const char *header)
{
    static uint8_t memory[4096];
    static struct header_line lines[2];
    struct request request;
    struct verdict verdict;
    struct fail why;
    size_t count = 1;
    struct writer text = writer_of(memory, sizeof memory), scratch = writer_of(w.scratch, sizeof w.scratch);
    assert_true(header_line_parse(slice_text(credential("pod", NEED_ALL)), &lines[0]));
    if (header)
        assert_true(header_line_parse(slice_text(header), &lines[count++]));
    assert_true(request_from_text(slice_text(line), lines, count, &text, &request, &why));
    decide(view, &request, &scratch, &verdict);
    return verdict.refusal == REFUSAL_NONE ? "served" : refusal_info(verdict.refusal)->code;
}

static void expect_line(unsigned systems, const char *method, const char *before, const char *path,
                        const char *header, const char *want)
{
    char line[256];
    const struct management management = {
        .ports = {{{49983, 49983}}, 1}, .serves = SERVES_MANAGEMENT, .systems = systems};
    const struct decide_view view = {.routes = w.routes,
                                     .management = &management,
                                     .tokens = w.tokens,
                                     .cache = w.cache,
                                     .now = NOW,
                                     .allowed = allowed,
                                     .find = find,
                                     .resolve = resolve_name};
    snprintf(line, sizeof line, "%s %s%s", method, before, path);
    const char *got = ask_line(&view, line, header);
    if (strcmp(got, want) != 0)
        fail_msg("%s %s: %s, not %s", line, header ? header : "", got, want);
}

/* envd's endpoints for its host want no token: whoever may run commands could freeze, replace or join the sandbox. */
static void what_is_the_hosts_is_served_to_nobody(void **state)
{
    static const char *const withheld[] = {"init",   "freeze",   "unfreeze", "fsfreeze",
                                           "fsthaw", "collapse", "upgrade"};
    static const char *const spellings[] = {"/init",       "//init",      "/./init",        "/x/../init",
                                            "/%69nit",     "/init/",      "/init//",        "/init/.",
                                            "/init;x=1",   "/init%3Bx",   "/x%2f..%2finit", "/x%2F../init",
                                            "/%2e%2finit", "/\\init",     "/%5cinit",       "/x/y/../../init",
                                            "/init/x/..",  "/init?path=", "/a;/../init",    "/init%2f"};
    static const char *const served[] = {"/initial", "/files?path=/init", "/health", "/x-init",
                                         "/process.Process/Start"};
    static const char *const methods[] = {"GET", "POST", "PUT", "OPTIONS", "QUERY"};
    const unsigned all[] = {0, SYSTEM_BIT(SYSTEM_E2B), SYSTEMS_ALL};
    char path[64];
    (void)state;
    for (size_t s = 0; s < sizeof all / sizeof *all; s++) {
        for (size_t i = 0; i < sizeof withheld / sizeof *withheld; i++) {
            snprintf(path, sizeof path, "/%s", withheld[i]);
            for (size_t m = 0; m < sizeof methods / sizeof *methods; m++) {
                expect_line(all[s], methods[m], "http://49983-pod.e2b.io", path, NULL, "no_route");
                expect_line(all[s], methods[m], "http://h", path, "E2b-Sandbox-Id: pod", "no_route");
            }
            expect_line(all[s], "POST", "http://h/sandboxes/pod/proxy/49983", path, NULL, "no_route");
            expect_line(all[s], "POST", "http://h", path, "OpenSandbox-Ingress-To: pod-49983", "no_route");
            expect_line(all[s], "POST", "http://3000-pod.e2b.io", path, NULL, "served");
        }
        for (size_t i = 0; i < sizeof spellings / sizeof *spellings; i++)
            expect_line(all[s], "POST", "http://49983-pod.e2b.io", spellings[i], NULL, "no_route");
        for (size_t i = 0; i < sizeof served / sizeof *served; i++)
            expect_line(all[s], "POST", "http://49983-pod.e2b.io", served[i], NULL, "served");
    }
    expect_line(SYSTEM_BIT(SYSTEM_DAYTONA), "POST", "http://h/sandboxes/pod/proxy/49983", "/init", NULL,
                "served");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(every_cell_of_the_page_is_so, set_up, tear_down),
        cmocka_unit_test_setup_teardown(what_is_the_hosts_is_served_to_nobody, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
