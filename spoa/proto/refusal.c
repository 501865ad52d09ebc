/* SPDX-License-Identifier: MIT */
#include "spoa/proto/refusal.h"

#include <stddef.h>

static const struct refusal_info infos[] = {
#define X(name, status, retryable, after, sentence) {#name, status, retryable, after, sentence},
    REFUSALS(X)
#undef X
};

const struct refusal_info *refusal_info(enum refusal refusal)
{
    return refusal == REFUSAL_NONE ? NULL : &infos[refusal - 1];
}
