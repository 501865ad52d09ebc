/* SPDX-License-Identifier: MIT */
/*
 * egress: one CONNECT of a program in a sandbox in, one verdict out. As decide.h: it reads no clock, does no I/O, waits for
 * nothing. The order is part of the contract: what the request itself says (400, 405), who asks (407, 403), what the rules
 * say of the target (403), and only then is its name looked up; each address that it has must be one that may be reached.
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
    X(TEXT, target, "target", "url")        \
    X(TEXT, headers, "headers", "req.hdrs") \
    X(ADDRESS, source, "source", "var(txn.client_addr)")

struct egress_request {
#define X(kind, field, name, sample) REQUEST_TYPE_##kind field;
    EGRESS_ARGUMENTS(X)
#undef X
    struct slice sandbox; /* for people: who asks, whatever the request says; absent otherwise */
};

/*  X(kind, field, variable): as VERDICT_VARIABLES; `verdict`, "deny" or "raw", is set last. */
#define EGRESS_VARIABLES(X)                                                           \
    X(INT, status, "status")                                                          \
    X(TEXT, error, "error")                                                           \
    X(TEXT, message, "message")                                                       \
    X(BOOL, retryable, "retryable")                                                   \
    X(INT, retry_after, "retry_after")                                                \
    X(TEXT, reason, "reason") /* deny: one sentence, ASCII, needs no JSON escaping */ \
    X(INT, rule, "rule")      /* the number of the rule that decided */               \
    X(BOOL, audit, "audit")   /* it would have been refused */                        \
    X(TEXT, sandbox, "sandbox")                                                       \
    X(TEXT, space, "namespace")                                                       \
    X(TEXT, host, "host")                                                             \
    X(INT, port, "port")                                                              \
    X(ADDRESS, addr, "addr")                                                          \
    X(TEXT, handover, "handover") /* for the relay's header (spoa/proto/handover.h) */

struct egress_verdict {
    enum refusal refusal; /* REFUSAL_NONE: the relay may dial */
#define X(kind, field, name) VERDICT_TYPE_##kind field;
    EGRESS_VARIABLES(X)
#undef X
};

enum { EGRESS_ADDRESSES = 64 }; /* of a host: that are checked; one that has more is refused */

/* Fills *verdict, whose texts point into the request, the record and scratch. False: something has been asked for and is not
 * there yet; *verdict is what to answer if it does not come in time. */
bool egress_decide(const struct decide_view *view, const struct egress_request *request,
                   struct writer *scratch, struct egress_verdict *verdict);
/* Whether a connection that is open to "HOST:PORT" at this address would be let through by the record's rules as they are
 * now: REFUSAL_NONE, egress_denied or address_refused. */
enum refusal egress_stands(const struct decide_view *view, const struct record *record, struct slice to,
                           const struct address *address);

#endif
