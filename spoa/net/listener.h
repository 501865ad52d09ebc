/* SPDX-License-Identifier: MIT */
/*
 * listener: accepts connections on a socket of net_listen, Unix or TCP. A member of the object that serves the connections. For the
 * loop's own thread.
 *
 * If the kernel has no descriptor or memory for another connection, the socket stays readable, so the listener rests for a tenth of a
 * second instead of spinning. A failed accept costs as much as a connection: a turn of the loop tries once, and more often only if the
 * turn before found connections. The owner holds the listener while it has no room for another connection.
 *
 * Threads can share a socket, each with a listener of its own, and take connections in turns. A listener that has more than its part
 * leaves the next connection to the others, and takes it only if they do not come in time. Once there are many connections, an eighth
 * more than its part is allowed.
 */
#ifndef CELLGATE_NET_LISTENER_H
#define CELLGATE_NET_LISTENER_H

#include "spoa/net/loop.h"

#define LISTENER_REST (100 * MILLISECOND)
/* time for the others to accept; three times, because they may yield as well */
#define LISTENER_YIELD (2 * MILLISECOND)

/* The counts of all listeners on one socket. Zeroed before the first listener opens; must live until the last connection is gone. */
struct listener_share {
    _Atomic size_t listeners, connections;
};

struct listener {
    /* set by the owner before listener_open */
    void (*accepted)(void *owner, int fd); /* takes ownership of fd; may hold, rest or close the listener */
    void (*rested)(void *owner);           /* called when the listener begins to rest; may be NULL */
    void *owner;
    /* largest number of connections in one turn: other work and other threads must get theirs */
    unsigned batch;
    /* siblings on the same socket, or NULL; with siblings, call listener_gone */
    struct listener_share *share;

    /* private */
    size_t own;      /* open connections that this listener accepted; counted with a share only */
    unsigned yields; /* times that the next connection was left to the others */
    struct loop_io io;
    struct loop_timer rest;
    bool held;
    unsigned tries; /* accepts allowed in this turn */
    uint64_t turn;  /* the turn for which `tries` was computed */
};

/* Opens a listener on a descriptor, which it owns until listener_release. A zeroed listener is closed. */
void listener_open(struct listener *l, struct loop *loop, int fd);
/* Stops or continues accepting. */
void listener_hold(struct listener *l, bool held);
/* Call once for each accepted connection when it is closed, or will soon be. Does nothing without a share. */
void listener_gone(struct listener *l);
/* Stops accepting for LISTENER_REST: for an owner that itself ran out of descriptors. */
void listener_rest(struct listener *l);
bool listener_is_open(const struct listener *l);
/* Returns the descriptor, or -1 if the listener is closed. */
int listener_fd(const struct listener *l);
/* Closes the listener and returns the descriptor, which is the caller's again, or -1 if the listener was closed. */
int listener_release(struct listener *l);
/* Closes the listener and the descriptor. */
void listener_close(struct listener *l);

#endif
