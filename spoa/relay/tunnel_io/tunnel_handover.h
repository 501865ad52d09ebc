/* SPDX-License-Identifier: MIT */
/* tunnel_handover: writes a tunnel as a record with which another process continues it. The tunnel's sockets are descriptors of a table that
 * both processes share, or that the other process inherits (spoa/service/keeper/keeper.h). */
#ifndef CELLGATE_RELAY_TUNNEL_IO_TUNNEL_HANDOVER_H
#define CELLGATE_RELAY_TUNNEL_IO_TUNNEL_HANDOVER_H

#include "spoa/relay/tunnel_io/tunnel_io.h"

/* Appends the record of a tunnel to `to`, and sets `fds` to its sockets, -1 for a worker that it does not have. The tunnel must not be used
 * after that. Returns false if the tunnel cannot be continued, because its client has no 101 yet, or memory is short. */
bool tunnel_hand_over(struct tunnel_seat *seat, struct buffer *to, int fds[2]) MUST_CHECK;
/* Like tunnel_hand_over, of a process that has died and whose memory this one shares: the tunnel is visited, not woken, and neither malloc nor a lock is
 * used. Call it if tunnel_remains returns REMAINS_WHOLE. */
bool tunnel_salvage(struct tunnel_seat *seat, struct buffer *to, int fds[2]) MUST_CHECK;
/* The state in which a dead process has left a tunnel. */
enum tunnel_remains {
    REMAINS_WHOLE,
    REMAINS_TORN,   /* the process died while it handled an event of the tunnel */
    REMAINS_DAMAGED /* the tunnel's memory is not that of a tunnel between two events */
};
enum tunnel_remains tunnel_remains(const struct tunnel_seat *seat, const struct relay_thread *thread);
/* Continues the tunnel of a record with these sockets, -1 for none, which become the tunnel's. Returns false, and leaves the sockets to the
 * caller, if the record has another version or is damaged, or memory is short. */
bool tunnel_take_over(struct relay_thread *thread, struct slice record, const int fds[2]) MUST_CHECK;

#endif
