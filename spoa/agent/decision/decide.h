/* SPDX-License-Identifier: MIT */
/*
 * decide: decides about one request. It reads no clock, does no I/O and waits for nothing: the caller provides the time and the
 * look-ups. It changes only the token cache, the limiter and the counters of the view. Checking a token that is not in the cache
 * allocates memory, in OpenSSL and for the cache.
 *
 * The order of the checks is part of the contract: the request itself (400, 405, 426, 404 no_route), then the caller (401, 403), and
 * only then the existence of the sandbox. A client without a valid token learns nothing about any sandbox; with a valid one, another
 * organisation's sandbox gives the same 404 as a missing one.
 *
 * A refused upgrade on a route with `refuse: close` is a VERDICT_RELAY with `refusal`, status and error set: the relay accepts the
 * upgrade and closes with the code.
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

/* Memory that all computed texts of one decision need at most: path, query, protocols, Location with a cookie of a token. */
#define DECIDE_SCRATCH ((size_t)64 * 1024)

/* Receives every step of a decision, for `cellgate explain`. It never gets a credential. */
struct decide_trace {
    /* `step` is "request", "upgrade", "route", "token", ...; `text` is static; `detail` is the value concerned and may be absent. */
    void (*step)(void *context, const char *step, const char *text, struct slice detail);
    struct route_watcher routes;
    void *context;
};

/* The inputs of a decision other than the request. The view owns none of them. */
struct decide_view {
    const struct routes *routes;
    const struct management
        *management; /* NULL if there are no management ports and workers serve management */
    const struct tokens *tokens;
    bool open;                    /* no route needs a token */
    const struct key *ticket_key; /* key of the relays' tickets; NULL if no ticket can be made or is valid */
    struct token_cache *cache;
    struct auth_failure_limiter *limiter; /* NULL if failures are not counted */
    int64_t auth_failures_most;           /* failures per second of one address; 0 if there is no limit */
    int64_t not_before;                   /* the directory's, Unix seconds; 0 if there is none */
    const struct revoked
        *revoked[2]; /* the directory's list and the configuration's; NULL if there is none */
    int64_t now;     /* Unix seconds */
    /* Returns whether a worker may have this address (worker_networks). */
    bool (*allowed)(const void *networks, const struct address *addr);
    /* Returns whether a worker may have this Unix socket (worker_sockets). NULL if none may. */
    bool (*socket_allowed)(const void *networks, struct slice path);
    const void *networks;
    /* Called before each of the functions below, with the party they are charged to. May be NULL. */
    void (*asks)(void *directory, const struct asker *asker);
    /* Looks up a record; `space` may be absent. */
    enum lookup (*find)(void *directory, struct slice space, struct slice sandbox, struct record *record);
    /* Like `find`, for a caller who has proved nothing yet: the answer must take the same time for absent sandboxes as for others. NULL
     * to use `find`. */
    enum lookup (*find_alike)(void *directory, struct slice space, struct slice sandbox,
                              struct record *record);
    /* Finds the address of a worker's name; returns false if it is not known (yet). May be NULL. */
    bool (*resolve)(void *directory, struct slice host, struct address *addr);
    /* Starts to wake a suspended sandbox; returns false if no component here can. May be NULL. */
    bool (*wake)(void *directory, struct slice space, struct slice sandbox);
    const struct egress_config *egress; /* NULL if only records have rules */
    /* Finds all addresses of a host outside for a sandbox, at most EGRESS_ADDRESSES. A larger *count means that there are more.
     * LOOKUP_PENDING if the look-up has been started. NULL if there is no resolver. */
    enum lookup (*addresses)(void *directory, struct slice space, struct slice sandbox, struct slice host,
                             struct address *addresses, size_t *count);
    void *directory;
    /* Receives the result of every check of a credential; `kind` is NULL if no kind recognised it. May be NULL. */
    void (*token_checked)(void *counting, const char *kind, enum refusal refusal);
    void *counting;
    const struct decide_trace *trace; /* NULL if nobody traces, which costs nothing */
};

/*
 * Decides and fills *verdict, whose texts point into the request, the view, the record, the token cache and scratch. Returns false if
 * the record's look-up was started and has no answer yet; *verdict is then the answer for the case that it does not come in time.
 */
bool decide(const struct decide_view *view, const struct request *request, struct writer *scratch,
            struct verdict *verdict);
/* Tells the view which party the next look-ups are charged to. */
void decide_asks(const struct decide_view *view, const struct asker *asker);
/* Returns whether a list of revoked tokens has this jti. */
bool decide_revoked(const struct decide_view *view, struct slice jti);

#endif
