/* SPDX-License-Identifier: MIT */
/* `cellgate explain`: prints the decision that the agent would take about a request, and the reasons. The command does not contact the
 * agent: it reads the configuration, queries the directory, and runs the agent's code. It prints no credentials and no values of the
 * query. */
#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "spoa/agent/directory/file.h"
#include "spoa/agent/model/own_headers.h"
#include "spoa/agent/state/snapshot.h"
#include "spoa/ctl/arguments.h"
#include "spoa/ctl/ctl.h"
#include "spoa/ctl/explain_directory.h"
#include "spoa/ctl/explain_egress.h"
#include "spoa/ctl/explain_report.h"
#include "spoa/ctl/head_lines.h"
#include "spoa/proto/http.h"

#define PROGRAM      "cellgate explain"
#define EXIT_REFUSED 1
#define EXIT_USAGE   2
#define ASKED_MAX    3
enum { OVERRIDES_MOST = 32 };

static const char usage[] =
    "Usage: cellgate explain [--config FILE] [--upgrade] [--json] [-H 'NAME: VALUE']... 'METHOD URL'\n"
    "       cellgate explain [--config FILE] [--sandbox ID | --source ADDRESS] [--json] [-H 'NAME: "
    "VALUE']... 'CONNECT "
    "HOST:PORT'\n"
    "       cellgate explain [--config FILE] --sandbox ID [--json] [-H 'NAME: VALUE']... 'METHOD URL'\n"
    "       cellgate explain [--config FILE] [--upgrade] [--json] [-H @FILE]... @FILE\n"
    "Says what the agent would decide about a request, and why: each route before the one that matches, the\n"
    "token, the record, the worker, and what the worker gets. Credentials are not printed.\n"
    "\n"
    "  --config FILE  default " SETTINGS_PATH "\n"
    "  -o KEY=VALUE   as the agent was started with; may be repeated\n"
    "  -H LINE        a header of the request; may be repeated; @FILE: the headers in a file\n"
    "  --upgrade      add the headers of a WebSocket upgrade\n"
    "  --json         one JSON object instead of text\n"
    "  --sandbox ID   the request is one of this sandbox, to the outside: what is inside of a CONNECT "
    "(https), or a plain one\n"
    "  --source ADDRESS   a CONNECT comes from there, without a token\n"
    "  @FILE          the request from a file: METHOD URL, and a header in each further line. '@-' reads\n"
    "                 standard input: arguments, and the secrets in them, can be seen with ps\n"
    "\n"
    "Exit code: 0 admitted, 1 refused or not to be decided, 2 wrong usage.\n";

struct arguments {
    const char *config, *sandbox, *source;
    struct head_lines head;
    bool json, upgrade;
    const char *overrides[OVERRIDES_MOST];
    size_t override_count;
};

/* ---- printing ---- */

static void on_route(void *context, const struct route *route, enum route_miss miss)
{
    char text[160];
    if (miss == ROUTE_MATCHES)
        report_step(context, "route", "this one matches", slice_text(route->name));
    snprintf(text, sizeof text, "not %s: %s", route->name, route_miss_text(miss));
    if (miss != ROUTE_MATCHES)
        report_step(context, "route", text, (struct slice){NULL, 0});
}

/* ---- the verdict ---- */

static void report_address(struct report *r, const struct verdict *v)
{
    char text[INET6_ADDRSTRLEN];
    if (v->addr.family &&
        inet_ntop(v->addr.family == 4 ? AF_INET : AF_INET6, v->addr.bytes, text, sizeof text))
        report_text(r, "worker", slice_text(text));
    report_number(r, "worker_port", v->addr_port);
    report_truth(r, "worker_tls", v->tls);
    report_truth(r, "worker_h2", v->h2);
    report_text(r, "worker_name", v->sni);
}

/* Reports the query's parameter names without their values, which may be keys: "a=…&b". */
static void report_query(struct report *r, struct slice query)
{
    char memory[512];
    struct writer w = writer_of(memory, sizeof memory);
    struct slice part;
    if (!slice_present(query))
        return;
    while (slice_split(&query, '&', &part)) {
        size_t equals = slice_find(part, '=');
        writer_text(&w, w.len ? "&" : "");
        writer_put(&w, slice_sub(part, 0, equals));
        writer_text(&w, equals < part.len ? "=..." : "");
    }
    report_text(r, "query", w.full ? SLICE_LITERAL("(long)") : writer_slice(&w));
}

static void report_set(struct report *r, const char *name, struct slice value)
{
    if (slice_present(value))
        report_text(r, name, SLICE_LITERAL("(set, not shown)"));
}

/* Returns true if the client's Authorization is for the worker and no credential of the gate. */
static bool is_applications_auth(const struct verdict *v, const struct request *request)
{
    return slice_present(v->auth) && v->auth.at == request->authorization.at;
}

static void report_verdict(struct report *r, const struct request *request, const struct verdict *v)
{
    report_text(r, "verdict", slice_text(verdict_kind_text(v->kind)));
    report_number(r, "status", v->status);
    report_text(r, "error", v->error);
    report_text(r, "message", v->message);
    report_truth(r, "retryable", v->retryable);
    report_text(r, "route", v->route);
    report_truth(r, "to_service", v->service);
    report_text(r, "sandbox", v->sandbox);
    report_text(r, "namespace", v->space);
    report_number(r, "port", v->port);
    report_text(r, "session", v->session);
    report_text(r, "org", v->org);
    report_number(r, "epoch", v->epoch);
    report_address(r, v);
    report_text(r, "path", v->path);
    report_text(r, "prefix", v->prefix);
    report_query(r, v->query);
    report_text(r, "host", v->host);
    report_truth(r, "keeps_authorization", is_applications_auth(v, request));
    if (!is_applications_auth(v, request))
        report_set(r, "authorization", v->auth);
#define X(kind, field, variable, header, shown) report_set(r, shown, v->field);
    WORKER_HEADERS(X)
#undef X
    report_truth(r, "keeps_cookies", v->cookies);
    if (v->protocol_edit)
        report_text(r, "subprotocols", slice_present(v->protocol) ? v->protocol : SLICE_LITERAL("(removed)"));
    report_truth(r, "selects_cellgate", v->select_cellgate);
    report_set(r, "set_cookie", v->set_cookie);
    report_text(r, "cors_origin", v->cors_origin);
    report_number(r, "timeout_ms", v->timeout);
}

/* ---- what the worker does not get ---- */

static bool is_among(struct slice name, const char *const *list)
{
    while (*list && !http_same_name(name, slice_text(*list)))
        list++;
    return *list;
}

/* Returns true for fields that HAProxy removes from each request. haproxy.cfg has a copy of these lists; tests/e2e/gate/test_haproxy.py
 * compares them. */
static bool is_always_removed(struct slice name)
{
    static const char *const between_two[] = {
        "te",    "keep-alive",         "http2-settings",      "forwarded",
        "proxy", "proxy-authenticate", "proxy-authorization", "proxy-connection",
        NULL};
    static const char *const once[] = {"content-length", "transfer-encoding",
#define X(kind, field, variable, header, ...) (header),
                                       WORKER_HEADERS(X)
#undef X
                                           NULL};
    bool twin = slice_find(name, '_') < name.len;
    return is_among(name, between_two) || http_name_starts(name, "x-cell-") ||
           http_name_starts(name, "x-forwarded-") ||
           (twin && (is_among(name, once) || http_name_starts(name, "sec-websocket-")));
}

/* Returns true for the gate's own fields, which only a service that authorises its callers receives. */
static bool is_ours(struct slice name, const struct request *request)
{
    static const char *const internal[] = {"x-sandbox-preview-proxy", "x-sandbox-preview-port",
                                           "x-sandbox-preview-token", "x-sandbox-preview-sandbox-id", NULL};
    return own_header_is_known(name) || own_header_is_removed(request, name) || is_among(name, internal);
}

static bool is_removed_from_upgrade(struct slice name, const struct verdict *v, const struct route *route)
{
    if (v->strip_origin && slice_equal_nocase(name, SLICE_LITERAL("origin")))
        return true;
    if (v->kind != VERDICT_RELAY)
        return false;
    for (size_t i = 0; i < route->strip.count; i++)
        if (http_same_name(name, slice_text(route->strip.at[i])))
            return true;
    return slice_equal_nocase(name, SLICE_LITERAL("sec-websocket-extensions"));
}

static bool is_removed(struct slice name, const struct request *request, const struct verdict *v,
                       const struct route *route)
{
    if (is_always_removed(name))
        return true;
    if (slice_equal_nocase(name, SLICE_LITERAL("authorization")))
        return !is_applications_auth(v, request);
    if (slice_equal_nocase(name, SLICE_LITERAL("cookie")))
        return !v->cookies;
    if (!v->service && is_ours(name, request))
        return true;
    if (v->upgrade)
        return is_removed_from_upgrade(name, v, route);
    return slice_equal_nocase(name, SLICE_LITERAL("connection")) ||
           slice_equal_nocase(name, SLICE_LITERAL("upgrade"));
}

static void report_removed(struct report *r, const struct arguments *a, const struct request *request,
                           const struct verdict *v, const struct route *route)
{
    char memory[4096];
    struct writer w = writer_of(memory, sizeof memory);
    for (size_t i = 0; i < a->head.count; i++)
        if (is_removed(a->head.line[i].name, request, v, route)) {
            writer_text(&w, w.len ? ", " : "");
            writer_put(&w, a->head.line[i].name);
        }
    if (w.len)
        report_text(r, "removed", writer_slice(&w));
}

/* ---- deciding ---- */

/* Resolves a host by the system's resolver; the agent queries name servers itself. */
static bool resolve(void *directory, struct slice host, struct address *addr)
{
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
    struct addrinfo *found = NULL;
    char *name = slice_dup(host);
    (void)directory;
    if (!name || getaddrinfo(name, NULL, &hints, &found) != 0)
        found = NULL;
    free(name);
    *addr = (struct address){.family = 0};
    if (found && found->ai_family == AF_INET) {
        addr->family = 4;
        memcpy(addr->bytes, &((const struct sockaddr_in *)(const void *)found->ai_addr)->sin_addr, 4);
    } else if (found && found->ai_family == AF_INET6) {
        addr->family = 6;
        memcpy(addr->bytes, &((const struct sockaddr_in6 *)(const void *)found->ai_addr)->sin6_addr, 16);
    }
    if (found)
        freeaddrinfo(found);
    return addr->family != 0;
}

/* Reports, if no route matched, whether a route of another system would have matched. */
static void report_system(struct report *r, const struct settings *settings, const struct decide_view *view,
                          const struct request *request)
{
    struct fail why;
    struct verdict verdict;
    uint8_t memory[16384];
    struct writer scratch = writer_of(memory, sizeof memory);
    struct routes *all = routes_of_all_systems(settings->doc, settings->domains, &why);
    struct decide_view other = *view;
    other.routes = all;
    other.open = true; /* do not check the credential again */
    other.trace = NULL;
    if (all)
        decide(&other, request, &scratch, &verdict);
    const struct route *route = all ? routes_find(all, verdict.route) : NULL;
    if (route) {
        report_step(r, "route", "it would match if `systems` had", slice_text(system_text(route->system)));
        report_step(r, "route", "which has the route", slice_text(route->name));
    }
    routes_free(all);
}

static void print_json_or_text(const struct arguments *a, const struct settings *settings,
                               const struct decide_view *view, const struct request *request,
                               struct writer *scratch, struct verdict *verdict)
{
    struct report report = {.json = a->json};
    struct decide_trace trace = {.step = report_step, .context = &report, .routes = {on_route, &report}};
    struct decide_view traced = *view;
    traced.trace = &trace;
    if (a->json)
        printf("{\"steps\": [");
    decide(&traced, request, scratch, verdict);
    if (verdict->refusal == REFUSAL_no_route)
        report_system(&report, settings, view, request);
    report.members = 0;
    printf("%s", a->json ? "], \"verdict\": {" : "\n");
    report_verdict(&report, request, verdict);
    if (verdict->kind == VERDICT_DIRECT || verdict->kind == VERDICT_RELAY)
        report_removed(&report, a, request, verdict, routes_find(view->routes, verdict->route));
    printf("%s", a->json ? "}}\n" : "");
}

/* The request to decide about: one to a sandbox, or one from a sandbox. */
struct asked {
    const struct request *request; /* request to a sandbox; NULL for a request from a sandbox */
    const struct egress_request *connect;
};

static bool is_decided(const struct decide_view *view, const struct asked *asked, struct writer *scratch)
{
    struct verdict verdict;
    struct egress_verdict egress;
    return asked->request ? decide(view, asked->request, scratch, &verdict)
                          : egress_decide(view, asked->connect, scratch, &egress);
}

/* Repeats the decision silently until the directory has the record that it needs. A record may be fetched twice: answers from before the
 * directory's changes were followed are fetched again. */
static void fetch_record(struct explain_directory *directory, struct decide_view *view,
                         struct snapshot_finder *finder, const struct asked *asked, struct writer *scratch)
{
    struct fail why;
    bool answers = true;
    for (int i = 0; i < ASKED_MAX && answers && !is_decided(view, asked, scratch); i++) {
        answers = directory && explain_directory_await(directory, &why);
        scratch->len = 0;
    }
    if (!answers && directory)
        fprintf(stderr, "%s: the directory cannot be asked: %s\n", PROGRAM, why.text);
    finder->last = true;
    scratch->len = 0;
}

static int decide_and_print(const struct arguments *a, const struct settings *settings,
                            const struct snapshot *snapshot, struct explain_directory *directory,
                            const struct asked *asked)
{
    struct verdict verdict = {.refusal = REFUSAL_NONE};
    uint8_t *memory = malloc(DECIDE_SCRATCH);
    struct token_cache *cache = token_cache_new(4);
    int code = EXIT_REFUSED;
    if (memory && cache) {
        struct writer scratch = writer_of(memory, DECIDE_SCRATCH);
        struct snapshot_finder finder = {.waiter = 1};
        struct revoked *told = NULL;
        struct decide_view view = snapshot_view(snapshot, &finder, cache, time(NULL));
        view.resolve = resolve;
        view.addresses = explain_egress_addresses;
        fetch_record(directory, &view, &finder, asked, &scratch);
        if (directory) { /* the directory pushed this while the record was fetched */
            view.not_before = explain_directory_not_before(directory);
            view.revoked[0] = told = explain_directory_revoked(directory);
        }
        if (asked->request)
            print_json_or_text(a, settings, &view, asked->request, &scratch, &verdict);
        else
            verdict.refusal =
                explain_egress_print(a->json, &settings->egress.http2, &view, asked->connect, &scratch);
        code = verdict.refusal == REFUSAL_NONE ? 0 : EXIT_REFUSED;
        snapshot_finder_done(&finder);
        revoked_release(told);
    } else {
        fprintf(stderr, "%s: out of memory\n", PROGRAM);
    }
    token_cache_free(cache);
    free(memory);
    return code;
}

/* Removes from the request all fields and parameters that HAProxy would remove. */
static void remove_all(const struct policy *policy, struct request *request)
{
    static uint8_t memory[DECIDE_SCRATCH];
    struct writer w = writer_of(memory, sizeof memory);
    own_headers_pattern(&tokens_own(policy->tokens)->headers, &w);
    own_headers_pattern(routes_own_headers(policy->routes), &w);
    request->removed = writer_slice(&w);
}

static int with_policy(const struct arguments *a, struct policy *policy, const struct asked *asked)
{
    struct fail why;
    struct directory_load load = {.records = NULL};
    const char *path = directory_options_file(policy->directory);
    if (path && !directory_file_load(path, NULL, &load, &why))
        fprintf(stderr, "%s: the directory cannot be read: %s\n", PROGRAM, why.text);
    struct explain_directory *directory = path ? NULL : explain_directory_start(policy->directory, &why);
    if (!path && !directory)
        fprintf(stderr, "%s: the directory cannot be asked: %s\n", PROGRAM, why.text);
    const struct snapshot_parts parts = {.policy = policy,
                                         .records = load.records,
                                         .directory = directory ? explain_directory_running(directory) : NULL,
                                         .not_before = load.not_before,
                                         .revoked = load.revoked};
    struct snapshot *snapshot = snapshot_new(&parts);
    int code = EXIT_REFUSED;
    if (snapshot)
        code = decide_and_print(a, policy->settings, snapshot, directory, asked);
    else
        fprintf(stderr, "%s: out of memory\n", PROGRAM);
    snapshot_release(snapshot);
    explain_directory_stop(directory);
    records_release(load.records);
    revoked_release(load.revoked);
    return code;
}

static int explain_run(const struct arguments *a)
{
    struct fail why;
    struct request request;
    struct egress_request egress = {.sandbox = slice_text(a->sandbox)};
    static uint8_t memory[2 * DECIDE_SCRATCH];
    struct writer lines = writer_of(memory, sizeof memory);
    struct cidr source = {.bits = 0};
    if (a->source && (strchr(a->source, '/') || !cidr_parse(slice_text(a->source), &source))) {
        fprintf(stderr, "%s: --source is an IPv4 or IPv6 address\n", PROGRAM);
        return EXIT_USAGE;
    }
    egress.source = source.network;
    bool connects = explain_egress_wants(a->head.request, egress.sandbox);
    bool good = connects
                    ? explain_egress_request(&a->head, &lines, &egress, &why)
                    : request_from_text(a->head.request, a->head.line, a->head.count, &lines, &request, &why);
    if (!good) {
        fprintf(stderr, "%s: %s\n", PROGRAM, why.text);
        return EXIT_USAGE;
    }
    struct policy *policy =
        policy_load(a->config ? a->config : SETTINGS_PATH, a->overrides, a->override_count, &why);
    if (!policy) {
        fprintf(stderr, "%s: %s\n", PROGRAM, why.text);
        return EXIT_REFUSED;
    }
    if (!connects)
        remove_all(policy, &request);
    const struct asked asked = {connects ? NULL : &request, &egress};
    int code = with_policy(a, policy, &asked);
    policy_release(policy);
    return code;
}

/* ---- the arguments ---- */

static bool add_upgrade(struct head_lines *head, struct fail *why)
{
    return head_lines_add(head, "Upgrade: websocket", why) &&
           head_lines_add(head, "Connection: Upgrade", why) &&
           head_lines_add(head, "Sec-WebSocket-Version: 13", why) &&
           head_lines_add(head, "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==", why);
}

/* Parses one option, with its value if it has one, from *word. */
static bool take(char ***word, struct arguments *a, struct fail *why)
{
    const char *text = *(*word)++;
    if (strcmp(text, "--json") == 0)
        return a->json = true;
    if (strcmp(text, "--upgrade") == 0)
        return a->upgrade = true;
    if (strncmp(text, "--config", 8) == 0) {
        --*word;
        return argument_take(word, "--config", &a->config);
    }
    if (strncmp(text, "--sandbox", 9) == 0) {
        --*word;
        return argument_take(word, "--sandbox", &a->sandbox);
    }
    if (strncmp(text, "--source", 8) == 0) {
        --*word;
        return argument_take(word, "--source", &a->source);
    }
    if (strcmp(text, "-o") == 0 && **word && a->override_count < OVERRIDES_MOST) {
        a->overrides[a->override_count++] = *(*word)++;
        return true;
    }
    if (strcmp(text, "-H") == 0)
        return **word && head_lines_add(&a->head, *(*word)++, why);
    return text[0] != '-' && head_lines_request(&a->head, text, why);
}

static int explain(struct arguments *a, char **word)
{
    struct fail why;
    char **const first = word - 1;
    while (*word) {
        size_t at = (size_t)(word - first);
        bool help = strcmp(*word, "--help") == 0 || strcmp(*word, "-h") == 0;
        fail(&why, "argument %zu is not understood, lacks its value or is given twice",
             at); /* not quoted: it may hold a token */
        if (!help && take(&word, a, &why))
            continue;
        if (!help)
            fprintf(stderr, "%s: %s\n", PROGRAM, why.text);
        fputs(usage, help ? stdout : stderr);
        return help ? 0 : EXIT_USAGE;
    }
    fail(&why, "there is no request");
    if (slice_present(a->head.request) && (!a->upgrade || add_upgrade(&a->head, &why)))
        return explain_run(a);
    fprintf(stderr, "%s: %s\n%s", PROGRAM, why.text, usage);
    return EXIT_USAGE;
}

int ctl_explain(int argc, char **argv)
{
    struct arguments a = {.config = NULL};
    int code = explain(&a, argv + (argc > 0));
    head_lines_free(&a.head);
    return code;
}
