/* SPDX-License-Identifier: MIT */
#include "spoa/net/listener.h"

#include <errno.h>
#include <stdatomic.h>
#include <unistd.h>

#include "spoa/net/net.h"

static bool is_accepting(const struct listener *l)
{
    return loop_io_is_open(&l->io) && !l->held && !loop_timer_active(&l->rest);
}

enum { YIELDS = 3 }; /* times in a row that a listener leaves a connection to the others */

static void want(struct listener *l)
{
    loop_io_want(&l->io, is_accepting(l) ? LOOP_READ : 0);
}

/* ---- turns of the listeners on one socket ---- */

/* Returns true if other listeners should take the next connection. The counts may be out of date while several listeners accept: then one
 * takes the connection of another, and leaves the next one to it. */
static bool has_more_than_its_part(const struct listener *l)
{
    if (!l->share)
        return false;
    size_t all = atomic_load_explicit(&l->share->connections, memory_order_relaxed);
    return l->own * atomic_load_explicit(&l->share->listeners, memory_order_relaxed) > all + all / 8;
}

void listener_gone(struct listener *l)
{
    if (!l->share)
        return;
    l->own--;
    atomic_fetch_sub_explicit(&l->share->connections, 1, memory_order_relaxed);
}

static void yield_socket(struct listener *l)
{
    l->yields++;
    loop_timer_set(&l->rest, LISTENER_YIELD);
    want(l);
}

/* ---- accepting ---- */

/* Accepts one connection. Returns false if none waits. */
static bool take_one(struct listener *l)
{
    int fd = net_accept(loop_io_fd(&l->io));
    if (fd >= 0) {
        if (l->share) {
            l->own++;
            atomic_fetch_add_explicit(&l->share->connections, 1, memory_order_relaxed);
        }
        l->accepted(l->owner, fd);
    } else if (errno == EAGAIN) {
        return false;
    } else if (errno != ECONNABORTED && errno != EINTR) {
        listener_rest(l);
    }
    return true;
}

static void on_connection(void *owner, int events)
{
    struct listener *l = owner;
    uint64_t turn = loop_turns(l->io.share->loop);
    (void)events;
    /* twice the tries of the turn before, if all of those found connections; the socket stays readable while more connections wait */
    unsigned more = turn == l->turn + 1 ? 2 * l->tries : 1;
    l->tries = more == 0 ? 1 : more < l->batch ? more : l->batch;
    l->turn = turn;
    for (unsigned i = 0; i < l->tries && is_accepting(l); i++) {
        if (has_more_than_its_part(l)) {
            yield_socket(l);
        } else if (!take_one(l)) {
            l->tries = 0;
            return;
        }
    }
}

static void on_rested(void *owner)
{
    struct listener *l = owner;
    bool yields = l->yields && has_more_than_its_part(l) && !l->held;
    if (yields && l->yields < YIELDS) {
        yield_socket(l);
        return;
    }
    l->yields = 0;
    if (yields) /* the others did not accept the connection in time */
        (void)take_one(l);
    want(l);
}

void listener_open(struct listener *l, struct loop *loop, int fd)
{
    l->held = false;
    l->own = 0;
    l->yields = 0;
    if (l->share)
        atomic_fetch_add_explicit(&l->share->listeners, 1, memory_order_relaxed);
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
    return loop_io_is_open(&l->io);
}

int listener_fd(const struct listener *l)
{
    return loop_io_fd(&l->io);
}

int listener_release(struct listener *l)
{
    if (l->share && listener_is_open(l))
        atomic_fetch_sub_explicit(&l->share->listeners, 1, memory_order_relaxed);
    loop_timer_close(&l->rest);
    return loop_io_release(&l->io);
}

void listener_close(struct listener *l)
{
    int fd = listener_release(l);
    if (fd >= 0)
        close(fd);
}
