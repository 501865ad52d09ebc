/* SPDX-License-Identifier: MIT */
/*
 * dial: one attempt to reach a worker: connect, upgrade, judge the answer. It exists only while it is under
 * way; the tunnel that asked for it owns it.
 */
#ifndef CELLGATE_RELAY_THREAD_DIAL_H
#define CELLGATE_RELAY_THREAD_DIAL_H

#include "spoa/net/loop.h"
#include "spoa/net/net.h"
#include "spoa/relay/tunnel/tunnel.h"
#include "spoa/relay/tunnel/upgrade.h"

struct dial;

struct dial_options {
    struct loop *loop;
    struct loop_share *share;      /* NULL: the loop's own */
    const struct net_address *tls; /* HAProxy's listener for https workers, or for https destinations */
    uint64_t timeout;              /* microseconds, all in all */
    size_t head_max;
    struct upgrade_kept *upgrade; /* borrowed; what the worker selects is kept there */
    const struct target *to;      /* borrowed for the call */
    int *
        ahead; /* a descriptor of dial_connect to the same, which is taken over and -1 then; NULL, or -1: none */
    const char *folder; /* of its Unix socket, which net_connect_beneath keeps to; borrowed for the call */
    struct slice probe; /* a question about the session, to this path, instead of the upgrade; or absent */
    struct slice query, fields; /* of the adapter; borrowed for the call */
    bool first;                 /* of its tunnel: a refusal's body is wanted, too */
    /* Once, not before dial_new has returned. */
    void (*done)(void *owner, enum dial_outcome outcome);
    void *owner;
};

/* A descriptor as of net_connect to the target; `tls` and `folder` as above. -1: errno and *why say why. */
int dial_connect(const struct target *to, const struct net_address *tls, const char *folder,
                 struct fail *why);
/* NULL when out of memory. */
struct dial *dial_new(const struct dial_options *options);
/* Sends the request now where the connection is made by now, and not with the loop's next turn. */
void dial_hurry(struct dial *dial);
/* Closes what was not taken. NULL is fine; so is a dial that is just calling `done`. */
void dial_free(struct dial *dial);

/* Bytes of memory that it holds; of NULL none. */
size_t dial_held(const struct dial *dial);

/* ---- after done ---- */
unsigned dial_status(const struct dial *dial);
const struct http_head *dial_head(const struct dial *dial); /* NULL: there was none */
struct slice dial_body(const struct dial *dial);            /* of other answers, up to 64 KiB of it */
const char *dial_why(const struct dial *dial);              /* for the log */
/* The socket of a DIAL_OPEN, now the caller's. */
int dial_take(struct dial *dial);
/* What the worker has already sent behind its 101. */
struct slice dial_rest(const struct dial *dial);

#endif
