/* SPDX-License-Identifier: MIT */
/*
 * lane_thread: a lane's thread, from its start to its end: it accepts, drains, and runs what others ask of it. Everything else
 * of a lane happens on it.
 */
#ifndef CELLGATE_RELAY_IO_LANE_THREAD_H
#define CELLGATE_RELAY_IO_LANE_THREAD_H

#include "spoa/relay/io/lane.h"

struct lane_options {
    unsigned number;
    struct log *log;
    struct limits *limits;
    struct counts *counts;
    const struct lane_settings *settings;
    const struct net_address *agent;
    unsigned questions; /* open at a time */
    int listener;       /* borrowed */
};

/* Its thread runs when this returns. NULL and *why. */
struct lane *lane_start(const struct lane_options *options, struct fail *why);
/* Ends every tunnel at once, then the thread. NULL is fine. */
void lane_stop(struct lane *lane);
/* Runs a function on the lane's thread and waits for it. */
void lane_call(struct lane *lane, void (*run)(struct lane *lane, void *context), void *context);

/* ---- on its thread ---- */
/* New upgrades are refused from now on; the tunnels end, spread over settings.drain. */
void lane_drain(struct lane *lane);

#endif
