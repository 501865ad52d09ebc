/* SPDX-License-Identifier: MIT */
#include "spoa/net/listener.h"

#include <errno.h>
#include <unistd.h>

#include "spoa/net/net.h"

static bool is_accepting(const struct listener *l)
{
    return l->io.loop && !l->held && !loop_timer_active(&l->rest);
}

static void want(struct listener *l)
{
    loop_io_want(&l->io, is_accepting(l) ? LOOP_READ : 0);
}

static void on_rested(void *owner)
{
    want(owner);
}

/* Twice those of the turn before, if that had so many; a socket on which more wait stays readable. */
static void count_tries(struct listener *l)
{
    uint64_t turn = loop_turns(l->io.loop);
    unsigned more = turn == l->turn + 1 ? 2 * l->tries : 1;
    l->tries = more == 0 ? 1 : more < l->batch ? more : l->batch;
    l->turn = turn;
}

static void on_connection(void *owner, int events)
{
    struct listener *l = owner;
    (void)events;
    count_tries(l);
    for (unsigned i = 0, most = l->tries; i < most && is_accepting(l); i++) {
        int fd = net_accept(loop_io_fd(&l->io));
        if (fd >= 0)
            l->accepted(l->owner, fd);
        else if (errno == EAGAIN)
            l->tries = most = 0;
        else if (errno != ECONNABORTED && errno != EINTR)
            listener_rest(l);
    }
}

void listener_open(struct listener *l, struct loop *loop, int fd)
{
    l->held = false;
    loop_io_open(&l->io, loop, fd, on_connection, l);
    loop_timer_open(&l->rest, loop, on_rested, l);
    want(l);
}

void listener_hold(struct listener *l, bool held)
{
    l->held = held;
    want(l);
}

void listener_rest(struct listener *l)
{
    loop_timer_set(&l->rest, LISTENER_REST);
    want(l);
    if (l->rested)
        l->rested(l->owner);
}

bool listener_is_open(const struct listener *l)
{
    return l->io.loop;
}

int listener_fd(const struct listener *l)
{
    return loop_io_fd(&l->io);
}

int listener_release(struct listener *l)
{
    loop_timer_close(&l->rest);
    return loop_io_release(&l->io);
}

void listener_close(struct listener *l)
{
    int fd = listener_release(l);
    if (fd >= 0)
        close(fd);
}
