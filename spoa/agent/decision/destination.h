/* SPDX-License-Identifier: MIT */
/* destination: finds the address for a request to one of a sandbox's ports. A decision uses it for HAProxy, a resolve for the relay. */
#ifndef CELLGATE_AGENT_DECISION_DESTINATION_H
#define CELLGATE_AGENT_DECISION_DESTINATION_H

#include "spoa/agent/decision/decide.h"

/* X(NAME, text) */
#define DESTINATION_RESULTS(X)                            \
    X(NO_WORKER, "the record names no worker")            \
    X(NO_PORT, "neither request nor record names a port") \
    X(CLOSED, "the sandbox has no such port")             \
    X(UNRESOLVED, "its name is not resolved yet")         \
    X(FOREIGN, "it is outside of `worker_networks`")      \
    X(FOREIGN_SOCKET, "its socket is outside of `worker_sockets`")

enum destination_result {
    DESTINATION_FOUND,
#define X(name, text) DESTINATION_##name,
    DESTINATION_RESULTS(X)
#undef X
};
const char *destination_text(enum destination_result result);

struct destination {
    struct worker
        worker; /* addr is set unless the worker is a Unix socket or the result is DESTINATION_UNRESOLVED */
    uint16_t port;
    bool own;             /* the record's `worker`, which has a port of its own and may move to another one */
    bool h2;              /* as in the record */
    bool management;      /* the address needs pty, exec or agent */
    struct slice headers; /* packed headers of the record for this address alone */
};

/*
 * Chooses the destination of a port (0 if the request names none) and fills *destination as far as the result allows. A port is allowed
 * if the record's `ports` has it, or it is the worker's own, or it is a management port and the worker has a port of its own, or the
 * worker has an address of its own. Any other port is CLOSED.
 */
enum destination_result destination_choose(const struct decide_view *view, const struct record *record,
                                           uint16_t port, struct destination *destination);
/* Appends HOST[:PORT] for the worker's Host header, without the default port of the scheme; "localhost" for a Unix socket. */
void destination_host(const struct destination *destination, struct writer *w);

#endif
