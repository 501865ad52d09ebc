/* SPDX-License-Identifier: MIT */
/*
 * loop: one event loop of one thread, on libev and epoll. What waits for a descriptor or a time is a member
 * of the object that waits (loop_io, loop_timer); the object closes it before it goes away.
 *
 * An object that is closed within a turn of the loop may still be in the hands of a caller further up: it is
 * freed by a task that runs at the end of the turn (loop_defer). A closed loop_io or loop_timer never fires
 * again, also not for an event that was already seen, and starting it again does nothing: callbacks need no
 * checks of their own.
 *
 * All functions are for the loop's own thread, but loop_post and loop_clock.
 */
#ifndef CELLGATE_NET_LOOP_H
#define CELLGATE_NET_LOOP_H

#include <ev.h>

#include "spoa/base/fail.h"
#include "spoa/base/slice.h"
#include "spoa/base/time.h"

struct loop;

struct loop *loop_new(struct fail *why);
/* Nothing of it may be running; deferred and posted tasks are run first. NULL is fine. */
void loop_free(struct loop *loop);
/* Until loop_stop; a loop may be run again. */
void loop_run(struct loop *loop);
/* One turn: waits for events if `wait`, handles what is there and runs the deferred tasks. */
void loop_turn(struct loop *loop, bool wait);
void loop_stop(struct loop *loop);
/* How many turns have ended. */
uint64_t loop_turns(const struct loop *loop);

/* CLOCK_MONOTONIC, as of base/time.h; any thread. */
uint64_t loop_clock(void);

/* ---- tasks ---- */
struct loop_task { /* zeroed before its first use, in memory that lives until it has run */
    void (*run)(void *context);
    void *context;
    struct loop_task *next;
    bool queued;
};

/* Runs at the end of this turn, on the loop's thread. Queueing a queued task does nothing; a task that is
 * running may be queued again or freed. */
void loop_defer(struct loop *loop, struct loop_task *task);
/* From any thread: wakes the loop and runs the task on it, tasks of one thread in order. */
void loop_post(struct loop *loop, struct loop_task *task);

/* ---- descriptors ---- */
enum { LOOP_READ = EV_READ, LOOP_WRITE = EV_WRITE };

struct loop_io {
    struct ev_io watcher; /* the first member; its data is the owner */
    struct loop *loop;    /* NULL: closed */
    void (*ready)(void *owner, int events);
};

static inline void *loop_io_owner(const struct loop_io *io)
{
    return io->watcher.data;
}

void loop_io_open(struct loop_io *io, struct loop *loop, int fd, void (*ready)(void *owner, int events),
                  void *owner);
/* What it waits for from now on: LOOP_READ, LOOP_WRITE, both or 0. While the kernel has no room for the watch nothing
 * comes, and it is asked again ten times a second. */
void loop_io_want(struct loop_io *io, int events);
int loop_io_fd(const struct loop_io *io);
/* Called for each descriptor that is ready, before up to 64 of them are handled: for __builtin_prefetch of what handling them
 * reads. It changes nothing. NULL: none. */
void loop_set_soon(struct loop *loop, void (*soon)(const struct loop_io *io));
/* Stops waiting; the descriptor is closed too. A closed or zeroed loop_io is fine. */
void loop_io_close(struct loop_io *io);
/* Stops waiting and gives the descriptor, which stays open, to the caller; -1 if closed. */
int loop_io_release(struct loop_io *io);

/* ---- times ---- */
struct loop_timer {
    struct ev_timer watcher;
    struct loop *loop; /* NULL: closed */
    void (*due)(void *owner);
    void *owner;
};

void loop_timer_open(struct loop_timer *timer, struct loop *loop, void (*due)(void *owner), void *owner);
/* Fires once, this many microseconds from now, 0: with the next turn; replaces an earlier time. */
void loop_timer_set(struct loop_timer *timer, uint64_t microseconds);
/* The same when loop_clock has come to that; what is over already fires with the next turn. */
void loop_timer_set_at(struct loop_timer *timer, uint64_t when);
bool loop_timer_active(const struct loop_timer *timer);
void loop_timer_stop(struct loop_timer *timer);
/* A closed or zeroed loop_timer is fine. */
void loop_timer_close(struct loop_timer *timer);

#endif
