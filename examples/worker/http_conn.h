/* SPDX-License-Identifier: MIT */
/*
 * http_conn: a client's connection as a sequence of HTTP/1.1 requests, each served by an exchange. Requests
 * are read one after another; the next is not looked at before the answer to the last is complete.
 */
#ifndef CELLGATE_WORKER_HTTP_CONN_H
#define CELLGATE_WORKER_HTTP_CONN_H

#include "examples/worker/client.h"
#include "spoa/base/writer.h"
#include "spoa/proto/http.h"

struct http_conn;

/* What its connections see of a server, which holds it (front.c). */
struct http_server {
    struct http_conn *conns; /* all of them */
    const char *name;        /* in answers */
    bool draining;           /* each request is its connection's last */
    /* What serves the request; NULL: out of memory. */
    struct exchange *(*route)(struct http_server *server, struct http_conn *h);
    void (*gone)(struct http_server *server); /* a connection is */
};

/* What serves one request: the first member of a structure from malloc. Callbacks may be NULL. */
struct exchange {
    void (*body)(struct exchange *x, struct slice piece);
    void (*end)(struct exchange *x);                       /* the request is complete */
    void (*room)(struct exchange *x);                      /* the client takes output again */
    size_t (*raw)(struct exchange *x, struct slice bytes); /* after http_upgraded: as client.input */
    void (*leave)(struct exchange *x); /* the worker is being stopped: end what is open-ended */
    /* What the exchange holds, but not itself, is to be given back: its answer is complete, or its client has
     * left. */
    void (*close)(struct exchange *x);

    struct loop_task bury; /* it may be in the hands of its own callbacks: freed at the end of the turn */
    struct http_conn *conn;
    const struct http_head *head; /* valid as long as the exchange */
    struct slice path, query;     /* of the target; the query without '?', or absent */
};

/* size: of the structure; it is zeroed but for the exchange in it. NULL when out of memory. */
void *http_exchange_new(size_t size, struct http_conn *conn);

struct http_conn *http_conn_new(struct http_server *server, struct loop *loop, int fd);
struct http_server *http_server(struct http_conn *h);
struct client *http_client(struct http_conn *h);
/* In the list of all connections of its server. */
struct http_conn *http_conn_next(struct http_conn *h);
void http_conn_leave(struct http_conn *h);

/* ---- answers ---- */
#define HTTP_UNKNOWN_LENGTH UINT64_MAX /* the body is sent in chunks */

/* A whole answer; `fields` is lines that end with CRLF, or NULL. */
void http_answer(struct exchange *x, unsigned status, const char *type, const char *fields,
                 struct slice body);
/* {"error":"..."}; text needs no escapes. After a refusal the connection is closed. */
void http_refuse(struct exchange *x, unsigned status, const char *text);
/* An answer in pieces: begin, any number of pieces, end. */
void http_begin(struct exchange *x, unsigned status, const char *type, const char *fields, uint64_t length);
void http_piece(struct exchange *x, struct slice bytes);
void http_end(struct exchange *x);
bool http_is_full(const struct exchange *x);
/* The exchange has sent its own head and has the connection from now on: input goes to `raw`. */
void http_upgraded(struct exchange *x);

/* The value of a query parameter, still percent-encoded; absent when there is none. */
struct slice http_parameter(const struct exchange *x, const char *name);
/* A number from a parameter; `otherwise` when there is none; false when it is not one up to max. */
bool http_number(const struct exchange *x, const char *name, uint64_t otherwise, uint64_t max,
                 uint64_t *value);

#endif
