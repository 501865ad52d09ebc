/* SPDX-License-Identifier: MIT */
/* decide_target: the last steps of a decision: choose the worker, and the request that it gets. */
#include "spoa/agent/decision/decide_steps.h"
#include "spoa/agent/decision/destination.h"
#include "spoa/agent/token/static.h"
#include "spoa/proto/http.h"

static struct slice text_from(const struct writer *w, size_t start)
{
    return slice_of(w->at + start, w->len - start);
}

static void set_host(struct decision *d, const struct destination *to)
{
    size_t start = d->scratch->len;
    destination_host(to, d->scratch);
    if (!d->route->keep_host)
        d->verdict->host = text_from(d->scratch, start);
}

static bool unix_worker(struct decision *d)
{
    if (d->route->via == ROUTE_DIRECT)
        return decide_deny(d, REFUSAL_worker_unreachable, "worker", "HAProxy cannot reach a Unix socket");
    return decide_without_address(d, "on a Unix socket, which the relay asks for");
}

static bool no_worker(struct decision *d, enum destination_result result)
{
    static const enum refusal refusals[] = {[DESTINATION_NO_WORKER] = REFUSAL_directory_unavailable,
                                            [DESTINATION_NO_PORT] = REFUSAL_bad_request,
                                            [DESTINATION_CLOSED] = REFUSAL_not_granted,
                                            [DESTINATION_UNRESOLVED] = REFUSAL_directory_unavailable,
                                            [DESTINATION_FOREIGN] = REFUSAL_worker_unreachable,
                                            [DESTINATION_FOREIGN_SOCKET] = REFUSAL_worker_unreachable};
    bool unresolved = result == DESTINATION_UNRESOLVED;
    if (unresolved && d->route->via == ROUTE_RELAY)
        return decide_without_address(d, "its name is not resolved yet: the relay waits");
    d->pending = unresolved;
    return decide_deny(d, refusals[result], "worker", destination_text(result));
}

/* Checks the route's needs at the destination. They are known before the sandbox, but only the record shows what they apply to. */
static bool may_reach(struct decision *d, const struct destination *to)
{
    decide_tell(d, "worker", to->management ? "a management address" : "an application's address",
                to->worker.host);
    if (to->management && d->route->need == NEED_HTTP && d->granted)
        decide_tell(d, "need", "a route for http asks for exec at a management address", slice_text(NULL));
    const char *step = d->judgement.place == REFUSAL_no_route ? "worker" : "token";
    return d->judgement.leads || decide_deny(d, d->judgement.place, step, d->judgement.why);
}

static bool to_service(struct decision *d)
{
    const struct service *service = d->route->service;
    struct verdict *v = d->verdict;
    struct destination to = {.worker = service->worker, .port = service->worker.port};
    decide_tell(d, "worker", "the route leads to a service", slice_text(service->name));
    if (!d->view->allowed(d->view->networks, &service->worker.addr))
        return decide_deny(d, REFUSAL_worker_unreachable, "worker", destination_text(DESTINATION_FOREIGN));
    set_host(d, &to);
    v->kind = VERDICT_DIRECT;
    v->addr = service->worker.addr;
    v->addr_port = service->worker.port;
    v->tls = service->worker.kind == WORKER_HTTPS;
    v->h2 = !d->upgrade && d->route->protocol == ROUTE_H2;
    if (v->tls)
        v->sni = service->worker.host;
    return true;
}

bool decide_worker(struct decision *d)
{
    struct verdict *v = d->verdict;
    if (d->route->service)
        return to_service(d);
    if (v->kind == VERDICT_RELAY) /* the relay waits for a worker, and asks again when there is one */
        return true;
    const struct destination to = d->judgement.to;
    enum destination_result result = d->judgement.result;
    if (result == DESTINATION_FOUND || result == DESTINATION_UNRESOLVED)
        set_host(d, &to);
    if (result != DESTINATION_FOUND)
        return no_worker(d, result);
    if (!may_reach(d, &to))
        return false;
    d->headers = to.headers;
    if (to.worker.kind == WORKER_UNIX)
        return unix_worker(d);
    v->kind = d->route->via == ROUTE_RELAY ? VERDICT_RELAY : VERDICT_DIRECT;
    v->addr = to.worker.addr;
    v->addr_port = to.port;
    v->tls = to.worker.kind == WORKER_HTTPS;
    if (v->tls)
        v->sni = to.worker.host;
    v->h2 = v->kind == VERDICT_DIRECT && !d->upgrade && (to.h2 || d->route->protocol == ROUTE_H2);
    decide_tell(d, "worker", v->tls ? "with TLS" : "without TLS", to.worker.host);
    if (v->h2)
        decide_tell(d, "worker", "it speaks HTTP/2", slice_text(NULL));
    return true;
}

/* Returns whether the prefix is safe in a Path attribute and in the replacement of a regular expression in haproxy.cfg. */
static bool prefix_valid(struct slice prefix)
{
    static const bool cuts[256] = {
        ['\0'] = true, ['|'] = true, [';'] = true, [','] = true, ['"'] = true, ['\\'] = true,
        ['<'] = true,  ['>'] = true, ['^'] = true, ['`'] = true, ['{'] = true, ['}'] = true};
    for (size_t i = 0; i < prefix.len; i++)
        if (cuts[prefix.at[i]])
            return false;
    return prefix.len > 0;
}

/* Returns the part of the client's path before the worker's path: the client sees the application below it. */
static struct slice prefix_of(struct slice client, struct slice worker)
{
    static const struct slice none;
    bool bare = slice_is(worker, "/") && client.at[client.len - 1] != '/';
    size_t tail = bare ? 0 : worker.len;
    if (client.len < tail || !slice_equal(slice_from(client, client.len - tail), slice_sub(worker, 0, tail)))
        return none;
    struct slice prefix = slice_sub(client, 0, client.len - tail);
    return prefix_valid(prefix) ? prefix : none;
}

bool decide_path(struct decision *d)
{
    d->verdict->path = d->request->path;
    if (d->route->template) {
        size_t start = d->scratch->len;
        template_write(d->route->template, &d->match.captures, d->scratch);
        d->verdict->path = text_from(d->scratch, start);
        d->verdict->prefix = prefix_of(d->request->path, d->verdict->path);
    }
    d->verdict->query = d->carried.query;
    return true;
}

/* Returns the variable of a header that HAProxy can set by name (haproxy.cfg), or NULL if it cannot. */
static struct slice *header_variable(struct verdict *v, struct slice name)
{
#define X(kind, field, variable, header, ...)        \
    if (http_same_name(name, SLICE_LITERAL(header))) \
        return &v->field;
    WORKER_HEADERS(X)
#undef X
    return http_same_name(name, SLICE_LITERAL("Authorization")) ? &v->auth : NULL;
}

static void set_header(struct decision *d, struct slice name, struct slice value, const char *whose)
{
    struct slice *variable = header_variable(d->verdict, name);
    bool direct = d->verdict->kind == VERDICT_DIRECT;
    bool withheld = d->granted && token_withholds(&d->grant, name);
    decide_tell(d, "header",
                withheld              ? "not set, the worker judges the signature"
                : variable || !direct ? whose
                                      : "not set, HAProxy has no rule for it",
                name);
    if (direct && variable && !withheld)
        *variable = value;
}

/* Sets the route's headers, then the record's. The relay asks for the record's itself, because they may be secrets. */
static void set_headers(struct decision *d)
{
    struct slice name, value;
    size_t cursor = 0;
    for (size_t i = 0; i < d->route->set_count; i++)
        set_header(d, d->route->set[i].name, d->route->set[i].value, "set by the route");
    for (size_t i = 0; d->route->service && i < d->route->service->names.count; i++)
        set_header(d, slice_text(d->route->service->names.at[i]), slice_text(d->route->service->values.at[i]),
                   "set for the service");
    while (record_header(d->headers, &cursor, &name, &value))
        set_header(d, name, value, "set by the record");
}

static bool strips(const struct route *route, struct slice name)
{
    for (size_t i = 0; i < route->strip.count; i++)
        if (http_same_name(name, slice_text(route->strip.at[i])))
            return true;
    return false;
}

/* Returns the timeout. HAProxy cannot end a tunnel at a given time, so at least an idle tunnel must not outlive its token because of a
 * long timeout of the route. */
static int64_t timeout_of(const struct decision *d)
{
    int64_t left = d->granted ? d->grant.exp + d->grant.leeway - d->view->now : 0;
    bool bound = d->upgrade && d->verdict->kind == VERDICT_DIRECT && d->granted && d->grant.bind;
    return bound && left > 0 && left < d->route->timeout / 1000 ? left * 1000 : d->route->timeout;
}

/* Returns whether the Bearer is the sandbox's access secret, or repeats the credential that admitted the client: the client may have
 * meant it for cellgate, so the worker must not get it. */
static bool is_credential(const struct decision *d, struct slice bearer)
{
    if (!slice_present(bearer))
        return false;
    return (d->found && d->judgement.withhold) ||
           (slice_present(d->carried.credential.token) && slice_equal(bearer, d->carried.credential.token));
}

bool decide_headers(struct decision *d)
{
    struct verdict *v = d->verdict;
    if (d->foreign_auth && !is_credential(d, bearer_token(d->request)))
        v->auth = d->request->authorization;
    if (v->kind == VERDICT_DIRECT || d->view->trace)
        set_headers(d);
    v->strip_origin = d->upgrade && strips(d->route, SLICE_LITERAL("Origin"));
    v->cookies = d->route->keep_cookies;
    v->protocol_edit = d->carried.protocol_edit;
    v->protocol = d->carried.protocol;
    v->select_cellgate = d->carried.select_cellgate;
    v->timeout = d->route->timeout ? timeout_of(d) : -1;
    return true;
}
