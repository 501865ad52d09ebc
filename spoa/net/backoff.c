/* SPDX-License-Identifier: MIT */
#include "spoa/net/backoff.h"

#include <stdlib.h>

uint64_t backoff_next(struct backoff *b)
{
    uint64_t step = b->next ? b->next : b->least;
    uint64_t chance = step / 100 * b->jitter;
    b->next = step > b->most / 2 ? b->most : step * 2;
    return step - (uint64_t)((double)chance * ((double)arc4random() / (double)UINT32_MAX));
}

void backoff_reset(struct backoff *b)
{
    b->next = 0;
}
