/* SPDX-License-Identifier: MIT */
/*
 * verdict: the agent's decision about one request. answer.c writes it as SPOE variables `txn.cell.NAME`. The table below is the only
 * list of these variables; haproxy/ follows it, and a test compares the two. Text members point into the request, the policy, the record
 * or the scratch memory that decide() was given.
 */
#ifndef CELLGATE_AGENT_MODEL_VERDICT_H
#define CELLGATE_AGENT_MODEL_VERDICT_H

#include "spoa/agent/model/request.h"
#include "spoa/proto/refusal.h"

enum verdict_kind {
    VERDICT_DENY,     /* status, error, message, retry_after */
    VERDICT_DIRECT,   /* HAProxy goes to addr:addr_port itself */
    VERDICT_RELAY,    /* HAProxy sends the upgrade to the relay */
    VERDICT_REDIRECT, /* 302 to location, with set_cookie */
    VERDICT_PREFLIGHT /* 204 with CORS headers for cors_origin */
};

/* X(kind, field, variable): a variable is set only if the field is present (TEXT), non-negative (INT), has a family (ADDRESS) or is true
 * (BOOL). `verdict` itself is not in the table: answer.c always sets it, as the last one. */
#define VERDICT_VARIABLES(X)                                                                                      \
    X(INT, status, "status")           /* deny: HTTP status */                                                    \
    X(TEXT, error, "error")            /* deny: code of spoa/proto/refusal.h */                                   \
    X(TEXT, message, "message")        /* deny: one sentence, ASCII, needs no JSON escaping */                    \
    X(BOOL, retryable, "retryable")    /* deny */                                                                 \
    X(INT, retry_after, "retry_after") /* deny: seconds */                                                        \
    X(BOOL, detailed, "detailed")      /* deny: the body has `sandboxId` and `code`, too */                       \
    X(TEXT, route, "route")                                                                                       \
    X(TEXT, sandbox, "sandbox")                                                                                   \
    X(TEXT, space, "namespace")                                                                                   \
    X(INT, port, "port") /* the sandbox's port that the request names */                                          \
    X(TEXT, session, "session")                                                                                   \
    X(TEXT, org, "org")                                                                                           \
    X(ADDRESS, addr, "addr") /* the worker */                                                                     \
    X(INT, addr_port, "addr_port")                                                                                \
    X(BOOL, tls, "tls") /* the worker speaks TLS */                                                               \
    X(BOOL, h2, "h2")   /* the worker speaks HTTP/2 */                                                            \
    X(TEXT, sni, "sni")                                                                                           \
    X(TEXT, path, "path") /* path for the worker; always set on direct and relay */                               \
    X(TEXT, prefix,                                                                                               \
      "prefix") /* beginning of the path that was removed; absent if nothing was, or if the path was rewritten */ \
    X(TEXT, query, "query")     /* query for the worker, without '?'; absent if there is none */                  \
    X(TEXT, auth, "auth")       /* Authorization for the worker; absent if there is none */                       \
    X(TEXT, host, "host")       /* Host for the worker; absent to keep the client's */                            \
    X(BOOL, cookies, "cookies") /* the worker may see the application's cookies */                                \
    X(BOOL, service, "service") /* the request goes to a service, with the client's credentials */                \
    X(BOOL, protocol_edit,                                                                                        \
      "protocol_edit") /* Sec-WebSocket-Protocol is replaced by `protocol`, or removed */                         \
    X(TEXT, protocol, "protocol")                                                                                 \
    X(BOOL, select_cellgate,                                                                                      \
      "select_cellgate") /* HAProxy selects subprotocol `cellgate` if the worker selects none */                  \
    X(BOOL, strip_origin, "strip_origin") /* HAProxy removes the upgrade's Origin */                              \
    WORKER_HEADERS(X)                     /* headers that the record, the route or the service sets */            \
    X(TEXT, location, "location")         /* redirect */                                                          \
    X(TEXT, set_cookie, "set_cookie")     /* redirect */                                                          \
    X(TEXT, cors_origin, "cors_origin")   /* preflight, and on answers to that origin */                          \
    X(BOOL, vary, "vary")                 /* answers differ by Origin: the route has `cors` */                    \
    X(INT, timeout, "timeout")            /* `timeout tunnel` in milliseconds */                                  \
    X(BOOL, upgrade, "upgrade") /* the request claimed an upgrade: a refusal closes the connection */             \
    X(INT, epoch, "epoch")                                                                                        \
    X(TEXT, handover, "handover") /* relay: value of its header (spoa/proto/handover.h) */

#define VERDICT_TYPE_TEXT    struct slice
#define VERDICT_TYPE_INT     int64_t
#define VERDICT_TYPE_BOOL    bool
#define VERDICT_TYPE_ADDRESS struct address

struct verdict {
    enum verdict_kind kind;
    enum refusal refusal; /* reason of VERDICT_DENY */
    /* The fields up to `need` are for the audit, if a token was needed and is good: its claims, and the mask of the route's needs. */
    const char *token_kind; /* kind of the token; NULL if none was needed */
    struct slice sub, jti, kid, request_id;
    struct address source;
    unsigned need;
    unsigned route_label; /* label of the route for metrics; 0 if no route matched */
    /* End of the time, in Unix seconds, in which the same question (apart from its id) gets the same answer, as long as policy, records
     * and addresses do not change. The fields above must describe every effect of the decision. 0 if the answer must not be reused. */
    int64_t good_until;
    struct slice left; /* a header that HAProxy should remove and does not; absent if there is none */
#define X(kind, field, ...) VERDICT_TYPE_##kind field;
    VERDICT_VARIABLES(X)
#undef X
};

/* Clears all fields; the verdict is then a refusal without a reason. */
void verdict_clear(struct verdict *verdict);
/* Makes the verdict a refusal; fields that do not describe the refusal keep their values. */
void verdict_deny(struct verdict *verdict, enum refusal refusal);

/* Returns "direct", "relay", "deny", "redirect" or "preflight". */
const char *verdict_kind_text(enum verdict_kind kind);

#endif
