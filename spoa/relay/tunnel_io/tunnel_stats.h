/* SPDX-License-Identifier: MIT */
/*
 * tunnel_stats: reports one tunnel: its lines in the log, its metrics, its object in the view /tunnels. No function changes the tunnel.
 */
#ifndef CELLGATE_RELAY_TUNNEL_IO_TUNNEL_STATS_H
#define CELLGATE_RELAY_TUNNEL_IO_TUNNEL_STATS_H

#include "spoa/base/bytes/buffer.h"
#include "spoa/proto/handover.h"
#include "spoa/relay/thread/relay_thread.h"

struct tunnel_stats {
    struct relay_thread *thread; /* this and the next two pointers are borrowed */
    const struct upgrade_kept *upgrade;
    const struct tunnel *tunnel;
    uint64_t id;           /* number of the tunnel, unique in its thread */
    unsigned route;        /* index of the label `route` */
    struct limits_use use; /* memory of the tunnel, as last reported to the limits and the metric */
    size_t opening;        /* bytes of early input and of the dial, in addition to the tunnel's own */
};

/* Writes the tunnel's id, "t-<thread>-<number>", which is unique in the process. */
void tunnel_stats_id(const struct tunnel_stats *stats, char id[static 32]);
/* Returns the address of the tunnel's present or last worker, written to `text`. */
const char *tunnel_stats_worker(const struct tunnel_stats *stats, char text[static NET_TEXT]);
/* Logs a problem that does not end the tunnel. */
void tunnel_stats_problem(const struct tunnel_stats *stats, const char *what, const char *why);
void tunnel_stats_dial_failed(const struct tunnel_stats *stats, const char *why);
void tunnel_stats_opened(const struct tunnel_stats *stats);
/* Counts and logs a tunnel that another process opened. */
void tunnel_stats_taken_over(const struct tunnel_stats *stats);
/* Count and log what the commands of the same names report (command.h). */
void tunnel_stats_resumed(const struct tunnel_stats *stats, enum loss loss, uint64_t gap);
void tunnel_stats_declared(const struct tunnel_stats *stats, uint64_t missing);
void tunnel_stats_unconfirmed(const struct tunnel_stats *stats, uint64_t bytes);
/* Returns the tunnel's present bytes of memory. */
uint64_t tunnel_stats_held(const struct tunnel_stats *stats);
/* Reports the tunnel's memory to the limits and the metric. Call after each event, and once the tunnel is freed. */
void tunnel_stats_update(struct tunnel_stats *stats);
/* Counts and logs the end of a tunnel that was opened. Call before the tunnel is freed. */
void tunnel_stats_ended(const struct tunnel_stats *stats);
/* Appends the tunnel's object of the view /tunnels. Returns false if `to` is full. */
bool tunnel_stats_describe(const struct tunnel_stats *stats, struct buffer *to);

#endif
