/* SPDX-License-Identifier: MIT */
/*
 * refusal: the reasons for which a request gets neither a tunnel nor an answer from a worker. One table for agent, relay and HAProxy:
 * the code, the HTTP status and the sentence that the client reads.
 */
#ifndef CELLGATE_PROTO_REFUSAL_H
#define CELLGATE_PROTO_REFUSAL_H

#include <stdbool.h>

/* X(name, HTTP status, retryable, Retry-After in seconds, sentence for the client). The name is the error code in the body that the
 * client gets (docs/routing.md), so it must not change. Retry-After is 0 unless the refusal is retryable. */
#define REFUSALS(X)                                                                               \
    X(bad_request, 400, false, 0, "The request is malformed.")                                    \
    X(token_missing, 401, false, 0, "A capability token is required.")                            \
    X(token_invalid, 401, false, 0, "The capability token is not valid.")                         \
    X(token_expired, 401, false, 0, "The capability token has expired.")                          \
    X(token_revoked, 401, false, 0, "The capability token has been revoked.")                     \
    X(wrong_cell, 403, false, 0, "The capability token is for another cell.")                     \
    X(wrong_sandbox, 403, false, 0, "The capability token is for another sandbox.")               \
    X(not_granted, 403, false, 0, "The capability token does not grant this.")                    \
    X(origin_refused, 403, false, 0, "This origin may not open a WebSocket here.")                \
    X(egress_denied, 403, false, 0, "The sandbox may not reach this destination.")                \
    X(address_refused, 403, false, 0, "The destination's address may not be reached.")            \
    X(no_route, 404, false, 0, "Nothing is served under this address.")                           \
    X(sandbox_not_found, 404, false, 0, "There is no such sandbox.")                              \
    X(method_not_allowed, 405, false, 0, "This method is not allowed here.")                      \
    X(proxy_auth_required, 407, false, 0, "A capability token is required as proxy credential.")  \
    X(request_timeout, 408, true, 1, "The request did not arrive in time.")                       \
    X(sandbox_stopped, 410, false, 0, "The sandbox has been stopped.")                            \
    X(misdirected_request, 421, false, 0, "The request names another host than its connection.")  \
    X(upgrade_version, 426, false, 0, "WebSocket version 13 is required.")                        \
    X(too_many_requests, 429, true, 1, "Too many wrong credentials came from this address.")      \
    X(too_many_connections, 429, true, 1, "Too many connections of this sandbox are open.")       \
    X(request_too_large, 431, false, 0, "The request's head is too large.")                       \
    X(worker_unreachable, 502, false, 0, "The sandbox's worker cannot be reached.")               \
    X(destination_unreachable, 502, false, 0, "The destination cannot be reached.")               \
    X(sandbox_migrating, 503, true, 1, "The sandbox is moving to another worker.")                \
    X(sandbox_waking, 503, true, 1, "The sandbox is waking up.")                                  \
    X(directory_unavailable, 503, true, 1, "It is not known at the moment where the sandbox is.") \
    X(agent_unavailable, 503, true, 1, "Nobody can decide about this request at the moment.")     \
    X(relay_unavailable, 503, true, 1, "The relay for this route does not answer.")               \
    X(draining, 503, true, 1, "This server is shutting down.")                                    \
    X(too_many_tunnels, 503, true, 5, "Too many tunnels are open.")                               \
    X(worker_timeout, 504, false, 0, "The sandbox's worker did not answer in time.")              \
    X(destination_timeout, 504, false, 0, "The destination did not answer in time.")

enum refusal {
    REFUSAL_NONE, /* the request is not refused */
#define X(name, status, retryable, after, sentence) REFUSAL_##name,
    REFUSALS(X)
#undef X
        REFUSAL_COUNT
};

struct refusal_info {
    const char *code; /* the name in the table */
    int status;       /* HTTP status */
    bool retryable;   /* the same request may succeed later */
    int retry_after;  /* seconds; 0 if the refusal is not retryable */
    const char *sentence;
};
/* Returns the row of a refusal, or NULL for REFUSAL_NONE. */
const struct refusal_info *refusal_info(enum refusal refusal);

#endif
