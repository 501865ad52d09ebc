/* SPDX-License-Identifier: MIT */
/*
 * backoff: how long to pause before the next attempt: twice as long after each one that failed, from `least` to `most`.
 * A share of each pause is left to chance, so that those who were lost together do not come back together. Times are
 * microseconds.
 */
#ifndef CELLGATE_NET_BACKOFF_H
#define CELLGATE_NET_BACKOFF_H

#include <stdint.h>

struct backoff {
    uint64_t least, most; /* 0 < least <= most */
    unsigned jitter;      /* percent of a pause that is left to chance, 0 to 100 */
    uint64_t next;        /* private; 0: least */
};

/* The pause before the next attempt: at most the whole step, at least what of it is not left to chance. */
uint64_t backoff_next(struct backoff *b);
/* An attempt has succeeded: the next pause is the least again. */
void backoff_reset(struct backoff *b);

#endif
