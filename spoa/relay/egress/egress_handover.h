/* SPDX-License-Identifier: MIT */
/* egress_handover: an egress connection as a record that another process goes on with, as a tunnel (relay/tunnel_io/tunnel_handover.h). */
#ifndef CELLGATE_RELAY_EGRESS_EGRESS_HANDOVER_H
#define CELLGATE_RELAY_EGRESS_EGRESS_HANDOVER_H

#include "spoa/relay/egress/egress_io.h"

/* Returns the connection after `io`, or the thread's first one for NULL; NULL if there is none. */
struct egress_io *egress_io_next(const struct relay_thread *thread, const struct egress_io *io);
/* Appends the record of a connection to `to`, and sets `fds` to its sockets. The connection must not be used after that. Returns false if
 * nobody can go on with it, because it has no destination yet, it is ending, or memory is short; it is then as before. */
bool egress_hand_over(struct egress_io *io, struct buffer *to, int fds[2]) MUST_CHECK;
/* Continues the connection of a record with these sockets, which become the connection's. Returns false, and leaves the sockets to the
 * caller, if the record has another version or is damaged, a limit is reached, or memory is short. */
bool egress_take_over(struct relay_thread *thread, struct slice record, const int fds[2]) MUST_CHECK;

#endif
