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

/* Descriptors that libev has told of, in its order. */
struct ready_list {
    struct ready {
        struct loop_io *io; /* NULL: closed since, or it waits for something else now */
        int events;
    } list[READY_MOST];
    uint32_t next, count;
};

struct loop {
    struct ev_loop *ev;
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
/* It is looked for, so that no descriptor has to know its place: there are few, and rarely does what one waits for change. */
static void forget_ready(const struct loop_io *io)
{
    struct ready_list *ready = &io->loop->ready;
    for (uint32_t i = ready->next; i < ready->count; i++)
        if (ready->list[i].io == io)
            ready->list[i].io = NULL;
}

static void handle_ready(struct ready_list *ready)
{
    while (ready->next < ready->count) {
        const struct ready *r = &ready->list[ready->next++];
        struct loop_io *io = r->io;
        if (!io)
            continue;
        io->ready(loop_io_owner(io), r->events);
    }
    ready->next = ready->count = 0;
}

static void note_ready(struct loop *loop, struct loop_io *io, int events)
{
    struct ready_list *ready = &loop->ready;
    if (ready->count == READY_MOST)
        handle_ready(ready);
    ready->list[ready->count++] = (struct ready){io, events};
    if (loop->soon && ready->count > 1) /* the first one is handled at once */
        loop->soon(io);
}

/* In place of libev's own, which calls it when a run begins and behind each wait: descriptors are noted first, then handled, so that
 * memory can be on its way by then. */
static void on_pending(struct ev_loop *ev)
{
    struct loop *loop = ev_userdata(ev);
    ev_invoke_pending(ev);
    handle_ready(&loop->ready);
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
    struct loop *loop = io->loop;
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
        note_ready(io->loop, io, events & (LOOP_READ | LOOP_WRITE));
}

void loop_io_open(struct loop_io *io, struct loop *loop, int fd, void (*ready)(void *owner, int events),
                  void *owner)
{
    ev_io_init(&io->watcher, on_ready, fd, 0);
    io->watcher.data = owner;
    io->loop = loop;
    io->ready = ready;
}

void loop_io_want(struct loop_io *io, int events)
{
    int now = io->watcher.events & (LOOP_READ | LOOP_WRITE);
    if (!io->loop || events == now)
        return;
    ev_io_stop(io->loop->ev, &io->watcher);
    forget_ready(io);
    ev_io_set(&io->watcher, io->watcher.fd, events);
    if (events)
        watch(io, events);
}

int loop_io_fd(const struct loop_io *io)
{
    return io->loop ? io->watcher.fd : -1;
}

int loop_io_release(struct loop_io *io)
{
    if (!io->loop)
        return -1;
    ev_io_stop(io->loop->ev, &io->watcher);
    forget_ready(io);
    io->loop = NULL;
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
