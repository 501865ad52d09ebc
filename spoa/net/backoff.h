/* SPDX-License-Identifier: MIT */
/*
 * backoff: the pauses between attempts. Each failed attempt doubles the pause, from `least` to `most`. A share of each pause is
 * random, so that clients which lost their server together do not come back together. Times are in microseconds.
 */
#ifndef CELLGATE_NET_BACKOFF_H
#define CELLGATE_NET_BACKOFF_H

#include <stdint.h>

struct backoff {
    uint64_t least, most; /* the first and the longest pause; 0 < least <= most */
    unsigned jitter;      /* the random share of a pause, in percent: 0 to 100 */
    uint64_t next;        /* private; the next pause before its random share, or 0 for `least` */
};

/* Returns the pause before the next attempt: a step, less a random part of at most `jitter` percent. */
uint64_t backoff_next(struct backoff *b);
/* Call after an attempt has succeeded: the next pause is `least` again. */
void backoff_reset(struct backoff *b);

#endif
