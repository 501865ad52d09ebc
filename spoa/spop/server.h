/* SPDX-License-Identifier: MIT */
/*
 * server: an SPOP server for one thread on one listening socket; several threads share the socket, each with a server of its own. The
 * server passes every message of every NOTIFY to the handler, and answers all frames of one read with one write. The memory of a
 * connection is bounded: an incomplete frame, and `output` bytes of unsent answers, from which on the connection is not read. An idle
 * connection holds no buffers.
 *
 * All functions run on the loop's thread, except server_counter.
 */
#ifndef CELLGATE_SPOP_SERVER_H
#define CELLGATE_SPOP_SERVER_H

#include <stdatomic.h>

#include "spoa/net/listener.h"
#include "spoa/spop/spop.h"

struct server;

/* Names the ACK that a NOTIFY waits for. A ticket may be copied, and stays safe to use after its connection is closed. */
struct server_ticket {
    uint32_t slot, generation;    /* name the connection: slots are reused, with another generation */
    uint64_t stream_id, frame_id; /* the ids of the NOTIFY and its ACK */
};

enum server_reply {
    SERVER_NOW, /* `actions` are the answer */
    /* the handler has copied the ticket and answers with server_answer_begin/end; `actions` are dropped */
    SERVER_LATER
};

struct server_handler {
    /* Called before the messages of one read. All of them have already arrived, so a time that the handler takes now is not before
     * any of them. NULL if the handler does not need this. */
    void (*begin)(void *context);
    /* Called with each message of a NOTIFY. `name` and `args` point into the frame and are valid until the call-back returns. The
     * messages of one NOTIFY share one answer; after SERVER_LATER, its remaining messages are skipped. The fallback replaces an
     * answer that has no action or does not fit into a frame. Required. */
    enum server_reply (*message)(void *context, struct slice name, struct spop_args args,
                                 struct spop_actions *actions, const struct server_ticket *ticket);
    /* Called with each new connection. Returns false to close it, for a peer that may not connect (net_peer). NULL if every peer may
     * connect. */
    bool (*admit)(void *context, int fd);
    /* Called when a connection has been closed: its tickets, which have this slot and generation, are void. May be NULL. */
    void (*closed)(void *context, uint32_t slot, uint32_t generation);
    void *context;
};

/* Times are in microseconds. */
struct server_options {
    size_t connections; /* largest number of open connections; further ones wait in the backlog */
    /* largest number of these from one process on a Unix socket; further ones are closed; 0 means any number */
    size_t per_process;
    /* time for reading in one turn of the loop, in which connections take turns; 0 means no bound */
    uint64_t turn;
    /* Bytes of unsent answers from which on a connection is not read. Answers to tickets can exceed it; at 16 times this number the
     * connection is closed. */
    size_t output;
    uint64_t hello_timeout; /* longest time from accept to HELLO, and until a health check closes */
    uint64_t frame_timeout; /* longest time from a frame's first byte to its last */
    uint64_t write_timeout; /* longest time in which the peer takes no byte of unsent answers */
    /* longest time without a frame or an open ticket; 0 means no bound: HAProxy closes idle connections */
    uint64_t idle_timeout;
    size_t prefix_len; /* length of HAProxy's `option var-prefix` */
    /* borrowed; shared by all servers on the socket, or NULL if there is only one */
    struct listener_share *share;
    const char *fallback_name, *fallback_value; /* set as txn.PREFIX.NAME if an answer has no other action */
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

/* X(field, type, help). A COUNTER counts from the start; a GAUGE is the present number. */
#define SERVER_COUNTERS(X)                                                            \
    X(connections, GAUGE, "open connections")                                         \
    X(waiting, GAUGE, "answers that the handler owes")                                \
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
    X(errors_resource, COUNTER, "connections closed because memory was short")

/* Only the server's thread writes them; any thread may read them, with server_counter. */
struct server_counters {
#define X(field, type, help) _Atomic uint64_t field;
    SERVER_COUNTERS(X)
#undef X
};

static inline uint64_t server_counter(const _Atomic uint64_t *counter)
{
    return atomic_load_explicit(counter, memory_order_relaxed);
}

/* Starts a server on a listening descriptor. The descriptor and the texts of the options are borrowed. Returns NULL if memory or
 * descriptors are short, or if the options are invalid: the fallback must fit into the smallest frame. */
struct server *server_new(struct loop *loop, int listener, const struct server_options *options,
                          const struct server_handler *handler) MUST_CHECK;
/* Closes every connection at once, without DISCONNECT; all tickets become void. The memory is freed at the end of the loop's turn, or
 * by loop_free. NULL is fine. */
void server_free(struct server *server);
const struct server_counters *server_counters(const struct server *server);

/* Answers a ticket: server_answer_begin, spop_set_var..., server_answer_end, within one call-back. server_answer_begin returns false,
 * and nothing more may be done, if the connection is closed or the ticket was answered before. All answers of one turn of the loop
 * leave in one write per connection. */
bool server_answer_begin(struct server *server, const struct server_ticket *ticket,
                         struct spop_actions *actions) MUST_CHECK;
void server_answer_end(struct server *server, const struct server_ticket *ticket,
                       struct spop_actions *actions);

/* Returns true if the ticket's connection has fewer than `output` bytes of unsent answers, or is closed. A handler that produces
 * answers on its own waits while this is false. */
bool server_has_room(const struct server *server, const struct server_ticket *ticket);

/* Closes the server gracefully. The server stops accepting; the caller closes the listening socket itself. A connection without
 * open tickets handles the frames that it has received, sends DISCONNECT 0 and closes when that is written; a connection with open
 * tickets does the same once they are answered, or after `grace` microseconds. `drained` is called once, when no connection is left,
 * at the end of this turn at the earliest. */
void server_drain(struct server *server, uint64_t grace, void (*drained)(void *context), void *context);

#endif
