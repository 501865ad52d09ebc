/* SPDX-License-Identifier: MIT */
/*
 * mux_io: a WebSocket that carries many requests. Each message of the client's that is a request goes, as if it had come by
 * itself, to HAProxy's own listener for that (relay.mux): routes, tokens, limits and logs are those of any request. What is
 * answered becomes messages (spoa/relay/mux). docs/mux.md.
 *
 * Bounded are the requests in flight (relay.mux_requests), a message and an answer (max_message), what waits for the client
 * (then no answer is read on), and the memory of all, which counts as a tunnel's does and waits and gives way as that does (limits).
 */
#ifndef CELLGATE_RELAY_MUX_IO_MUX_IO_H
#define CELLGATE_RELAY_MUX_IO_MUX_IO_H

#include "spoa/relay/thread/relay_thread.h"

struct mux_io;

/* Takes fd and upgrade over; early, what came behind the head, is borrowed for the call. */
void mux_io_begin(struct relay_thread *thread, int fd, struct upgrade *upgrade, struct slice early);
/* Of a thread that drains: those without a request end, and all take no more. `all`: each ends now, with 1012; `late`: cut. */
void mux_ios_drain(struct relay_thread *thread, bool all, bool late);

/* Of a round of the limits: shows what could give way, and ends what has to. */
void mux_ios_look(struct relay_thread *thread, struct limits_round *round);
void mux_ios_give_way(struct relay_thread *thread, struct limits_round *round);

#endif
