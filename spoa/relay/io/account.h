/* SPDX-License-Identifier: MIT */
/*
 * account: what is told of one tunnel: its lines in the log, its metrics, its object in the view. It watches
 * the tunnel and changes nothing of it.
 */
#ifndef CELLGATE_RELAY_IO_ACCOUNT_H
#define CELLGATE_RELAY_IO_ACCOUNT_H

#include "spoa/base/buffer.h"
#include "spoa/proto/handover.h"
#include "spoa/relay/io/lane.h"

struct account {
    struct lane *lane; /* borrowed, as are the others */
    const struct handover *handover;
    const struct tunnel *tunnel;
    uint64_t id;           /* in its lane */
    unsigned route;        /* label */
    struct limits_use use; /* of memory, as the metric knows it, too */
    size_t opening;        /* bytes beside the tunnel's own: what came before its 101, its dial */
    uint64_t counted[2];   /* bytes sent to each side */
};

/* "t-<lane>-<number>", unique in the process. */
void account_id(const struct account *account, char id[static 32]);
/* Something that does not end it has gone wrong. */
void account_problem(const struct account *account, const char *what, const char *why);
void account_opened(const struct account *account);
/* As the actions of the tunnel (tunnel.h). */
void account_resumed(const struct account *account, enum loss loss, uint64_t gap);
void account_declared(const struct account *account, uint64_t missing);
void account_unsure(const struct account *account, uint64_t bytes);
/* Bytes of memory that it holds by now. */
uint64_t account_held(const struct account *account);
/* Counts what was sent and what is held since the last time; after each event, and once the tunnel is freed. */
void account_update(struct account *account);
/* Of one that was opened; before it is freed. */
void account_ended(const struct account *account);
/* One object of the view /tunnels. */
bool account_describe(const struct account *account, struct buffer *to);

#endif
