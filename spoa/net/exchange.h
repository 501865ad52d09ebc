/* SPDX-License-Identifier: MIT */
/*
 * exchange: a small server on which each connection is one request and one answer, then closed. For admin
 * (HTTP) and control (JSON lines). All is bounded: connections, bytes and time of a request, bytes and time
 * of an answer.
 */
#ifndef CELLGATE_NET_EXCHANGE_H
#define CELLGATE_NET_EXCHANGE_H

#include "spoa/base/buffer.h"
#include "spoa/net/loop.h"

enum exchange_end { EXCHANGE_TOO_LARGE, EXCHANGE_TOO_SLOW };

struct exchange_protocol {
    size_t request_max;
    /* Whether the bytes so far are a whole request (or wrong for good): then the answer was written; with
     * none the connection is closed. */
    bool (*request)(void *context, struct slice bytes, struct buffer *answer);
    /* What to answer to a request that does not end; may write nothing. */
    void (*refuse)(void *context, enum exchange_end end, struct buffer *answer);
    void *context;
};

enum {
    EXCHANGE_CONNECTIONS = 64, /* more wait in the backlog */
    EXCHANGE_SECONDS = 5,      /* for the request, and for each step of the answer */
    EXCHANGE_ANSWER_MAX = 64 << 20,
};

struct exchange;
/* Takes over the listener (net_listen), also when it fails: NULL when out of memory. */
struct exchange *exchange_new(struct loop *loop, int listener, const struct exchange_protocol *protocol);
/* Closes the listener and all connections. NULL is fine. */
void exchange_free(struct exchange *exchange);

#endif
