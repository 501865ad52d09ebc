/* SPDX-License-Identifier: MIT */
#include "spoa/agent/decision/destination.h"

const char *destination_text(enum destination_result result)
{
    static const char *const texts[] = {[DESTINATION_FOUND] = "found",
#define X(name, text) [DESTINATION_##name] = (text),
                                        DESTINATION_RESULTS(X)
#undef X
    };
    return texts[result];
}

/* ---- management ---- */

static bool is_application(const struct decide_view *view, const struct record *record)
{
    enum serves by_default = view->management ? view->management->serves : SERVES_MANAGEMENT;
    return (record->serves ? record->serves : by_default) == SERVES_APPLICATION;
}

static bool is_management_port(const struct decide_view *view, const struct record *record, uint16_t port)
{
    bool is_one;
    if (is_application(view, record))
        return false;
    if (record_management(record, port, &is_one))
        return is_one;
    return view->management && port_list_has(&view->management->ports, port);
}

static struct slice address_bytes(const struct address *a)
{
    static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff}; /* ::ffff:0:0/96 */
    bool is_mapped = a->family == 6 && memcmp(a->bytes, mapped, sizeof mapped) == 0;
    return is_mapped ? slice_of(a->bytes + 12, 4) : slice_of(a->bytes, a->family == 4 ? 4 : 16);
}

/* Sets *same if the worker, which has a name or an address, is at the address of *d. Returns false if its name is not resolved yet. */
static bool is_host_of(const struct decide_view *view, const struct worker *worker,
                       const struct destination *d, bool *same)
{
    struct address addr = worker->addr;
    *same = slice_equal_nocase(worker->host, d->worker.host);
    if (*same)
        return true;
    if (!addr.family && !(view->resolve && view->resolve(view->directory, worker->host, &addr)))
        return false;
    *same = slice_equal(address_bytes(&addr), address_bytes(&d->worker.addr));
    return true;
}

/* Sets whether a port with an address in `ports` is management. A port at the management address under another name is management too,
 * whatever the record says of it. Returns false if this is not known yet. */
static bool judge_listed(const struct decide_view *view, const struct record *record, uint16_t port,
                         enum serves said, struct destination *d)
{
    const struct worker *worker = &record->worker;
    bool shared = false;
    d->management =
        said == SERVES_MANAGEMENT || (said == SERVES_UNSAID && is_management_port(view, record, port));
    if (d->management || is_application(view, record) || worker->kind == WORKER_NONE)
        return true;
    if (worker->kind == WORKER_UNIX || d->worker.kind == WORKER_UNIX) {
        d->management = worker->kind == d->worker.kind && slice_equal(worker->host, d->worker.host);
        return true;
    }
    if (worker->port ? worker->port != d->port : !is_management_port(view, record, d->port))
        return true;
    bool known = is_host_of(view, worker, d, &shared);
    d->management = shared;
    return known;
}

/* ---- address ---- */

static enum destination_result locate(const struct decide_view *view, struct destination *d)
{
    struct worker *worker = &d->worker;
    if (worker->kind == WORKER_UNIX)
        return view->socket_allowed && view->socket_allowed(view->networks, worker->host)
                   ? DESTINATION_FOUND
                   : DESTINATION_FOREIGN_SOCKET;
    if (!d->port)
        return DESTINATION_NO_PORT;
    if (!worker->addr.family &&
        !(view->resolve && view->resolve(view->directory, worker->host, &worker->addr)))
        return DESTINATION_UNRESOLVED;
    return view->allowed(view->networks, &worker->addr) ? DESTINATION_FOUND : DESTINATION_FOREIGN;
}

static enum destination_result choose_listed(const struct decide_view *view, const struct record *record,
                                             uint16_t port, struct destination *d)
{
    struct record_details details;
    record_details(record, port, &details);
    d->port = d->worker.port ? d->worker.port : port;
    d->h2 = details.h2;
    enum destination_result result = locate(view, d);
    if (result == DESTINATION_FOUND && !judge_listed(view, record, port, details.serves, d))
        return DESTINATION_UNRESOLVED;
    d->headers = details.headers.len ? details.headers : d->management ? record->headers : d->headers;
    return result;
}

enum destination_result destination_choose(const struct decide_view *view, const struct record *record,
                                           uint16_t port, struct destination *d)
{
    *d = (struct destination){.port = port};
    if (port && record_port(record, port, &d->worker))
        return choose_listed(view, record, port, d);
    d->worker = record->worker;
    d->h2 = record->h2;
    if (d->worker.kind == WORKER_NONE && record->ports.len)
        return port ? DESTINATION_CLOSED : DESTINATION_NO_PORT;
    if (d->worker.kind == WORKER_NONE)
        return DESTINATION_NO_WORKER;
    d->own = d->worker.kind == WORKER_UNIX || d->worker.port;
    if (d->own && port && port != d->worker.port && !is_management_port(view, record, port))
        return DESTINATION_CLOSED;
    d->port = d->worker.port ? d->worker.port : port;
    d->management = d->own ? !is_application(view, record) : is_management_port(view, record, port);
    if (d->own || d->management)
        d->headers = record->headers;
    return locate(view, d);
}

void destination_host(const struct destination *d, struct writer *w)
{
    const struct worker *worker = &d->worker;
    if (worker->kind == WORKER_UNIX) {
        writer_text(w, "localhost");
        return;
    }
    bool literal6 = slice_find(worker->host, ':') < worker->host.len;
    writer_text(w, literal6 ? "[" : "");
    writer_put(w, worker->host);
    writer_text(w, literal6 ? "]" : "");
    if (d->port != (worker->kind == WORKER_HTTPS ? 443 : 80)) {
        writer_u8(w, ':');
        writer_decimal(w, d->port);
    }
}
