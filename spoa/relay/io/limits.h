/* SPDX-License-Identifier: MIT */
/*
 * limits: what the tunnels of all threads may take together: their number, also per sandbox, per organisation
 * and per token, the memory of what they hold, and how many may collect a replay at once. Locks are taken only
 * when a tunnel or a replay comes or goes. For any thread.
 */
#ifndef CELLGATE_RELAY_IO_LIMITS_H
#define CELLGATE_RELAY_IO_LIMITS_H

#include <stdatomic.h>

#include "spoa/base/slice.h"
#include "spoa/base/time.h"

/* By what tunnels are counted beside all of them. X(name) */
#define LIMITS(X)                                                                              \
    X(sandbox)                                                                                 \
    X(org)                                                                                     \
    X(token)                                                                                   \
    X(refused) /* refused tunnels: all of them together */                                     \
    X(egress)  /* connections of programs in sandboxes to the outside: all of them together */ \
    X(mux)     /* WebSockets of many requests: all of them together */

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
    LIMITS_REFUSED_PART = 8,
    LIMITS_EGRESS_PART = 2,
    LIMITS_MUX_PART = 2
};

struct limits_settings { /* 0: no limit */
    uint64_t tunnels, most[LIMIT_COUNT];
    uint64_t memory; /* bytes held */
};

/* Whose a tunnel is. What is absent or empty it is not counted for. */
struct limits_owner {
    struct slice space, sandbox, org, token;
    bool refused;
    bool egress;   /* a connection of the sandbox's own to the outside: counted apart from tunnels to it */
    bool inside;   /* egress: an upgrade in such a connection, of which a sandbox may have as many again */
    bool mux;      /* a WebSocket of many requests: `token` is then its client's address */
    uint64_t most; /* of the sandbox, beside the configuration's limit; 0: none */
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
/* How many tunnels this limit allows the owner now: what is said of one that was reached. */
uint64_t limits_most(const struct limits *limits, const struct limits_owner *owner, enum limit limit);
uint64_t limits_tunnels(const struct limits *limits);

/* The sandboxes with most tunnels, the one with most first; for views. */
enum {
    LIMITS_NAME_SHOWN = 200
}; /* bytes of namespace "/" sandbox that are kept; without the namespace where it is `default` */
struct limits_busy {
    uint64_t tunnels;
    size_t len;
    uint8_t name[LIMITS_NAME_SHOWN];
};
/* Fills at most `room`; returns how many. */
size_t limits_busiest(struct limits *limits, struct limits_busy *busy, size_t room);

/* Held memory has changed by so many bytes. */
void limits_hold(struct limits *limits, int64_t bytes);
uint64_t limits_held(const struct limits *limits);
/* Over half of `memory` is held. */
bool limits_is_short(const struct limits *limits);

/* What one tunnel holds, as the limits know it, and who answers for that: its organisation, or its sandbox where it has
 * none. An owner's share is memory by the number of owners that hold any. */
struct limits_holder;
struct limits_use {
    struct limits_holder *holder;
    uint64_t held, wanted;
};

/* Of a tunnel that has entered, until it leaves, when it holds nothing any more. */
struct limits_use limits_use_begin(struct limits *limits, const struct limits_owner *owner);
/* By now it holds so many bytes, which limits_hold counts beside this; waits: it cannot become whole, and so give back
 * what it holds, for want of memory. */
void limits_use_set(struct limits *limits, struct limits_use *use, uint64_t held, bool waits);
/* How many more bytes a tunnel may take in that holds `held` by now, so that its buffers, which grow by doubling, stay
 * within its part. This is a part of what is free: the more is held, the smaller it is, so that first the largest holders
 * stop and who holds little goes on. A quarter of memory is kept for what has to become whole before it is given back:
 * there only the buffer counts that `grows`, by what it has taken already, since all else that is held waits for it.
 * An owner beyond its share gets nothing that others wait for. One within its share may fill that when there is no more,
 * until what all hold of more than LIMITS_LEAST for each tunnel is twice as much as there is. */
enum { LIMITS_LEAST = 32 << 10 }; /* bytes: what a tunnel holds at most however short memory is */
size_t limits_room(const struct limits *limits, const struct limits_use *use, uint64_t held);
size_t limits_room_whole(const struct limits *limits, const struct limits_use *use, uint64_t held,
                         uint64_t grows);

/* Who gives way to those that wait: every LIMITS_ROUND all tunnels that could are shown, twice. The largest tunnels of
 * the owner that holds most are to end, as many as those that wait lack and a sixteenth of memory at most. Nobody's are
 * who has less than its share, unless all have. */
#define LIMITS_ROUND (250 * MILLISECOND)
struct limits_round {
    uint64_t lacking;                  /* bytes to be given back */
    const struct limits_holder *owner; /* who holds most, maybe gone by now */
    uint64_t most, largest;            /* what it holds, and its largest tunnel */
};

/* False: nobody waits, or there is room. */
bool limits_round_begin(const struct limits *limits, struct limits_round *round);
void limits_round_look(struct limits_round *round, const struct limits_use *use);
/* Behind all looks: whether it ends. */
bool limits_round_takes(const struct limits *limits, struct limits_round *round,
                        const struct limits_use *use);

/* A replay takes so many bytes at most: there are as many turns as memory has room for, and of these one in so many
 * for one sandbox; at least one. */
enum { LIMITS_REPLAY_LEN = 4 << 20, LIMITS_REPLAY_SHARE = 8 };

/* A permit to collect a replay, for a tunnel that has entered; false: not now. */
bool limits_replay_begin(struct limits *limits, struct slice space, struct slice sandbox)
    __attribute__((warn_unused_result));
void limits_replay_end(struct limits *limits, struct slice space, struct slice sandbox);
/* Nobody else collects one: it is never short of memory. */
bool limits_replay_alone(const struct limits *limits);

#endif
