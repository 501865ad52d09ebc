/* SPDX-License-Identifier: MIT */
/* state: the states of a tunnel and all transitions between them. tests/lint/reasons --write generates the list and the diagram of
 * docs/architecture.md from this file. */
#ifndef CELLGATE_RELAY_TUNNEL_STATE_H
#define CELLGATE_RELAY_TUNNEL_STATE_H

#include <stdbool.h>

/* X(state, meaning) */
#define TUNNEL_STATES(X)                                                             \
    X(opening, "the client has no 101 yet, a worker is looked for")                  \
    X(serving, "both legs are there; another worker may be looked for meanwhile")    \
    X(grace, "the worker closed: is it the session's end, or is a move announced?")  \
    X(redialling, "no worker; the client notices nothing, and what it says is held") \
    X(closing, "a Close was sent or passed on, its answer is awaited")               \
    X(ended, "nothing is left")

enum tunnel_state {
#define X(state, meaning) TUNNEL_##state,
    TUNNEL_STATES(X)
#undef X
};
extern const char *const tunnel_state_names[];

/* X(from, event, to, when) */
#define TUNNEL_TRANSITIONS(X)                                                                               \
    X(opening, connected, serving, "a worker's 101 is there: the client gets its own")                      \
    X(opening, refused, ended, "worker, agent or budget say no: the client gets an HTTP error")             \
    X(opening, close, closing, "the route refuses by a Close, or the client has left")                      \
    X(serving, connected, serving, "a new worker answered while the old one served: it takes its place")    \
    X(serving, lost, redialling, "a loss, a Close that is one, a move; without `redial`: then closing")     \
    X(serving, worker_closed, grace, "a Close that may be the session's end")                               \
    X(serving, close, closing, "the client or the session ended it, a limit is reached, or a mistake made") \
    X(grace, lost, redialling, "the agent says that the sandbox moves, has moved, or sleeps")               \
    X(grace, close, closing, "no move is announced within `relay.grace_period`, or as in serving")          \
    X(redialling, connected, serving, "a worker's 101 is there: the adapter says how it goes on")           \
    X(redialling, close, closing, "the budget is spent, a worker's answer is final, or as in serving")      \
    X(closing, done, ended, "the client has answered or left, or has not in time")

enum tunnel_event {
    EVENT_connected,
    EVENT_refused,
    EVENT_lost,
    EVENT_worker_closed,
    EVENT_close,
    EVENT_done,
};

/* Moves `*state` to the state that the event leads to. Returns false if the table has no such transition; `*state` is then unchanged. */
bool tunnel_transition(enum tunnel_state *state, enum tunnel_event event) __attribute__((warn_unused_result));

#endif
