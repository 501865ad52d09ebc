/* SPDX-License-Identifier: MIT */
/*
 * verdict: what the agent decided about one request. answer.c turns it into SPOE variables `txn.cell.NAME`; the table
 * below is the one list of them, which haproxy/ and a test that compares both follow. Text members point into the
 * request, the policy, the record or the scratch memory that decide() was given.
 */
#ifndef CELLGATE_AGENT_MODEL_VERDICT_H
#define CELLGATE_AGENT_MODEL_VERDICT_H

#include "spoa/agent/model/request.h"
#include "spoa/proto/refusal.h"

enum verdict_kind {
    VERDICT_DENY,     /* status, error, message, retry_after */
    VERDICT_DIRECT,   /* HAProxy goes to addr:addr_port itself */
    VERDICT_RELAY,    /* HAProxy hands the upgrade to the relay */
    VERDICT_REDIRECT, /* 302 to location, with set_cookie */
    VERDICT_PREFLIGHT /* 204 with CORS headers for cors_origin */
};

/*  X(kind, field, variable): a variable is set only where the field is present (TEXT), non-negative (INT), of a family
 *  (ADDRESS) or true (BOOL). `verdict` itself is not in the table: it is always set, and set last. */
#define VERDICT_VARIABLES(X)                                                                             \
    X(INT, status, "status")           /* deny: HTTP status */                                           \
    X(TEXT, error, "error")            /* deny: code of spoa/proto/refusal.h */                          \
    X(TEXT, message, "message")        /* deny: one sentence, ASCII, needs no JSON escaping */           \
    X(BOOL, retryable, "retryable")    /* deny */                                                        \
    X(INT, retry_after, "retry_after") /* deny: seconds */                                               \
    X(BOOL, detailed, "detailed")      /* deny: the body has `sandboxId` and `code`, too */              \
    X(TEXT, route, "route")                                                                              \
    X(TEXT, sandbox, "sandbox")                                                                          \
    X(TEXT, space, "namespace")                                                                          \
    X(INT, port, "port") /* the sandbox's port that was asked for */                                     \
    X(TEXT, session, "session")                                                                          \
    X(TEXT, org, "org")                                                                                  \
    X(ADDRESS, addr, "addr") /* the worker */                                                            \
    X(INT, addr_port, "addr_port")                                                                       \
    X(BOOL, tls, "tls") /* the worker speaks TLS */                                                      \
    X(BOOL, h2, "h2")   /* the worker speaks HTTP/2 */                                                   \
    X(TEXT, sni, "sni")                                                                                  \
    X(TEXT, path, "path") /* what the worker gets, always set on direct and relay */                     \
    X(TEXT, prefix,                                                                                      \
      "prefix") /* what the path lost in front; absent: nothing, or it was rewritten otherwise */        \
    X(TEXT, query, "query")     /* without '?'; absent: none */                                          \
    X(TEXT, auth, "auth")       /* Authorization towards the worker; absent: none */                     \
    X(TEXT, host, "host")       /* Host towards the worker; absent: keep the client's */                 \
    X(BOOL, cookies, "cookies") /* the worker may see the application's cookies */                       \
    X(BOOL, service, "service") /* what the client brings is for a service, credentials too */           \
    X(BOOL, protocol_edit,                                                                               \
      "protocol_edit") /* Sec-WebSocket-Protocol is replaced by `protocol`, or removed */                \
    X(TEXT, protocol, "protocol")                                                                        \
    X(BOOL, select_cellgate,                                                                             \
      "select_cellgate")                  /* select subprotocol `cellgate` if the worker selects none */ \
    X(BOOL, strip_origin, "strip_origin") /* the upgrade's Origin is not for the worker */               \
    WORKER_HEADERS(X)                     /* from the record, the route or the service */                \
    X(TEXT, location, "location")         /* redirect */                                                 \
    X(TEXT, set_cookie, "set_cookie")     /* redirect */                                                 \
    X(TEXT, cors_origin, "cors_origin")   /* preflight, and on answers to that origin */                 \
    X(BOOL, vary, "vary")                 /* answers differ by Origin: the route has `cors` */           \
    X(INT, timeout, "timeout")            /* milliseconds, `timeout tunnel` */                           \
    X(BOOL, upgrade, "upgrade") /* the request claimed an upgrade: a refusal closes the connection */    \
    X(INT, epoch, "epoch")                                                                               \
    X(TEXT, handover, "handover") /* relay: for its header (spoa/proto/handover.h) */

#define VERDICT_TYPE_TEXT    struct slice
#define VERDICT_TYPE_INT     int64_t
#define VERDICT_TYPE_BOOL    bool
#define VERDICT_TYPE_ADDRESS struct address

struct verdict {
    enum verdict_kind kind;
    enum refusal refusal; /* of VERDICT_DENY */
    /* For the audit, of a token that was needed and is good: claims, and the mask of what the route needs. */
    const char *token_kind; /* NULL: none was needed */
    struct slice sub, jti, kid, request_id;
    struct address source;
    unsigned need;
    unsigned route_label; /* of the route, for metrics; 0: none matched */
    /* Unix seconds: until then the same question, whatever its id, has the same answer of the same policy, records and
     * addresses, and has no effect that the fields above do not tell of; 0: this one is not to be given again. */
    int64_t good_until;
    struct slice left; /* a header that HAProxy should remove and does not; absent: there is none */
#define X(kind, field, ...) VERDICT_TYPE_##kind field;
    VERDICT_VARIABLES(X)
#undef X
};

/* With nothing set. */
void verdict_clear(struct verdict *verdict);
/* Makes it a refusal; what else is set stays. */
void verdict_deny(struct verdict *verdict, enum refusal refusal);

/* "direct", "relay", "deny", "redirect", "preflight" */
const char *verdict_kind_text(enum verdict_kind kind);

#endif
