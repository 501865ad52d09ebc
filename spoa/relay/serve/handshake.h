/* SPDX-License-Identifier: MIT */
/*
 * handshake: a connection from HAProxy until its upgrade's head is there and was judged. What comes of it is a
 * tunnel, or an error in JSON.
 */
#ifndef CELLGATE_RELAY_SERVE_HANDSHAKE_H
#define CELLGATE_RELAY_SERVE_HANDSHAKE_H

#include "spoa/relay/thread/relay_thread.h"

#define HANDSHAKES_MOST 1024 /* of a thread; one more, and the oldest is closed */

/* Takes over fd. */
void handshake_begin(struct relay_thread *thread, int fd);
/* Closes all of a thread. */
void handshakes_end(struct relay_thread *thread);

#endif
