/* SPDX-License-Identifier: MIT */
/*
 * port: the loop code of one tunnel: its sockets, its dial, its questions to the agent, its timer. It does
 * what the tunnel (tunnel.h) says and decides nothing.
 */
#ifndef CELLGATE_RELAY_IO_PORT_H
#define CELLGATE_RELAY_IO_PORT_H

#include "spoa/base/buffer.h"
#include "spoa/relay/io/lane.h"
#include "spoa/relay/tunnel/upgrade.h"

/* Takes over upgrade. early: bytes behind the client's head. NULL, and upgrade is still the caller's: a limit is
 * reached, or out of memory. */
struct port *port_new(struct lane *lane, struct upgrade *upgrade, struct slice early);
/* Takes over the client's socket and starts. */
void port_begin(struct port *port, int fd);
/* Ends its tunnel in good order, or, if it is closing already, now. */
void port_end(struct port *port, enum close_reason reason);
/* Closes its sockets and frees it, whatever its tunnel does. */
void port_cut(struct port *port);

/* The two parts of a round where memory is short (limits.h), of the lane's tunnels. */
void ports_look(struct lane *lane, struct limits_round *round);
void ports_give_way(struct lane *lane, struct limits_round *round);

struct account;

struct port *port_next(const struct port *port);
/* What can be told of its tunnel. */
const struct account *port_account(const struct port *port);
bool port_is_closing(const struct port *port);
struct slice port_sandbox(const struct port *port);

#endif
