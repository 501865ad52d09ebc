/* SPDX-License-Identifier: MIT */
/*
 * handshake: a connection from HAProxy until the head of its request has arrived and was judged. The connection then becomes a tunnel, a mux
 * socket or an egress connection, or gets an error in JSON.
 */
#ifndef CELLGATE_RELAY_SERVE_HANDSHAKE_H
#define CELLGATE_RELAY_SERVE_HANDSHAKE_H

#include "spoa/relay/thread/relay_thread.h"

#define HANDSHAKES_MOST 1024 /* largest number per thread; a further one closes the oldest */

/* Begins a handshake, and takes ownership of `fd`. */
void handshake_begin(struct relay_thread *thread, int fd);
/* Closes all handshakes of a thread. */
void handshakes_end(struct relay_thread *thread);

#endif
