/* SPDX-License-Identifier: MIT */
#include "spoa/relay/tunnel/upstream.h"

#include <stddef.h>

enum kind { KIND_ended, KIND_lost, KIND_maybe, KIND_plain, KIND_failed, KIND_taken };

static const struct row {
    unsigned first, last;
    enum kind kind;
    enum close_reason reason;
} rows[] = {
#define X(first, last, kind, reason, text) {first, last, KIND_##kind, CLOSE_##reason},
    UPSTREAM_CODES(X)
#undef X
};

static const struct row *find_row(unsigned code)
{
    const struct row *row = rows;

    while (code < row->first || code > row->last)
        row++; /* the last row matches each code */
    return row;
}

enum upstream_meaning upstream_closed(const struct upstream_context *c, unsigned code,
                                      enum close_reason *reason)
{
    const struct row *row = find_row(code);

    *reason = c->end_said ? CLOSE_exec_completed : row->reason;
    if (c->replaced)
        return UPSTREAM_lost;
    if (c->end_said)
        return UPSTREAM_ended;
    switch (row->kind) {
    case KIND_lost:
        return UPSTREAM_lost;
    case KIND_maybe:
        return UPSTREAM_maybe;
    case KIND_plain:
        /* a worker that announces a session's end does so before it closes; this one closes to hand the session over */
        return c->end == HANDOVER_END_CLOSE ? UPSTREAM_maybe : UPSTREAM_lost;
    case KIND_failed:
        return c->not_redialled ? UPSTREAM_ended : UPSTREAM_lost;
    case KIND_taken:
        return c->took_itself ? UPSTREAM_lost : UPSTREAM_ended;
    case KIND_ended:
        break;
    }
    return UPSTREAM_ended;
}
