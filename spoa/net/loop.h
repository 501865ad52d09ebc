/* SPDX-License-Identifier: MIT */
/*
 * loop: the event loop of one thread, on libev and epoll. An object that waits for a descriptor or a time has a loop_io or a loop_timer
 * as a member, and closes it before the object is freed.
 *
 * An object that is closed within a turn of the loop may still be in use by a caller further up the stack, so it must be freed by a task
 * at the end of the turn (loop_defer). A closed loop_io or loop_timer never fires again, even for an event that was already seen, and
 * starting it has no effect: call-backs need no checks of their own.
 *
 * All functions are for the loop's own thread, except loop_post and loop_clock.
 */
#ifndef CELLGATE_NET_LOOP_H
#define CELLGATE_NET_LOOP_H

#include <ev.h>

#include "spoa/base/bytes/slice.h"
#include "spoa/base/os/fail.h"
#include "spoa/base/os/time.h"

struct loop;

/* Returns a new loop, or NULL and fills *why if memory or descriptors are short. */
struct loop *loop_new(struct fail *why) MUST_CHECK;
/* Runs the tasks that are still deferred or posted, and frees the loop, which must not be running. NULL is fine. */
void loop_free(struct loop *loop);
/* Runs until loop_stop. A loop can run again after that. */
void loop_run(struct loop *loop);
/* Runs one turn: waits for events if `wait`, handles those that are there, and runs the deferred tasks. */
void loop_turn(struct loop *loop, bool wait);
void loop_stop(struct loop *loop);
/* Returns the number of turns that have ended. */
uint64_t loop_turns(const struct loop *loop);

/* Returns CLOCK_MONOTONIC in microseconds (base/os/time.h). Any thread may call it. */
uint64_t loop_clock(void);

/* ---- tasks ---- */
/* Zeroed before its first use. Must stay in place until it has run. */
struct loop_task {
    void (*run)(void *context);
    void *context;

    /* private */
    struct loop_task *next;
    bool queued;
};

/* Runs a task at the end of this turn. Queueing a queued task has no effect. A task that is running may be queued again or freed. */
void loop_defer(struct loop *loop, struct loop_task *task);
/* Wakes the loop and runs a task on it. Any thread may call this; the tasks of one thread run in order. */
void loop_post(struct loop *loop, struct loop_task *task);

/* ---- shares ----
 * The descriptors of one owner, such as a tenant, belong to one share. If many are ready, shares take turns of equal time (deficit round
 * robin, measured by the clock): an owner with 64 busy descriptors gets as much of the thread as an owner with one. Time that an owner
 * used beyond its turn is taken off its next turns. The loop looks for new events every LOOP_TURN, even while shares still wait; these
 * keep their places.
 *
 * An event is never interrupted: its handler must bound its own work, and asks for another event with loop_io_again. A share may belong
 * to a group, which takes turns with the shares beside it, and divides its turns among its members. */
#define LOOP_QUANTUM (MILLISECOND / 10) /* turn of a share */
/* time between two looks for events; longer if very many descriptors wait */
#define LOOP_TURN (3 * MILLISECOND / 10)
/* the time between two looks is at least this multiple of the time of a look */
#define LOOP_LOOKS     16
#define LOOP_LOOKED_AT 8 /* descriptors that a look reports in a microsecond, roughly */
/* The largest debt of a share. A longer event was probably an interruption of the thread, for which the owner must not pay. */
#define LOOP_DEBT (4 * MILLISECOND)

/* A queue of shares in which descriptors wait. The first share has its turn. */
struct loop_line {
    struct loop_share *first, **end;
};

/* A share must stay in place while it is open. Its members are private to the loop. */
struct loop_share {
    struct loop *loop;     /* NULL if the share is closed */
    struct loop_share *of; /* the share's group, or NULL */
    /* in the line of its group or of the loop; link is NULL if no descriptor waits here */
    struct loop_share *next, **link;
    struct loop_line within; /* the members of a group in which descriptors wait */
    uint32_t first, last;    /* the descriptors that wait, as places in loop.ready; 0 if none */
    /* time left of the share's turn, in µs; negative for time used beyond it */
    int64_t credit;
};

void loop_share_open(struct loop_share *share, struct loop *loop);
/* Opens a share in a group: another open share that has no descriptors, is in no group itself, and outlives this one. */
void loop_share_open_in(struct loop_share *share, struct loop_share *group);
/* Closes a share, which must have no descriptors any more. A zeroed share is fine. */
void loop_share_close(struct loop_share *share);

/* ---- descriptors ---- */
enum { LOOP_READ = EV_READ, LOOP_WRITE = EV_WRITE };

/* Zeroed or closed, it has no descriptor. */
struct loop_io {
    struct ev_io watcher;     /* the first member; its data is the owner */
    struct loop_share *share; /* NULL if closed */
    void (*ready)(void *owner, int events);
    uint32_t waits; /* place in loop.ready; 0 if no event waits */
};

static inline bool loop_io_is_open(const struct loop_io *io)
{
    return io->share != NULL;
}

static inline void *loop_io_owner(const struct loop_io *io)
{
    return io->watcher.data;
}

/* Opens a loop_io on a descriptor, which it owns, in the loop's own share. It waits for nothing before loop_io_want. */
void loop_io_open(struct loop_io *io, struct loop *loop, int fd, void (*ready)(void *owner, int events),
                  void *owner);
/* Moves a descriptor to another share. Its events come again; an event that loop_io_again has asked for is lost. */
void loop_io_join(struct loop_io *io, struct loop_share *share);
/* Calls `ready` with these events, as far as they are wanted, in the share's next turn: for work that was left over. */
void loop_io_again(struct loop_io *io, int events);
/* Sets the events to wait for: LOOP_READ, LOOP_WRITE, both or 0. If the kernel has no room to watch the descriptor, the loop tries again
 * ten times a second, and no event comes meanwhile. */
void loop_io_want(struct loop_io *io, int events);
/* Returns the descriptor, or -1 if closed. */
int loop_io_fd(const struct loop_io *io);
/* Sets a call-back for descriptors whose events wait for others, up to 64 at a time, or NULL. The call-back only prefetches
 * (__builtin_prefetch) the memory that handling the event will read, and must not change anything. */
void loop_set_soon(struct loop *loop, void (*soon)(const struct loop_io *io));
/* Stops waiting and closes the descriptor. */
void loop_io_close(struct loop_io *io);
/* Stops waiting and returns the descriptor, which stays open and is the caller's, or -1 if closed. */
int loop_io_release(struct loop_io *io);

/* ---- timers ---- */
/* Zeroed or closed, it never fires. */
struct loop_timer {
    struct ev_timer watcher;
    struct loop *loop; /* NULL if closed */
    void (*due)(void *owner);
    void *owner;
};

void loop_timer_open(struct loop_timer *timer, struct loop *loop, void (*due)(void *owner), void *owner);
/* Fires once, after this number of microseconds; 0 means in the next turn. Replaces an earlier setting. */
void loop_timer_set(struct loop_timer *timer, uint64_t microseconds);
/* Like loop_timer_set, at a time of loop_clock. A time in the past fires in the next turn. */
void loop_timer_set_at(struct loop_timer *timer, uint64_t when);
bool loop_timer_active(const struct loop_timer *timer);
void loop_timer_stop(struct loop_timer *timer);
void loop_timer_close(struct loop_timer *timer);

#endif
