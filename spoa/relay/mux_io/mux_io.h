/* SPDX-License-Identifier: MIT */
/*
 * mux_io: a WebSocket that carries many requests (docs/mux.md). The relay sends each request of the client to HAProxy's listener for
 * them (relay.mux) over a connection of its own, so routes, tokens, limits and logs are those of any HTTP request. The answer becomes
 * messages to the client (spoa/relay/mux).
 *
 * Memory is bounded: the number of requests in flight by relay.mux_requests, a message and an answer by max_message, and the output for
 * the client by back-pressure. The sum is accounted like a tunnel's, and the limits may pause or evict a socket like a tunnel.
 */
#ifndef CELLGATE_RELAY_MUX_IO_MUX_IO_H
#define CELLGATE_RELAY_MUX_IO_MUX_IO_H

#include "spoa/relay/thread/relay_thread.h"

struct mux_io;

/* Opens a mux socket for an upgrade request, or refuses it. Takes ownership of `fd` and `upgrade`. `early` is the input after the
 * request's head, borrowed for the call. */
void mux_io_begin(struct relay_thread *thread, int fd, struct upgrade *upgrade, struct slice early);
/* Call while the thread drains: ends the sockets without a request, with close code 1012. all: ends every socket now. late: closes
 * their connections at once, without waiting for unsent output. */
void mux_ios_drain(struct relay_thread *thread, bool all, bool late);

/* A round of eviction, when memory is short: adds the thread's sockets to the candidates. */
void mux_ios_look(struct relay_thread *thread, struct limits_round *round);
/* Ends the sockets that the round evicts. */
void mux_ios_give_way(struct relay_thread *thread, struct limits_round *round);

#endif
