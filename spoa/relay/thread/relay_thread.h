/* SPDX-License-Identifier: MIT */
/*
 * relay_thread: one thread of the relay: its loop, the agent's connection, its tunnels. Threads share the
 * listener, the limits and the metrics, and nothing else.
 */
#ifndef CELLGATE_RELAY_IO_RELAY_THREAD_H
#define CELLGATE_RELAY_IO_RELAY_THREAD_H

#include <pthread.h>

#include "spoa/base/bytes/image_pack.h"
#include "spoa/base/table/deadlines.h"
#include "spoa/base/table/slabs.h"
#include "spoa/base/text/cidr.h"
#include "spoa/net/listener.h"
#include "spoa/net/net.h"
#include "spoa/relay/thread/agent_client.h"
#include "spoa/relay/thread/limits.h"
#include "spoa/relay/thread/lingering_close.h"
#include "spoa/relay/thread/moves.h"
#include "spoa/relay/thread/pipes.h"
#include "spoa/relay/thread/relay_metrics.h"
#include "spoa/relay/thread/time_shares.h"
#include "spoa/relay/thread/top_ends.h"
#include "spoa/relay/tunnel/tunnel.h"
#include "spoa/relay/tunnel/upgrade.h"
#include "spoa/service/log.h"
#include "spoa/service/settings.h"

#define RELAY_THREAD_SCRATCH (FORWARD_FRONT + LEG_FRAME_WHOLE + LEG_PAUSE)
#define RELAY_THREAD_CIDRS   64

struct tunnel_io;
struct tunnel_seat;
struct egress_io;
struct mux_io;
struct mux_sessions;
struct handshake;

/* Tunnels of one adapter: their work, with the adapter's state behind it. */
struct tunnel_kind {
    const struct adapter *adapter; /* NULL: none yet */
    struct slabs works;
};

/* Its tunnels at rest (tunnel_rest.c). */
struct tunnel_rest {
    struct slabs seats;
    struct tunnel_kind kinds[ADAPTER_KINDS];
    struct slabs upgrades; /* that are not packed, most of them: so malloc's heap has no holes of theirs */
    struct image_words *words;   /* what their heads have in common */
    struct buffer image;         /* memory to write images in */
    void *head;                  /* an upgrade that is read while memory is short: TUNNEL_HEAD_MAX bytes */
    struct tunnel_io *awake;     /* tunnels that do not rest */
    struct tunnel_io *look_from; /* of these, where the look goes on in the next turn; NULL: it is over */
    struct loop_timer look;      /* for those that have nothing to do; not set while all rest */
    size_t resting;              /* number of tunnels */
};

/* When something of its tunnels is due (tunnel_times.c). */
struct tunnel_times {
    struct deadlines deadlines;
    struct loop_timer timer; /* for the first of them, or before */
    uint64_t timer_at;       /* when it fires, if it is set */
};

/* Of the configuration; a thread has a copy of its own. */
struct relay_thread_settings {
    struct tunnel_settings tunnel;
    uint64_t dial_timeout, head_time, drain;
    size_t head_size;
    struct net_address worker_tls, egress_tls, egress_http, egress_out;
    struct net_address mux; /* HAProxy's listener for requests out of a mux; len 0: there is none */
    size_t mux_requests;    /* in flight per socket */
    uint64_t mux_grace;     /* of a socket without a client; 0: none is resumed */
    struct cidr networks[RELAY_THREAD_CIDRS];
    size_t networks_count;
    char socket_folders[NET_FOLDERS_MAX][NET_PATH_MAX + 1]; /* the rest is empty */
};

/* False: more networks than a thread takes. */
bool relay_thread_settings_from(struct relay_thread_settings *to, const struct settings *settings);

struct relay_thread {
    unsigned number;
    pthread_t thread;
    struct loop *loop;
    struct log *log;
    struct limits *limits;
    struct relay_metrics *metrics;
    struct metrics_shard *shard;
    struct metrics_series sent[2]; /* bytes, to each side of its tunnels */
    struct agent_client *agent;
    struct time_shares shares; /* of its time */
    struct lingering_closes lingering;
    struct relay_thread_settings settings;

    struct listener listener;           /* on a socket of all threads */
    struct handshake *handshakes;       /* connections whose head is not there yet, the oldest first */
    struct handshake **handshakes_last; /* behind the newest, if there is one */
    size_t handshakes_count;
    struct tunnel_seat *tunnels;
    struct tunnel_rest rest;
    struct tunnel_times times;
    struct moves moves; /* of them */
    size_t tunnels_count;
    struct egress_io *egress; /* connections of sandboxes to the outside */
    size_t egress_count;
    struct mux_io *muxes;              /* WebSockets of many requests */
    struct mux_sessions *mux_sessions; /* of all threads */
    uint64_t next_id;
    bool draining;
    uint64_t drain_began;
    size_t drain_tunnels; /* when it began */
    struct loop_timer drain_step;
    struct top_ends ends;
    uint64_t longest_gap;     /* since it was last asked for, microseconds */
    struct commands commands; /* of the tunnel that is at work */
    struct tunnel_host host;
    uint8_t *scratch;   /* RELAY_THREAD_SCRATCH bytes */
    struct pipes pipes; /* for large frames */
};

/* ---- on its thread ---- */
/* Sends an answer of the relay's own, or any other head, on a socket that is then closed in good order. */
void relay_thread_answer(struct relay_thread *thread, int fd, struct slice answer);
/* upgrade: what is refused, NULL while that is not known. */
void relay_thread_refuse(struct relay_thread *thread, int fd, const struct upgrade *upgrade,
                         enum refusal refusal);

#endif
