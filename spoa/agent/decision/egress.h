/* SPDX-License-Identifier: MIT */
/*
 * egress: one request of a program in a sandbox in, one verdict out. As decide.h: it reads no clock, does no I/O, waits for
 * nothing. There are three kinds of them:
 *
 *     CONNECT host:443           the relay dials (raw), or HAProxy reads what is inside (inspect)
 *     GET http://host/path       HAProxy sends it on (direct)
 *     GET /path, inside          of a connection that is inspected: HAProxy sends it on (direct), or hands an upgrade to the
 *                                relay (relay), which goes to its destination as a tunnel goes to a worker
 *
 * The order is part of the contract: what the request itself says (400, 405, 421), who asks (407, 403), what the rules say of
 * the target and the request (403), and only then is its name looked up; each address that it has must be one that may be
 * reached. Inside, who asks and the address are known: the relay hands on both in the PROXY header of the connection, with
 * the proof that the agent gave it for the CONNECT. Without that proof nothing passes.
 */
#ifndef CELLGATE_AGENT_DECISION_EGRESS_H
#define CELLGATE_AGENT_DECISION_EGRESS_H

#include "spoa/agent/decision/decide.h"
#include "spoa/agent/egress/match.h"

/*  What HAProxy tells, in the SPOE message `cell-egress`.
 *  X(kind, field, SPOE argument name, HAProxy sample expression) */
#define EGRESS_ARGUMENTS(X)                 \
    X(TEXT, id, "id", "unique-id")          \
    X(TEXT, method, "method", "method")     \
    X(TEXT, version, "version", "req.ver")  \
    X(TEXT, target, "target", "url")        \
    X(TEXT, headers, "headers", "req.hdrs") \
    X(ADDRESS, source, "source", "var(txn.client_addr)")

/*  The same of `cell-egress-request`, about a request inside. */
#define EGRESS_INSIDE_ARGUMENTS(X)                                                                \
    X(TEXT, id, "id", "unique-id")                                                                \
    X(TEXT, method, "method", "method")                                                           \
    X(TEXT, version, "version", "req.ver")                                                        \
    X(TEXT, target, "target", "url")                                                              \
    X(TEXT, headers, "headers", "req.hdrs")                                                       \
    X(TEXT, connection, "connection", "fc_pp_unique_id") /* whose, as inside_proof.h writes it */ \
    X(INT, begun, "begun", "var(sess.begun)")            /* when it did, in Unix seconds */       \
    X(TEXT, to, "to", "var(txn.to)")                     /* "HOST:PORT" of its CONNECT */         \
    X(ADDRESS, addr, "addr", "dst")                                                               \
    X(BOOL, tls, "tls", "ssl_fc")                                                                 \
    X(TEXT, sni, "sni", "ssl_fc_sni")

struct egress_request {
    struct slice id, method, version, target, headers;
    struct address source;
    bool inside; /* the rest is there */
    struct slice connection, to, sni;
    int64_t begun;       /* -1: nobody says */
    struct address addr; /* family 0, for people: not known yet */
    bool tls;
    struct slice sandbox; /* for people: who asks, whatever the request says; absent otherwise */
};

/*  X(kind, field, variable): as VERDICT_VARIABLES; `verdict` ("deny", "raw", "inspect", "direct" or "relay") is set last. */
#define EGRESS_VARIABLES(X)                                                                  \
    X(INT, status, "status")                                                                 \
    X(TEXT, error, "error")                                                                  \
    X(TEXT, message, "message")                                                              \
    X(BOOL, retryable, "retryable")                                                          \
    X(INT, retry_after, "retry_after")                                                       \
    X(TEXT, reason, "reason") /* deny: one sentence, ASCII, needs no JSON escaping */        \
    X(INT, rule, "rule")      /* the number of the rule that decided */                      \
    X(BOOL, audit, "audit")   /* it would have been refused */                               \
    X(TEXT, sandbox, "sandbox")                                                              \
    X(TEXT, space, "namespace")                                                              \
    X(TEXT, host, "host")                                                                    \
    X(INT, port, "port")                                                                     \
    X(ADDRESS, addr, "addr")                                                                 \
    X(TEXT, handover, "handover")   /* for the relay's header (spoa/proto/handover.h) */     \
    X(TEXT, path, "path")           /* direct, relay: path and query, as they were judged */ \
    X(TEXT, authority, "authority") /* direct, relay: Host */                                \
    X(BOOL, upgrade, "upgrade")     /* direct, relay: a WebSocket's handshake */             \
    X(TEXT, protocol, "protocol")   /* direct, relay: subprotocols out of several lines */   \
    X(INT, most, "most")            /* direct, relay: of its sandbox at once */
/*  and one for each of EGRESS_CREDENTIALS */

enum egress_kind { EGRESS_RAW, EGRESS_INSPECT, EGRESS_DIRECT, EGRESS_RELAY };

struct egress_verdict {
    enum refusal refusal; /* REFUSAL_NONE: it may pass */
    enum egress_kind kind;
#define X(kind, field, name) VERDICT_TYPE_##kind field;
    EGRESS_VARIABLES(X)
#undef X
#define X(field, variable, header) struct slice field; /* a credential: never to be logged */
    EGRESS_CREDENTIALS(X)
#undef X
};

/* One that refuses, and nothing else. */
struct egress_verdict egress_refusal(enum refusal refusal, const char *why);
/* "deny", "raw", "inspect", "direct" or "relay". */
const char *egress_verdict_text(const struct egress_verdict *verdict);

enum { EGRESS_ADDRESSES = 64 }; /* of a host: that are checked; one that has more is refused */

/* Fills *verdict, whose texts point into the request, the record and scratch. False: something has been asked for and is not
 * there yet; *verdict is what to answer if it does not come in time. */
bool egress_decide(const struct decide_view *view, const struct egress_request *request,
                   struct writer *scratch, struct egress_verdict *verdict);
/* Whether a connection that is open to "HOST:PORT" at this address, inspected by the rule of that digest (-1: raw), would be
 * let through by the record's rules as they are now: REFUSAL_NONE, egress_denied or address_refused. */
enum refusal egress_stands(const struct decide_view *view, const struct record *record, struct slice to,
                           const struct address *address, int64_t inspect);

#endif
