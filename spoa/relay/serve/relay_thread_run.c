/* SPDX-License-Identifier: MIT */
#include "spoa/relay/serve/relay_thread_run.h"

#include <semaphore.h>
#include <stdlib.h>

#include "spoa/base/os/fail.h"
#include "spoa/net/loop_thread.h"
#include "spoa/relay/egress/egress_io.h"
#include "spoa/relay/mux_io/mux_io.h"
#include "spoa/relay/serve/handover.h"
#include "spoa/relay/serve/handshake.h"
#include "spoa/relay/tunnel_io/tunnel_io.h"

#define ACCEPTS_A_TURN 16
#define DRAIN_STEP     (50 * MILLISECOND)

/* ---- accepting ---- */
static void on_accepted(void *owner, int fd)
{
    handshake_begin(owner, fd);
}

static void count_pause(void *owner)
{
    metrics_add(((struct relay_thread *)owner)->shard, METRIC_ACCEPT_PAUSES, METRIC_PLAIN, 1);
}

/* ---- draining ---- */
static size_t count_open(const struct relay_thread *thread)
{
    size_t open = 0;

    for (struct tunnel_seat *p = thread->tunnels; p; p = tunnel_io_next(p))
        open += !tunnel_io_is_closing(p);
    return open;
}

/* Of those that were there at the beginning, as many stay as there is time left. */
static size_t drain_keeps(const struct relay_thread *thread)
{
    uint64_t passed = loop_clock() - thread->drain_began, all = thread->settings.drain;

    if (passed >= all)
        return 0;
    return (size_t)((double)thread->drain_tunnels * (double)(all - passed) / (double)all + 0.5);
}

static void drain_step(void *owner)
{
    struct relay_thread *thread = owner;
    size_t open = count_open(thread), keep = drain_keeps(thread);
    bool late =
        loop_clock() - thread->drain_began >= thread->settings.drain + thread->settings.tunnel.close_timeout;

    for (struct tunnel_seat *p = thread->tunnels, *next; p && (late || open > keep); p = next) {
        next = tunnel_io_next(p);
        if (tunnel_io_is_closing(p) && !late)
            continue;
        tunnel_io_end(p, CLOSE_restarting);
        open--;
    }
    bool over = loop_clock() - thread->drain_began >= thread->settings.drain;
    if (over)
        egress_ios_end(thread, late);
    mux_ios_drain(thread, over, late);
    loop_timer_set(&thread->drain_step, DRAIN_STEP);
}

void relay_thread_accept(struct relay_thread *thread)
{
    listener_hold(&thread->listener, false);
}

void relay_thread_drain(struct relay_thread *thread)
{
    if (thread->draining)
        return;
    thread->draining = true;
    thread->drain_began = loop_clock();
    thread->drain_tunnels = count_open(thread);
    drain_step(thread);
}

/* ---- its thread ---- */

/* After the loop: no event can change a tunnel that is written. */
static void hand_over(struct relay_thread *thread)
{
    handover_write(thread->handover, thread);
    mux_ios_drain(thread, true, true);
    /* the kernel forgets what the loop has watched: here on all cores, otherwise in execve */
    loop_free(thread->loop);
}

static void *run(void *context)
{
    struct relay_thread *thread = context;
    loop_run(thread->loop);
    if (thread->handover)
        hand_over(thread);
    return NULL;
}

struct call {
    struct relay_thread *thread;
    void (*run)(struct relay_thread *thread, void *context);
    void *context;
};

static void run_call(void *context)
{
    const struct call *call = context;
    call->run(call->thread, call->context);
}

void relay_thread_call(struct relay_thread *thread,
                       void (*run_it)(struct relay_thread *thread, void *context), void *context)
{
    struct call call = {thread, run_it, context};
    loop_call(thread->loop, run_call, &call);
}

/* A call of one thread among many. */
struct part {
    struct loop_task task;
    struct call call;
    sem_t *returned;
};

static void run_part(void *context)
{
    struct part *part = context;
    run_call(&part->call);
    sem_post(part->returned);
}

void relay_threads_call(struct relay_thread *const *threads, size_t count,
                        void (*run_it)(struct relay_thread *thread, void *context), void *contexts,
                        size_t size)
{
    struct part parts[SETTINGS_THREADS_MAX];
    sem_t returned;

    sem_init(&returned, 0, 0);
    for (size_t i = 0; i < count; i++) {
        parts[i] = (struct part){.call = {threads[i], run_it, (char *)contexts + i * size}, .returned = &returned};
        parts[i].task = (struct loop_task){.run = run_part, .context = &parts[i]};
        loop_post(threads[i]->loop, &parts[i].task);
    }
    for (size_t i = 0; i < count; i++)
        while (sem_wait(&returned) != 0)
            ; /* a signal came first */
    sem_destroy(&returned);
}

static void relay_thread_free(struct relay_thread *thread)
{
    (void)listener_release(&thread->listener);
    loop_timer_close(&thread->drain_step);
    moves_close(&thread->moves);
    if (thread->loop)
        lingering_closes_end(&thread->lingering);
    agent_client_free(thread->agent);
    loop_timer_close(&thread->rest.look);
    tunnel_times_end(&thread->times);
    loop_free(thread->loop);
    time_shares_close(&thread->shares);
    tunnel_rest_close(&thread->rest);
    pipes_free(&thread->pipes);
    free(thread->scratch);
    free(thread);
}

static bool set_up(struct relay_thread *thread, const struct relay_thread_options *o, struct fail *why)
{
    thread->loop = loop_new(why);
    if (!thread->loop)
        return false;
    thread->shard = metrics_shard(relay_metrics_metrics(o->metrics));
    thread->sent[CLIENT] = metrics_series(thread->shard, METRIC_BYTES, METRIC_INDEX(BYTES_TO_CLIENT));
    thread->sent[WORKER] = metrics_series(thread->shard, METRIC_BYTES, METRIC_INDEX(BYTES_TO_WORKER));
    thread->lingering = (struct lingering_closes){.loop = thread->loop,
                                                  .share = &thread->shares.unknown,
                                                  .shard = thread->shard,
                                                  .limits = thread->limits,
                                                  .most = LINGERING_MOST};
    loop_set_soon(thread->loop, tunnel_io_soon);
    tunnel_io_host(&thread->host, &thread->commands);
    moves_open(&thread->moves, thread->loop, &tunnel_io_moves);
    thread->scratch = malloc(RELAY_THREAD_SCRATCH);
    thread->agent = agent_client_new(thread->loop, o->agent, o->questions, o->log);
    tunnel_times_open(&thread->times, thread);
    bool shares = time_shares_open(&thread->shares, thread->loop),
         rest = tunnel_rest_open(&thread->rest, thread);
    return (shares && rest && thread->shard && thread->scratch && thread->agent) ||
           fail(why, "out of memory");
}

struct relay_thread *relay_thread_start(const struct relay_thread_options *o, struct fail *why)
{
    struct relay_thread *thread = calloc(1, sizeof *thread);

    if (!thread) {
        fail(why, "out of memory");
        return NULL;
    }
    thread->number = o->number;
    thread->log = o->log;
    thread->limits = o->limits;
    thread->metrics = o->metrics;
    thread->mux_sessions = o->mux_sessions;
    thread->settings = *o->settings;
    if (!set_up(thread, o, why)) {
        relay_thread_free(thread);
        return NULL;
    }
    thread->listener = (struct listener){
        .accepted = on_accepted, .rested = count_pause, .owner = thread, .batch = ACCEPTS_A_TURN};
    listener_open(&thread->listener, thread->loop, o->listener);
    listener_hold(&thread->listener, true);
    loop_timer_open(&thread->drain_step, thread->loop, drain_step, thread);
    if (pthread_create(&thread->thread, NULL, run, thread) == 0)
        return thread;
    fail(why, "cannot start a thread");
    relay_thread_free(thread);
    return NULL;
}

void relay_thread_hold(struct relay_thread *thread)
{
    thread->draining = true;
    listener_hold(&thread->listener, true);
    handshakes_end(thread);
}

void relay_thread_hand_over(struct relay_thread *thread, struct handover_file *file)
{
    thread->handover = file;
    loop_stop(thread->loop);
}

static void stop(struct relay_thread *thread, void *context)
{
    (void)context;
    relay_thread_hold(thread);
    for (struct tunnel_seat *p = thread->tunnels, *next; p; p = next) {
        next = tunnel_io_next(p);
        if (!tunnel_io_is_closing(p))
            tunnel_io_end(p, CLOSE_restarting);
    }
    while (thread->tunnels)
        tunnel_io_cut(thread->tunnels);
    egress_ios_end(thread, true);
    mux_ios_drain(thread, true, true);
    loop_stop(thread->loop);
}

void relay_thread_stop(struct relay_thread *thread)
{
    if (!thread)
        return;
    relay_thread_call(thread, stop, NULL);
    pthread_join(thread->thread, NULL);
    relay_thread_free(thread);
}
