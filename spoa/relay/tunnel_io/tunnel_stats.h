/* SPDX-License-Identifier: MIT */
/*
 * tunnel_stats: what is reported of one tunnel: its lines in the log, its metrics, its object in the view. It watches
 * the tunnel and changes nothing of it.
 */
#ifndef CELLGATE_RELAY_TUNNEL_IO_TUNNEL_STATS_H
#define CELLGATE_RELAY_TUNNEL_IO_TUNNEL_STATS_H

#include "spoa/base/bytes/buffer.h"
#include "spoa/proto/handover.h"
#include "spoa/relay/thread/relay_thread.h"

struct tunnel_stats {
    struct relay_thread *thread; /* borrowed, as are the others */
    const struct upgrade_kept *upgrade;
    const struct tunnel *tunnel;
    uint64_t id;            /* in its thread */
    unsigned route;         /* label */
    struct limits_use use; /* of memory, as the metric knows it, too */
    size_t opening;         /* bytes beside the tunnel's own: what came before its 101, its dial */
};

/* "t-<thread>-<number>", unique in the process. */
void tunnel_stats_id(const struct tunnel_stats *stats, char id[static 32]);
/* Where its worker is, or was. */
const char *tunnel_stats_worker(const struct tunnel_stats *stats, char text[static NET_TEXT]);
/* Something that does not end it has gone wrong. */
void tunnel_stats_problem(const struct tunnel_stats *stats, const char *what, const char *why);
void tunnel_stats_dial_failed(const struct tunnel_stats *stats, const char *why);
void tunnel_stats_opened(const struct tunnel_stats *stats);
/* Counts and logs a tunnel that another process opened. */
void tunnel_stats_taken_over(const struct tunnel_stats *stats);
/* As the commands of the same names (command.h). */
void tunnel_stats_resumed(const struct tunnel_stats *stats, enum loss loss, uint64_t gap);
void tunnel_stats_declared(const struct tunnel_stats *stats, uint64_t missing);
void tunnel_stats_unconfirmed(const struct tunnel_stats *stats, uint64_t bytes);
/* Bytes of memory that it holds by now. */
uint64_t tunnel_stats_held(const struct tunnel_stats *stats);
/* Counts what it holds since the last time; after each event, and once the tunnel is freed. */
void tunnel_stats_update(struct tunnel_stats *stats);
/* Of one that was opened; before it is freed. */
void tunnel_stats_ended(const struct tunnel_stats *stats);
/* One object of the view /tunnels. */
bool tunnel_stats_describe(const struct tunnel_stats *stats, struct buffer *to);

#endif
