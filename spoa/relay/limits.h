/* SPDX-License-Identifier: MIT */
/*
 * limits: what the tunnels of all threads may take together: their number, also per sandbox, per organisation
 * and per token, the memory of what they hold, and how many may collect a replay at once. Locks are taken only
 * when a tunnel or a replay comes or goes. For any thread.
 */
#ifndef CELLGATE_RELAY_LIMITS_H
#define CELLGATE_RELAY_LIMITS_H

#include <stdatomic.h>

#include "spoa/lib/slice.h"

/* By what tunnels are counted beside all of them. X(name) */
#define LIMITS(X) \
    X(sandbox)    \
    X(org)        \
    X(token)      \
    X(refused) /* who is only told why not: all of them together */

enum limit {
#define X(name) LIMIT_##name,
    LIMITS(X)
#undef X
        LIMIT_COUNT,
    LIMIT_tunnels = LIMIT_COUNT,
    LIMIT_NONE, /* none is reached */
    LIMIT_MEMORY
};
extern const char *const limit_names[]; /* those of LIMITS and `tunnels`, NULL behind the last */

/* The parts of all that one may take by default. */
enum {
    LIMITS_SANDBOX_PART = 8,
    LIMITS_SANDBOX_MOST = 256,
    LIMITS_ORG_PART = 4,
    LIMITS_TOKEN_PART = 8,
    LIMITS_REFUSED_PART = 8
};

struct limits_settings { /* 0: no limit */
    uint64_t tunnels, most[LIMIT_COUNT];
    uint64_t memory; /* bytes held */
};

/* Whose a tunnel is. What is absent or empty it is not counted for. */
struct limits_owner {
    struct slice space, sandbox, org, token;
    bool refused;
};

struct limits;

/* NULL when out of memory. */
struct limits *limits_new(const struct limits_settings *settings);
void limits_free(struct limits *limits);
/* New ones; tunnels that are there stay. */
void limits_set(struct limits *limits, const struct limits_settings *settings);

/* Counts a tunnel, from before its worker is dialled until both its sides are through with it; else the limit that does
 * not allow one more, or LIMIT_MEMORY. */
enum limit limits_enter(struct limits *limits, const struct limits_owner *owner)
    __attribute__((warn_unused_result));
void limits_leave(struct limits *limits, const struct limits_owner *owner);
uint64_t limits_tunnels(const struct limits *limits);

/* Held memory has changed by so many bytes. */
void limits_hold(struct limits *limits, int64_t bytes);
uint64_t limits_held(const struct limits *limits);
/* How many more bytes a tunnel may take in that holds `own` by now, `unsettled` of which were not told by limits_hold
 * yet, so that its buffers, which grow by doubling, stay within its share. The share is a part of what is free: the
 * more is held, the smaller it is, so that first the largest holders stop and who holds little goes on. A quarter of
 * memory is kept for what has to become `whole` before it is given back. */
size_t limits_room(const struct limits *limits, uint64_t own, int64_t unsettled, bool whole);
/* Who answers for what a tunnel holds: its organisation, or its sandbox where it has none. NULL: nobody does. Of a tunnel
 * that has entered, until it leaves, when it holds nothing any more. */
struct limits_holder;
struct limits_holder *limits_holder(struct limits *limits, const struct limits_owner *owner);
void limits_holder_hold(struct limits_holder *holder, int64_t bytes); /* NULL is fine */
/* There was no such room for a long time: whether the tunnel, of those that say so, is to end for one that cannot
 * become whole. The largest tunnels of who holds most are, a sixteenth of memory in LIMITS_ROUND: many small ones of one
 * organisation do not outlast the large one of another. */
enum {
    LIMITS_ROUND = 250000, /* microseconds; each of them asks at least once in that time */
    LIMITS_GRACE = 2500000 /* from the first question on: those that nothing wakes look every two seconds */
};
bool limits_gives_way(struct limits *limits, const struct limits_holder *holder, uint64_t own, bool whole,
                      uint64_t now);

/* One that cannot become whole waits for room: the others are to look whether they have any. */
bool limits_wanted(const struct limits *limits, uint64_t now);

/* A replay takes so many bytes at most: there are as many turns as memory has room for, and of these one in so many
 * for one sandbox; at least one. */
enum { LIMITS_REPLAY_LEN = 4 << 20, LIMITS_REPLAY_SHARE = 8 };

/* A turn to collect a replay, for a tunnel that has entered; false: not now. */
bool limits_replay_begin(struct limits *limits, struct slice space, struct slice sandbox)
    __attribute__((warn_unused_result));
void limits_replay_end(struct limits *limits, struct slice space, struct slice sandbox);
/* Nobody else collects one: it is never short of memory. */
bool limits_replay_alone(const struct limits *limits);

#endif
