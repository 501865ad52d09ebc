/* SPDX-License-Identifier: MIT */
/*
 * front: an HTTP server: a listener, its connections, the table of what it serves, and its way to stop.
 */
#ifndef CELLGATE_WORKER_FRONT_H
#define CELLGATE_WORKER_FRONT_H

#include "examples/worker/guard.h"
#include "spoa/net/http_server.h"
#include "spoa/net/net.h"

#define FRONT_PARTS      3
#define FRONT_OUTPUT_MAX ((size_t)512 * 1024) /* that waits for a client */

/* What is served: a '*' in a path stands for one part of it; an empty method for any. `make` is the maker of an
 * exchange: `parts` are the parts that the path leaves open; NULL when out of memory. */
struct front_route {
    const char *method, *path;
    struct http_exchange *(*make)(struct http_conn *h, const struct slice *parts);
};

/* What is to be finished though nobody is connected for it any more. It counts as a connection does. */
struct front_work {
    void (*end)(struct front_work *w); /* there is no more time: calls front_work_done */
    struct front_work *next, **link;   /* private */
};

struct front_options {
    struct net_address listen;
    const struct front_route *routes; /* the last one has no path */
    void *context;                    /* of what is served */
    const char *name;                 /* in answers */
    struct guard guard;               /* asked before any route */
    double drain;                     /* seconds for what is open when it is stopped */
};

/* The options are the caller's and live as long as the front. */
struct front *front_new(struct loop *loop, const struct front_options *options, struct fail *why);
void front_free(struct front *f);
/* The first time: WebSockets are closed 1001, other requests are finished, then the loop stops. The second
 * time: now. */
void front_stop(struct front *f);

/* ---- for a main() ---- */
void front_say_listening(const struct front *f); /* `listening ADDRESS`, with the port that it got */

/* ---- for what is served ---- */
struct front *http_front(struct http_conn *h); /* whose connection it is */
void *front_context(const struct front *f);
const struct guard *front_guard(const struct front *f);
struct loop *front_loop(struct front *f);
const char *front_name(const struct front *f);
bool front_is_draining(const struct front *f);
struct http_exchange *front_not_found(struct http_conn *h); /* answers 404 */
void front_work_add(struct front *f, struct front_work *w);
void front_work_done(struct front *f, struct front_work *w);

#endif
