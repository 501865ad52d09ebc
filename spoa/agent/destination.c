/* SPDX-License-Identifier: MIT */
#include "spoa/agent/destination.h"

const char *destination_text(enum destination_result result)
{
    static const char *const texts[] = {[DESTINATION_FOUND] = "found",
#define X(name, text) [DESTINATION_##name] = (text),
                                        DESTINATION_RESULTS(X)
#undef X
    };
    return texts[result];
}

enum destination_result destination_choose(const struct decide_view *view, const struct record *record,
                                           uint16_t port, struct destination *d)
{
    struct worker *worker = &d->worker;
    if (!port || !record_port(record, port, worker))
        *worker = record->worker;
    d->port = worker->port ? worker->port : port;
    if (worker->kind == WORKER_UNIX)
        return view->socket_allowed && view->socket_allowed(view->networks, worker->host)
                   ? DESTINATION_FOUND
                   : DESTINATION_FOREIGN_SOCKET;
    if (worker->kind == WORKER_NONE)
        return DESTINATION_NO_WORKER;
    if (!d->port)
        return DESTINATION_NO_PORT;
    if (!worker->addr.family &&
        !(view->resolve && view->resolve(view->directory, worker->host, &worker->addr)))
        return DESTINATION_UNRESOLVED;
    return view->allowed(view->networks, &worker->addr) ? DESTINATION_FOUND : DESTINATION_FOREIGN;
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
