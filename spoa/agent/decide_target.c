/* SPDX-License-Identifier: MIT */
/* decide_target: the end of a decision: which worker, and what it gets. */
#include "spoa/agent/decide_steps.h"

static struct slice text_from(const struct writer *w, size_t start)
{
    return slice_of(w->at + start, w->len - start);
}

static struct worker choose_worker(const struct decision *d)
{
    struct worker worker;
    if (d->port && record_port(&d->record, d->port, &worker))
        return worker;
    return d->record.worker;
}

/* HOST[:PORT] for the worker's Host header, without the port that is the scheme's own. */
static void write_host(struct decision *d, const struct worker *worker, uint16_t port)
{
    size_t start = d->scratch->len;
    bool literal6 = slice_find(worker->host, ':') < worker->host.len;
    writer_text(d->scratch, literal6 ? "[" : "");
    writer_put(d->scratch, worker->host);
    writer_text(d->scratch, literal6 ? "]" : "");
    if (port != (worker->kind == WORKER_HTTPS ? 443 : 80))
        writer_printf(d->scratch, ":%u", port);
    d->verdict->host = text_from(d->scratch, start);
}

static bool unix_worker(struct decision *d)
{
    if (d->route->via == ROUTE_DIRECT)
        return decide_deny(d, REFUSAL_worker_unreachable, "worker", "HAProxy cannot reach a Unix socket");
    if (!d->route->keep_host)
        d->verdict->host = SLICE_LITERAL("localhost");
    return decide_without_address(d, "on a Unix socket, which the relay asks for");
}

static bool resolve(struct decision *d, struct worker *worker)
{
    if (worker->addr.family)
        return true;
    return d->view->resolve && d->view->resolve(d->view->directory, worker->host, &worker->addr);
}

bool decide_worker(struct decision *d)
{
    struct verdict *v = d->verdict;
    if (v->kind == VERDICT_RELAY) /* the relay waits for a worker */
        return true;
    struct worker worker = choose_worker(d);
    uint16_t port = worker.port ? worker.port : d->port;
    if (worker.kind == WORKER_UNIX)
        return unix_worker(d);
    if (worker.kind == WORKER_NONE)
        return decide_deny(d, REFUSAL_directory_unavailable, "worker", "the record names no worker");
    if (!port)
        return decide_deny(d, REFUSAL_bad_request, "worker", "neither request nor record names a port");
    if (!d->route->keep_host)
        write_host(d, &worker, port);
    if (!resolve(d, &worker) && d->route->via == ROUTE_RELAY)
        return decide_without_address(d, "its name is not resolved yet: the relay waits");
    if (!worker.addr.family)
        return decide_deny(d, REFUSAL_directory_unavailable, "worker", "its name is not resolved yet");
    if (!d->view->allowed(d->view->networks, &worker.addr))
        return decide_deny(d, REFUSAL_worker_unreachable, "worker", "it is outside of `worker_networks`");
    v->kind = d->route->via == ROUTE_RELAY ? VERDICT_RELAY : VERDICT_DIRECT;
    v->addr = worker.addr;
    v->addr_port = port;
    v->tls = worker.kind == WORKER_HTTPS;
    if (v->tls)
        v->sni = worker.host;
    decide_tell(d, "worker", v->tls ? "with TLS" : "without TLS", worker.host);
    return true;
}

bool decide_path(struct decision *d)
{
    d->verdict->path = d->request->path;
    if (d->route->template) {
        size_t start = d->scratch->len;
        template_write(d->route->template, &d->match.captures, d->scratch);
        d->verdict->path = text_from(d->scratch, start);
    }
    d->verdict->query = d->carried.query;
    return true;
}

/* The headers that HAProxy can set by name (haproxy.cfg). */
static void set_header(struct verdict *v, struct slice name, struct slice value)
{
    if (slice_equal_nocase(name, SLICE_LITERAL("Authorization")))
        v->auth = value;
    else if (slice_equal_nocase(name, SLICE_LITERAL("X-EXECD-ACCESS-TOKEN")))
        v->execd = value;
    else if (slice_equal_nocase(name, SLICE_LITERAL("OPENSANDBOX-EGRESS-AUTH")))
        v->egress = value;
}

/* The route's headers, then the record's, which may be secrets: the relay gets those of its own connection.
 */
static void set_headers(struct decision *d)
{
    struct slice name, value;
    size_t cursor = 0;
    for (size_t i = 0; i < d->route->set_count; i++)
        set_header(d->verdict, d->route->set[i].name, d->route->set[i].value);
    while (record_header(&d->record, &cursor, &name, &value))
        set_header(d->verdict, name, value);
}

bool decide_headers(struct decision *d)
{
    struct verdict *v = d->verdict;
    bool ours = d->granted && d->carried.carrier == CARRIER_AUTHORIZATION;
    if (d->route->keep_auth && !ours)
        v->auth = d->request->authorization;
    if (v->kind == VERDICT_DIRECT)
        set_headers(d);
    v->cookies = d->route->keep_cookies;
    v->protocol_edit = d->carried.protocol_edit;
    v->protocol = d->carried.protocol;
    v->select_cellgate = d->carried.select_cellgate;
    v->timeout = d->route->timeout ? d->route->timeout : -1;
    return true;
}
