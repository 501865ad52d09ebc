/* SPDX-License-Identifier: MIT */
#include "spoa/net/exchange.h"

#include <stdlib.h>
#include <unistd.h>

#include "spoa/net/listener.h"
#include "spoa/net/net.h"
#include "spoa/net/stream.h"

#define READ_SIZE      4096
#define ACCEPTS_A_TURN 16
#define PATIENCE       (EXCHANGE_SECONDS * INT64_C(1000000))

struct connection {
    struct exchange *exchange;       /* NULL: it has gone */
    struct connection *next, **link; /* *link is what points here */
    struct stream stream;
};

struct exchange {
    struct loop *loop;
    struct exchange_protocol protocol;
    struct listener listener;
    struct connection *connections;
    size_t count;
};

/* ---- a connection ---- */
static void on_gone(void *owner)
{
    struct connection *c = owner;
    if (c->exchange) {
        *c->link = c->next;
        if (c->next)
            c->next->link = c->link;
        c->exchange->count--;
        listener_hold(&c->exchange->listener, false);
    }
    free(c);
}

static void answer(struct connection *c)
{
    static const struct stream_linger linger = {.step = PATIENCE, .grace = PATIENCE, .drain = 1 << 20};
    if (buffer_len(&c->stream.out))
        stream_finish(&c->stream, &linger);
    else
        stream_close(&c->stream);
}

static void refuse(struct connection *c, enum exchange_end end)
{
    const struct exchange_protocol *p = &c->exchange->protocol;
    p->refuse(p->context, end, &c->stream.out);
    answer(c);
}

static void on_input(void *owner)
{
    struct connection *c = owner;
    const struct exchange_protocol *p = &c->exchange->protocol;
    struct slice in = buffer_slice(&c->stream.in);
    if (p->request(p->context, in, &c->stream.out))
        answer(c);
    else if (in.len >= p->request_max)
        refuse(c, EXCHANGE_TOO_LARGE);
}

static void on_ended(void *owner, int error)
{
    struct connection *c = owner;
    (void)error;
    stream_close(&c->stream);
}

static void on_late(void *owner)
{
    refuse(owner, EXCHANGE_TOO_SLOW);
}

static const struct stream_user stream_user = {
    .input = on_input, .ended = on_ended, .late = on_late, .gone = on_gone, .read_size = READ_SIZE};

/* ---- the listener ---- */
static void on_accepted(void *owner, int fd)
{
    struct exchange *x = owner;
    struct connection *c = calloc(1, sizeof *c);
    if (!c) {
        close(fd);
        return;
    }
    *c = (struct connection){.exchange = x,
                             .next = x->connections,
                             .link = &x->connections,
                             .stream = {.user = &stream_user,
                                        .owner = c,
                                        /* room for what is read at once behind the last byte that fits */
                                        .in = buffer_with_limit(x->protocol.request_max + READ_SIZE),
                                        .out = buffer_with_limit(EXCHANGE_ANSWER_MAX)}};
    if (c->next)
        c->next->link = &c->next;
    x->connections = c;
    if (++x->count == EXCHANGE_CONNECTIONS)
        listener_hold(&x->listener, true);
    stream_open(&c->stream, x->loop, fd);
    stream_set_time(&c->stream, PATIENCE);
}

struct exchange *exchange_new(struct loop *loop, int listener, const struct exchange_protocol *protocol)
{
    struct exchange *x = calloc(1, sizeof *x);
    if (!x) {
        net_unlisten(listener);
        return NULL;
    }
    x->loop = loop;
    x->protocol = *protocol;
    x->listener = (struct listener){.accepted = on_accepted, .owner = x, .batch = ACCEPTS_A_TURN};
    listener_open(&x->listener, loop, listener);
    return x;
}

void exchange_free(struct exchange *exchange)
{
    if (!exchange)
        return;
    for (struct connection *c = exchange->connections; c; c = c->next) {
        c->exchange = NULL;
        stream_close(&c->stream);
    }
    net_unlisten(listener_release(&exchange->listener)); /* the file of a socket goes too */
    free(exchange);
}
