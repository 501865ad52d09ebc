/* SPDX-License-Identifier: MIT */
/*
 * relay_thread_run: starts a relay thread, lets it accept, drain and run what others ask of it, and ends it. Everything else of
 * one happens on it.
 */
#ifndef CELLGATE_RELAY_SERVE_RELAY_THREAD_RUN_H
#define CELLGATE_RELAY_SERVE_RELAY_THREAD_RUN_H

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

/* Its thread runs when this returns. NULL and *why. */
struct relay_thread *relay_thread_start(const struct relay_thread_options *options, struct fail *why);
/* Ends every tunnel at once, then the thread. NULL is fine. */
void relay_thread_stop(struct relay_thread *thread);
/* Runs a function on that thread and waits for it. */
void relay_thread_call(struct relay_thread *thread, void (*run)(struct relay_thread *thread, void *context),
                       void *context);

/* ---- on its thread ---- */
/* Writes the tunnels into the file (handover.h), ends everything else, and ends the thread's loop: nothing of the tunnels changes after
 * that. */
struct handover_file;
void relay_thread_hand_over(struct relay_thread *thread, struct handover_file *file);
/* New upgrades are refused from now on; the tunnels end, spread over settings.drain. */
void relay_thread_drain(struct relay_thread *thread);

#endif
