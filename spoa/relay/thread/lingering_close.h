/* SPDX-License-Identifier: MIT */
/*
 * lingering_close: closes a socket gracefully after its tunnel has ended. The thread sends the remaining bytes and a FIN, then
 * discards input until the peer closes, too: closing a socket with unread bytes resets the connection, and the peer may lose the
 * Close sent before. A peer in the middle of a long frame reads the Close only after that frame, so the rest of the frame is
 * discarded, too. The time is bounded, and input needs no memory.
 */
#ifndef CELLGATE_RELAY_THREAD_LINGERING_CLOSE_H
#define CELLGATE_RELAY_THREAD_LINGERING_CLOSE_H

#include "spoa/base/bytes/buffer.h"
#include "spoa/net/loop.h"
#include "spoa/relay/thread/limits.h"
#include "spoa/service/metrics.h"

#define LINGERING_TIME      (2 * SECOND)  /* longest time without a byte from the peer */
#define LINGERING_MOST_TIME (30 * SECOND) /* longest time for a peer to finish a frame */
#define LINGERING_MOST      8192

struct lingering_close;

/* The lingering sockets of one thread. */
struct lingering_closes {
    struct loop *loop;
    struct loop_share *share; /* share of the thread's time for all these sockets; NULL for the loop's own */
    struct metrics_shard *shard;
    struct limits *limits;                 /* limits that count the bytes held here */
    struct lingering_close *first, **last; /* the oldest; the newest one's `next`, or `first` */
    size_t count, most;                    /* the oldest socket is closed if there are more than `most` */
};

/* Takes over `fd` and `rest`, and closes the socket at once if memory is short. `announced` is the number of bytes that the peer has
 * still to send of its current frame; they are discarded before the FIN. `unread` is a number of bytes of input that count as
 * unconfirmed unless the peer's kernel has all of them when the peer ends the connection. */
void lingering_close_begin(struct lingering_closes *lingering, int fd, struct buffer *rest,
                           uint64_t announced, uint64_t unread);
/* Closes all lingering sockets. */
void lingering_closes_end(struct lingering_closes *lingering);

#endif
