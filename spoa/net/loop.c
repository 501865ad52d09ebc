/* SPDX-License-Identifier: MIT */
#include "spoa/net/loop.h"

#include <pthread.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "spoa/base/table/list.h"
#include "spoa/net/loop_memory.h"

#define WATCH_AGAIN (100 * MILLISECOND) /* time until the loop asks again for a watch that the kernel refused */

/* descriptors announced at once: the memory for handling them fits into a core's second-level cache */
enum { READY_MAX = 64 };

struct queue {
    pthread_mutex_t *lock; /* the loop's, because a task is in at most one of the loop's queues */
    struct loop_task *first, *last;
};

/* The descriptors with events that are not handled yet: reported by libev, or asked for with loop_io_again. Places are counted from 1, so
 * that 0 means none. */
struct ready_list {
    struct ready {
        struct loop_io *io; /* NULL if the descriptor was closed, or waits for other events now */
        uint32_t next;      /* the next place in the share's line, or the next free place; 0 if none */
        uint8_t events;
        bool announced; /* the call-back of loop_set_soon was called */
    } * places;
    uint32_t size; /* number of places */
    uint32_t free; /* the first free place, or 0 */
    /* open descriptors; there is a place for each of them unless memory was short */
    uint32_t open;
    uint32_t announced;      /* number of announced places */
    struct loop_line shares; /* shares and groups in which descriptors wait */
    /* the share whose descriptor is being handled; NULL if it was closed meanwhile */
    struct loop_share *serving;
    uint32_t waiting; /* places in use */
};

struct loop {
    struct ev_loop *ev;
    struct loop_share own; /* the share of descriptors that joined no other */
    struct ready_list ready;
    void (*soon)(const struct loop_io *io);
    struct ev_async wake;
    struct ev_timer watch_again;
    pthread_mutex_t lock;
    struct queue deferred, posted;
    uint64_t turns;
    bool begins; /* a run has begun: libev then calls on_pending once before it waits, which is no turn */
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

/* Runs the tasks that are queued now. Tasks that these queue wait for the next turn, which is made not to sleep. */
static void queue_run(struct loop *loop, struct queue *queue)
{
    const struct loop_task *last = queue_last(queue);
    for (bool more = last; more;) {
        struct loop_task *task = queue_take(queue);
        more = task != last; /* compared first: the task may free itself when it runs */
        task->run(task->context);
    }
    if (queue_last(queue))
        ev_async_send(loop->ev, &loop->wake);
}

/* Does nothing: the timer only ends a wait, after which the kernel reports the descriptors that it could not watch (see watch). */
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

/* ---- ready descriptors ---- */
static struct ready *ready_at(struct ready_list *ready, uint32_t place)
{
    return &ready->places[place - 1];
}

/* Doubles the number of places. Returns false if memory is short. */
static bool more_places(struct ready_list *ready)
{
    uint32_t size = ready->size ? 2 * ready->size : 2 * READY_MAX;
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

/* Forgets a descriptor's events. Its place stays in the share's line and is freed when it comes first, so that nothing has to be searched.
 * There are twice as many places as descriptors, so such places never run out. */
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
    LIST_APPEND(line->end, share);
}

static void take_off(struct loop_line *line, struct loop_share *share)
{
    LIST_UNLINK_FROM(line->end, share);
    share->link = NULL;
}

/* Adds a share to the line of its group or of the loop. A group is in the loop's line while one of its shares is in its own. */
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

/* Tells the call-back of loop_set_soon, once, that a descriptor will be handled soon. */
static void announce(struct loop *loop, struct ready *r)
{
    if (!loop->soon || !r->io || r->announced)
        return;
    r->announced = true;
    loop->ready.announced++;
    loop->soon(r->io);
}

/* Puts a descriptor's events into the line of its share. */
static void note_ready(struct loop *loop, struct loop_io *io, int events)
{
    struct ready_list *ready = &loop->ready;
    struct loop_share *share = io->share;
    if (io->waits) {
        ready_at(ready, io->waits)->events |= (uint8_t)events;
        return;
    }
    if (!ready->free && !more_places(ready))
        /* memory was short when the descriptor was opened, and is still; epoll will report the event again */
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
    if (others && ready->announced < READY_MAX - 2)
        announce(loop, r);
}

/* Takes the first place off the line of a share, and the share off its line with its last place. The result's io is NULL if the descriptor
 * waits for nothing any more. */
static struct ready take_ready(struct loop *loop, struct loop_share *share)
{
    struct ready_list *ready = &loop->ready;
    uint32_t place = share->first;
    struct ready r = *ready_at(ready, place);
    if (r.io)
        r.io->waits = 0;
    share->first = r.next;
    ready->announced -= r.announced;
    ready->waiting--;
    *ready_at(ready, place) = (struct ready){.next = ready->free};
    ready->free = place;
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

/* Moves a share to the end of its line, with the credit of another turn. */
static void wait_for_turn(struct loop_line *line, struct loop_share *share)
{
    share->credit += (int64_t)LOOP_QUANTUM;
    take_off(line, share);
    put_last(line, share);
}

/* Returns the member of a group that has its turn, or the share itself if it is no group. */
static struct loop_share *next_within(struct loop_share *group)
{
    struct loop_line *line = &group->within;
    while (line->first && line->first->credit <= 0)
        wait_for_turn(line, line->first);
    return line->first ? line->first : group;
}

/* Returns the share that has its turn. A share in debt waits until the others have had as much time. Returns NULL if none waits, or if all
 * shares are in debt and `served` says that another one was served a moment ago: the loop then looks first whether that one has new
 * events. */
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

/* Takes the time of an event off a share's credit. */
static void charge(struct loop_share *share, uint64_t time)
{
    share->credit -= (int64_t)(time < LOOP_DEBT ? time : LOOP_DEBT);
    if (share->credit < -(int64_t)LOOP_DEBT)
        share->credit = -(int64_t)LOOP_DEBT;
}

/* Returns the time until the next look for events. A look reports all ready descriptors again, so its cost grows with their number, and
 * must stay small beside the turn. */
static uint64_t turn_length(const struct ready_list *ready)
{
    uint64_t look = ready->waiting / LOOP_LOOKED_AT;
    return LOOP_TURN + (look < LOOP_DEBT / LOOP_LOOKS ? look * LOOP_LOOKS : LOOP_DEBT);
}

/* Handles ready descriptors until none waits or the turn is over. */
static void handle_ready(struct loop *loop)
{
    struct ready_list *ready = &loop->ready;
    uint64_t now = 0, end = 0;
    bool served = false;
    for (struct loop_share *share; (share = next_share(ready, served));) {
        struct ready r = take_ready(loop, share);
        if (!r.io)
            continue;
        /* a share that is alone is not charged: that saves reading the clock */
        if (!now && ready->shares.first) {
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

/* Replaces libev's function of that kind, which libev calls when a run begins and after each wait. Descriptors are noted first and handled
 * then, so that shares can take turns and memory can be prefetched. */
static void on_pending(struct ev_loop *ev)
{
    struct loop *loop = ev_userdata(ev);
    ev_invoke_pending(ev);
    handle_ready(loop);
    loop->turns += !loop->begins;
    loop->begins = false;
    if (loop->deferred.first) /* only this thread fills the queue, so an empty one needs no lock */
        queue_run(loop, &loop->deferred);
    /* the next turn must not sleep; libev wakes itself without a system call while it is awake */
    if (loop->ready.shares.first)
        ev_async_send(loop->ev, &loop->wake);
}

/* ---- the loop ---- */
struct loop *loop_new(struct fail *why)
{
    struct loop *loop = loop_memory_set_aside() ? calloc(1, sizeof *loop) : NULL;
    /* without EVFLAG_NOENV, LIBEV_FLAGS in the environment could silently select another back-end */
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

/* Converts a time to libev's unit. */
static double seconds(uint64_t microseconds)
{
    return (double)microseconds / 1e6;
}

/* ---- descriptors ---- */
/* Starts a descriptor's watcher; no other function does. libev passes the watch to the kernel at the end of the turn. A watch that the
 * kernel refuses (fs.epoll.max_user_watches, memory) comes back as EV_ERROR after the next wait, which the timer keeps short. */
static void watch(struct loop_io *io, int events)
{
    struct loop *loop = io->share->loop;
    /* marks the watch as changed: otherwise libev would not repeat it */
    ev_io_set(&io->watcher, io->watcher.fd, events);
    ev_io_start(loop->ev, &io->watcher);
    if (ev_is_active(&loop->watch_again))
        return;
    ev_timer_set(&loop->watch_again, seconds(WATCH_AGAIN), 0.);
    ev_timer_start(loop->ev, &loop->watch_again);
}

static void on_ready(struct ev_loop *ev, struct ev_io *watcher, int events)
{
    (void)ev;
    struct loop_io *io = (struct loop_io *)watcher; /* the watcher is the first member */
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

/* ---- timers ---- */
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

/* Starts a timer's watcher; no other function does. */
void loop_timer_set(struct loop_timer *timer, uint64_t microseconds)
{
    if (!timer->loop)
        return;
    struct ev_loop *ev = timer->loop->ev;
    ev_timer_stop(ev, &timer->watcher);
    /* libev counts from the time at which the turn began; outside of a turn that time is old */
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
