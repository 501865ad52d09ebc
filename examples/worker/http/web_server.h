/* SPDX-License-Identifier: MIT */
/*
 * web_server: the HTTP server of spoa/net with a table of what it serves, a guard in front of it, and its way to stop.
 */
#ifndef CELLGATE_WORKER_HTTP_WEB_SERVER_H
#define CELLGATE_WORKER_HTTP_WEB_SERVER_H

#include "examples/worker/http/guard.h"
#include "spoa/net/http_server.h"
#include "spoa/net/net.h"

#define WEB_SERVER_PARTS      3
#define WEB_SERVER_OUTPUT_MAX ((size_t)512 * 1024) /* that waits for a client */

/* What is served: a '*' in a path stands for one part of it; an empty method for any. `make` is the maker of an
 * exchange: `parts` are the parts that the path leaves open; NULL when out of memory. */
struct web_server_route {
    const char *method, *path;
    struct http_exchange *(*make)(struct http_conn *h, const struct slice *parts);
};

/* What is to be finished though nobody is connected for it any more. It counts as a connection does. */
struct web_server_work {
    void (*end)(struct web_server_work *w); /* there is no more time: calls web_server_work_done */
    struct web_server_work *next, **link;   /* private */
};

struct web_server_options {
    struct net_address listen;
    const struct web_server_route *routes; /* the last one has no path */
    void *context;                         /* of what is served */
    const char *name;                      /* in answers */
    struct guard guard;                    /* asked before any route */
    uint64_t drain;                        /* microseconds for what is open when it is stopped */
};

/* The options are the caller's and live as long as the server. */
struct web_server *web_server_new(struct loop *loop, const struct web_server_options *options,
                                  struct fail *why);
void web_server_free(struct web_server *web);
/* The first time: WebSockets are closed 1001, other requests are finished, then the loop stops. The second
 * time: now. */
void web_server_stop(struct web_server *web);

/* ---- for a main() ---- */
void web_server_say_listening(
    const struct web_server *web); /* `listening ADDRESS`, with the port that it got */

/* ---- for what is served ---- */
struct web_server *web_server_of(struct http_conn *h); /* whose connection it is */
void *web_server_context(const struct web_server *web);
const struct guard *web_server_guard(const struct web_server *web);
struct loop *web_server_loop(struct web_server *web);
const char *web_server_name(const struct web_server *web);
bool web_server_is_draining(const struct web_server *web);
struct http_exchange *web_server_not_found(struct http_conn *h); /* answers 404 */
void web_server_work_add(struct web_server *web, struct web_server_work *w);
void web_server_work_done(struct web_server *web, struct web_server_work *w);

#endif
