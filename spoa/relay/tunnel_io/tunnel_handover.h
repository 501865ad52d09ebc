/* SPDX-License-Identifier: MIT */
/* tunnel_handover: a tunnel as a record that another process goes on with. Its sockets are descriptors of a table that both processes
 * share, or that the other one inherits (spoa/service/keeper.h). */
#ifndef CELLGATE_RELAY_TUNNEL_IO_TUNNEL_HANDOVER_H
#define CELLGATE_RELAY_TUNNEL_IO_TUNNEL_HANDOVER_H

#include "spoa/relay/tunnel_io/tunnel_io.h"

/* Appends the record of a tunnel to `to`, and sets `fds` to its sockets, -1 for a worker that it does not have. The tunnel must not be used
 * after that. Returns false if nobody can go on with it, because its client has no 101 yet, or memory is short. */
bool tunnel_hand_over(struct tunnel_seat *seat, struct buffer *to, int fds[2]) MUST_CHECK;
/* Goes on with the tunnel of a record, and sets `fds` to the sockets that the record names, -1 for none. Returns false if that is not
 * possible: the record is of another version or spoilt, or memory is short. Those sockets are then closed. */
bool tunnel_take_over(struct relay_thread *thread, struct slice record, int fds[2]) MUST_CHECK;

#endif
