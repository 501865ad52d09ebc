/* SPDX-License-Identifier: MIT */
/*
 * parting: a socket whose tunnel is through with it. What is left is sent, then its end is announced (FIN)
 * and what the peer still sends is read away until it closes too: a socket that is closed with unread bytes
 * resets the connection, and the peer may lose the Close that was sent to it. Bounded in time.
 */
#ifndef CELLGATE_RELAY_PARTING_H
#define CELLGATE_RELAY_PARTING_H

#include "spoa/lib/buffer.h"
#include "spoa/lib/loop.h"

struct parting;

/* All partings of one thread. */
struct partings {
    struct loop *loop;
    struct parting *first;
    size_t count;
};

/* Takes over fd and rest. When memory is short the socket is closed at once. */
void parting_begin(struct partings *partings, int fd, struct buffer *rest);
/* Closes all that are left. */
void partings_end(struct partings *partings);

#endif
