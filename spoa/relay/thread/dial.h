/* SPDX-License-Identifier: MIT */
/*
 * dial: one attempt to reach a worker: connect, upgrade, judge the answer. A dial exists only during the attempt; the tunnel that
 * began the dial owns it.
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
    struct loop_share *share;      /* share of the thread's time; NULL for the loop's own */
    const struct net_address *tls; /* HAProxy's listener for https workers, or for https destinations */
    uint64_t timeout;              /* time limit for the whole dial, in µs */
    size_t head_max;
    struct upgrade_kept *upgrade; /* borrowed; receives the choices of the worker */
    const struct target *to;      /* borrowed for the call */
    /* a descriptor of dial_connect to the same target, which the dial takes over and sets to -1; NULL or -1 if there is none */
    int *ahead;
    /* folder that the target's Unix socket must be in (net_connect_beneath); borrowed for the call */
    const char *folder;
    /* path of a question about the session, sent in place of the upgrade; absent if there is none */
    struct slice probe;
    struct slice query, fields; /* additions of the adapter; borrowed for the call */
    bool first;                 /* this is the tunnel's first dial, so the body of a refusal is kept, too */
    /* Receives the outcome, once, after dial_new has returned. */
    void (*done)(void *owner, enum dial_outcome outcome);
    void *owner;
};

/* Returns a descriptor that is connecting to the target, as net_connect does; `tls` and `folder` are as in dial_options. Returns -1
 * with errno and *why set if that fails. */
int dial_connect(const struct target *to, const struct net_address *tls, const char *folder,
                 struct fail *why);
/* Begins a dial. Returns NULL if memory is short. */
struct dial *dial_new(const struct dial_options *options);
/* Sends the request at once if the connection is already made, instead of in the loop's next turn. */
void dial_hurry(struct dial *dial);
/* Frees the dial and closes a socket that was not taken. NULL is allowed, and so is a dial that is calling `done`. */
void dial_free(struct dial *dial);

/* Returns the number of bytes of memory in use, 0 for NULL. */
size_t dial_held(const struct dial *dial);

/* ---- after done ---- */
unsigned dial_status(const struct dial *dial);
const struct http_head *dial_head(const struct dial *dial); /* NULL if there was no head */
/* up to 64 KiB of the body, of an answer other than 101 */
struct slice dial_body(const struct dial *dial);
const char *dial_why(const struct dial *dial); /* the reason of a failure, for the log */
/* Returns the socket of a DIAL_OPEN, which the caller then owns. */
int dial_take(struct dial *dial);
/* Returns the bytes that the worker has already sent after its 101. */
struct slice dial_rest(const struct dial *dial);

#endif
