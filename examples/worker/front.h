/* SPDX-License-Identifier: MIT */
/*
 * front: what cell-worker is: a listener, its connections, the table of what it serves, and its way to stop.
 */
#ifndef CELLGATE_WORKER_FRONT_H
#define CELLGATE_WORKER_FRONT_H

#include "examples/worker/http_conn.h"
#include "spoa/lib/net.h"

struct front_options {
    struct net_address listen;
    const char *keeper; /* path of cell-sandboxd's socket */
    const char *ui;     /* folder of static files; NULL: none */
    const char *name;   /* in answers */
    const char *token;  /* that X-EXECD-ACCESS-TOKEN must hold on /pty; NULL: any */
    double drain;       /* seconds for what is open when it is stopped */
};

/* The options are the caller's and live as long as the front. */
struct front *front_new(struct loop *loop, const struct front_options *options, struct fail *why);
void front_free(struct front *f);
uint16_t front_port(const struct front *f);
/* The first time: WebSockets are closed 1001, other requests are finished, then the loop stops. The second
 * time: now. */
void front_stop(struct front *f);

/* ---- for what is served ---- */
const struct front_options *front_options(const struct front *f);
struct loop *front_loop(struct front *f);
const char *front_name(const struct front *f);
bool front_is_draining(const struct front *f);

/* ---- for connections ---- */
struct exchange *front_route(struct front *f, struct http_conn *h); /* NULL: out of memory */
struct http_conn **front_list(struct front *f);
void front_gone(struct front *f);

#endif
