/* SPDX-License-Identifier: MIT */
/*
 * server_parts: the inside of a server and of its connections, each from accept to the last byte. Private to server.c
 * and server_connection.c; everybody else uses server.h.
 *
 *     OPEN     frames are read and answered; reading stops while too many answers are unsent
 *     ENDING   a DISCONNECT is the last thing in `out`, or the peer sends no more: what is unsent is written
 *     LINGER   all is written and shut down; what the peer still sends is thrown away until it closes too,
 *              because closing a socket with unread bytes would destroy a DISCONNECT that it has not read yet
 *     CLOSED   nothing happens any more; freed at the end of the turn
 */
#ifndef CELLGATE_SPOP_SERVER_PARTS_H
#define CELLGATE_SPOP_SERVER_PARTS_H

#include "spoa/net/listener.h"
#include "spoa/net/stream.h"
#include "spoa/spop/conversation.h"
#include "spoa/spop/server.h"

/* Read at once; with 20 frames of 3 KiB in flight, HAProxy fills it. */
#define SERVER_READ  (64u * 1024)
#define SERVER_FRAME (SPOP_LENGTH_BYTES + SPOP_FRAME_MAX)
/* Answers collected for one write: there is always room for one more frame. */
#define SERVER_WRITE (SERVER_READ + SERVER_FRAME)

struct slot {
    struct connection *connection; /* NULL: free */
    uint32_t generation;           /* of the connection that is or was here */
    uint32_t next_free;
};

struct server {
    struct loop *loop;
    struct server_options options;
    struct server_handler handler;
    struct server_counters counters;

    struct listener listener; /* of a duplicate: closing it leaves the caller's open */
    struct slot *slots;
    uint32_t free_slot;

    uint8_t *output; /* for the time of one read: the answers */

    struct connection *answering; /* between server_answer_begin and _end */
    struct writer answer;
    size_t answer_at;

    bool draining;
    struct loop_timer grace;
    struct loop_task drained_task, free_task;
    struct loop_task ready_task;           /* with options.turn: */
    struct connection *ready, **ready_end; /* those of which something that was read is left */
    uint64_t turn_end;
    void (*drained)(void *context);
    void *drained_context;
};

static inline void server_add(_Atomic uint64_t *counter, uint64_t n)
{
    atomic_store_explicit(counter, server_counter(counter) + n, memory_order_relaxed);
}

/* ---- server.c, for the connection ---- */
/* The connection is closed: its slot is free again. */
void server_forget(struct server *server, uint32_t slot);

/* ---- server_connection.c, for the server ---- */
enum deadline { DEADLINE_HELLO, DEADLINE_FRAME, DEADLINE_WRITE, DEADLINE_IDLE, DEADLINES };

struct connection {
    enum { CONNECTION_OPEN, CONNECTION_ENDING, CONNECTION_LINGER, CONNECTION_CLOSED } state;
    struct server *server;
    uint32_t slot;
    bool health_check;
    struct spop_conversation conversation;
    /* in: an incomplete frame; while reading is stopped, or others have their turn, all frames of the last read.
     * out: what the kernel did not take, and answers of tickets until the turn's end. */
    struct stream stream;
    size_t held;    /* bytes of `in` that are counted as read */
    size_t unsent;  /* bytes of `out` that are not counted as sent */
    size_t waiting; /* open tickets */
    pid_t peer;     /* 0: unknown */
    bool ready;     /* in the server's list: */
    bool catching_up;
    struct connection *ready_next, **ready_link;
    struct loop_task turn_end; /* sends `out` */
    uint64_t due[DEADLINES];   /* loop_clock of each that runs, 0: none */
    uint64_t timer_due;        /* when the timer fires, UINT64_MAX: not */
};

/* Takes over fd, also when it returns NULL for want of memory. */
struct connection *connection_new(struct server *server, uint32_t slot, int fd);
/* At once, without a word. */
void connection_close(struct connection *connection);
/* Builds an ACK from its begin to its end; falls back when there is no answer or none that fits. */
size_t connection_ack_begin(struct connection *connection, struct writer *out, const struct spop_frame *frame,
                            struct spop_actions *actions);
void connection_ack_end(struct connection *connection, size_t begin, const struct spop_frame *frame,
                        struct spop_actions *actions);
/* Sends what is in `out` at the end of the turn. */
void connection_send_later(struct connection *connection);
/* Handles what those that are ready have read, as long as the turn has time for it; the others go on in the next one. */
void connections_turn(void *server);
/* When no ticket is open, or `now`: handles what has been received, says DISCONNECT 0 and ends. */
void connection_drain(struct connection *connection, bool now);

#endif
