/* SPDX-License-Identifier: MIT */
/*
 * decide: one request in, one verdict out. It reads no clock, does no I/O and waits for nothing: look-ups and the time
 * are given to it. It changes only what the view lends for that: the token cache, the limiter, the counters. Checking a
 * token that the cache does not know allocates, in OpenSSL and for the cache.
 *
 * The order is part of the contract: what the request itself says (400, 405, 426, 404 no_route), then who
 * asks (401, 403), and only then whether the sandbox exists. Without a valid token nobody learns anything
 * about a sandbox, and with one a foreign sandbox is the same 404 as one that is not there.
 *
 * A refusal of an upgrade on a route with `refuse: close` is a VERDICT_RELAY that has `refusal`, status and
 * error set: the relay accepts the upgrade and closes with the code.
 */
#ifndef CELLGATE_AGENT_DECISION_DECIDE_H
#define CELLGATE_AGENT_DECISION_DECIDE_H

#include "spoa/agent/decision/auth_failure_limiter.h"
#include "spoa/agent/egress/config.h"
#include "spoa/agent/model/asker.h"
#include "spoa/agent/model/management.h"
#include "spoa/agent/model/record.h"
#include "spoa/agent/route/route.h"
#include "spoa/agent/token/check.h"
#include "spoa/agent/token/revoked.h"

/* What all computed texts of one decision need at most:
 * path, query, protocols, Location with a cookie of a token. */
#define DECIDE_SCRATCH ((size_t)64 * 1024)

/* For people (`cellgate explain`): told of every step. Never given a credential. */
struct decide_trace {
    /* step: "request", "upgrade", "route", "token", ...; text: static; detail: what it is about, may be
     * absent */
    void (*step)(void *context, const char *step, const char *text, struct slice detail);
    struct route_watcher routes;
    void *context;
};

/* What a decision reads beside the request. All of it is borrowed. */
struct decide_view {
    const struct routes *routes;
    const struct management *management; /* NULL: no ports, and workers serve management */
    const struct tokens *tokens;
    bool open;                    /* no token is needed anywhere */
    const struct key *ticket_key; /* of tickets for relays; NULL: none is made, and none is good */
    struct token_cache *cache;
    struct auth_failure_limiter *limiter; /* NULL: nobody counts them */
    int64_t auth_failures_most;           /* a second, of one address; 0: any number */
    int64_t not_before;                   /* the directory's, 0: none */
    const struct revoked *revoked[2];     /* the directory's and the configuration's; NULL: none */
    int64_t now;                          /* Unix seconds */
    /* Whether a worker may be there (worker_networks). */
    bool (*allowed)(const void *networks, const struct address *addr);
    /* Whether it may be at a Unix socket of that path (worker_sockets); NULL: none may. */
    bool (*socket_allowed)(const void *networks, struct slice path);
    const void *networks;
    /* Told who it is that the functions below are called for, before each of them. May be NULL. */
    void (*asks)(void *directory, const struct asker *asker);
    /* space may be absent. */
    enum lookup (*find)(void *directory, struct slice space, struct slice sandbox, struct record *record);
    /* The same for somebody of whom nothing is proven yet, so that nothing tells absent sandboxes from others; NULL:
     * find does. */
    enum lookup (*find_alike)(void *directory, struct slice space, struct slice sandbox,
                              struct record *record);
    /* The address of a worker's name; false: not known (yet). May be NULL. */
    bool (*resolve)(void *directory, struct slice host, struct address *addr);
    /* Asks for a suspended sandbox to be woken; false: nobody here can. May be NULL. */
    bool (*wake)(void *directory, struct slice space, struct slice sandbox);
    const struct egress_config *egress; /* NULL: only records have rules */
    /* All addresses of a host outside, up to EGRESS_ADDRESSES, for a sandbox; *count is more: there are others.
     * LOOKUP_PENDING: it is asked for. NULL: nobody can say. */
    enum lookup (*addresses)(void *directory, struct slice space, struct slice sandbox, struct slice host,
                             struct address *addresses, size_t *count);
    void *directory;
    /* Told of every credential that was checked; kind: which kind's it was, NULL: none recognised it. May be
     * NULL. */
    void (*token_checked)(void *counting, const char *kind, enum refusal refusal);
    void *counting;
    const struct decide_trace *trace; /* NULL costs nothing */
};

/*
 * Fills *verdict, whose texts point into the request, the view, the record, the token cache and scratch.
 * False: the record has been asked for and is not there yet; *verdict is what to answer if it does not come
 * in time.
 */
bool decide(const struct decide_view *view, const struct request *request, struct writer *scratch,
            struct verdict *verdict);
/* Says who asks, to whom the view looks things up for. */
void decide_asks(const struct decide_view *view, const struct asker *asker);
/* Whether the token of this jti was revoked by itself. */
bool decide_revoked(const struct decide_view *view, struct slice jti);

#endif
