/* SPDX-License-Identifier: MIT */
/*
 * server: the SPOP server of one thread on one listening socket (threads share the socket, each with a server
 * of its own). It reads what is there, hands every message of every NOTIFY to the handler and answers all
 * frames of one read with one write. Memory per connection is bounded: an incomplete frame, and `output`
 * bytes of unsent answers (then it stops reading); an idle connection holds none.
 *
 * Everything here runs on the loop's thread, but reading the counters.
 */
#ifndef CELLGATE_SPOP_SERVER_H
#define CELLGATE_SPOP_SERVER_H

#include <stdatomic.h>

#include "spoa/net/listener.h"
#include "spoa/spop/spop.h"

struct server;

/* Names the ACK that a NOTIFY waits for. Copies are cheap, and stay safe after the connection is gone. */
struct server_ticket {
    uint32_t slot, generation; /* of the connection */
    uint64_t stream_id, frame_id;
};

enum server_reply {
    SERVER_NOW, /* what was written to `actions` is the answer */
    SERVER_LATER /* the ticket was copied: server_answer_begin/end give the whole answer, actions are dropped */
};

struct server_handler {
    /* Messages follow that have all arrived before this: what is read from a clock now is not behind any of them. May be
     * NULL. */
    void (*begin)(void *context);
    /* One message of a NOTIFY. name and args point into the frame and are gone when this returns. Messages of
     * one NOTIFY share one answer, and SERVER_LATER ends it: the messages behind it are not looked at. An
     * answer without an action, or too large for a frame, is replaced by the fallback. Required. */
    enum server_reply (*message)(void *context, struct slice name, struct spop_args args,
                                 struct spop_actions *actions, const struct server_ticket *ticket);
    /* Whether the peer of a new connection may stay (net_peer); NULL: everybody may. */
    bool (*admit)(void *context, int fd);
    /* A connection is closed: its tickets, by slot and generation, are void. May be NULL. */
    void (*closed)(void *context, uint32_t slot, uint32_t generation);
    void *context;
};

struct server_options { /* times are microseconds */
    size_t connections; /* at most this many; more wait in the backlog */
    size_t per_process; /* of them of one process on a Unix socket, more are closed; 0: any number */
    uint64_t turn;      /* that a turn of the loop has for reading, its connections in turns; 0: no end */
    /* Bytes of unsent answers at which a connection is no longer read. Answers of tickets may be more: at 16
     * times this, the connection is closed. */
    size_t output;
    uint64_t hello_timeout;       /* from accept to HELLO, and for a health check to go away */
    uint64_t frame_timeout;       /* from a frame's first byte to its last */
    uint64_t write_timeout;       /* without any progress of unsent answers */
    uint64_t idle_timeout;        /* without a frame and an open ticket; 0: HAProxy closes idle ones itself */
    size_t prefix_len;            /* of HAProxy's `option var-prefix` */
    struct listener_share *share; /* borrowed, of all servers on the listening socket; NULL: there is one */
    const char *fallback_name, *fallback_value; /* txn.PREFIX.NAME of an answer that has no other action */
};

#define SERVER_OPTIONS_DEFAULT                                \
    ((struct server_options){.connections = 4096,             \
                             .output = (size_t)256 * 1024,    \
                             .hello_timeout = 5 * SECOND,     \
                             .frame_timeout = 5 * SECOND,     \
                             .write_timeout = 10 * SECOND,    \
                             .prefix_len = sizeof "cell" - 1, \
                             .fallback_name = "error",        \
                             .fallback_value = "agent_unavailable"})

/* X(field, type, help): a COUNTER counts from the start, a GAUGE is what there is now. */
#define SERVER_COUNTERS(X)                                                            \
    X(connections, GAUGE, "open connections")                                         \
    X(waiting, GAUGE, "answers that the handler gives later")                         \
    X(accepted, COUNTER, "connections accepted")                                      \
    X(health_checks, COUNTER, "hellos of health checks")                              \
    X(hellos, COUNTER, "hellos of HAProxy's engines")                                 \
    X(notifies, COUNTER, "NOTIFY frames")                                             \
    X(acks, COUNTER, "ACK frames")                                                    \
    X(fallbacks, COUNTER, "ACK frames whose answer was missing or too large")         \
    X(bytes_in, COUNTER, "bytes read")                                                \
    X(bytes_out, COUNTER, "bytes written")                                            \
    X(reads, COUNTER, "calls of recv")                                                \
    X(writes, COUNTER, "calls of send")                                               \
    X(disconnects, COUNTER, "DISCONNECT frames of peers")                             \
    X(resets, COUNTER, "connections that ended without DISCONNECT")                   \
    X(refused_peers, COUNTER, "connections of peers that may not connect")            \
    X(accept_pauses, COUNTER,                                                         \
      "times that accepting paused: descriptors, memory or the limit of connections") \
    X(errors_hello, COUNTER, "connections closed for a bad HELLO")                    \
    X(errors_frame, COUNTER, "connections closed for an invalid or fragmented frame") \
    X(errors_size, COUNTER, "connections closed for a frame that is too big")         \
    X(errors_timeout, COUNTER, "connections closed by a timeout")                     \
    X(errors_resource, COUNTER, "connections closed for want of memory")

/* Written by the server's thread alone, so any thread may read them with server_counter. */
struct server_counters {
#define X(field, type, help) _Atomic uint64_t field;
    SERVER_COUNTERS(X)
#undef X
};

static inline uint64_t server_counter(const _Atomic uint64_t *counter)
{
    return atomic_load_explicit(counter, memory_order_relaxed);
}

/* listener: a listening descriptor, borrowed. The options'
 * texts are borrowed too. NULL when out of memory. */
struct server *server_new(struct loop *loop, int listener, const struct server_options *options,
                          const struct server_handler *handler);
/* Closes every connection at once, without DISCONNECT; tickets become void. Memory goes back at the end of
 * the loop's turn, or with loop_free. NULL is fine. */
void server_free(struct server *server);
const struct server_counters *server_counters(const struct server *server);

/* The answer of a ticket: begin, spop_set_var..., end, within one callback.
 * False: the connection is gone or the ticket was answered; nothing is to be
 * done. Answers of one turn of the loop leave in one write per connection. */
bool server_answer_begin(struct server *server, const struct server_ticket *ticket,
                         struct spop_actions *actions);
void server_answer_end(struct server *server, const struct server_ticket *ticket,
                       struct spop_actions *actions);

/* Whether the ticket's connection takes in what is answered: that its unsent answers are fewer than `output`, or that it
 * is gone. */
bool server_has_room(const struct server *server, const struct server_ticket *ticket);

/* Stops accepting (the caller closes the listener itself: it is still there for new connections). A
 * connection without open tickets handles what it has received, gets DISCONNECT 0 and is closed once that is
 * written; the others as soon as their tickets are answered, or after `grace` microseconds. `drained` is called
 * once when none is left, at the earliest at the end of this turn. */
void server_drain(struct server *server, uint64_t grace, void (*drained)(void *context), void *context);

#endif
