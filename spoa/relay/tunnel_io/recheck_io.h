/* SPDX-License-Identifier: MIT */
/*
 * recheck_io: the loop code of COMMAND_RECHECK: dials the worker that serves a tunnel once more, and gives the tunnel what that
 * connection receives. The tunnel ends it; it exists only while it is under way, and its tunnel does not rest meanwhile.
 */
#ifndef CELLGATE_RELAY_TUNNEL_IO_RECHECK_IO_H
#define CELLGATE_RELAY_TUNNEL_IO_RECHECK_IO_H

#include "spoa/relay/tunnel_io/tunnel_io_parts.h"

struct recheck_io;

/* Tells the tunnel if it cannot begin. */
void recheck_io_begin(struct tunnel_io *io);
/* Closes it without telling the tunnel; does nothing if there is none. */
void recheck_io_end(struct tunnel_io *io);
/* Bytes of memory that it holds; 0 for NULL. */
size_t recheck_io_held(const struct recheck_io *recheck);

#endif
