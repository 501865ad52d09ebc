/* SPDX-License-Identifier: MIT */
/* destination: where in a sandbox a request for one of its ports goes: HAProxy by a decision, the relay by a
 * resolve. */
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
    struct worker worker; /* addr is set unless it is a Unix socket or DESTINATION_UNRESOLVED */
    uint16_t port;
    bool own;             /* the record's `worker`, which has a port of its own: it may move to another */
    bool h2;              /* as the record says */
    bool management;      /* what is served there is for needs pty, exec and agent */
    struct slice headers; /* of the record, for this address alone; packed */
};

/*
 * port: the one that was asked for, 0 for none. *destination is filled as far as the result allows. A port
 * stands in the record's `ports`, or is the worker's own, or a management port, by which a worker with a port
 * of its own is meant, or belongs to a worker with an address of its own. Any other is CLOSED.
 */
enum destination_result destination_choose(const struct decide_view *view, const struct record *record,
                                           uint16_t port, struct destination *destination);
/* Appends HOST[:PORT] for the worker's Host header, without the port that is the scheme's own; "localhost"
 * for a Unix socket. */
void destination_host(const struct destination *destination, struct writer *w);

#endif
