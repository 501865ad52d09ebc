/* SPDX-License-Identifier: MIT */
#include "spoa/relay/tunnel/close_reason.h"

#include <stddef.h>

static const struct close_reason_info infos[] = {
#define X(name, client, worker, text) {#name, client, worker, text},
    CLOSE_REASONS(X)
#undef X
};

const char *const close_reason_names[] = {
#define X(name, client, worker, text) #name,
    CLOSE_REASONS(X)
#undef X
        NULL};

const struct close_reason_info *close_reason_info(enum close_reason reason)
{
    return &infos[reason];
}
