/* SPDX-License-Identifier: MIT */
/*
 * relay_thread_run: starts a relay thread, lets it accept, drain and run what others ask of it, and ends it. Everything else of
 * one happens on it.
 */
#ifndef CELLGATE_RELAY_SERVE_RELAY_THREAD_RUN_H
#define CELLGATE_RELAY_SERVE_RELAY_THREAD_RUN_H

#include <stddef.h>

#include "spoa/relay/thread/relay_thread.h"

struct relay_thread_options {
    unsigned number;
    struct log *log;
    struct limits *limits;
    struct relay_metrics *metrics;
    struct mux_sessions *mux_sessions;
    const struct relay_thread_settings *settings;
    const struct net_address *agent;
    unsigned questions; /* open at a time */
    int listener;       /* borrowed */
};

/* Starts the thread, which accepts nobody before relay_thread_accept. Returns NULL with *why on failure. */
struct relay_thread *relay_thread_start(const struct relay_thread_options *options, struct fail *why);
/* Ends every tunnel at once, then the thread. NULL is fine. */
void relay_thread_stop(struct relay_thread *thread);
/* Runs a function on that thread and waits for it. */
void relay_thread_call(struct relay_thread *thread, void (*run)(struct relay_thread *thread, void *context),
                       void *context);

/* Runs a function on all of the threads at the same time, with an object of `size` bytes for each out of the array `contexts`, and waits for
 * all. */
void relay_threads_call(struct relay_thread *const *threads, size_t count,
                        void (*run)(struct relay_thread *thread, void *context), void *contexts, size_t size);

/* ---- on its thread ---- */
void relay_thread_accept(struct relay_thread *thread);
/* Ends handshakes, and accepts no connection any more. */
void relay_thread_hold(struct relay_thread *thread);
/* Ends the thread's loop. The thread then writes its tunnels into the file (handover.h), ends everything else, and exits. */
void relay_thread_hand_over(struct relay_thread *thread, struct handover_file *file);
/* New upgrades are refused from now on; the tunnels end, spread over settings.drain. */
void relay_thread_drain(struct relay_thread *thread);

#endif
