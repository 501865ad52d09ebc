/* SPDX-License-Identifier: MIT */
/*
 * relay_thread: one thread of the relay, with its loop, its connection to the agent, and its tunnels. Threads share the listener,
 * the limits, the metrics and the mux sessions.
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
#define TUNNELS_AT_WORK      16 /* events within events, of one thread */

struct tunnel_io;
struct tunnel_seat;
struct egress_io;
struct mux_io;
struct mux_sessions;
struct handshake;
struct handover_file;

/* Memory for the tunnels of one adapter: their work, followed by the adapter's state. */
struct tunnel_kind {
    const struct adapter *adapter; /* NULL if unused */
    struct slabs works;
};

/* The idle tunnels of a thread, which are packed (tunnel_rest.c). */
struct tunnel_rest {
    struct slabs seats;
    struct tunnel_kind kinds[ADAPTER_KINDS];
    struct slabs upgrades; /* memory for most unpacked upgrades, so that they fragment no heap of malloc */
    struct image_words *words; /* words that the heads have in common */
    struct buffer image;       /* memory to write images in */
    void *head;                /* TUNNEL_HEAD_MAX bytes for reading an upgrade while memory is short */
    struct tunnel_io *awake;   /* tunnels that are not packed */
    /* tunnel in `awake` where the search for idle ones continues in the next turn; NULL if done */
    struct tunnel_io *look_from;
    struct loop_timer look; /* starts a search for idle tunnels; not set while all are packed */
    size_t resting;         /* the number of packed tunnels */
};

/* The deadlines of a thread's tunnels (tunnel_times.c). */
struct tunnel_times {
    struct deadlines deadlines;
    struct loop_timer timer; /* fires at the first deadline, or earlier */
    uint64_t timer_at;       /* time when the timer fires, if set */
};

/* Settings from the configuration; each thread has a copy. */
struct relay_thread_settings {
    struct tunnel_settings tunnel;
    uint64_t dial_timeout, head_time, drain;
    size_t head_size;
    struct net_address worker_tls, egress_tls, egress_http, egress_out;
    struct net_address mux; /* HAProxy's listener for requests of a mux; len 0 if there is none */
    size_t mux_requests;    /* largest number of requests in flight per socket */
    uint64_t mux_grace;     /* longest time of a socket without a client, in µs; 0 if none is resumed */
    struct cidr networks[RELAY_THREAD_CIDRS];
    size_t networks_count;
    char socket_folders[NET_FOLDERS_MAX][NET_PATH_MAX + 1]; /* unused entries are empty */
};

/* Copies the settings. Returns false if there are more than RELAY_THREAD_CIDRS networks. */
bool relay_thread_settings_from(struct relay_thread_settings *to, const struct settings *settings);

struct relay_thread {
    unsigned number;
    pthread_t thread;
    struct loop *loop;
    struct log *log;
    struct limits *limits;
    struct relay_metrics *metrics;
    struct metrics_shard *shard;
    struct metrics_series sent[2]; /* bytes sent to each side of the tunnels */
    struct agent_client *agent;
    struct time_shares shares; /* shares of the thread's time */
    struct lingering_closes lingering;
    struct relay_thread_settings settings;

    struct listener listener;           /* listens on a socket that all threads share */
    struct handshake *handshakes;       /* connections without a complete head, the oldest first */
    struct handshake **handshakes_last; /* the newest one's `next`, or `handshakes` */
    size_t handshakes_count;
    struct tunnel_seat *tunnels;
    /* the tunnels at which this thread is at work, that of the innermost event last (tunnel_work_begin). Volatile: another process reads them
     * after the death of this one, and they are written in the order of the code */
    struct tunnel_seat *volatile at_work[TUNNELS_AT_WORK];
    volatile unsigned at_work_count;
    struct tunnel_rest rest;
    struct tunnel_times times;
    struct moves moves; /* moves of the tunnels to other workers */
    size_t tunnels_count;
    struct egress_io *egress; /* connections of sandboxes to the outside */
    size_t egress_count;
    struct mux_io *muxes;              /* WebSockets of many requests */
    struct mux_sessions *mux_sessions; /* resumable sockets, shared by all threads */
    uint64_t next_id;
    bool draining;
    struct handover_file *handover; /* where the tunnels are written after the loop; NULL: they are not */
    uint64_t drain_began;
    size_t drain_tunnels; /* the number of tunnels when draining began */
    struct loop_timer drain_step;
    struct top_ends ends;
    uint64_t longest_gap;     /* longest gap since the last query, in µs */
    struct commands commands; /* commands of the tunnel that handles an event */
    struct tunnel_host host;
    uint8_t *scratch;   /* RELAY_THREAD_SCRATCH bytes */
    struct pipes pipes; /* for large frames */
};

/* ---- on its thread ---- */
/* Sends an answer of the relay, or any other head, and closes the socket gracefully. */
void relay_thread_answer(struct relay_thread *thread, int fd, struct slice answer);
/* Refuses a request. `upgrade` is the refused upgrade, or NULL if still unknown. */
void relay_thread_refuse(struct relay_thread *thread, int fd, const struct upgrade *upgrade,
                         enum refusal refusal);

#endif
