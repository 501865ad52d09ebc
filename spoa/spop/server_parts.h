/* SPDX-License-Identifier: MIT */
/*
 * server_parts: the insides of a server and of its connections. Private to server.c and server_connection.c; other code uses server.h.
 *
 * The states of a connection:
 *     OPEN     frames are read and answered; reading stops while too many answers are unsent
 *     ENDING   a DISCONNECT is the last frame in `out`, or the peer has closed its sending side: unsent bytes are written
 *     LINGER   everything is written and the sending side is shut down; further bytes of the peer are dropped until the peer closes.
 *              Closing a socket with unread bytes would reset the connection, and the peer could lose a DISCONNECT
 *     CLOSED   freed at the end of the loop's turn
 */
#ifndef CELLGATE_SPOP_SERVER_PARTS_H
#define CELLGATE_SPOP_SERVER_PARTS_H

#include "spoa/net/listener.h"
#include "spoa/net/stream.h"
#include "spoa/spop/conversation.h"
#include "spoa/spop/server.h"

/* Bytes of one read. HAProxy fills them with 20 frames of 3 KiB in flight. */
#define SERVER_READ  (64u * 1024)
#define SERVER_FRAME (SPOP_LENGTH_BYTES + SPOP_FRAME_MAX)
/* Bytes of answers that are collected for one write: always enough for one more frame. */
#define SERVER_WRITE (SERVER_READ + SERVER_FRAME)

struct slot {
    struct connection *connection; /* NULL if the slot is free */
    /* counts the slot's connections, so that an old ticket does not match a new one */
    uint32_t generation;
    uint32_t next_free; /* index of the next free slot; the last one has options.connections */
};

struct server {
    struct loop *loop;
    struct server_options options;
    struct server_handler handler;
    struct server_counters counters;

    /* accepts on a duplicate of the caller's descriptor, which therefore stays open */
    struct listener listener;
    struct slot *slots; /* options.connections of them */
    uint32_t free_slot; /* index of the first free slot */

    uint8_t *output; /* SERVER_WRITE bytes, for the answers of one read */

    /* an answer between server_answer_begin and server_answer_end */
    struct connection *answering;
    struct writer answer;
    size_t answer_at; /* position of its frame */

    bool draining;
    struct loop_timer grace;
    struct loop_task drained_task, free_task;
    /* used if options.turn is set: the connections that hold frames which were read and not handled */
    struct loop_task ready_task;
    struct connection *ready, **ready_end;
    uint64_t turn_end; /* time at which the current turn ends */
    void (*drained)(void *context);
    void *drained_context;
};

static inline void server_add(_Atomic uint64_t *counter, uint64_t n)
{
    atomic_store_explicit(counter, server_counter(counter) + n, memory_order_relaxed);
}

/* ---- server.c, for connections ---- */
/* Frees the slot of a connection that has been closed. */
void server_forget(struct server *server, uint32_t slot);

/* ---- server_connection.c, for the server ---- */
enum deadline { DEADLINE_HELLO, DEADLINE_FRAME, DEADLINE_WRITE, DEADLINE_IDLE, DEADLINES };

struct connection {
    enum { CONNECTION_OPEN, CONNECTION_ENDING, CONNECTION_LINGER, CONNECTION_CLOSED } state;
    struct server *server;
    uint32_t slot;
    bool health_check;
    struct spop_conversation conversation;
    /* stream.in holds an incomplete frame; while reading is stopped, or other connections have their turn, all frames of the last
     * read. stream.out holds bytes that the kernel did not take, and answers to tickets until the end of the turn. */
    struct stream stream;
    size_t held;                     /* bytes of `in` that are counted as read */
    size_t unsent;                   /* bytes of `out` that are not counted as sent */
    size_t waiting;                  /* open tickets */
    pid_t peer;                      /* process of the peer; 0 if it is not known */
    bool ready;                      /* in the server's list of ready connections */
    bool catching_up;                /* within catch_up: frames are handled at once, without a turn */
    struct connection *next, **link; /* in that list */
    struct loop_task turn_end;       /* sends `out` at the end of a turn */
    uint64_t due[DEADLINES];         /* time of each deadline; 0 if it is not set */
    uint64_t timer_due;              /* time at which the timer fires; UINT64_MAX if it is not set */
};

/* Takes ownership of fd. Returns NULL if memory is short; fd is then closed. */
struct connection *connection_new(struct server *server, uint32_t slot, int fd) MUST_CHECK;
/* Closes at once, without a DISCONNECT. */
void connection_close(struct connection *connection);
/* Begin and end an ACK. The end replaces an answer without an action, or one that does not fit, by the fallback. */
size_t connection_ack_begin(struct connection *connection, struct writer *out, const struct spop_frame *frame,
                            struct spop_actions *actions);
void connection_ack_end(struct connection *connection, size_t begin, const struct spop_frame *frame,
                        struct spop_actions *actions);
/* Sends `out` at the end of the turn. */
void connection_send_later(struct connection *connection);
/* Handles the frames of ready connections until the turn's time is used up; the rest waits for the next turn. */
void connections_turn(void *server);
/* Ends a connection gracefully if no ticket is open or `now` is true: handles the frames received, then sends DISCONNECT 0. */
void connection_drain(struct connection *connection, bool now);

#endif
