/* SPDX-License-Identifier: MIT */
/* command: the list of actions that a tunnel asks of its owner, in order. The tunnel appends commands while it handles an event; the owner
 * carries them out after the event function has returned. One list serves all tunnels of a thread, and is empty between two events. */
#ifndef CELLGATE_RELAY_TUNNEL_COMMAND_H
#define CELLGATE_RELAY_TUNNEL_COMMAND_H

#include "spoa/proto/refusal.h"
#include "spoa/relay/leg/send_queue.h"

enum side { CLIENT, WORKER };

static inline enum side other(enum side side)
{
    return side == CLIENT ? WORKER : CLIENT;
}

/* Reasons why the tunnel no longer uses a worker: values of the label `cause` of the redials metric. X(name) */
#define LOSSES(X)                                             \
    X(eof)                                                    \
    X(reset)                                                  \
    X(silent) /* no pong */                                   \
    X(closed) /* the worker sent a Close that means a loss */ \
    X(moved)  /* the target changed */

enum loss {
#define X(name) LOSS_##name,
    LOSSES(X)
#undef X
};
extern const char *const loss_names[]; /* names in the order of the enum; the last element is NULL */

enum command_kind {
    COMMAND_DIAL,    /* dial tunnel_target(); the owner reports the outcome by tunnel_dialled */
    COMMAND_HANG_UP, /* cancel that dial, or close the connection that it opened */
    /* open a second connection to the serving worker; the owner passes received bytes to tunnel_recheck_bytes */
    COMMAND_RECHECK,
    COMMAND_RECHECK_END, /* close that second connection, or cancel its dial */
    /* use the dialled connection as the worker's; the previous one was detached (PART) or dropped before */
    COMMAND_ADOPT,
    /* detach `side`: send `rest` (now the owner's), then close the socket gracefully, after the `announced` bytes that complete a frame
     * of the peer have arrived. If the worker does not close its side too, up to `bytes` of input may be unread */
    COMMAND_PART,
    COMMAND_DROP, /* close the socket of `side` at once */
    /* ask the agent; the owner reports the answer by tunnel_answered. An older open question is cancelled */
    COMMAND_ASK,
    COMMAND_WATCH,  /* like COMMAND_ASK, but the agent answers when something changes */
    COMMAND_ACCEPT, /* send the client its 101 */
    /* refuse the client's request with `refusal`, or, for REFUSAL_NONE, with the worker's own answer */
    COMMAND_REFUSE,
    COMMAND_RESUMED, /* note that a worker was found `time` (µs) after the last one was lost by `loss` */
    /* note the size of the gap after a resume: `bytes` are missing, or ADAPTER_UNKNOWN; 0 if there is no gap */
    COMMAND_DECLARED,
    COMMAND_UNCONFIRMED, /* note that `bytes` of input may be unread by any worker, and are not sent again */
};

struct command {
    enum command_kind kind;
    enum side side;
    enum refusal refusal;
    enum loss loss;
    uint64_t bytes, time, announced;
    struct send_queue rest;
};

/* Invariant: one event ends each leg at most once, starts one search and declares the gaps of one read. */
#define COMMANDS_MOST 48
/* number of commands of one event after which further declarations are added to the last one */
#define COMMANDS_NOTES 24

struct commands {
    struct command at[COMMANDS_MOST];
    unsigned first, count;
    /* per side: true if its COMMAND_ACCEPT or COMMAND_ADOPT is pending; output for that side waits in its queue */
    bool unattached[2];
};

/* Appends a copy of the command. A COMMAND_HANG_UP instead removes a COMMAND_DIAL that is still in the list. */
void commands_put(struct commands *commands, const struct command *command);
/* Returns the next command, valid until the next call, or NULL if the list is empty. */
struct command *commands_take(struct commands *commands);

#endif
