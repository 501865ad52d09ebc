/* SPDX-License-Identifier: MIT */
/*
 * client: one accepted connection, as bytes in and bytes out. A member of what speaks a protocol over it.
 *
 * Nothing is read while the user is paused or has not consumed what came before. Output that the peer does
 * not take waits in memory: the user adds none while client_is_full says so, and is told by `room` when it
 * may. A user that does not ask loses the connection at CLIENT_OUT_MAX.
 */
#ifndef CELLGATE_WORKER_CLIENT_H
#define CELLGATE_WORKER_CLIENT_H

#include "spoa/base/buffer.h"
#include "spoa/net/loop.h"

#define CLIENT_IN_MAX   ((size_t)64 * 1024)
#define CLIENT_OUT_FULL ((size_t)128 * 1024)
#define CLIENT_OUT_MAX  ((size_t)512 * 1024)

struct client {
    /* set by the user */
    size_t (*input)(void *user, struct slice bytes); /* says how many it consumed; 0: waits for more */
    void (*room)(void *user);
    void (*gone)(void *user); /* once, at the end of a turn: the user frees itself */
    void *user;

    /* private */
    struct loop *loop;
    struct loop_io io;
    struct buffer in, out;
    struct loop_timer bound;
    struct loop_task end;
    bool paused, finishing, closed;
    bool ended; /* finishing: the peer has ended its side, and still gets what waits */
    bool delivering, again;
};

/* Takes fd over; the user's members are set. */
void client_open(struct client *c, struct loop *loop, int fd);
void client_send(struct client *c, struct slice bytes);
bool client_is_full(const struct client *c);
void client_pause(struct client *c, bool paused);
/* Input that was not consumed is given again. */
void client_look_again(struct client *c);
/* Sends what waits, then ends the connection so that the peer gets all of it; what still comes in is dropped.
 */
void client_finish(struct client *c);
/* Ends it now. */
void client_abort(struct client *c);
bool client_is_open(const struct client *c); /* neither finishing nor closed */
/* A paused connection would not be seen to break: to be called now and then. */
void client_check(struct client *c);

#endif
