/* SPDX-License-Identifier: MIT */
#include "spoa/net/loop.h"

#include <pthread.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "spoa/net/loop_memory.h"

#define WATCH_AGAIN (100 * MILLISECOND)

enum { READY_MOST = 64 }; /* what the handling of so many touches fits into a core's second cache */

struct queue {
    pthread_mutex_t *lock; /* of the loop: a task is in one of its queues at most */
    struct loop_task *first, *last;
};

/* Descriptors that libev has told of, and those that asked for another turn. Places are counted from 1. */
struct ready_list {
    struct ready {
        struct loop_io *io; /* NULL: closed since, or it waits for something else now */
        uint32_t next;      /* in line behind it, or among the free places; 0: none */
        uint8_t events;
        bool announced;
    } * places;
    uint32_t size, free, open;  /* open: descriptors, each of which is to have room */
    uint32_t announced;         /* of those that wait */
    struct loop_line shares;    /* and groups, in which any wait */
    struct loop_share *serving; /* whose descriptor is being handled; NULL: it was closed meanwhile */
    uint32_t waiting;           /* places in use */
};

struct loop {
    struct ev_loop *ev;
    struct loop_share own;
    struct ready_list ready;
    void (*soon)(const struct loop_io *io);
    struct ev_async wake;
    struct ev_timer watch_again;
    pthread_mutex_t lock;
    struct queue deferred, posted;
    uint64_t turns;
    bool begins; /* a run: libev calls on_pending once before it waits */
};

uint64_t loop_clock(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * SECOND + (uint64_t)now.tv_nsec / 1000;
}

/* ---- tasks ---- */
static void queue_put(struct queue *queue, struct loop_task *task)
{
    pthread_mutex_lock(queue->lock);
    if (!task->queued) {
        task->queued = true;
        task->next = NULL;
        if (queue->first)
            queue->last->next = task;
        else
            queue->first = task;
        queue->last = task;
    }
    pthread_mutex_unlock(queue->lock);
}

static struct loop_task *queue_take(struct queue *queue)
{
    pthread_mutex_lock(queue->lock);
    struct loop_task *task = queue->first;
    if (task) {
        queue->first = task->next;
        task->queued = false;
    }
    pthread_mutex_unlock(queue->lock);
    return task;
}

static struct loop_task *queue_last(struct queue *queue)
{
    pthread_mutex_lock(queue->lock);
    struct loop_task *last = queue->first ? queue->last : NULL;
    pthread_mutex_unlock(queue->lock);
    return last;
}

/* Runs what is queued now: tasks that these queue wait for the next turn, which must not sleep then. */
static void queue_run(struct loop *loop, struct queue *queue)
{
    const struct loop_task *last = queue_last(queue);
    for (bool more = last; more;) {
        struct loop_task *task = queue_take(queue);
        more = task != last; /* it may be gone when it has run */
        task->run(task->context);
    }
    if (queue_last(queue))
        ev_async_send(loop->ev, &loop->wake);
}

static void end_turn(struct loop *loop)
{
    loop->turns += !loop->begins;
    loop->begins = false;
    if (loop->deferred.first) /* only this thread fills it: most turns need no lock */
        queue_run(loop, &loop->deferred);
    if (loop->ready.shares
            .first) /* the next turn does not sleep; while libev does not either, that takes no system call */
        ev_async_send(loop->ev, &loop->wake);
}

/* Ends a wait; the kernel reports behind it what it could not watch (watch). */
static void on_watch_again(struct ev_loop *ev, struct ev_timer *watcher, int events)
{
    (void)ev, (void)watcher, (void)events;
}

static void on_wake(struct ev_loop *ev, struct ev_async *watcher, int events)
{
    (void)ev, (void)events;
    struct loop *loop = watcher->data;
    queue_run(loop, &loop->posted);
}

void loop_defer(struct loop *loop, struct loop_task *task)
{
    queue_put(&loop->deferred, task);
}

void loop_post(struct loop *loop, struct loop_task *task)
{
    queue_put(&loop->posted, task);
    ev_async_send(loop->ev, &loop->wake);
}

/* ---- what is ready ---- */
static struct ready *ready_at(struct ready_list *ready, uint32_t place)
{
    return &ready->places[place - 1];
}

/* False: out of memory. */
static bool more_places(struct ready_list *ready)
{
    uint32_t size = ready->size ? 2 * ready->size : 2 * READY_MOST;
    struct ready *places = realloc(ready->places, size * sizeof *places);
    if (!places)
        return false;
    for (uint32_t i = size; i > ready->size; i--) {
        places[i - 1] = (struct ready){.next = ready->free};
        ready->free = i;
    }
    ready->places = places;
    ready->size = size;
    return true;
}

static void give_place(struct ready_list *ready, uint32_t place)
{
    struct ready *r = ready_at(ready, place);
    ready->announced -= r->announced;
    ready->waiting--;
    *r = (struct ready){.next = ready->free};
    ready->free = place;
}

/* Its place is given back when it is first in line, so that none has to be looked for. What nobody waits for any more takes room
 * until then: each descriptor has some more. */
static void forget_ready(struct loop_io *io)
{
    if (io->waits)
        ready_at(&io->share->loop->ready, io->waits)->io = NULL;
    io->waits = 0;
}

static void put_last(struct loop_line *line, struct loop_share *share)
{
    if (!line->first)
        line->end = &line->first;
    share->next = NULL;
    share->link = line->end;
    *line->end = share;
    line->end = &share->next;
}

static void take_off(struct loop_line *line, struct loop_share *share)
{
    *share->link = share->next;
    if (share->next)
        share->next->link = share->link;
    else
        line->end = share->link;
    share->link = NULL;
}

/* A group is in line while one of its shares is. */
static void join_line(struct ready_list *ready, struct loop_share *share)
{
    struct loop_share *group = share->of;
    put_last(group ? &group->within : &ready->shares, share);
    if (group && !group->link)
        put_last(&ready->shares, group);
}

static void leave_line(struct ready_list *ready, struct loop_share *share)
{
    struct loop_share *group = share->of;
    take_off(group ? &group->within : &ready->shares, share);
    if (group && !group->within.first)
        take_off(&ready->shares, group);
}

static void announce(struct loop *loop, struct ready *r)
{
    if (!loop->soon || !r->io || r->announced)
        return;
    r->announced = true;
    loop->ready.announced++;
    loop->soon(r->io);
}

static void note_ready(struct loop *loop, struct loop_io *io, int events)
{
    struct ready_list *ready = &loop->ready;
    struct loop_share *share = io->share;
    if (io->waits) {
        ready_at(ready, io->waits)->events |= (uint8_t)events;
        return;
    }
    if (!ready->free &&
        !more_places(ready)) /* there was no memory when it was opened, nor now: epoll tells of it again */
        return;
    bool others = ready->shares.first;
    uint32_t place = ready->free;
    struct ready *r = ready_at(ready, place);
    ready->free = r->next;
    ready->waiting++;
    *r = (struct ready){.io = io, .events = (uint8_t)events};
    io->waits = place;
    if (share->first)
        ready_at(ready, share->last)->next = place;
    else
        share->first = place;
    share->last = place;
    if (!share->link)
        join_line(ready, share);
    if (others && ready->announced < READY_MOST - 2)
        announce(loop, r);
}

/* The first in line of this share, which leaves the line of shares with its last one; io NULL: it does not wait any more. */
static struct ready take_ready(struct loop *loop, struct loop_share *share)
{
    struct ready_list *ready = &loop->ready;
    uint32_t place = share->first;
    struct ready r = *ready_at(ready, place);
    if (r.io)
        r.io->waits = 0;
    share->first = r.next;
    give_place(ready, place);
    if (share->first) {
        announce(loop, ready_at(ready, share->first));
    } else {
        share->last = 0;
        leave_line(ready, share);
    }
    return r;
}

/* ---- shares ---- */
void loop_share_open(struct loop_share *share, struct loop *loop)
{
    *share = (struct loop_share){.loop = loop};
}

void loop_share_open_in(struct loop_share *share, struct loop_share *group)
{
    *share = (struct loop_share){.loop = group->loop, .of = group};
}

void loop_share_close(struct loop_share *share)
{
    if (!share->loop)
        return;
    struct ready_list *ready = &share->loop->ready;
    while (share->first)
        (void)take_ready(share->loop, share);
    if (ready->serving == share)
        ready->serving = NULL;
    share->loop = NULL;
}

static void wait_for_turn(struct loop_line *line, struct loop_share *share)
{
    share->credit += (int64_t)LOOP_QUANTUM;
    take_off(line, share);
    put_last(line, share);
}

/* The share, or the one of this group, that has its turn. */
static struct loop_share *next_within(struct loop_share *group)
{
    struct loop_line *line = &group->within;
    while (line->first && line->first->credit <= 0)
        wait_for_turn(line, line->first);
    return line->first ? line->first : group;
}

/* The share that has its turn. One that had more than a turn waits until the others have had as much. If all that wait did, and
 * `served` says that others were there a moment ago, the loop looks for these first: NULL. */
static struct loop_share *next_share(struct ready_list *ready, bool served)
{
    const struct loop_share *debtor = NULL;
    struct loop_share *share;
    while ((share = ready->shares.first) && share->credit <= 0 && !(served && share == debtor)) {
        wait_for_turn(&ready->shares, share);
        if (share->credit <= 0 && !debtor)
            debtor = share;
    }
    return share && share->credit > 0 ? next_within(share) : NULL;
}

static void charge(struct loop_share *share, uint64_t time)
{
    share->credit -= (int64_t)(time < LOOP_DEBT ? time : LOOP_DEBT);
    if (share->credit < -(int64_t)LOOP_DEBT)
        share->credit = -(int64_t)LOOP_DEBT;
}

/* How long those that wait are served until the next look, which tells of each of them again. */
static uint64_t turn_length(const struct ready_list *ready)
{
    uint64_t look = ready->waiting / LOOP_LOOKED_AT;
    return LOOP_TURN + (look < LOOP_DEBT / LOOP_LOOKS ? look * LOOP_LOOKS : LOOP_DEBT);
}

static void handle_ready(struct loop *loop)
{
    struct ready_list *ready = &loop->ready;
    uint64_t now = 0, end = 0;
    bool served = false;
    for (struct loop_share *share; (share = next_share(ready, served));) {
        struct ready r = take_ready(loop, share);
        if (!r.io)
            continue;
        if (!now && ready->shares.first) { /* one that is alone is not measured */
            now = loop_clock();
            end = now + turn_length(ready);
        }
        struct loop_share *group = share->of;
        ready->serving = share;
        r.io->ready(loop_io_owner(r.io), r.events);
        uint64_t then = now ? loop_clock() : 0;
        if (ready->serving == share)
            charge(share, then - now);
        if (group)
            charge(group, then - now);
        now = then;
        served = true;
        if (now >= end && ready->shares.first)
            break;
    }
    ready->serving = NULL;
}

/* In place of libev's own, which calls it when a run begins and after each wait: descriptors are noted first, then handled, so that
 * shares can take turns, and memory can be on its way by then. */
static void on_pending(struct ev_loop *ev)
{
    struct loop *loop = ev_userdata(ev);
    ev_invoke_pending(ev);
    handle_ready(loop);
    end_turn(loop);
}

/* ---- the loop ---- */
struct loop *loop_new(struct fail *why)
{
    struct loop *loop = loop_memory_set_aside() ? calloc(1, sizeof *loop) : NULL;
    /* NOENV: LIBEV_FLAGS in the environment could choose another back-end silently */
    struct ev_loop *ev = loop ? ev_loop_new(EVFLAG_NOENV | EVBACKEND_EPOLL) : NULL;
    if (!ev || ev_backend(ev) != EVBACKEND_EPOLL) {
        if (ev)
            ev_loop_destroy(ev);
        free(loop);
        fail(why, "cannot start an event loop on epoll: out of memory or of descriptors");
        return NULL;
    }
    loop->ev = ev;
    loop_share_open(&loop->own, loop);
    ev_set_userdata(ev, loop);
    ev_set_invoke_pending_cb(ev, on_pending);
    pthread_mutex_init(&loop->lock, NULL);
    loop->deferred.lock = loop->posted.lock = &loop->lock;
    ev_async_init(&loop->wake, on_wake);
    ev_init(&loop->watch_again, on_watch_again);
    loop->wake.data = loop;
    ev_async_start(ev, &loop->wake);
    return loop;
}

void loop_free(struct loop *loop)
{
    if (!loop)
        return;
    while (queue_last(&loop->deferred) || queue_last(&loop->posted)) {
        queue_run(loop, &loop->posted);
        queue_run(loop, &loop->deferred);
    }
    ev_loop_destroy(loop->ev);
    loop_share_close(&loop->own);
    free(loop->ready.places);
    pthread_mutex_destroy(&loop->lock);
    free(loop);
}

static void run(struct loop *loop, int how)
{
    loop->begins = true;
    ev_run(loop->ev, how);
    queue_run(loop, &loop->deferred);
}

void loop_run(struct loop *loop)
{
    run(loop, 0);
}

void loop_turn(struct loop *loop, bool wait)
{
    run(loop, wait ? EVRUN_ONCE : EVRUN_NOWAIT);
}

uint64_t loop_turns(const struct loop *loop)
{
    return loop->turns;
}

void loop_set_soon(struct loop *loop, void (*soon)(const struct loop_io *io))
{
    loop->soon = soon;
}

void loop_stop(struct loop *loop)
{
    ev_break(loop->ev, EVBREAK_ALL);
}

/* libev's own time */
static double seconds(uint64_t microseconds)
{
    return (double)microseconds / 1e6;
}

/* ---- descriptors ---- */
/* The one place where a descriptor's watcher starts. libev tells the kernel when this turn is over, and what the kernel
 * refuses (fs.epoll.max_user_watches, memory) comes back as EV_ERROR, behind the next wait, which this bounds. */
static void watch(struct loop_io *io, int events)
{
    struct loop *loop = io->share->loop;
    ev_io_set(&io->watcher, io->watcher.fd, events); /* else libev does not tell the kernel twice */
    ev_io_start(loop->ev, &io->watcher);
    if (ev_is_active(&loop->watch_again))
        return;
    ev_timer_set(&loop->watch_again, seconds(WATCH_AGAIN), 0.);
    ev_timer_start(loop->ev, &loop->watch_again);
}

static void on_ready(struct ev_loop *ev, struct ev_io *watcher, int events)
{
    (void)ev;
    struct loop_io *io = (struct loop_io *)watcher; /* its first member */
    if (events & EV_ERROR)
        watch(io, io->watcher.events);
    else
        note_ready(io->share->loop, io, events & (LOOP_READ | LOOP_WRITE));
}

void loop_io_open(struct loop_io *io, struct loop *loop, int fd, void (*ready)(void *owner, int events),
                  void *owner)
{
    ev_io_init(&io->watcher, on_ready, fd, 0);
    io->watcher.data = owner;
    io->share = &loop->own;
    io->ready = ready;
    io->waits = 0;
    if (++loop->ready.open > loop->ready.size / 2)
        (void)more_places(&loop->ready);
}

void loop_io_join(struct loop_io *io, struct loop_share *share)
{
    if (!loop_io_is_open(io) || io->share == share)
        return;
    forget_ready(io);
    io->share = share;
}

void loop_io_again(struct loop_io *io, int events)
{
    int wanted = loop_io_is_open(io) ? events & io->watcher.events : 0;
    if (!wanted)
        return;
    note_ready(io->share->loop, io, wanted);
    ev_async_send(io->share->loop->ev, &io->share->loop->wake);
}

void loop_io_want(struct loop_io *io, int events)
{
    int now = io->watcher.events & (LOOP_READ | LOOP_WRITE);
    if (!loop_io_is_open(io) || events == now)
        return;
    ev_io_stop(io->share->loop->ev, &io->watcher);
    forget_ready(io);
    ev_io_set(&io->watcher, io->watcher.fd, events);
    if (events)
        watch(io, events);
}

int loop_io_fd(const struct loop_io *io)
{
    return loop_io_is_open(io) ? io->watcher.fd : -1;
}

int loop_io_release(struct loop_io *io)
{
    if (!loop_io_is_open(io))
        return -1;
    ev_io_stop(io->share->loop->ev, &io->watcher);
    forget_ready(io);
    io->share->loop->ready.open--;
    io->share = NULL;
    return io->watcher.fd;
}

void loop_io_close(struct loop_io *io)
{
    int fd = loop_io_release(io);
    if (fd >= 0)
        close(fd);
}

/* ---- times ---- */
static void on_due(struct ev_loop *ev, struct ev_timer *watcher, int events)
{
    (void)ev, (void)events;
    struct loop_timer *timer = watcher->data;
    timer->due(timer->owner);
}

void loop_timer_open(struct loop_timer *timer, struct loop *loop, void (*due)(void *owner), void *owner)
{
    ev_timer_init(&timer->watcher, on_due, 0., 0.);
    timer->watcher.data = timer;
    timer->loop = loop;
    timer->due = due;
    timer->owner = owner;
}

/* The one place where a timer's watcher starts. */
void loop_timer_set(struct loop_timer *timer, uint64_t microseconds)
{
    if (!timer->loop)
        return;
    struct ev_loop *ev = timer->loop->ev;
    ev_timer_stop(ev, &timer->watcher);
    /* libev counts from the time that it took when the turn began: of no use when there is no turn */
    if (ev_depth(ev) == 0)
        ev_now_update(ev);
    ev_timer_set(&timer->watcher, seconds(microseconds), 0.);
    ev_timer_start(ev, &timer->watcher);
}

void loop_timer_set_at(struct loop_timer *timer, uint64_t when)
{
    uint64_t now = loop_clock();
    loop_timer_set(timer, when > now ? when - now : 0);
}

bool loop_timer_active(const struct loop_timer *timer)
{
    return timer->loop && ev_is_active(&timer->watcher);
}

void loop_timer_stop(struct loop_timer *timer)
{
    if (timer->loop)
        ev_timer_stop(timer->loop->ev, &timer->watcher);
}

void loop_timer_close(struct loop_timer *timer)
{
    loop_timer_stop(timer);
    timer->loop = NULL;
}
