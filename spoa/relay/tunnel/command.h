/* SPDX-License-Identifier: MIT */
/*
 * command: what a tunnel wants done, in order. The tunnel appends commands while it works on an event; its owner carries them
 * out when the event function has returned. A list serves all tunnels of a thread: it is empty between two events.
 */
#ifndef CELLGATE_RELAY_TUNNEL_COMMAND_H
#define CELLGATE_RELAY_TUNNEL_COMMAND_H

#include "spoa/proto/refusal.h"
#include "spoa/relay/leg/send_queue.h"

enum side { CLIENT, WORKER };

static inline enum side other(enum side side)
{
    return side == CLIENT ? WORKER : CLIENT;
}

/* Why a worker was lost or left: the label `cause` of the redials. X(name) */
#define LOSSES(X)                                  \
    X(eof)                                         \
    X(reset)                                       \
    X(silent) /* no pong */                        \
    X(closed) /* a Close that stands for a loss */ \
    X(moved)  /* the target changed */

enum loss {
#define X(name) LOSS_##name,
    LOSSES(X)
#undef X
};
extern const char *const loss_names[]; /* NULL behind the last */

enum command_kind {
    COMMAND_DIAL,    /* the target tunnel_target(); tunnel_dialled tells how it went */
    COMMAND_HANG_UP, /* gives up that dial, or closes what it has opened */
    COMMAND_RECHECK, /* dials the worker that serves once more, beside it: tunnel_recheck_bytes gets what it sends */
    COMMAND_RECHECK_END, /* closes that second connection, or gives up its dial */
    COMMAND_ADOPT, /* what was dialled takes the place of the worker, which was parted or dropped before */
    COMMAND_PART, /* `side` is left: `rest`, now the owner's, is still sent, then its socket is closed in good order, when the
                          * `announced` bytes of a frame in whose middle it is have come. If the worker does not close it too,
                          * `bytes` of input may not have been read */
    COMMAND_DROP,   /* the socket of `side` is closed at once */
    COMMAND_ASK,    /* asks the agent; tunnel_answered tells. An older question that is open is forgotten */
    COMMAND_WATCH,  /* the same, when something changes */
    COMMAND_ACCEPT, /* the client gets its 101 */
    COMMAND_REFUSE, /* the client gets no tunnel: `refusal`, or, with REFUSAL_NONE, the worker's own answer */
    COMMAND_RESUMED, /* a worker was found again, `time` after the last one was lost by `loss` (0: it was not) */
    COMMAND_DECLARED,    /* it is known how it went on: `bytes` are missing, or ADAPTER_UNKNOWN; 0: none */
    COMMAND_UNCONFIRMED, /* `bytes` of input may not have been read by anybody, and are not sent again */
};

struct command {
    enum command_kind kind;
    enum side side;
    enum refusal refusal;
    enum loss loss;
    uint64_t bytes, time, announced;
    struct send_queue rest;
};

/* One event ends each leg at most once, starts one search and declares what one read can hold. */
#define COMMANDS_MOST  48
#define COMMANDS_NOTES 24 /* declarations of one event; more are added up */

struct commands {
    struct command at[COMMANDS_MOST];
    unsigned first, count;
    bool unattached
        [2]; /* a COMMAND_ACCEPT or COMMAND_ADOPT is not carried out yet: what is for this side waits in its queue */
};

/* A HANG_UP takes back a DIAL that was not carried out yet. */
void commands_put(struct commands *commands, const struct command *command);
/* The next one, which is the caller's until it asks again; NULL: there is none. */
struct command *commands_take(struct commands *commands);

#endif
