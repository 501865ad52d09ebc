/* SPDX-License-Identifier: MIT */
#include "spoa/net/exchange.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "spoa/net/net.h"

enum { READ_SIZE = 4096 };
static const double pause_seconds = 0.1; /* of accepting, when descriptors have run out */

struct connection {
    struct exchange *exchange;
    struct connection *next, **link; /* *link is what points here */
    struct loop_io io;
    struct loop_timer timer;
    struct loop_task end; /* frees it at the end of the loop's turn */
    struct buffer in, out;
    enum { READING, WRITING, CLOSING } state; /* closing: waits until the other side has closed too */
};

struct exchange {
    struct loop *loop;
    struct exchange_protocol protocol;
    struct loop_io listener;
    struct loop_timer pause;
    struct connection *connections;
    size_t count;
};

/* ---- the end of a connection ---- */

static void accept_again(void *owner)
{
    struct exchange *x = owner;
    if (x->count < EXCHANGE_CONNECTIONS)
        loop_io_want(&x->listener, LOOP_READ);
}

static void release(void *context)
{
    struct connection *c = context;
    buffer_free(&c->in);
    buffer_free(&c->out);
    free(c);
}

static void drop(struct connection *c)
{
    if (!c->io.loop)
        return;
    struct exchange *x = c->exchange;
    loop_io_close(&c->io);
    loop_timer_close(&c->timer);
    *c->link = c->next;
    if (c->next)
        c->next->link = c->link;
    x->count--;
    c->end = (struct loop_task){.run = release, .context = c};
    loop_defer(x->loop, &c->end);
    if (!loop_timer_active(&x->pause))
        accept_again(x);
}

/* ---- the answer ---- */

/* A close with unread bytes would send a reset that
 * overtakes the answer: so only our side is closed first. */
static void say_goodbye(struct connection *c)
{
    c->state = CLOSING;
    buffer_free(&c->out);
    shutdown(loop_io_fd(&c->io), SHUT_WR);
    loop_timer_set(&c->timer, EXCHANGE_SECONDS);
    loop_io_want(&c->io, LOOP_READ);
}

static void write_answer(struct connection *c)
{
    struct slice rest = buffer_slice(&c->out);
    ssize_t n = send(loop_io_fd(&c->io), rest.at, rest.len, MSG_NOSIGNAL);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        n = 0;
    if (n < 0) {
        drop(c);
        return;
    }
    buffer_consume(&c->out, (size_t)n);
    if (buffer_len(&c->out) == 0) {
        say_goodbye(c);
    } else {
        if (n)
            loop_timer_set(&c->timer, EXCHANGE_SECONDS);
        loop_io_want(&c->io, LOOP_WRITE);
    }
}

static void start_answer(struct connection *c)
{
    c->state = WRITING;
    buffer_free(&c->in);
    if (buffer_len(&c->out) == 0)
        drop(c);
    else
        write_answer(c);
}

static void refuse(struct connection *c, enum exchange_end end)
{
    const struct exchange_protocol *p = &c->exchange->protocol;
    p->refuse(p->context, end, &c->out);
    start_answer(c);
}

/* ---- the request ---- */

static void read_request(struct connection *c)
{
    const struct exchange_protocol *p = &c->exchange->protocol;
    uint8_t bytes[READ_SIZE];
    ssize_t n = recv(loop_io_fd(&c->io), bytes, sizeof bytes, 0);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n <= 0) {
        drop(c);
        return;
    }
    if (c->state == CLOSING)
        return;
    if (!buffer_put(&c->in, slice_of(bytes, (size_t)n)))
        drop(c); /* out of memory: its limit leaves room for what is read at once */
    else if (p->request(p->context, buffer_slice(&c->in), &c->out))
        start_answer(c);
    else if (buffer_len(&c->in) >= p->request_max)
        refuse(c, EXCHANGE_TOO_LARGE);
}

static void on_ready(void *owner, int events)
{
    struct connection *c = owner;
    if (events & LOOP_READ && c->state != WRITING)
        read_request(c);
    else if (events & LOOP_WRITE && c->state == WRITING)
        write_answer(c);
}

static void on_late(void *owner)
{
    struct connection *c = owner;
    if (c->state == READING)
        refuse(c, EXCHANGE_TOO_SLOW);
    else
        drop(c);
}

/* ---- the listener ---- */

static void open_connection(struct exchange *x, int fd)
{
    struct connection *c = calloc(1, sizeof *c);
    if (!c) {
        close(fd);
        return;
    }
    *c = (struct connection){.exchange = x,
                             .next = x->connections,
                             .link = &x->connections,
                             .in = buffer_with_limit(x->protocol.request_max + READ_SIZE),
                             .out = buffer_with_limit(EXCHANGE_ANSWER_MAX)};
    if (c->next)
        c->next->link = &c->next;
    x->connections = c;
    x->count++;
    loop_io_open(&c->io, x->loop, fd, on_ready, c);
    loop_io_want(&c->io, LOOP_READ);
    loop_timer_open(&c->timer, x->loop, on_late, c);
    loop_timer_set(&c->timer, EXCHANGE_SECONDS);
}

static void on_connection(void *owner, int events)
{
    (void)events;
    struct exchange *x = owner;
    while (x->count < EXCHANGE_CONNECTIONS) {
        int fd = net_accept(loop_io_fd(&x->listener));
        if (fd < 0 && errno == ECONNABORTED)
            continue;
        if (fd < 0 && errno != EAGAIN && errno != EINTR) {
            loop_timer_set(&x->pause, pause_seconds);
            break;
        }
        if (fd < 0)
            return;
        open_connection(x, fd);
    }
    loop_io_want(&x->listener, 0);
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
    loop_timer_open(&x->pause, loop, accept_again, x);
    loop_io_open(&x->listener, loop, listener, on_connection, x);
    loop_io_want(&x->listener, LOOP_READ);
    return x;
}

void exchange_free(struct exchange *exchange)
{
    if (!exchange)
        return;
    while (exchange->connections)
        drop(exchange->connections);
    loop_timer_close(&exchange->pause);
    net_unlisten(loop_io_release(&exchange->listener)); /* the file of a socket goes too */
    free(exchange);
}
