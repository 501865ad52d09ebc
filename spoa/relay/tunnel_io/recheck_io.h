/* SPDX-License-Identifier: MIT */
/*
 * recheck_io: carries out COMMAND_RECHECK: opens a second connection to the worker that serves a tunnel, and hands its input to the
 * tunnel. The tunnel decides when the connection ends. A tunnel with such a connection never rests.
 */
#ifndef CELLGATE_RELAY_TUNNEL_IO_RECHECK_IO_H
#define CELLGATE_RELAY_TUNNEL_IO_RECHECK_IO_H

#include "spoa/relay/tunnel_io/tunnel_io_parts.h"

struct recheck_io;

/* Opens the second connection, or reports the failure to the tunnel. */
void recheck_io_begin(struct tunnel_io *io);
/* Closes the second connection, if there is one, without a report to the tunnel. */
void recheck_io_end(struct tunnel_io *io);
/* Returns the connection's bytes of memory; 0 for NULL. */
size_t recheck_io_held(const struct recheck_io *recheck);

#endif
