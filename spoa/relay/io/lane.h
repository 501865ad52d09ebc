/* SPDX-License-Identifier: MIT */
/*
 * lane: one thread of the relay as what it carries sees it: its loop, the agent's connection, its tunnels. Lanes share the
 * listener, the limits and the metrics, and nothing else. lane_thread.h starts and ends them.
 */
#ifndef CELLGATE_RELAY_IO_LANE_H
#define CELLGATE_RELAY_IO_LANE_H

#include <pthread.h>

#include "spoa/base/cidr.h"
#include "spoa/net/loop.h"
#include "spoa/net/net.h"
#include "spoa/relay/io/counts.h"
#include "spoa/relay/io/limits.h"
#include "spoa/relay/io/parting.h"
#include "spoa/relay/io/resolver.h"
#include "spoa/relay/tunnel/tunnel.h"
#include "spoa/relay/tunnel/upgrade.h"
#include "spoa/service/log.h"
#include "spoa/service/settings.h"

#define LANE_SCRATCH (TUNNEL_FRONT + LEG_FRAME_WHOLE + LEG_PAUSE)
#define LANE_CIDRS   64

struct port;
struct arrival;

/* Of the configuration; a lane has a copy of its own. */
struct lane_settings {
    struct tunnel_settings tunnel;
    uint64_t dial_timeout, head_time, drain;
    size_t head_size;
    struct net_address worker_tls;
    struct cidr networks[LANE_CIDRS];
    size_t networks_count;
    char socket_folders[NET_FOLDERS_MOST][NET_PATH_MOST + 1]; /* the rest is empty */
};

/* False: more networks than a lane takes. */
bool lane_settings_from(struct lane_settings *to, const struct settings *settings);

struct lane {
    unsigned number;
    pthread_t thread;
    struct loop *loop;
    struct log *log;
    struct limits *limits;
    struct counts *counts;
    struct metrics_shard *shard;
    struct resolver *resolver;
    struct partings partings;
    struct lane_settings settings;
    int listener;

    struct loop_io accepting;
    struct loop_timer accept_again; /* after a pause */
    struct arrival *arrivals;       /* connections whose head is not there yet, the oldest first */
    struct arrival **arrivals_last; /* behind the newest, if there is one */
    size_t arrivals_count;
    struct port *ports;
    size_t ports_count;
    uint64_t next_id;
    bool draining;
    uint64_t drain_began;
    size_t drain_tunnels; /* when it began */
    struct loop_timer drain_step;
    uint64_t longest_gap; /* since it was last asked for, microseconds */
    uint8_t *scratch;     /* LANE_SCRATCH bytes */
};

/* ---- on its thread ---- */
/* A descriptor could not be had: accepting pauses for a moment. */
void lane_pause_accepting(struct lane *lane);
/* Sends an answer of the relay's own, or any other head, on a socket that is then closed in good order. */
void lane_answer(struct lane *lane, int fd, struct slice answer);
/* upgrade: what is refused, NULL while that is not known. */
void lane_refuse(struct lane *lane, int fd, const struct upgrade *upgrade, enum refusal refusal);

#endif
