/* SPDX-License-Identifier: MIT */
/*
 * http_server: HTTP/1.1 on a listener. Each connection is a sequence of requests, each served by an exchange. Requests are
 * read one after another; the next is not looked at before the answer to the last is complete.
 *
 * Nothing is read while the connection is paused or its exchange has not consumed what came before. Output that the peer
 * does not take waits in memory: an exchange adds none while http_is_full says so, and `room` is called when it may. One
 * that does not ask loses the connection at output_max. Times are microseconds. For the loop's own thread.
 */
#ifndef CELLGATE_NET_HTTP_SERVER_H
#define CELLGATE_NET_HTTP_SERVER_H

#include "spoa/base/bytes/writer.h"
#include "spoa/net/listener.h"
#include "spoa/net/stream.h"
#include "spoa/proto/http.h"

struct http_conn;
struct http_exchange;
struct http_server;

struct http_server_options { /* borrowed while the server is there */
    const char *name;        /* in answers of http_begin */
    size_t head_max, output_max;
    unsigned connections; /* more wait in the backlog */
    bool crowd_out;       /* instead each one more ends the oldest, whoever holds that and whatever it does */
    uint64_t head_time;   /* from a head's first byte to its last; 0: idle_time is for both */
    uint64_t idle_time;   /* between two requests, or two pieces of a body */
    struct stream_linger linger;
    /* What serves the request; NULL: out of memory. */
    struct http_exchange *(*route)(struct http_server *server, struct http_conn *conn);
    /* Writes the answer to what is no request: 400, 431, or 408 when it is late; or nothing. */
    void (*refuse)(struct http_server *server, unsigned status, struct buffer *answer);
    void (*gone)(struct http_server *server); /* a connection is; may be NULL */
};

struct http_server { /* a member of its owner */
    const struct http_server_options *options;
    struct loop *loop;
    struct listener listener;
    struct http_conn *conns; /* private */
    unsigned count;          /* of connections, and of what else has taken a place */
    bool draining;           /* each request is its connection's last */
};

/* Takes the listener over. */
void http_server_open(struct http_server *server, struct loop *loop, int listener,
                      const struct http_server_options *options);
/* Idle connections end, `leave` is called for exchanges, every other request is its connection's last. */
void http_server_drain(struct http_server *server);
/* Ends connections that broke while they were paused: to be called now and then. */
void http_server_check(struct http_server *server);
/* Closes all connections, which go at the end of the turn: the server lives until then. The listener is the caller's. */
int http_server_close(struct http_server *server);
/* Takes a place of a connection for something else, and gives it back, for which `gone` is called, too. */
void http_server_enter(struct http_server *server);
void http_server_leave(struct http_server *server);

/* What serves one request: the first member of a structure from malloc. Callbacks may be NULL. */
struct http_exchange {
    void (*begin)(
        struct http_exchange *x); /* the head is there; may answer at once and finish the connection */
    void (*body)(struct http_exchange *x, struct slice piece);
    void (*end)(struct http_exchange *x);                       /* the request is complete */
    void (*room)(struct http_exchange *x);                      /* the client takes output again */
    size_t (*raw)(struct http_exchange *x, struct slice bytes); /* after http_upgraded: how many it took */
    void (*leave)(struct http_exchange *x); /* the server drains: end what is open-ended */
    /* What the exchange holds, but not itself, is to be given back: its answer is complete, or its client has
     * left. */
    void (*close)(struct http_exchange *x);

    struct loop_task bury; /* it may be in the hands of its own callbacks: freed at the end of the turn */
    struct http_conn *conn;
    const struct http_head *head; /* valid as long as the exchange */
    struct slice path, query;     /* of the target; the query without '?', or absent */
};

/* size: of the structure; it is zeroed but for the exchange in it. NULL when out of memory. */
void *http_exchange_new(size_t size, struct http_conn *conn);

/* ---- connections ---- */
struct http_server *http_conn_server(struct http_conn *conn);
/* For its end (stream_close), its loop, or an answer of one's own. */
struct stream *http_stream(struct http_conn *conn);
/* Bytes of one's own, behind what was sent. A connection that has no room for them is closed. */
void http_send(struct http_conn *conn, struct slice bytes);
/* Sends what waits, then ends the connection so that the peer gets all of it; what still comes in is dropped. */
void http_finish(struct http_conn *conn);
/* No input while paused; then what was not consumed is given again. */
void http_pause(struct http_conn *conn, bool paused);
bool http_is_paused(const struct http_conn *conn);

/* ---- answers ---- */
#define HTTP_UNKNOWN_LENGTH UINT64_MAX /* the body is sent in chunks */

/* A whole answer; `fields` is lines that end with CRLF, or NULL. */
void http_answer(struct http_exchange *x, unsigned status, const char *type, const char *fields,
                 struct slice body);
/* {"error":"..."}; text needs no escapes. After a refusal the connection is closed. */
void http_refuse(struct http_exchange *x, unsigned status, const char *text);
/* An answer in pieces: begin, any number of pieces, end. */
void http_begin(struct http_exchange *x, unsigned status, const char *type, const char *fields,
                uint64_t length);
void http_piece(struct http_exchange *x, struct slice bytes);
void http_end(struct http_exchange *x);
bool http_is_full(const struct http_exchange *x);
/* The exchange has sent its own head and has the connection from now on: input goes to `raw`. */
void http_upgraded(struct http_exchange *x);

/* The value of a query parameter, still percent-encoded; absent when there is none. */
struct slice http_parameter(const struct http_exchange *x, const char *name);
/* A number from a parameter; `otherwise` when there is none; false when it is not one up to max. */
bool http_number(const struct http_exchange *x, const char *name, uint64_t otherwise, uint64_t max,
                 uint64_t *value);

#endif
