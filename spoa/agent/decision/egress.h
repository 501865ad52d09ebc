/* SPDX-License-Identifier: MIT */
/*
 * egress: decides about one request of a program in a sandbox. Like decide(), it reads no clock, does no I/O and waits for nothing.
 * There are three kinds of requests:
 *
 *     CONNECT host:443           the relay dials (raw), or HAProxy reads the requests in the connection (inspect)
 *     GET http://host/path       HAProxy sends it on (direct)
 *     GET /path, inside          a request in an inspected connection: HAProxy sends it on (direct), or hands an upgrade to the
 *                                relay (relay), which connects to its destination as a tunnel connects to a worker
 *
 * The order of the checks is part of the contract: the request itself (400, 405, 421), the caller (407, 403), the rules for the target
 * and the request (403), and only then the look-up of the name; every address of the name must be allowed. For a request inside, the
 * caller and the address are known: the relay passes both on in the PROXY header of the connection, with the proof that the agent gave
 * it for the CONNECT. Without that proof every request is refused.
 */
#ifndef CELLGATE_AGENT_DECISION_EGRESS_H
#define CELLGATE_AGENT_DECISION_EGRESS_H

#include "spoa/agent/decision/decide.h"
#include "spoa/agent/egress/match.h"

/* The arguments of HAProxy's SPOE message `cell-egress`.
 * X(kind, field, SPOE argument name, HAProxy sample expression) */
#define EGRESS_ARGUMENTS(X)                 \
    X(TEXT, id, "id", "unique-id")          \
    X(TEXT, method, "method", "method")     \
    X(TEXT, version, "version", "req.ver")  \
    X(TEXT, target, "target", "url")        \
    X(TEXT, headers, "headers", "req.hdrs") \
    X(ADDRESS, source, "source", "var(txn.client_addr)")

/* The arguments of `cell-egress-request`, about a request in an inspected connection. */
#define EGRESS_INSIDE_ARGUMENTS(X)                                                                 \
    X(TEXT, id, "id", "unique-id")                                                                 \
    X(TEXT, method, "method", "method")                                                            \
    X(TEXT, version, "version", "req.ver")                                                         \
    X(TEXT, target, "target", "url")                                                               \
    X(TEXT, headers, "headers", "req.hdrs")                                                        \
    X(TEXT, connection, "connection",                                                              \
      "fc_pp_unique_id")                      /* proof of the caller, written by inside_proof.h */ \
    X(INT, begun, "begun", "var(sess.begun)") /* begin of the connection, Unix seconds */          \
    X(TEXT, to, "to", "var(txn.to)")          /* "HOST:PORT" of the connection's CONNECT */        \
    X(ADDRESS, addr, "addr", "dst")                                                                \
    X(BOOL, tls, "tls", "ssl_fc")                                                                  \
    X(TEXT, sni, "sni", "ssl_fc_sni")

struct egress_request {
    struct slice id, method, version, target, headers;
    struct address source;
    bool inside; /* request in an inspected connection; the members below are set */
    struct slice connection, to, sni;
    int64_t begun;       /* -1 if unknown */
    struct address addr; /* family 0 if unknown, which only `cellgate explain` allows */
    bool tls;
    struct slice
        sandbox; /* for `cellgate explain`: the sandbox that asks, whatever the request says; otherwise absent */
};

/* X(kind, field, variable), like VERDICT_VARIABLES. `verdict` ("deny", "raw", "inspect", "direct" or "relay") is set last. */
#define EGRESS_VARIABLES(X)                                                                     \
    X(INT, status, "status")                                                                    \
    X(TEXT, error, "error")                                                                     \
    X(TEXT, message, "message")                                                                 \
    X(BOOL, retryable, "retryable")                                                             \
    X(INT, retry_after, "retry_after")                                                          \
    X(TEXT, reason, "reason") /* deny: one sentence, ASCII, needs no JSON escaping */           \
    X(INT, rule, "rule")      /* number of the rule that decided */                             \
    X(BOOL, audit, "audit")   /* the rules would have refused the request */                    \
    X(TEXT, sandbox, "sandbox")                                                                 \
    X(TEXT, space, "namespace")                                                                 \
    X(TEXT, host, "host")                                                                       \
    X(INT, port, "port")                                                                        \
    X(ADDRESS, addr, "addr")                                                                    \
    X(TEXT, handover, "handover")   /* value of the relay's header (spoa/proto/handover.h) */   \
    X(TEXT, path, "path")           /* direct, relay: path and query as they were checked */    \
    X(TEXT, authority, "authority") /* direct, relay: value of Host */                          \
    X(BOOL, upgrade, "upgrade")     /* direct, relay: WebSocket handshake */                    \
    X(TEXT, protocol, "protocol")   /* direct, relay: subprotocols joined from several lines */ \
    X(INT, most, "most")            /* direct, relay: limit of the sandbox's simultaneous connections */
/* The variables also include one for each of EGRESS_CREDENTIALS. */

enum egress_kind { EGRESS_RAW, EGRESS_INSPECT, EGRESS_DIRECT, EGRESS_RELAY };

struct egress_verdict {
    enum refusal refusal; /* REFUSAL_NONE if the request is allowed */
    enum egress_kind kind;
#define X(kind, field, name) VERDICT_TYPE_##kind field;
    EGRESS_VARIABLES(X)
#undef X
#define X(field, variable, header) struct slice field; /* a credential; must never be logged */
    EGRESS_CREDENTIALS(X)
#undef X
};

/* Returns a verdict that refuses, with no other field set. */
struct egress_verdict egress_refusal(enum refusal refusal, const char *why);
/* Returns "deny", "raw", "inspect", "direct" or "relay". */
const char *egress_verdict_text(const struct egress_verdict *verdict);

enum {
    EGRESS_ADDRESSES = 64
}; /* limit of a host's addresses; all must be checked, so a host with more is refused */

/* Decides and fills *verdict, whose texts point into the request, the record and scratch. Returns false if a look-up was started and has
 * no answer yet; *verdict is then the answer for the case that it does not come in time. */
bool egress_decide(const struct decide_view *view, const struct egress_request *request,
                   struct writer *scratch, struct egress_verdict *verdict);
/* Returns whether the record's current rules still allow an open connection to "HOST:PORT" at this address, inspected by the rule with
 * that digest (-1 for raw): REFUSAL_NONE, egress_denied or address_refused. */
enum refusal egress_stands(const struct decide_view *view, const struct record *record, struct slice to,
                           const struct address *address, int64_t inspect);

#endif
