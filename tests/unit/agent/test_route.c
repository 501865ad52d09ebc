/* SPDX-License-Identifier: MIT */
#include "tests/unit/support.h"

#include <stdio.h>
#include <stdlib.h>

#include "spoa/agent/model/grant.h"
#include "spoa/agent/model/record_pack.h"
#include "spoa/agent/model/request_text.h"
#include "spoa/agent/route/route.h"
#include "spoa/proto/handover.h"

static const char domains_text[] =
    "{\"opencomputer\":[\"oc.io\",\"OC2.io\"],\"opensandbox\":[\"os.io\"],"
    "\"sandbox-sdk\":[\"preview.example.com\"],\"daytona\":[\"day.io\"],\"daytona-signed\":[\"signed.io\"],"
    "\"e2b\":[\"e2b.io\"]}";

#define ALL "[\"opencomputer\",\"opensandbox\",\"sandbox-sdk\",\"agent-sandbox\",\"daytona\",\"e2b\"]"

static const struct json_limits limits = {65536, 8};

/* The table of {"systems": ..., "routes": ..., "domains": ...}. */
static struct routes *routes_of(const char *text, struct fail *why)
{
    struct json *doc = json_parse(slice_text(text), "t", 0, limits, why);
    if (!doc)
        fail_msg("%s", why->text);
    const struct route_nodes nodes = route_nodes_of(json_root(doc));
    struct routes *routes = routes_new(doc, &nodes, why);
    json_free(doc);
    return routes;
}

static struct routes *defaults(void)
{
    char text[512];
    struct fail why;
    snprintf(text, sizeof text, "{\"systems\":" ALL ",\"domains\":%s}", domains_text);
    struct routes *routes = routes_of(text, &why);
    if (!routes)
        fail_msg("%s", why.text);
    return routes;
}

enum { LINES = 4 };

static void request_make(const char *line, const char *const *texts, struct header_line *lines,
                         struct request *request)
{
    struct fail why;
    size_t count = 0;
    for (; count < LINES && texts[count]; count++)
        assert_true(header_line_parse(slice_text(texts[count]), &lines[count]));
    static uint8_t memory[4096];
    struct writer w = writer_of(memory, sizeof memory);
    assert_true(request_from_text(slice_text(line), lines, count, &w, request, &why));
}

/* "route sandbox namespace port session token expires signature", '-' for what is absent; "none" */
static void match_text(const struct routes *routes, const struct request *request, bool upgrade, char *text,
                       size_t size)
{
    struct route_match match;
    struct slice host = slice_sub(request->host, 0, slice_find(request->host, ':'));
    snprintf(text, size, "none");
    if (!route_match(routes, request, upgrade, host, &match, NULL))
        return;
    int len = snprintf(text, size, "%s%s", match.route->name, match.climbs ? " climbs" : "");
    for (size_t i = 0; i < CAPTURES_KNOWN; i++) {
        struct slice value = match.captures.value[i];
        len += slice_present(value) ? snprintf(text + len, size - (size_t)len, " %.*s", SLICE_PRINTF(value))
                                    : snprintf(text + len, size - (size_t)len, " -");
    }
}

struct row {
    bool upgrade;
    const char *line;
    const char *lines[LINES];
    const char *want; /* as match_text says it; absent captures at the end are left out */
};

#define U true
#define P false
static const struct row rows[] = {
    /* opencomputer */
    {U, "GET http://h/api/sandboxes/sb-1/pty/s1", {0}, "opencomputer-pty sb-1 - - s1"},
    {U, "GET http://h/api/sandboxes/sb-1/exec/s1?api_key=x", {0}, "opencomputer-exec sb-1 - - s1"},
    {U, "GET http://h/api/sandboxes/sb-1/agent/s1", {0}, "opencomputer-agent sb-1 - - s1"},
    {U, "GET http://h/api/sandboxes/sb-1/shell/s1", {0}, "none"},
    {U, "GET http://h/api/sandboxes/sb-1/pty/s1/x", {0}, "none"},
    {U, "GET http://h/sandboxes/sb-1/pty/s1", {0}, "none"},
    {U, "GET http://h/api/sandboxes/sb-1/pty", {0}, "none"},
    {U, "GET http://h/v1/api/sandboxes/sb-1/pty/s1", {0}, "none"},
    {P, "GET http://h/api/sandboxes/sb-1/pty/s1", {0}, "opencomputer-pty-api sb-1"},
    {P, "POST http://h/api/sandboxes/sb-1/pty", {0}, "opencomputer-pty-api sb-1"},
    {P, "POST http://h/api/sandboxes/sb-1/exec/s1/kill", {0}, "opencomputer-exec-api sb-1"},
    {P,
     "GET http://h/api/sandboxes/sb-1/files/download?path=/a&expires=1&signature=2",
     {0},
     "opencomputer-api sb-1"},
    {P, "DELETE http://h/api/sandboxes/sb-1", {0}, "opencomputer-api sb-1"},
    {P, "GET http://h/api/sandboxes/sb-1/../sb-2/x", {0}, "opencomputer-api climbs sb-1"},
    {P, "GET http://h/api/sandboxes", {0}, "none"},
    {P, "GET http://h/api/sandboxes/", {0}, "none"},
    {P, "GET http://h/", {0}, "none"},
    {P, "GET http://sb-1-p8080.oc.io/", {0}, "opencomputer-preview sb-1 - 8080"},
    {U, "GET http://sb-1-p8080.oc.io/ws", {0}, "opencomputer-preview sb-1 - 8080"},
    {P, "GET http://sb-1-p8080.oc2.io:8443/", {0}, "opencomputer-preview sb-1 - 8080"},
    {P, "GET http://sb-1-p8080.oc3.io/", {0}, "none"},
    {P, "GET http://sb-1.oc.io/", {0}, "none"},
    {P, "GET http://sb-1-p8080.oc.io/api/sandboxes/sb-2/x", {0}, "opencomputer-preview sb-1 - 8080"},
    {P, "GET http://sb-1-p80.oc.io/a/../../b", {0}, "opencomputer-preview climbs sb-1 - 80"},
    /* opensandbox */
    {U, "GET http://h/sandboxes/sb-1/proxy/44772/pty/p1/ws?since=5", {0}, "opensandbox-pty sb-1 - 44772 p1"},
    {U, "GET http://h/v1/sandboxes/sb-1/proxy/44772/pty/p1/ws", {0}, "opensandbox-pty sb-1 - 44772 p1"},
    {P, "GET http://h/v1/sandboxes/sb-1/proxy/44772/pty/p1/ws", {0}, "opensandbox-proxy sb-1 - 44772"},
    {U, "GET http://h/v2/sandboxes/sb-1/proxy/44772/pty/p1/ws", {0}, "none"},
    {U, "GET http://h/sandboxes/sb-1/proxy/44772/pty/p1", {0}, "opensandbox-proxy sb-1 - 44772"},
    {P, "GET http://h/sandboxes/sb-1/proxy/8080", {0}, "opensandbox-proxy sb-1 - 8080"},
    {P, "PATCH http://h/v1/sandboxes/sb-1/proxy/8080/a//b%2Fc?x=1&x=2", {0}, "opensandbox-proxy sb-1 - 8080"},
    {U, "GET http://h/v1/sandboxes/sb-1/proxy/8080/ws", {0}, "opensandbox-proxy sb-1 - 8080"},
    {P, "GET http://h/sandboxes/sb-1/proxy/none/x", {0}, "opensandbox-proxy sb-1 - none"},
    {P,
     "GET http://h/sandboxes/sb-1/proxy/8080/%2e%2e/%2e%2e/x",
     {0},
     "opensandbox-proxy climbs sb-1 - 8080"},
    {P, "GET http://h/sandboxes/sb-1", {0}, "none"},
    {P, "GET http://h/sandboxes/sb-1/proxy", {0}, "none"},
    {U, "GET http://h/v1/sandboxes/sb-1/proxy/8080/terminal?cols=80&rows=24", {0}, "terminal sb-1 - 8080"},
    {U, "GET http://h/sandboxes/sb-1/proxy/8080/terminal", {0}, "terminal sb-1 - 8080"},
    {P, "GET http://h/sandboxes/sb-1/proxy/8080/terminal", {0}, "opensandbox-proxy sb-1 - 8080"},
    {U, "GET http://h/sandboxes/sb-1/proxy/8080/terminal/", {0}, "opensandbox-proxy sb-1 - 8080"},
    {P, "GET http://sb-1-8080.os.io/x", {0}, "opensandbox-ingress sb-1 - 8080"},
    {U, "GET http://sb-1-8080.os.io/x", {0}, "opensandbox-ingress sb-1 - 8080"},
    {P,
     "GET http://my-sandbox-8080-x2qxvk-21e6a3d0a.os.io/",
     {0},
     "opensandbox-ingress my-sandbox - 8080 - - x2qxvk 21e6a3d0a"},
    {P,
     "GET http://3f2504e0-4f89-41d3-9a0c-0305e82c3301-8080-x2qxvk-21e6a3d0a.os.io/",
     {0},
     "opensandbox-ingress 3f2504e0-4f89-41d3-9a0c-0305e82c3301 - 8080 - - x2qxvk 21e6a3d0a"},
    {P, "GET http://sb-1.os.io/x", {0}, "opensandbox-ingress sb - 1"},
    {P, "GET http://sb.os.io/x", {0}, "none"},
    {P, "GET http://sb-x.os.io/x", {0}, "none"},
    {P, "GET http://os.io/sb-1/8080/a/b", {0}, "opensandbox-ingress-path sb-1 - 8080"},
    {P, "GET http://os.io/sb-1/8080", {0}, "opensandbox-ingress-path sb-1 - 8080"},
    {U, "GET http://os.io/sb-1/8080/", {0}, "opensandbox-ingress-path sb-1 - 8080"},
    {P,
     "GET http://os.io/d-e/3000/x2qxvk/8c431392a/a",
     {0},
     "opensandbox-ingress-path d-e - 3000 - - x2qxvk 8c431392a"},
    {P, "GET http://os.io/d-e/3000/x2qxvk/8c431392A/a", {0}, "opensandbox-ingress-path d-e - 3000"},
    {P, "GET http://os.io/", {0}, "none"},
    {P, "GET http://os.io/sb-1", {0}, "none"},
    {P, "GET http://h/sb-1/8080/x", {0}, "none"},
    {P, "GET http://h/x", {"OpenSandbox-Ingress-To: sb-1-8080"}, "opensandbox-ingress-to sb-1 - 8080"},
    {P, "GET http://h/x", {"opensandbox-ingress-to: sb-1-8080.a.b"}, "opensandbox-ingress-to sb-1 - 8080"},
    {P,
     "GET http://h/x",
     {"OpenSandbox-Ingress-To: gamma-7777-x2qxvk-8df586d8k"},
     "opensandbox-ingress-to gamma - 7777 - - x2qxvk 8df586d8k"},
    {P, "GET http://h/x", {"OpenSandbox-Ingress-To: gamma"}, "none"},
    {U, "GET http://h/x", {"OPEN-SANDBOX-INGRESS: sb-1-8080"}, "opensandbox-ingress-header sb-1 - 8080"},
    {P,
     "GET http://h/x",
     {"OPEN-SANDBOX-INGRESS: a-1", "OpenSandbox-Ingress-To: b-2"},
     "opensandbox-ingress-to b - 2"},
    {P,
     "GET http://os.io/api/8080/users",
     {"OpenSandbox-Ingress-To: sb-1-3000"},
     "opensandbox-ingress-to sb-1 - 3000"},
    {P,
     "GET http://h/x",
     {"OpenSandbox-Ingress-To: f1.dGVhbQ.Zmx0LTE.8080.a.AAAAAAAAAAAAAAAAAAAAA_"},
     "opensandbox-ingress-to - - 8080 - - - - - a AAAAAAAAAAAAAAAAAAAAA_ Zmx0LTE dGVhbQ"},
    {U,
     "GET http://os.io/f1.dGVhbQ.Zmx0LTE.8080.a.AAAAAAAAAAAAAAAAAAAAA-/x",
     {0},
     "opensandbox-ingress-path - - 8080 - - - - - a AAAAAAAAAAAAAAAAAAAAA- Zmx0LTE dGVhbQ"},
    {P,
     "GET http://h/x",
     {"OpenSandbox-Ingress-To: f1.dGVhbQ.Zmx0LTE.8080.a.AAAAAAAAAAAAAAAAAAAAA_.x"},
     "none"},
    /* sandbox-sdk */
    {P, "GET http://8080-sb-1-abc_1.preview.example.com/", {0}, "sandbox-sdk-preview sb-1 - 8080 - abc_1"},
    {U, "GET http://8080-sb-1-abc.preview.example.com/ws", {0}, "sandbox-sdk-preview sb-1 - 8080 - abc"},
    {P, "GET http://8080-sb.preview.example.com/", {0}, "none"},
    {P, "GET http://3000-sb-1-abc.preview.example.com/", {0}, "none"},
    {P, "GET http://1023-sb-1-abc.preview.example.com/", {0}, "none"},
    {P, "GET http://1024-sb-1-abc.preview.example.com/", {0}, "sandbox-sdk-preview sb-1 - 1024 - abc"},
    {P, "GET http://65536-sb-1-abc.preview.example.com/", {0}, "sandbox-sdk-preview sb-1 - 65536 - abc"},
    {P, "GET http://preview.example.com/", {0}, "none"},
    {P, "GET http://x.8080-sb-1-abc.preview.example.com/", {0}, "none"},
    /* daytona, e2b */
    {P, "GET http://3000-0a1b-2c3d.day.io/", {0}, "daytona-preview 0a1b-2c3d - 3000"},
    {U, "GET http://3000-0a1b.day.io/", {0}, "daytona-preview 0a1b - 3000"},
    {P, "GET http://3000-0a1b-2c3d.signed.io/", {0}, "daytona-signed-preview 0a1b-2c3d - 3000"},
    {U, "GET http://3000-0a1b_2c3d.signed.io/ws", {0}, "daytona-signed-preview - - 3000 - 0a1b_2c3d"},
    {P, "GET http://3000.signed.io/", {0}, "none"},
    {P, "GET http://49983-i1abc.e2b.io/", {0}, "e2b-envd i1abc - 49983"},
    {P, "GET http://3000-i1abc.e2b.io/", {0}, "e2b-preview i1abc - 3000"},
    {P, "GET http://49983-i1abc-6532622b.e2b.io/", {0}, "e2b-envd i1abc - 49983 - - - - 6532622b"},
    {P, "GET http://3000-i1abc-6532622b.e2b.io/", {0}, "e2b-preview i1abc - 3000 - - - - 6532622b"},
    {P, "GET http://3000-i1abc-6532622.e2b.io/", {0}, "e2b-preview i1abc-6532622 - 3000"},
    {P, "GET http://3000-i1abc-6532622g.e2b.io/", {0}, "e2b-preview i1abc-6532622g - 3000"},
    {P, "GET http://h/", {"E2b-Sandbox-Id: i1abc", "E2b-Sandbox-Port: 3000"}, "e2b-header i1abc - 3000"},
    {P, "GET http://h/", {"e2b-sandbox-id: i1abc"}, "e2b-envd-header i1abc - 49983"},
    {P, "GET http://h/toolbox/i1abc/files/info", {0}, "daytona-toolbox i1abc"},
    {U, "GET http://h/toolbox/i1abc/process/pty/s/connect", {0}, "daytona-toolbox-pty i1abc"},
    {P, "GET http://i1abc.e2b.io/", {0}, "none"},
    /* agent-sandbox */
    {P, "GET http://h/any", {"X-Sandbox-ID: box-a"}, "agent-sandbox box-a default 8888"},
    {U,
     "GET http://h/any",
     {"X-Sandbox-ID: box-a", "X-Sandbox-Namespace: ns", "X-Sandbox-Port: 80"},
     "agent-sandbox box-a ns 80"},
    {P,
     "GET http://h/any",
     {"X-Sandbox-ID: box-a", "X-Sandbox-Port: none"},
     "agent-sandbox box-a default none"},
    {P, "GET http://h/any", {"X-Sandbox-ID: box.a!"}, "agent-sandbox box.a! default 8888"},
    {P, "GET http://h/any", {"X-Sandbox-ID:"}, "none"},
    {P, "GET http://h/any", {"X-Sandbox-Port: 80"}, "none"},
    {P, "GET http://h/api/sandboxes/sb-2/x", {"X-Sandbox-ID: box-a"}, "agent-sandbox box-a default 8888"},
    {P,
     "GET http://8080-sb-1-abc.preview.example.com/",
     {"X-Sandbox-ID: b"},
     "sandbox-sdk-preview sb-1 - 8080 - abc"},
};

/* The lists of a profile have no length. */
static void the_lists_of_every_profile_end(void **state)
{
    (void)state;
    for (enum system s = SYSTEM_NONE + 1; s < SYSTEM_COUNT; s++) {
        assert_null(profile_of(s)->forms[PROFILE_FORMS - 1]);
        assert_null(profile_of(s)->sources[PROFILE_SOURCES - 1]);
    }
    size_t forms = 0;
    while (profile_form_at(forms))
        forms++;
    assert_in_range(forms, 1, 32); /* bits of a mask (route/build.c) */
}

static void the_built_in_routes_take_the_clients_of_five_systems(void **state)
{
    struct routes *routes = defaults();
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct header_line lines[LINES];
        struct request request;
        char got[512];
        request_make(rows[i].line, rows[i].lines, lines, &request);
        match_text(routes, &request, rows[i].upgrade, got, sizeof got);
        size_t len = strlen(got);
        while (len > 2 && strcmp(got + len - 2, " -") == 0)
            got[len -= 2] = '\0';
        if (strcmp(got, rows[i].want) != 0)
            fail_msg("%s: '%s', not '%s'", rows[i].line, got, rows[i].want);
    }
    routes_free(routes);
}

static void a_form_without_a_domain_is_off(void **state)
{
    struct fail why;
    struct routes *routes = routes_of("{\"systems\":" ALL ",\"domains\":{\"e2b\":[]}}", &why);
    struct request request;
    struct header_line lines[LINES];
    char got[512];
    (void)state;
    assert_non_null(routes);
    request_make("GET http://80-sb.invalid/", (const char *const[LINES]){0}, lines, &request);
    match_text(routes, &request, false, got, sizeof got);
    assert_string_equal(got, "none");
    routes_free(routes);
}

struct seen {
    char text[1024];
};

static void note(void *context, const struct route *route, enum route_miss miss)
{
    struct seen *seen = context;
    size_t len = strlen(seen->text);
    snprintf(seen->text + len, sizeof seen->text - len, "%s: %s\n", route->name, route_miss_text(miss));
}

static void a_watcher_hears_why_the_others_were_not_it(void **state)
{
    struct fail why;
    struct seen seen = {""};
    struct route_watcher watcher = {note, &seen};
    struct route_match match;
    struct request request;
    struct header_line lines[LINES];
    struct routes *routes =
        routes_of("{\"routes\":[{\"name\":\"off\",\"host\":\"{sandbox}.<e2b>\"},"
                  "{\"name\":\"up\",\"path\":\"/{sandbox}\",\"upgrade\":true},"
                  "{\"name\":\"plain\",\"path\":\"/{sandbox}\",\"upgrade\":false,\"host\":\"a\"},"
                  "{\"name\":\"path\",\"path\":\"/a/{sandbox}\"},"
                  "{\"name\":\"header\",\"path\":\"/{sandbox}\",\"headers\":{\"x-sandbox-port\":\"{port}\"}},"
                  "{\"name\":\"port\",\"path\":\"/{sandbox}/{port}\",\"ports\":\"80\"},"
                  "{\"name\":\"it\",\"path\":\"/{sandbox}/{rest...}\"},{\"name\":\"later\",\"path\":\"/"
                  "{sandbox}/x\"}]}",
                  &why);
    (void)state;
    if (!routes)
        fail_msg("%s", why.text);
    request_make("GET http://h/sb/81", (const char *const[LINES]){0}, lines, &request);
    assert_true(route_match(routes, &request, false, request.host, &match, &watcher));
    assert_string_equal(seen.text, "off: its form of host has no domain\n"
                                   "up: it is for WebSocket upgrades only\n"
                                   "plain: the path does not match\n"
                                   "path: the path does not match\n"
                                   "header: the path does not match\n"
                                   "port: the port is not one that it serves\n"
                                   "it: it matches\n");
    request_make("GET http://h/sb", (const char *const[LINES]){0}, lines, &request);
    seen.text[0] = '\0';
    assert_true(route_match(routes, &request, false, request.host, &match, &watcher));
    assert_non_null(strstr(seen.text, "plain: the host does not match\n"));
    assert_non_null(strstr(seen.text, "header: a header is missing or does not match\n"));
    assert_string_equal(match.route->name, "it");
    assert_false(slice_present(match.captures.value[CAPTURE_PORT]));
    routes_free(routes);
}

static void a_port_is_the_same_however_it_is_written(void **state)
{
    static const struct {
        const char *line, *route;
    } cases[] = {
        {"GET http://h/sb/8080", "some"},
        {"GET http://h/sb/%38080", "some"},
        {"GET http://h/sb/22", "any"},
        {"GET http://h/sb/%32%32", "any"},
        {"GET http://h/sb/2%32", "any"},
        /* none at all: the decision refuses it */
        {"GET http://h/sb/x", "some"},
        {"GET http://h/sb/%2F2", "some"},
        {"GET http://h/sb/123456", "some"},
    };
    struct fail why;
    struct routes *routes =
        routes_of("{\"routes\":[{\"name\":\"some\",\"path\":\"/{sandbox}/{port}\",\"ports\":\"8000-8999\"},"
                  "{\"name\":\"any\",\"path\":\"/{sandbox}/{rest...}\"}]}",
                  &why);
    (void)state;
    if (!routes)
        fail_msg("%s", why.text);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct route_match match;
        struct request request;
        struct header_line lines[LINES];
        request_make(cases[i].line, (const char *const[LINES]){0}, lines, &request);
        assert_true(route_match(routes, &request, false, request.host, &match, NULL));
        if (strcmp(match.route->name, cases[i].route) != 0)
            fail_msg("%s: %s, not %s", cases[i].line, match.route->name, cases[i].route);
    }
    routes_free(routes);
}

static void every_key_is_read(void **state)
{
    struct fail why;
    struct routes *routes = routes_of(
        "{\"routes\":[{\"name\":\"r\",\"path\":[\"[/v1]/a/{sandbox}\",\"/b/{sandbox}\"],\"upgrade\":true,"
        "\"via\":\"relay\",\"to\":\"/x/"
        "{sandbox}\",\"need\":\"exec\",\"host_header\":\"keep\",\"cookies\":\"keep\","
        "\"auth\":\"keep\",\"origins\":[\"https://a.b\",\"*\"],\"cors\":[\"http://"
        "a.b:8080\"],\"timeout\":\"2h\","
        "\"strip\":[\"X-App\"],\"set\":{\"X-A\":\"b c\"},\"refuse\":\"close\",\"resume\":\"cell\","
        "\"end\":\"exit-json\",\"stream\":true,\"overlap\":true,\"hold\":\"5s\",\"idle\":\"10m\",\"max_age\":"
        "\"1d\","
        "\"max_message\":\"64KiB\"},"
        "{\"name\":\"h\",\"host\":\"{sandbox}.a.b\",\"need\":\"none\",\"cookie\":true},"
        "{\"name\":\"d\",\"path\":\"/"
        "{sandbox}\",\"strip\":[\"cookie\"],\"set\":{\"x-execd-access-token\":\"t\"}}]}",
        &why);
    (void)state;
    if (!routes)
        fail_msg("%s", why.text);
    assert_int_equal(routes_count(routes), 3);
    const struct route *r = routes_find(routes, SLICE_LITERAL("r"));
    assert_int_equal(r->upgrade, ROUTE_UPGRADE);
    assert_int_equal(r->via, ROUTE_RELAY);
    assert_true(slice_is(template_text(r->template), "/x/{sandbox}"));
    assert_int_equal(r->need, NEED_EXEC);
    assert_true(r->keep_host && r->keep_cookies && r->keep_auth && !r->cookie && r->stream && r->overlap);
    assert_int_equal(r->origins.count, 2);
    assert_string_equal(r->cors.at[0], "http://a.b:8080");
    assert_int_equal(r->timeout, 7200000);
    assert_string_equal(r->strip.at[0], "X-App");
    assert_int_equal(r->set_count, 1);
    assert_true(slice_is(r->set[0].name, "X-A") && slice_is(r->set[0].value, "b c"));
    assert_int_equal(r->refuse, ROUTE_REFUSE_CLOSE);
    assert_int_equal(r->resume, HANDOVER_RESUME_CELL);
    assert_int_equal(r->end, HANDOVER_END_EXIT_JSON);
    assert_int_equal(r->hold, 5000);
    assert_int_equal(r->idle, 600000);
    assert_int_equal(r->max_age, 86400000);
    assert_int_equal(r->max_message, 65536);
    const struct route *h = routes_at(routes, 1), *d = routes_at(routes, 2);
    assert_int_equal(h->need, 0);
    assert_true(h->keep_host && h->keep_cookies && h->keep_auth && h->cookie);
    assert_int_equal(d->need, NEED_HTTP);
    assert_true(!d->keep_host && !d->keep_cookies && !d->template && d->upgrade == ROUTE_ANY);
    assert_null(routes_find(routes, SLICE_LITERAL("x")));
    routes_free(routes);
}

#define ROUTE(rest) "{\"routes\":[{\"name\":\"r\"," rest "}]}"
#define PATH        "\"path\":\"/{sandbox}\""

/* The names of a table, with blanks between. */
static void names_of(const char *text, char *names, size_t size)
{
    struct fail why;
    struct routes *routes = routes_of(text, &why);
    struct writer w = writer_of(names, size - 1);
    if (!routes)
        fail_msg("%s: %s", text, why.text);
    for (size_t i = 0; i < routes_count(routes); i++)
        writer_printf(&w, "%s%s", i ? " " : "", routes_at(routes, i)->name);
    names[w.len] = '\0';
    routes_free(routes);
}

#define MINE "{\"name\":\"mine\"," PATH "}"
#define OPENSANDBOX                                                                                   \
    "opensandbox-ingress opensandbox-ingress-to opensandbox-ingress-header opensandbox-ingress-path " \
    "opensandbox-pty"

static void built_in_routes_stand_where_they_are_named(void **state)
{
    static const struct {
        const char *text, *names;
    } cases[] = {
        {"{\"systems\":[\"opensandbox\"],\"routes\":[" MINE ",\"defaults\"]}",
         "mine " OPENSANDBOX " terminal opensandbox-proxy"},
        {"{\"systems\":[\"opensandbox\"],\"routes\":[\"defaults\"," MINE "]}",
         OPENSANDBOX " terminal opensandbox-proxy mine"},
        {"{\"systems\":[\"opensandbox\"],\"routes\":[\"terminal\"," MINE ",\"defaults\"]}",
         "terminal mine " OPENSANDBOX " opensandbox-proxy"},
        {"{\"systems\":[\"opensandbox\"],\"routes\":[\"defaults\"," MINE ",\"terminal\"]}",
         OPENSANDBOX " opensandbox-proxy mine terminal"},
        {"{\"routes\":[" MINE ",\"terminal\"]}", "mine terminal"},
        {"{\"routes\":[\"agent-sandbox\"," MINE "]}", "agent-sandbox mine"},
        {"{\"routes\":[\"opensandbox\"," MINE ",\"agent-sandbox\"]}",
         OPENSANDBOX " terminal opensandbox-proxy mine agent-sandbox"},
        {"{\"systems\":[\"agent-sandbox\",\"opensandbox\"],\"routes\":[\"agent-sandbox\"," MINE
         ",\"opensandbox\"]}",
         "agent-sandbox mine " OPENSANDBOX " terminal opensandbox-proxy"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char names[1024];
        names_of(cases[i].text, names, sizeof names);
        if (strcmp(names, cases[i].names) != 0)
            fail_msg("%s: %s", cases[i].text, names);
    }
}

/* What is printed is a configuration of the same routes. */
static void what_is_printed_can_be_read(void **state)
{
    static const char text[] = "{\"systems\":[\"opencomputer\",\"opensandbox\",\"e2b\",\"daytona\"],"
                               "\"domains\":{\"e2b\":[\"e2b.io\",\"b.io\"]},"
                               "\"routes\":[{\"name\":\"mine\",\"path\":\"[/v1]/a/"
                               "{sandbox}\",\"headers\":{\"X-Own\":[\"{a}.{b}\",\"{a}\"]},"
                               "\"ports\":\"80,90-99\",\"upgrade\":true,\"via\":\"relay\",\"to\":\"/"
                               "{a}\",\"need\":\"none\",\"auth\":\"keep\","
                               "\"origins\":[\"https://a.b\"],\"set\":{\"X-A\":\"b "
                               "\\\"c\"},\"strip\":[\"X-B\"],\"refuse\":\"close\",\"idle\":\"10m\","
                               "\"max_message\":\"1KiB\",\"redial\":false,\"system\":\"e2b\"},\"defaults\"]}";
    struct fail why;
    struct routes *routes = routes_of(text, &why), *again;
    struct buffer first = buffer_with_limit(1 << 20), second = buffer_with_limit(1 << 20);
    char *copy;
    (void)state;
    if (!routes)
        fail_msg("%s", why.text);
    assert_true(routes_write(routes, &first));
    copy = slice_dup(buffer_slice(&first));
    assert_non_null(strstr(
        copy,
        "{\"name\": \"mine\", \"system\": \"e2b\", \"path\": [\"/a/{sandbox}\", \"/v1/a/{sandbox}\"], "));
    assert_non_null(strstr(copy, "\"{port}-{sandbox}.e2b.io\", \"{port}-{sandbox}.b.io\"]"));
    char *off = strstr(copy, ", \"off\": [");
    assert_non_null(strstr(off, "daytona-preview"));
    strcpy(off, "}");
    if (!(again = routes_of(copy, &why)))
        fail_msg("%s: %s", why.text, copy);
    assert_true(routes_write(again, &second));
    assert_true(slice_starts(buffer_slice(&second), "{\"routes\": [\n  {\"name\": \"mine\""));
    off[0] = '\0';
    assert_memory_equal(buffer_slice(&second).at, copy, strlen(copy));
    assert_true(routes_find(again, SLICE_LITERAL("mine"))->system == SYSTEM_E2B);
    free(copy);
    buffer_free(&first);
    buffer_free(&second);
    routes_free(again);
    routes_free(routes);
}

static void who_says_nothing_of_resuming_is_not_redialled(void **state)
{
    static const struct {
        const char *path, *keys;
        bool one_leg;
    } cases[] = {
        {"/{sandbox}/x", "", true},
        {"/{sandbox}/x", ",\"redial\":true", false},
        {"/{sandbox}/x", ",\"resume\":\"none\"", true},
        {"/{sandbox}/x", ",\"resume\":\"cell\"", false},
        {"/{sandbox}/x", ",\"resume\":\"cursor\"", false},
        {"/{sandbox}/x", ",\"stream\":true", false},
        {"/{sandbox}/x", ",\"overlap\":true", false},
        {"/{sandbox}/x", ",\"end\":\"exit-frame\"", true},
        {"/{sandbox}/{session}", "", false},
        {"/{sandbox}/{session}", ",\"redial\":false", true},
    };
    static const char *const built_in[] = {"opencomputer-pty", "opencomputer-exec", "opencomputer-agent",
                                           "opensandbox-pty", "terminal"};
    char text[400];
    struct fail why;
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        snprintf(text, sizeof text,
                 "{\"routes\":[{\"name\":\"r\",\"path\":\"%s\",\"upgrade\":true,\"via\":\"relay\"%s}]}",
                 cases[i].path, cases[i].keys);
        struct routes *routes = routes_of(text, &why);
        if (!routes)
            fail_msg("%s: %s", text, why.text);
        assert_int_equal(routes_at(routes, 0)->one_leg, cases[i].one_leg);
        routes_free(routes);
    }
    struct routes *routes = routes_of("{\"systems\":[\"opencomputer\",\"opensandbox\"]}", &why);
    for (size_t i = 0; i < sizeof built_in / sizeof *built_in; i++)
        assert_false(routes_find(routes, slice_text(built_in[i]))->one_leg);
    routes_free(routes);
}

static void upgrades_take_the_cookie_of_the_pages_of_their_host(void **state)
{
    static const struct {
        const char *routes;
        bool good;
    } cases[] = {
        {"{\"name\":\"s\",\"host\":\"{port}-{sandbox}.a\",\"upgrade\":true,\"via\":\"relay\",\"cookie\":true}"
         ","
         "{\"name\":\"p\",\"host\":\"{port}-{sandbox}.a\",\"cookie\":true}",
         true},
        {"{\"name\":\"s\",\"host\":\"{sandbox}.A\",\"path\":\"/ws/"
         "{rest...}\",\"upgrade\":true,\"via\":\"relay\","
         "\"cookie\":true},{\"name\":\"p\",\"host\":[\"{sandbox}.b\",\"{sandbox}.a\"],\"cookie\":true}",
         true},
        {"{\"name\":\"s\",\"host\":\"{sandbox}.a\",\"upgrade\":true,\"via\":\"relay\",\"cookie\":true},"
         "{\"name\":\"p\",\"host\":\"{sandbox}.a\"}",
         false},
        {"{\"name\":\"s\",\"host\":[\"{sandbox}.a\",\"{sandbox}.b\"],\"upgrade\":true,\"cookie\":true},"
         "{\"name\":\"p\",\"host\":\"{sandbox}.a\",\"cookie\":true}",
         false},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[600];
        struct fail why = {""};
        snprintf(text, sizeof text, "{\"routes\":[%s]}", cases[i].routes);
        struct routes *routes = routes_of(text, &why);
        if (cases[i].good != (routes != NULL) ||
            (!routes && !strstr(why.text, "serves plain requests of its host")))
            fail_msg("%s: %s", text, why.text);
        routes_free(routes);
    }
}

static void refuses_what_is_not_in_order(void **state)
{
    static const struct {
        const char *text, *why;
    } bad[] = {
        {"{\"routes\":{}}", "routes is an array"},
        {"{\"routes\":[1]}", "a route is an object"},
        {"{\"routes\":[{" PATH "}]}", "name"},
        {ROUTE("\"name2\":1"), "name2"},
        {"{\"routes\":[{\"name\":\"a b\"," PATH "}]}", "name"},
        {ROUTE("\"path\":\"/a\""), "{sandbox}"},
        {ROUTE("\"upgrade\":true"), "{sandbox}"},
        {ROUTE("\"path\":[\"/{sandbox}\",\"/b\"]"), "in every case"},
        {ROUTE("\"path\":[]"), "t:1:31: an empty array"},
        {ROUTE("\"path\":[1]"), "a pattern is a string"},
        {ROUTE("\"path\":{}"), "a pattern is a string"},
        {ROUTE("\"path\":\"/{sandbox\""), "without '}'"},
        {ROUTE("\"path\":\"[/v1/{sandbox}\""), "'[' without ']'"},
        {ROUTE("\"path\":\"[/{a}]/{sandbox}/{a}\""), "twice"},
        {ROUTE("\"path\":\"/{sandbox}\",\"host\":\"{sandbox}.a\""), "another key"},
        {ROUTE("\"host\":\"{sandbox}.<nowhere>\""), "no form of host"},
        {ROUTE("\"host\":\"{sandbox}.<e2b\""), "'<' without '>'"},
        {ROUTE(PATH ",\"headers\":[]"), "headers is an object"},
        {ROUTE(PATH ",\"headers\":{\"Connection\":\"{a}\"}"),
         "headers: 'Connection' is not a header that has no other meaning"},
        {ROUTE(PATH ",\"headers\":{\"X_Mine\":\"{a}\"}"), "letters, digits and '-'"},
        {ROUTE(PATH ",\"headers\":{\"Authorization\":\"{a}\"}"),
         "headers: 'Authorization' is not a header that can say"},
        {ROUTE(PATH ",\"headers\":{\"X-Cell-Route\":\"{a}\"}"), "no other meaning"},
        {ROUTE(PATH ",\"upgrade\":1"), "upgrade is true or false"},
        {ROUTE(PATH ",\"via\":\"relay\""), "takes upgrades only"},
        {ROUTE(PATH ",\"protocol\":\"h2\",\"upgrade\":true"), "upgrades are HTTP/1.1"},
        {ROUTE(PATH ",\"protocol\":\"h3\""), "protocol"},
        {ROUTE(PATH ",\"via\":\"other\""), "via"},
        {ROUTE(PATH ",\"to\":\"/{x}\""), "nothing captures"},
        {ROUTE(PATH ",\"to\":\"x\""), "to: "},
        {ROUTE(PATH ",\"need\":\"all\""), "need: 'all'"},
        {ROUTE(PATH ",\"ports\":\"0\""), "ports: '0'"},
        {ROUTE(PATH ",\"ports\":\"2-1\""), "ports: '2-1'"},
        {ROUTE(PATH ",\"ports\":\"1,\""), "ports: ''"},
        {ROUTE(PATH ",\"ports\":\"65536\""), "ports"},
        {ROUTE(PATH ",\"ports\":\"1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17\""), "ranges"},
        {ROUTE(PATH ",\"origins\":[\"a.b\"]"), "origin"},
        {ROUTE(PATH ",\"cors\":[\"https://a.b/c\"]"), "origin"},
        {ROUTE(PATH ",\"cors\":[\"https://a.b/\"]"), "origin"},
        {ROUTE(PATH ",\"origins\":[\"wss://a.b\"]"), "origin"},
        {ROUTE(PATH ",\"origins\":[\"https://a.b:0\"]"), "origin"},
        {ROUTE(PATH ",\"origins\":[\"https://*.a.b\"]"), "origin"},
        {ROUTE(PATH ",\"origins\":[\"NULL\"]"), "origin"},
        {ROUTE("\"host\":\"{sandbox}.a\",\"origins\":[\"null\"],\"cookie\":true"), "'null'"},
        {ROUTE(PATH ",\"strip\":[\"X-App\"]"), "cannot remove 'X-App'"},
        {ROUTE(PATH ",\"strip\":[\"a b\"]"), "strip"},
        {ROUTE(PATH ",\"set\":{\"X-App\":\"a\"}"), "on a direct route"},
        {ROUTE(PATH ",\"set\":{\"X-EXECD-ACCESS-TOKEN\":\"a\\nb\"}"), "not the name and value"},
        {ROUTE(PATH ",\"set\":[]"), "set is an object"},
        {ROUTE(PATH ",\"resume\":\"cell\""), "max_message need"},
        {ROUTE(PATH ",\"max_age\":\"1h\""), "via"},
        {ROUTE(PATH ",\"redial\":1"), "redial is true or false"},
        {ROUTE(PATH ",\"redial\":false"), "redial needs"},
        {ROUTE(PATH ",\"upgrade\":true,\"via\":\"relay\",\"resume\":\"since\",\"redial\":false"),
         "that resumes"},
        {ROUTE(PATH ",\"upgrade\":true,\"via\":\"relay\",\"resume\":\"cursor\",\"overlap\":true"),
         "overlap: not with"},
        {ROUTE(PATH ",\"timeout\":\"1\""), "timeout"},
        {ROUTE(PATH ",\"upgrade\":false,\"refuse\":\"close\""), "refuse"},
        {ROUTE(PATH ",\"cookie\":true"), "cookie: only where host"},
        {ROUTE("\"host\":\"{sandbox}.a\",\"path\":\"/x\",\"cookie\":true"), "cookie: only where host"},
        {ROUTE("\"host\":\"{sandbox}.a\",\"upgrade\":true,\"cookie\":true"), "plain requests"},
        {ROUTE("\"host\":\"{sandbox}.a\",\"cors\":[\"*\"],\"cookie\":true"), "origin '*'"},
        {"{\"routes\":[{\"name\":\"r\"," PATH "},{\"name\":\"r\"," PATH "}]}", "two routes"},
        {"{\"routes\":[{\"name\":\"p\"," PATH "},{\"name\":\"c\",\"host\":\"{sandbox}.a\",\"cookie\":true}]}",
         "must stand before 'p'"},
        {"{\"domains\":[]}", "domains is an object"},
        {"{\"domains\":{\"x\":[]}}", "'x' is none of"},
        {"{\"domains\":{\"E2B\":[]}}", "'E2B' is none of"},
        {"{\"domains\":{\"e2b\":\"a\"}}", "are an array"},
        {"{\"domains\":{\"e2b\":[\"a b\"]}}", "t:1:20: not the name of a domain"},
        {"{\"domains\":{\"e2b\":[\"a.b\"],\"daytona\":[\"A.b\"]}}", "stands twice"},
        {"{}", "t:1:1: there is no route: name in `systems`"},
        {"{\"systems\":[]}", "t:1:12: systems is a list of one or more of"},
        {"{\"systems\":\"e2b\"}", "t:1:12: systems is a list"},
        {"{\"systems\":[\"e2b\",\"E2B\"]}", "t:1:19: systems: this is none of"},
        {"{\"systems\":[\"none\"]}", "systems: this is none of"},
        {"{\"systems\":[1]}", "systems: this is none of"},
        {"{\"systems\":[\"e2b\",\"e2b\"]}", "t:1:19: systems: 'e2b' stands twice"},
        {"{\"systems\":[\"e2b\"],\"domains\":{\"daytona\":[\"a.b\"]}}",
         "t:1:31: no route is for domains of 'daytona'"},
        {"{\"domains\":{\"e2b\":[\"a.b\"]},\"routes\":[{\"name\":\"r\"," PATH "}]}",
         "t:1:13: no route is for domains of 'e2b'"},
        {"{\"routes\":[\"defaults\"]}", "t:1:12: \"defaults\" stands for the routes of `systems`"},
        {"{\"systems\":[\"e2b\"],\"routes\":[\"defaults\",\"defaults\"]}",
         "t:1:41: \"defaults\" stands twice"},
        {"{\"systems\":[\"e2b\"],\"routes\":[\"default\"]}",
         "t:1:30: a route is an object, \"defaults\", a system"},
        {ROUTE("\"path\":\"/{sandbox}/{port}\",\"port\":80"), "port: the route captures {port}"},
        {ROUTE(PATH ",\"port\":65536"), "port"},
        {"{\"routes\":[\"e2b\",\"e2b\"]}", "t:1:18: route 'e2b-"},
        {"{\"routes\":[\"terminal\",\"opensandbox\"]}", "route 'terminal' stands twice"},
        {"{\"systems\":[\"opensandbox\"],\"routes\":[\"terminal\"]}",
         "t:1:12: systems: `routes` does not say where"},
        {"{\"systems\":[\"e2b\"],\"routes\":[{\"name\":\"r\"," PATH "}]}",
         "t:1:12: systems: `routes` does not say where"},
        {"{\"systems\":[\"e2b\"],\"routes\":[\"defaults\",{\"name\":\"e2b-preview\"," PATH "}]}",
         "two routes have the name 'e2b-preview'"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct fail why = {""};
        struct routes *routes = routes_of(bad[i].text, &why);
        if (routes || !strstr(why.text, bad[i].why) || strncmp(why.text, "t:1:", 4) != 0)
            fail_msg("%s: '%s' has no '%s'", bad[i].text, why.text, bad[i].why);
    }
}

static bool finds(const struct routes *routes, const char *name)
{
    return routes_find(routes, slice_text(name)) != NULL;
}

/* A request of another system finds no route, rather than a worker that may understand it. */
static void only_the_routes_of_the_systems_that_are_named_are_on(void **state)
{
    struct fail why;
    struct request request;
    struct header_line lines[LINES];
    char got[512];
    struct routes *routes = routes_of("{\"systems\":[\"opencomputer\"]}", &why);
    (void)state;
    assert_non_null(routes);
    assert_true(finds(routes, "opencomputer-pty") && finds(routes, "opencomputer-api"));
    assert_false(finds(routes, "terminal") || finds(routes, "opensandbox-proxy") ||
                 finds(routes, "agent-sandbox"));
    for (size_t i = 0; i < routes_count(routes); i++)
        assert_int_equal(routes_at(routes, i)->system, SYSTEM_OPENCOMPUTER);
    request_make("POST http://h/v1/sandboxes/sb-1/proxy/3000/sandboxes/sb-1/exec",
                 (const char *const[LINES]){0}, lines, &request);
    match_text(routes, &request, false, got, sizeof got);
    assert_string_equal(got, "none");
    routes_free(routes);
}

static void every_built_in_route_belongs_to_the_system_it_is_called_after(void **state)
{
    struct fail why;
    struct routes *routes = routes_of_all_systems(NULL, NULL, &why);
    (void)state;
    assert_non_null(routes);
    for (size_t i = 0; i < routes_count(routes); i++) {
        const struct route *route = routes_at(routes, i);
        struct slice name = slice_text(route->name);
        if (slice_is(name, "terminal"))
            assert_int_equal(route->system, SYSTEM_OPENSANDBOX);
        else
            assert_true(slice_starts(name, system_text(route->system)));
    }
    routes_free(routes);
}

static void the_defaults_stand_where_they_are_placed(void **state)
{
    struct fail why;
    struct routes *routes = routes_of("{\"systems\":[\"e2b\"],\"routes\":[{\"name\":\"a\"," PATH
                                      "},\"defaults\",{\"name\":\"b\"," PATH "}]}",
                                      &why);
    (void)state;
    assert_non_null(routes);
    assert_int_equal(routes_count(routes), 6);
    assert_string_equal(routes_at(routes, 0)->name, "a");
    assert_string_equal(routes_at(routes, 1)->name, "e2b-envd");
    assert_string_equal(routes_at(routes, 5)->name, "b");
    assert_int_equal(routes_at(routes, 0)->system, SYSTEM_NONE);
    assert_int_equal(routes_at(routes, 1)->system, SYSTEM_E2B);
    routes_free(routes);
}

/* Together with a record's they go to the relay in one frame. */
static void what_is_set_fits_into_a_frame(void **state)
{
    char text[8192], value[4097];
    (void)state;
    memset(value, 'x', sizeof value);
    for (int more = 0; more < 2; more++) {
        struct fail why = {""};
        snprintf(
            text, sizeof text,
            ROUTE("\"path\":\"/"
                  "{sandbox}\",\"upgrade\":true,\"via\":\"relay\",\"set\":{\"X-A\":\"%.*s\",\"X-B\":\"1\"}"),
            ROUTE_SET_MOST - (4 + 3) - (4 + 3 + 1) + more, value);
        struct routes *routes = routes_of(text, &why);
        assert_int_equal(routes != NULL, more == 0);
        if (more && !strstr(why.text, ": set is over 2560 bytes"))
            fail_msg("said %s", why.text);
        routes_free(routes);
    }
}

static void survives_failing_allocations(void **state)
{
    static const char text[] =
        "{\"routes\":[{\"name\":\"r\",\"path\":\"[/v1]/{sandbox}\",\"host\":\"a.<e2b>\","
        "\"headers\":{\"X-Sandbox-Port\":\"{port}\"},\"to\":\"/{sandbox}\","
        "\"set\":{\"X-EXECD-ACCESS-TOKEN\":\"t\"},\"origins\":[\"http://a\"]}],"
        "\"domains\":{\"e2b\":[\"x.y\",\"z.y\"]}}";
    struct fail why;
    struct json *doc = json_parse(slice_text(text), "t", 0, limits, &why);
    const struct route_nodes nodes = route_nodes_of(json_root(doc));
    (void)state;
    alloc_fail_at(0);
    routes_free(routes_new(doc, &nodes, &why));
    unsigned all = alloc_count();
    assert_true(all > 10);
    for (unsigned n = 1; n <= all; n++) {
        alloc_fail_at(n);
        struct routes *routes = routes_new(doc, &nodes, &why);
        alloc_fail_at(0);
        assert_null(routes);
        assert_non_null(strstr(why.text, "memory"));
    }
    json_free(doc);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_built_in_routes_take_the_clients_of_five_systems),
        cmocka_unit_test(a_form_without_a_domain_is_off),
        cmocka_unit_test(a_watcher_hears_why_the_others_were_not_it),
        cmocka_unit_test(a_port_is_the_same_however_it_is_written),
        cmocka_unit_test(every_key_is_read),
        cmocka_unit_test(built_in_routes_stand_where_they_are_named),
        cmocka_unit_test(what_is_printed_can_be_read),
        cmocka_unit_test(who_says_nothing_of_resuming_is_not_redialled),
        cmocka_unit_test(upgrades_take_the_cookie_of_the_pages_of_their_host),
        cmocka_unit_test(refuses_what_is_not_in_order),
        cmocka_unit_test(only_the_routes_of_the_systems_that_are_named_are_on),
        cmocka_unit_test(every_built_in_route_belongs_to_the_system_it_is_called_after),
        cmocka_unit_test(the_lists_of_every_profile_end),
        cmocka_unit_test(the_defaults_stand_where_they_are_placed),
        cmocka_unit_test(what_is_set_fits_into_a_frame),
        cmocka_unit_test(survives_failing_allocations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
