/* SPDX-License-Identifier: MIT */
/*
 * lingering_close: a socket whose tunnel is through with it. What is left is sent, then its end is announced (FIN)
 * and what the peer still sends is read away until it closes too: a socket that is closed with unread bytes
 * resets the connection, and the peer may lose the Close that was sent to it. A peer in the middle of a long frame reads its
 * Close when it is through with that, so the rest of it is read away, too. Bounded in time, and without memory.
 */
#ifndef CELLGATE_RELAY_THREAD_LINGERING_CLOSE_H
#define CELLGATE_RELAY_THREAD_LINGERING_CLOSE_H

#include "spoa/base/bytes/buffer.h"
#include "spoa/net/loop.h"
#include "spoa/relay/thread/limits.h"
#include "spoa/service/metrics.h"

#define LINGERING_TIME      (2 * SECOND)  /* without a byte from the peer */
#define LINGERING_MOST_TIME (30 * SECOND) /* for a peer in the middle of a frame to send the rest of it */
#define LINGERING_MOST      8192

struct lingering_close;

/* All those of one thread. */
struct lingering_closes {
    struct loop *loop;
    struct loop_share
        *share; /* of the thread's time, in which all of them are served; NULL: the loop's own */
    struct metrics_shard *shard;
    struct limits *limits;                 /* what they hold counts */
    struct lingering_close *first, **last; /* the oldest; behind the newest, if there is one */
    size_t count, most;                    /* one more, and the oldest ends */
};

/* Takes over fd and rest. When memory is short the socket is closed at once. announced: bytes of a frame in whose middle the peer
 * is, which are read away before the FIN. unread: bytes of input that count as
 * unconfirmed unless the peer's kernel has all of them when the peer then ends the connection: a socket that is closed
 * with unread bytes resets it. */
void lingering_close_begin(struct lingering_closes *lingering, int fd, struct buffer *rest,
                           uint64_t announced, uint64_t unread);
/* Closes all that are left. */
void lingering_closes_end(struct lingering_closes *lingering);

#endif
