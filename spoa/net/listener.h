/* SPDX-License-Identifier: MIT */
/*
 * listener: accepts connections on a socket of net_listen, Unix or TCP. A member of the object that serves them.
 *
 * It rests for a tenth of a second when the kernel has no descriptor or memory for another connection, because the
 * socket stays readable then. A try in vain costs as much as a connection, so a turn makes one, and more only when there
 * were connections in the turn before, too. The owner holds it while it has no place for another one. For the loop's own thread.
 *
 * Threads that share a socket, each with a listener of its own, take connections in turns: who has more than its part
 * leaves the next one to the others, and takes it only if they do not come in time. Of many it may have an eighth more.
 */
#ifndef CELLGATE_NET_LISTENER_H
#define CELLGATE_NET_LISTENER_H

#include "spoa/net/loop.h"

#define LISTENER_REST  (100 * MILLISECOND)
#define LISTENER_YIELD (2 * MILLISECOND) /* for the others, three times: they may yield themselves */

/* Of listeners on one socket; zeroed before the first is opened, and there until the last connection is gone. */
struct listener_share {
    _Atomic size_t listeners, connections;
};

struct listener {
    /* set by the owner before listener_open */
    void (*accepted)(void *owner, int fd); /* takes fd over; may hold, rest or close the listener */
    void (*rested)(void *owner);           /* it begins to rest; may be NULL */
    void *owner;
    /* connections at most in one turn: others have a turn, and other threads share the socket */
    unsigned batch;
    struct listener_share *share; /* NULL: it has the socket alone. Else listener_gone is called */

    /* private */
    size_t own; /* connections, with a share */
    unsigned yields;
    struct loop_io io;
    struct loop_timer rest;
    bool held;
    unsigned tries; /* in this turn */
    uint64_t turn;  /* when that was said */
};

/* The descriptor is the listener's until it is released. Zeroed is closed. */
void listener_open(struct listener *l, struct loop *loop, int fd);
/* Accepts nothing while it is held. */
void listener_hold(struct listener *l, bool held);
/* With a share, once for each that was accepted: it is closed, or soon will be. */
void listener_gone(struct listener *l);
/* Accepts nothing for LISTENER_REST: for an owner that ran out of descriptors itself. */
void listener_rest(struct listener *l);
bool listener_is_open(const struct listener *l);
int listener_fd(const struct listener *l); /* -1: closed */
/* The descriptor for the caller, or -1. Closed is fine. */
int listener_release(struct listener *l);
/* As listener_release, and closes the descriptor. */
void listener_close(struct listener *l);

#endif
