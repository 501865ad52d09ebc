/* SPDX-License-Identifier: MIT */
/*
 * limits: what the tunnels of all threads may take together: their number, also per sandbox and per
 * organisation, the memory of what they hold, and how many may collect a replay at once. Locks are taken only
 * when a tunnel or a replay comes or goes. For any thread.
 */
#ifndef CELLGATE_RELAY_LIMITS_H
#define CELLGATE_RELAY_LIMITS_H

#include <stdatomic.h>

#include "spoa/lib/slice.h"

struct limits_settings { /* 0: no limit */
    uint64_t tunnels, per_sandbox, per_org;
    uint64_t memory; /* bytes held */
};

struct limits;

/* NULL when out of memory. */
struct limits *limits_new(const struct limits_settings *settings);
void limits_free(struct limits *limits);
/* New ones; tunnels that are there stay. */
void limits_set(struct limits *limits, const struct limits_settings *settings);

/* Counts a tunnel; false: one more is not allowed, or memory is short. sandbox and org may be absent or
 * empty: it is not counted for them. */
bool limits_enter(struct limits *limits, struct slice space, struct slice sandbox, struct slice org)
    __attribute__((warn_unused_result));
void limits_leave(struct limits *limits, struct slice space, struct slice sandbox, struct slice org);
uint64_t limits_tunnels(const struct limits *limits);

/* Held memory has changed by so many bytes. */
void limits_hold(struct limits *limits, int64_t bytes);
uint64_t limits_held(const struct limits *limits);
bool limits_may_hold(const struct limits *limits);

/* A replay takes so many bytes at most: there are as many turns as memory has room for, and of these one in so many
 * for one sandbox; at least one. */
enum { LIMITS_REPLAY_LEN = 4 << 20, LIMITS_REPLAY_SHARE = 8 };

/* A turn to collect a replay, for a tunnel that has entered; false: not now. */
bool limits_replay_begin(struct limits *limits, struct slice space, struct slice sandbox)
    __attribute__((warn_unused_result));
void limits_replay_end(struct limits *limits, struct slice space, struct slice sandbox);

#endif
