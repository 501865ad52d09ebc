/* SPDX-License-Identifier: MIT */
#include "spoa/relay/io/lane_thread.h"

#include <errno.h>
#include <semaphore.h>
#include <stdlib.h>

#include "spoa/base/fail.h"
#include "spoa/relay/io/arrival.h"
#include "spoa/relay/io/port.h"

#define ACCEPTS_A_TURN 16
#define DRAIN_STEP     0.05 /* seconds */

/* ---- accepting ---- */
static void accept_again(void *owner)
{
    struct lane *lane = owner;
    loop_io_want(&lane->accepting, LOOP_READ);
}

static void on_accept(void *owner, int events)
{
    struct lane *lane = owner;
    (void)events;

    for (int i = 0; i < ACCEPTS_A_TURN; i++) {
        int fd = net_accept(lane->listener);
        if (fd >= 0) {
            arrival_begin(lane, fd);
            continue;
        }
        if (fail_of_resources(errno))
            lane_pause_accepting(lane);
        return;
    }
}

/* ---- draining ---- */

static size_t count_open(const struct lane *lane)
{
    size_t open = 0;

    for (struct port *p = lane->ports; p; p = port_next(p))
        open += !port_is_closing(p);
    return open;
}

/* Of those that were there at the beginning, as many stay as there is time left. */
static size_t drain_keeps(const struct lane *lane)
{
    uint64_t passed = loop_clock() - lane->drain_began, all = lane->settings.drain;

    if (passed >= all)
        return 0;
    return (size_t)((double)lane->drain_tunnels * (double)(all - passed) / (double)all + 0.5);
}

static void drain_step(void *owner)
{
    struct lane *lane = owner;
    size_t open = count_open(lane), keep = drain_keeps(lane);
    bool late =
        loop_clock() - lane->drain_began >= lane->settings.drain + lane->settings.tunnel.close_timeout;

    for (struct port *p = lane->ports, *next; p && (late || open > keep); p = next) {
        next = port_next(p);
        if (port_is_closing(p) && !late)
            continue;
        port_end(p, CLOSE_restarting);
        open--;
    }
    loop_timer_set(&lane->drain_step, DRAIN_STEP);
}

void lane_drain(struct lane *lane)
{
    if (lane->draining)
        return;
    lane->draining = true;
    lane->drain_began = loop_clock();
    lane->drain_tunnels = count_open(lane);
    drain_step(lane);
}

/* ---- its thread ---- */
static void *run(void *context)
{
    struct lane *lane = context;
    loop_run(lane->loop);
    return NULL;
}

struct call {
    struct loop_task task;
    struct lane *lane;
    void (*run)(struct lane *lane, void *context);
    void *context;
    sem_t done;
};

static void run_call(void *context)
{
    struct call *call = context;
    call->run(call->lane, call->context);
    sem_post(&call->done);
}

void lane_call(struct lane *lane, void (*run_it)(struct lane *lane, void *context), void *context)
{
    struct call call = {.lane = lane, .run = run_it, .context = context};

    call.task = (struct loop_task){.run = run_call, .context = &call};
    sem_init(&call.done, 0, 0);
    loop_post(lane->loop, &call.task);
    while (sem_wait(&call.done) != 0 && errno == EINTR)
        ;
    sem_destroy(&call.done);
}

static void lane_free(struct lane *lane)
{
    loop_io_release(&lane->accepting);
    loop_timer_close(&lane->accept_again);
    loop_timer_close(&lane->drain_step);
    if (lane->loop)
        partings_end(&lane->partings);
    resolver_free(lane->resolver);
    loop_free(lane->loop);
    free(lane->scratch);
    free(lane);
}

static bool set_up(struct lane *lane, const struct lane_options *o, struct fail *why)
{
    lane->loop = loop_new(why);
    if (!lane->loop)
        return false;
    lane->shard = metrics_shard(counts_metrics(o->counts));
    lane->partings = (struct partings){
        .loop = lane->loop, .shard = lane->shard, .limits = lane->limits, .most = PARTINGS_MOST};
    lane->scratch = malloc(LANE_SCRATCH);
    lane->resolver = resolver_new(lane->loop, o->agent, o->questions, o->log);
    return (lane->shard && lane->scratch && lane->resolver) || fail(why, "out of memory");
}

struct lane *lane_start(const struct lane_options *o, struct fail *why)
{
    struct lane *lane = calloc(1, sizeof *lane);

    if (!lane) {
        fail(why, "out of memory");
        return NULL;
    }
    lane->number = o->number;
    lane->log = o->log;
    lane->limits = o->limits;
    lane->counts = o->counts;
    lane->settings = *o->settings;
    lane->listener = o->listener;
    if (!set_up(lane, o, why)) {
        lane_free(lane);
        return NULL;
    }
    loop_io_open(&lane->accepting, lane->loop, o->listener, on_accept, lane);
    loop_timer_open(&lane->accept_again, lane->loop, accept_again, lane);
    loop_timer_open(&lane->drain_step, lane->loop, drain_step, lane);
    loop_io_want(&lane->accepting, LOOP_READ);
    if (pthread_create(&lane->thread, NULL, run, lane) == 0)
        return lane;
    fail(why, "cannot start a thread");
    lane_free(lane);
    return NULL;
}

static void stop(struct lane *lane, void *context)
{
    (void)context;
    lane->draining = true;
    loop_io_want(&lane->accepting, 0);
    arrivals_end(lane);
    for (struct port *p = lane->ports, *next; p; p = next) {
        next = port_next(p);
        if (!port_is_closing(p))
            port_end(p, CLOSE_restarting);
    }
    while (lane->ports)
        port_cut(lane->ports);
    loop_stop(lane->loop);
}

void lane_stop(struct lane *lane)
{
    if (!lane)
        return;
    lane_call(lane, stop, NULL);
    pthread_join(lane->thread, NULL);
    lane_free(lane);
}
