/* SPDX-License-Identifier: MIT */
#include "examples/worker/client.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#define READ_SIZE    16384
#define STALL_BOUND  30.0  /* seconds without progress for a peer that is to take the last output */
#define FINISH_BOUND 5.0   /* seconds for it to close its side then */
#define DEAD_BOUND   60000 /* milliseconds in which a peer's machine has to acknowledge what it is sent */

static void on_end(void *context)
{
    struct client *c = context;
    buffer_free(&c->in);
    buffer_free(&c->out);
    c->gone(c->user);
}

void client_abort(struct client *c)
{
    if (c->closed)
        return;
    c->closed = true;
    loop_io_close(&c->io);
    loop_timer_close(&c->bound);
    loop_defer(c->loop, &c->end);
}

static void want(struct client *c)
{
    bool full = buffer_len(&c->in) >= CLIENT_IN_MAX;
    if (!c->closed)
        loop_io_want(&c->io, (full || c->paused || c->ended ? 0 : LOOP_READ) |
                                 (buffer_len(&c->out) ? LOOP_WRITE : 0));
}

/* Gives what is held until the user wants no more. Within the user's own callback there is nothing to do but
 * to remember that it changed its mind. */
static void deliver(struct client *c)
{
    c->again = true;
    if (c->delivering)
        return;
    c->delivering = true;
    while (c->again && !c->closed && !c->paused && !c->finishing && buffer_len(&c->in)) {
        c->again = false;
        size_t consumed = c->input(c->user, buffer_slice(&c->in));
        if (consumed)
            c->again = true;
        buffer_consume(&c->in, consumed);
    }
    c->delivering = false;
    if (c->finishing)
        buffer_free(&c->in);
    want(c);
}

static void receive(struct client *c)
{
    size_t room = 0, held = buffer_len(&c->in);
    uint8_t *at =
        buffer_room(&c->in, held + READ_SIZE < CLIENT_IN_MAX ? READ_SIZE : CLIENT_IN_MAX - held, &room);
    ssize_t got = at ? read(loop_io_fd(&c->io), at, room) : 0;
    if (got > 0) {
        buffer_commit(&c->in, (size_t)got);
        deliver(c);
    } else if (got == 0 && c->finishing && buffer_len(&c->out)) {
        c->ended = true;
    } else if (got == 0 || (errno != EAGAIN && errno != EINTR)) {
        client_abort(c);
    }
}

static void go_on_finishing(struct client *c)
{
    bool sent = !buffer_len(&c->out);
    if (sent && c->ended)
        return client_abort(c);
    loop_timer_set(&c->bound, sent ? FINISH_BOUND : STALL_BOUND);
    if (sent)
        shutdown(loop_io_fd(&c->io), SHUT_WR);
}

static void flush(struct client *c)
{
    struct slice s = buffer_slice(&c->out);
    ssize_t put = s.len ? send(loop_io_fd(&c->io), s.at, s.len, MSG_NOSIGNAL) : 0;
    if (put < 0 && errno != EAGAIN && errno != EINTR)
        return client_abort(c);
    if (put > 0)
        buffer_consume(&c->out, (size_t)put);
    if (c->finishing && put > 0)
        go_on_finishing(c);
}

static void ready(void *owner, int events)
{
    struct client *c = owner;
    if (events & LOOP_WRITE) {
        flush(c);
        if (!c->closed && !c->finishing && !client_is_full(c))
            c->room(c->user);
    }
    if (!c->closed && (events & LOOP_READ))
        receive(c);
    want(c);
}

static void bound_due(void *owner)
{
    client_abort(owner);
}

void client_open(struct client *c, struct loop *loop, int fd)
{
    setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &(unsigned){DEAD_BOUND}, sizeof(unsigned));
    c->loop = loop;
    c->in = buffer_with_limit(CLIENT_IN_MAX);
    c->out = buffer_with_limit(CLIENT_OUT_MAX);
    c->end = (struct loop_task){.run = on_end, .context = c};
    loop_timer_open(&c->bound, loop, bound_due, c);
    loop_io_open(&c->io, loop, fd, ready, c);
    want(c);
}

void client_send(struct client *c, struct slice bytes)
{
    if (c->closed || c->finishing)
        return;
    if (!buffer_put(&c->out, bytes))
        client_abort(c);
    want(c);
}

bool client_is_full(const struct client *c)
{
    return buffer_len(&c->out) >= CLIENT_OUT_FULL;
}

void client_pause(struct client *c, bool paused)
{
    c->paused = paused;
    if (paused)
        want(c);
    else
        deliver(c);
}

void client_look_again(struct client *c)
{
    deliver(c);
}

void client_finish(struct client *c)
{
    if (c->finishing || c->closed)
        return;
    c->finishing = true;
    c->paused = false;
    go_on_finishing(c);
    want(c);
}

bool client_is_open(const struct client *c)
{
    return !c->finishing && !c->closed;
}

void client_check(struct client *c)
{
    struct pollfd fd = {.fd = c->closed ? -1 : loop_io_fd(&c->io)};
    if (c->paused && poll(&fd, 1, 0) == 1)
        client_abort(c);
}
