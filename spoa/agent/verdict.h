/* SPDX-License-Identifier: MIT */
/*
 * verdict: what the agent decided about one request. answer.c turns it into SPOE variables `txn.cell.NAME`; the table
 * below is the one list of them, which haproxy/ and a test that compares both follow. Text members point into the
 * request, the policy, the record or the scratch memory that decide() was given.
 */
#ifndef CELLGATE_AGENT_VERDICT_H
#define CELLGATE_AGENT_VERDICT_H

#include "spoa/agent/request.h"

/* The refusals of contract.md: X(name, HTTP status, retryable, Retry-After seconds, sentence for the client) */
#define REFUSALS(X)                                                                                               \
    X(bad_request, 400, false, 0, "The request is malformed.")                                                    \
    X(token_missing, 401, false, 0, "A capability token is required.")                                            \
    X(token_invalid, 401, false, 0, "The capability token is not valid.")                                         \
    X(token_expired, 401, false, 0, "The capability token has expired.")                                          \
    X(token_revoked, 401, false, 0, "The capability token has been revoked.")                                     \
    X(wrong_cell, 403, false, 0, "The capability token is for another cell.")                                     \
    X(wrong_sandbox, 403, false, 0, "The capability token is for another sandbox.")                               \
    X(not_granted, 403, false, 0, "The capability token does not grant this.")                                    \
    X(origin_refused, 403, false, 0, "This origin may not open a WebSocket here.")                                \
    X(no_route, 404, false, 0, "Nothing is served under this address.")                                           \
    X(sandbox_not_found, 404, false, 0, "There is no such sandbox.")                                              \
    X(method_not_allowed, 405, false, 0, "This method is not allowed here.")                                      \
    X(sandbox_stopped, 410, false, 0, "The sandbox has been stopped.")                                            \
    X(upgrade_version, 426, false, 0, "WebSocket version 13 is required.")                                        \
    X(request_too_large, 431, false, 0, "The request's head is too large.")                                       \
    X(worker_unreachable, 502, false, 0, "The sandbox's worker cannot be reached.")                               \
    X(sandbox_migrating, 503, true, 1, "The sandbox is moving to another worker.")                                \
    X(sandbox_waking, 503, true, 1, "The sandbox is waking up.")                                                  \
    X(directory_unavailable, 503, true, 1, "It is not known at the moment where the sandbox is.")                 \
    X(agent_unavailable, 503, true, 1, "Nobody can decide about this request at the moment.")                     \
    X(relay_unavailable, 503, true, 1, "The relay for this route does not answer.")                               \
    X(draining, 503, true, 1, "This server is shutting down.")                                                    \
    X(too_many_tunnels, 503, true, 5, "Too many tunnels are open.")                                               \
    X(worker_timeout, 504, false, 0, "The sandbox's worker did not answer in time.")

enum refusal {
    REFUSAL_NONE,
#define X(name, status, retryable, after, sentence) REFUSAL_##name,
    REFUSALS(X)
#undef X
};

struct refusal_info {
    const char *code; /* as in contract.md */
    int status;
    bool retryable;
    int retry_after;
    const char *sentence;
};
const struct refusal_info *refusal_info(enum refusal refusal);

enum verdict_kind {
    VERDICT_DENY,     /* status, error, message, retry_after */
    VERDICT_DIRECT,   /* HAProxy goes to addr:addr_port itself */
    VERDICT_RELAY,    /* HAProxy hands the upgrade to the relay */
    VERDICT_REDIRECT, /* 302 to location, with set_cookie */
    VERDICT_PREFLIGHT /* 204 with CORS headers for cors_origin */
};

/*  X(kind, field, variable): a variable is set only where the field is present (TEXT), non-negative (INT), of a family
 *  (ADDRESS) or true (BOOL). `verdict` itself is not in the table: it is always set, and set last. */
#define VERDICT_VARIABLES(X)                                                                                      \
    X(INT, status, "status")           /* deny: HTTP status */                                                    \
    X(TEXT, error, "error")            /* deny: code of contract.md */                                            \
    X(TEXT, message, "message")        /* deny: one sentence, ASCII, needs no JSON escaping */                    \
    X(BOOL, retryable, "retryable")    /* deny */                                                                 \
    X(INT, retry_after, "retry_after") /* deny: seconds */                                                        \
    X(TEXT, route, "route")                                                                                       \
    X(TEXT, sandbox, "sandbox")                                                                                   \
    X(TEXT, space, "namespace")                                                                                   \
    X(INT, port, "port") /* the sandbox's port that was asked for */                                              \
    X(TEXT, session, "session")                                                                                   \
    X(TEXT, org, "org")                                                                                           \
    X(ADDRESS, addr, "addr") /* the worker */                                                                     \
    X(INT, addr_port, "addr_port")                                                                                \
    X(BOOL, tls, "tls")      /* the worker speaks TLS */                                                          \
    X(TEXT, sni, "sni")                                                                                           \
    X(TEXT, path, "path")    /* what the worker gets, always set on direct and relay */                           \
    X(TEXT, query, "query")  /* without '?'; absent: none */                                                      \
    X(TEXT, auth, "auth")    /* Authorization towards the worker; absent: none */                                 \
    X(TEXT, host, "host")    /* Host towards the worker; absent: keep the client's */                             \
    X(BOOL, cookies, "cookies")                 /* the worker may see the application's cookies */                \
    X(BOOL, protocol_edit, "protocol_edit")     /* Sec-WebSocket-Protocol is replaced by `protocol`, or removed */\
    X(TEXT, protocol, "protocol")                                                                                 \
    X(BOOL, select_cellgate, "select_cellgate") /* select subprotocol `cellgate` if the worker selects none */    \
    X(TEXT, execd, "execd")    /* X-EXECD-ACCESS-TOKEN from the record */                                         \
    X(TEXT, egress, "egress")  /* OPENSANDBOX-EGRESS-AUTH from the record */                                      \
    X(TEXT, location, "location")       /* redirect */                                                            \
    X(TEXT, set_cookie, "set_cookie")   /* redirect */                                                            \
    X(TEXT, cors_origin, "cors_origin") /* preflight, and on answers to that origin */                            \
    X(INT, timeout, "timeout")          /* milliseconds, `timeout tunnel` */                                      \
    X(BOOL, upgrade, "upgrade")         /* the request claimed an upgrade: a refusal closes the connection */     \
    X(INT, epoch, "epoch")

#define VERDICT_TYPE_TEXT    struct slice
#define VERDICT_TYPE_INT     int64_t
#define VERDICT_TYPE_BOOL    bool
#define VERDICT_TYPE_ADDRESS struct address

struct verdict {
    enum verdict_kind kind;
    enum refusal refusal; /* of VERDICT_DENY */
#define X(kind, field, name) VERDICT_TYPE_##kind field;
    VERDICT_VARIABLES(X)
#undef X
};

/* "direct", "relay", "deny", "redirect", "preflight" */
const char *verdict_kind_text(enum verdict_kind kind);

#endif
