/* SPDX-License-Identifier: MIT */
/*
 * http_server: an HTTP/1.1 server on a listener. Each connection carries a sequence of requests, and an exchange serves each of them.
 * The next request is not parsed before the last one is answered.
 *
 * Nothing is read while the connection is paused or its exchange has unconsumed input. Output that the peer does not take waits in memory:
 * an exchange adds none while http_is_full is true, and `room` is called when it may continue. An exchange that does not check loses its
 * connection at output_max. Times are in microseconds. For the loop's own thread.
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

/* Borrowed for the life of the server. */
struct http_server_options {
    const char *name;            /* value of the Server header */
    size_t head_max, output_max; /* bytes of a request's head, bytes of unsent output */
    unsigned connections;        /* largest number of connections; further ones wait in the backlog */
    /* instead of that, each further connection evicts the oldest one, whatever it does */
    bool crowd_out;
    /* longest time from a head's first byte to its last; 0 means that idle_time bounds both */
    uint64_t head_time;
    uint64_t idle_time; /* longest time between two requests, or two pieces of a body */
    struct stream_linger linger;
    /* Returns the exchange that serves the request, or NULL if memory is short. */
    struct http_exchange *(*route)(struct http_server *server, struct http_conn *conn);
    /* Writes the answer to a malformed request (400), a head that is too large (431) or late (408); may write nothing. */
    void (*refuse)(struct http_server *server, unsigned status, struct buffer *answer);
    void (*gone)(struct http_server *server); /* called after a connection is gone; may be NULL */
};

/* A member of its owner. */
struct http_server {
    const struct http_server_options *options;
    struct loop *loop;
    struct listener listener;
    struct http_conn *conns; /* private */
    unsigned count;          /* connections, and places taken with http_server_enter */
    bool draining;           /* each connection ends after its current request */
};

/* Opens a server on a listening descriptor, which it owns until http_server_close. */
void http_server_open(struct http_server *server, struct loop *loop, int listener,
                      const struct http_server_options *options);
/* Drains: ends idle connections, calls `leave` of open-ended exchanges, and ends every other connection after its current request. */
void http_server_drain(struct http_server *server);
/* Closes connections that broke while they were paused. The owner calls this now and then. */
void http_server_check(struct http_server *server);
/* Closes all connections, which are freed at the end of the turn: the server must live until then. Returns the listening descriptor,
 * which is the caller's again. */
int http_server_close(struct http_server *server);
/* Count one of the server's `connections` as used, for work that outlives its connection, and release it again. The release calls `gone`,
 * as the end of a connection does. */
void http_server_enter(struct http_server *server);
void http_server_leave(struct http_server *server);

/* The object that serves one request: the first member of a structure from http_exchange_new. Each call-back may be NULL. */
struct http_exchange {
    /* The head has come. May answer at once, and may finish the connection. */
    void (*begin)(struct http_exchange *x);
    void (*body)(struct http_exchange *x, struct slice piece); /* a piece of the request's body */
    void (*end)(struct http_exchange *x);                      /* the request is complete */
    void (*room)(struct http_exchange *x);                     /* the client takes output again */
    /* Input after http_upgraded. Returns the number of bytes consumed. */
    size_t (*raw)(struct http_exchange *x, struct slice bytes);
    void (*leave)(struct http_exchange *x); /* the server drains: end the answer soon if it is open-ended */
    /* The answer is complete or the client is gone. Frees what the exchange holds, but not the exchange. */
    void (*close)(struct http_exchange *x);

    /* frees the exchange at the end of the turn, because one of its call-backs may be running */
    struct loop_task bury;
    struct http_conn *conn;
    const struct http_head *head; /* valid as long as the exchange */
    struct slice path, query;     /* parts of the target; the query has no '?' and may be absent */
};

/* Allocates a structure of `size` bytes that begins with an exchange; the rest of it is zeroed. Returns NULL if memory is short. */
void *http_exchange_new(size_t size, struct http_conn *conn) MUST_CHECK;

/* ---- connections ---- */
struct http_server *http_conn_server(struct http_conn *conn);
/* Returns the connection's stream: to close it, to find its loop, or to send a self-made answer. */
struct stream *http_stream(struct http_conn *conn);
/* Sends bytes after those already sent. Closes the connection if output_max is exceeded. */
void http_send(struct http_conn *conn, struct slice bytes);
/* Sends the waiting output, then closes the connection gracefully. Further input is dropped. */
void http_finish(struct http_conn *conn);
/* Stops or continues input. Input that was not consumed is passed again after a pause. */
void http_pause(struct http_conn *conn, bool paused);
bool http_is_paused(const struct http_conn *conn);

/* ---- answers ---- */
#define HTTP_UNKNOWN_LENGTH UINT64_MAX /* the body is sent in chunks */

/* Sends a whole answer. `fields` are header lines, each with its CRLF, or NULL. */
void http_answer(struct http_exchange *x, unsigned status, const char *type, const char *fields,
                 struct slice body);
/* Answers {"error":"TEXT"} and closes the connection. The text must need no escapes. */
void http_refuse(struct http_exchange *x, unsigned status, const char *text);
/* Send an answer in pieces: http_begin, any number of http_piece, http_end. */
void http_begin(struct http_exchange *x, unsigned status, const char *type, const char *fields,
                uint64_t length);
void http_piece(struct http_exchange *x, struct slice bytes);
void http_end(struct http_exchange *x);
/* Returns true while the exchange must not add output. */
bool http_is_full(const struct http_exchange *x);
/* Hands the connection to the exchange, which has sent its own head: input goes to `raw` from now on. */
void http_upgraded(struct http_exchange *x);

/* Returns the value of a query parameter, still percent-encoded, or an absent slice if there is no such parameter. */
struct slice http_parameter(const struct http_exchange *x, const char *name);
/* Reads a number from a query parameter; *value is `otherwise` if there is no such parameter. Returns false if the parameter is not a
 * number up to max. */
bool http_number(const struct http_exchange *x, const char *name, uint64_t otherwise, uint64_t max,
                 uint64_t *value) MUST_CHECK;

#endif
