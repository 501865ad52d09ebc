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

#include "spoa/base/bytes/slice.h"
#include "spoa/base/os/fail.h"
#include "spoa/base/os/time.h"

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

/* ---- shares ----
 * The descriptors of one owner, a tenant say, are in one share. If many are ready, shares take turns of equal time (deficit round
 * robin, by the clock): an owner with 64 busy descriptors gets as much of the thread as an owner with one. What an owner took
 * beyond its turn is taken off its next ones. Every LOOP_TURN the loop looks for new events, also while others still wait; these
 * keep their places. An event is never cut: whoever handles one bounds its work, and asks for another by loop_io_again.
 * A share may be in a group, which takes turns with the shares beside it, and in whose turn those within take theirs. */
#define LOOP_QUANTUM   (MILLISECOND / 10)     /* of a share's turn */
#define LOOP_TURN      (3 * MILLISECOND / 10) /* between two looks for events; more where very many wait */
#define LOOP_LOOKS     16                     /* times as long as such a look takes */
#define LOOP_LOOKED_AT 8                      /* descriptors that it tells of in a microsecond, about */
#define LOOP_DEBT \
    (4 * MILLISECOND) /* the most that is taken off later turns: the thread may have been interrupted */

struct loop_line { /* shares in which a descriptor waits; the first has its turn */
    struct loop_share *first, **end;
};

struct loop_share { /* where it is, it stays; its members are the loop's */
    struct loop *loop;
    struct loop_share *of; /* its group; NULL: none */
    struct loop_share *next,
        **link;              /* in the line of its group, or of the loop; link NULL: none waits in this one */
    struct loop_line within; /* of a group */
    uint32_t first, last;    /* those that wait, the first in line first */
    int64_t credit;          /* µs of this turn; negative: taken beyond it */
};

void loop_share_open(struct loop_share *share, struct loop *loop);
/* In a group, which is an open share that has no descriptors and is in no group itself, and which outlives this one. */
void loop_share_open_in(struct loop_share *share, struct loop_share *group);
/* No descriptor may be in it any more. A zeroed one is fine. */
void loop_share_close(struct loop_share *share);

/* ---- descriptors ---- */
enum { LOOP_READ = EV_READ, LOOP_WRITE = EV_WRITE };

struct loop_io {
    struct ev_io watcher;     /* the first member; its data is the owner */
    struct loop_share *share; /* NULL: closed */
    void (*ready)(void *owner, int events);
    uint32_t waits; /* its place among those that are ready; 0: it is not */
};

static inline bool loop_io_is_open(const struct loop_io *io)
{
    return io->share != NULL;
}

static inline void *loop_io_owner(const struct loop_io *io)
{
    return io->watcher.data;
}

void loop_io_open(struct loop_io *io, struct loop *loop, int fd, void (*ready)(void *owner, int events),
                  void *owner);
/* Moves a descriptor to another share. Right behind loop_io_open it is in the loop's own. What it waits for comes again; what
 * loop_io_again has asked for does not. */
void loop_io_join(struct loop_io *io, struct loop_share *share);
/* Calls `ready` with these events again, as far as they are wanted, when its share has another turn: for work that was left. */
void loop_io_again(struct loop_io *io, int events);
/* What it waits for from now on: LOOP_READ, LOOP_WRITE, both or 0. While the kernel has no room for the watch nothing
 * comes, and it is asked again ten times a second. */
void loop_io_want(struct loop_io *io, int events);
int loop_io_fd(const struct loop_io *io);
/* Called for descriptors that are ready and wait for others, up to 64 at a time: for __builtin_prefetch of what handling them reads.
 * It changes nothing. NULL: none. */
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
