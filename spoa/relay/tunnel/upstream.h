/* SPDX-License-Identifier: MIT */
/* upstream: decides whether a worker's Close means the end of the session or the failure of this worker. No I/O. tests/lint/reasons
 * --write generates the table of docs/relay.md from this file. */
#ifndef CELLGATE_RELAY_TUNNEL_UPSTREAM_H
#define CELLGATE_RELAY_TUNNEL_UPSTREAM_H

#include "spoa/proto/handover.h"
#include "spoa/relay/tunnel/close_reason.h"

enum upstream_meaning {
    UPSTREAM_ended, /* the session has ended; the worker's code and text are passed on */
    UPSTREAM_lost,  /* the worker is lost: redial */
    UPSTREAM_maybe, /* the agent knows whether the sandbox moves: ask */
};

/* X(first code, last code, kind, reason of an end, what it is). Kinds beside the meanings: plain is lost, or maybe with
 * `end: close`; failed is lost, or ended where nothing is redialled; taken is ended, or lost after a late dial of our own. */
#define UPSTREAM_CODES(X)                                                                           \
    X(1000, 1000, plain, session_ended, "a loss; with `end: close` as 3000")                        \
    X(1001, 1001, lost, session_ended, "a loss: the worker goes away")                              \
    X(1005, 1005, plain, session_ended, "as 1000")                                                  \
    X(1011, 1011, failed, session_ended, "a loss; the end, where nothing is redialled")             \
    X(1012, 1014, lost, session_ended, "a loss: it restarts, is overloaded, or a gateway fails")    \
    X(4001, 4001, taken, taken_over, "the end: another took it; a loss, if that was our late dial") \
    X(3000, 4999, maybe, session_ended, "the end, unless the agent says that the sandbox moves")    \
    X(0, 65535, ended, data_refused, "the end: the worker refuses what it got")

struct upstream_context {
    /* true during a search for another worker: any Close then means that the worker was replaced */
    bool replaced;
    bool end_said; /* true if the worker has announced its session's end */
    bool not_redialled;
    bool took_itself; /* true if a 4001 comes from a cancelled dial of the relay's own */
    enum handover_end end;
};

enum upstream_meaning upstream_closed(const struct upstream_context *context, unsigned code,
                                      enum close_reason *reason);

#endif
