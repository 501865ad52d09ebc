/* SPDX-License-Identifier: MIT */
#include "spoa/net/backoff.h"

#include <stdlib.h>

int64_t backoff_next(struct backoff *b)
{
    int64_t step = b->next ? b->next : b->least;
    int64_t chance = step / 100 * b->jitter;
    b->next = step > b->most / 2 ? b->most : step * 2;
    return step - (int64_t)((double)chance * ((double)arc4random() / (double)UINT32_MAX));
}

void backoff_reset(struct backoff *b)
{
    b->next = 0;
}
