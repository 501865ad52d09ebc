/* SPDX-License-Identifier: MIT */
/* egress_parts: what egress_io.c and egress_handover.c share of a connection. */
#ifndef CELLGATE_RELAY_EGRESS_EGRESS_PARTS_H
#define CELLGATE_RELAY_EGRESS_EGRESS_PARTS_H

#include "spoa/net/stream.h"
#include "spoa/proto/data_watch.h"
#include "spoa/proto/hello_watch.h"
#include "spoa/relay/egress/egress_io.h"

#define EGRESS_BUFFER_MOST ((size_t)64 << 10)  /* largest buffer, in bytes; there are two per direction */

struct egress_io {
    struct relay_thread *thread;
    struct egress_io *next, **link;
    struct stream client, destination;
    bool connected,
        over;  /* the destination is connected; the connection has ended, but may still be closing */
    bool fast; /* the destination sends in bulk: only BUFFER_FAST bytes are read, the rest is spliced */
    /* an inspected connection is no longer allowed: the client is not read, and still gets output until FAREWELL is over */
    bool denied;
    /* connection to HAProxy's listener for TLS, of an inspected connection before the client's first byte; otherwise -1 */
    int inside;
    bool client_ended, destination_ended; /* this side has sent its end; its input may still wait here */
    struct handover handover;
    uint8_t *texts; /* memory of the slices in `handover` */
    struct limits_owner owner;
    struct limits_use use;
    struct loop_share *share;       /* the sandbox's share of the thread's time */
    size_t held;                    /* bytes of memory that the limits know */
    size_t room;                    /* bytes that may be read of each side at once; 0 while memory is short */
    struct loop_timer look;         /* looks for memory while `room` is 0 */
    uint64_t began, sent, received; /* time of the CONNECT in µs; bytes from the client, and to it */
    struct hello_watch hello;
    size_t cleared; /* first bytes of the client's input that may be forwarded */
    size_t heard;   /* first bytes of the destination's input that `hello` has seen */
    struct data_watch
        handshake; /* of an inspected connection with TLS: finds the end of the client's handshake */
    size_t shown;  /* first bytes of the client's input that `handshake` has seen */
    struct question watch;
    struct loop_timer again, expires; /* the next question to the agent; the token's expiry, or FAREWELL */
    unsigned streams;                 /* number of the two streams that are not closed yet */
};

/* Returns a connection that is open nowhere yet, or NULL if memory is short. */
struct egress_io *egress_io_new(struct relay_thread *thread);
/* Frees a connection of egress_io_new that was not opened. */
void egress_io_forget(struct egress_io *io);
/* Reads the handover, and whose the connection is. Returns false with *why if it lacks what an egress connection needs. */
bool egress_io_read(struct egress_io *io, struct slice handover, struct fail *why) MUST_CHECK;
/* Counts the connection. Returns false if there is no room for it. */
bool egress_io_enter(struct egress_io *io) MUST_CHECK;
/* Opens both sides of a connection that has entered. Takes ownership of both descriptors; `destination` is -1 if it cannot be dialled. */
void egress_io_open(struct egress_io *io, int client, int destination);
/* Subscribes to the agent's decisions about the sandbox. */
void egress_io_watch(struct egress_io *io);

#endif
