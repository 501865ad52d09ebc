/* SPDX-License-Identifier: MIT */
/*
 * adapter: how a tunnel goes on with another worker without a byte lost or repeated, for one kind of worker
 * protocol (resume.md). Adapters are pure: an adapter is a table of functions and a piece of state per
 * tunnel; a further one is a file of its own and an entry in adapter_find.
 *
 * A function that is NULL does nothing; adapter `none` has none at all: what the new worker sends is what the
 * client gets, and what was written to the lost one is not sent again.
 */
#ifndef CELLGATE_RELAY_ADAPTER_H
#define CELLGATE_RELAY_ADAPTER_H

#include "spoa/lib/handover.h"
#include "spoa/lib/http.h"
#include "spoa/lib/ws.h"

/* Some payload of a data message, as it came. */
struct adapter_piece {
    enum ws_opcode opcode; /* of the message */
    bool first, last;      /* of the message */
    const uint8_t *mask;   /* NULL: not masked */
    uint64_t offset;       /* of bytes in their frame, for the mask */
    struct slice bytes;
};

struct adapter {
    const char *name;
    bool exact;       /* a message that was cut is continued: no need to end it or the tunnel */
    bool overlap;     /* the new worker may be dialled while the old one still serves */
    size_t state_len; /* zeroed bytes per tunnel */

    /* Adds query parameters to the target of an attempt's request, and header lines to it. */
    void (*request)(void *state, struct writer *target, struct writer *fields);
    /* The worker has answered 101. False: the tunnel cannot go on with it. */
    bool (*answered)(void *state, const struct http_head *answer);
    /* How many of the first bytes of a piece are not passed on, and whether it is passed on at all. */
    bool (*from_worker)(void *state, const struct adapter_piece *piece, size_t *skip);
    void (*from_client)(void *state, const struct adapter_piece *piece);
    /* The worker is lost, or is about to be replaced. */
    void (*lost)(void *state);
    /* Frees what state holds, but not state. */
    void (*end)(void *state);
};

/* Never NULL: adapters that are not there are `none`. */
const struct adapter *adapter_find(enum handover_resume resume);

#endif
