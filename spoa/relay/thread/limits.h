/* SPDX-License-Identifier: MIT */
/*
 * limits: what everything of all threads that holds something may take together, and who answers for it: tunnels, mux
 * sockets and their requests, egress connections. Counted are their number, also per sandbox, organisation, token and
 * client address, the memory that they hold, and the number that may collect a replay at once. Locks are taken only
 * when one of these comes or goes. For any thread.
 *
 * Each has one owner, and what all of an owner's hold counts together: the organisation, else the sandbox, else the
 * address prefix of a client that has not shown a token. Clients without a token are one owner towards the others, and
 * share a slice of memory and of places.
 */
#ifndef CELLGATE_RELAY_THREAD_LIMITS_H
#define CELLGATE_RELAY_THREAD_LIMITS_H

#include <stdatomic.h>

#include "spoa/base/bytes/slice.h"
#include "spoa/base/os/time.h"
#include "spoa/base/text/address.h"

/* By what tunnels are counted beside all of them. X(name) */
#define LIMITS(X)                                                                                      \
    X(sandbox)                                                                                         \
    X(org)                                                                                             \
    X(token)                                                                                           \
    X(refused)         /* refused tunnels: all of them together */                                     \
    X(egress)          /* connections of programs in sandboxes to the outside: all of them together */ \
    X(mux)             /* WebSockets of many requests, and these: all of them together */              \
    X(client)          /* of these, those of one client's address that has shown no token */           \
    X(unauthenticated) /* of these, those of all clients that have shown no token */

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
    LIMITS_MUX_PART = 2,
    LIMITS_CLIENT_PART = 8,
    LIMITS_UNAUTHENTICATED_PART = 4
};

struct limits_settings { /* 0: no limit */
    uint64_t tunnels, most[LIMIT_COUNT];
    uint64_t memory; /* bytes held */
};

/* Whose a tunnel is. What is absent or empty it is not counted for. */
struct limits_owner {
    struct slice space, sandbox, org, token;
    struct slice
        client; /* the address prefix of one that has shown no token; then none of the others is present */
    bool refused;
    bool egress;   /* a connection of the sandbox's own to the outside: counted apart from tunnels to it */
    bool inside;   /* egress: an upgrade in such a connection, of which a sandbox may have as many again */
    bool mux;      /* a WebSocket of many requests, or one of these */
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
/* The organisation of a tunnel that entered without one is known now: counts the tunnel for it, and makes it answer for what the
 * tunnel holds. Otherwise returns LIMIT_org or LIMIT_MEMORY, and nothing has changed. */
struct limits_use;
enum limit limits_name_org(struct limits *limits, const struct limits_owner *owner, struct limits_use *use)
    __attribute__((warn_unused_result));
/* How many tunnels this limit allows the owner now: what is said of one that was reached. */
uint64_t limits_most(const struct limits *limits, const struct limits_owner *owner, enum limit limit);
uint64_t limits_tunnels(const struct limits *limits);

/* Writes the name under which a client that has shown no token owns what it uses (limits_owner.client; client_site.h). */
enum { LIMITS_CLIENT_NAME = 46 };
void limits_client_name(const struct limits *limits, const struct address *source,
                        char name[LIMITS_CLIENT_NAME]);

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

/* What one tunnel holds, as the limits know it, and who answers for that. An owner's share is memory by the number of
 * owners that hold any; all clients without a token are one. These hold LIMITS_SLICE of memory at most, one address
 * half of that. */
struct limits_holder;
struct limits_use {
    struct limits_holder *holder;
    uint64_t held, wanted;
};
enum { LIMITS_SLICE = 4 }; /* a quarter */

/* Never fails: when memory is short, the owner is a client of whom nothing is known. Ended by limits_use_end. */
struct limits_use limits_use_begin(struct limits *limits, const struct limits_owner *owner);
/* It holds nothing any more. Fine for one that is zero. */
void limits_use_end(struct limits *limits, struct limits_use *use);
/* From now on another owner answers for it. */
void limits_use_move(struct limits *limits, struct limits_use *use, const struct limits_owner *owner);
/* By now it holds so many bytes, which limits_hold counts beside this; waits: it cannot become whole, and so give back
 * what it holds, for want of memory. */
void limits_use_set(struct limits *limits, struct limits_use *use, uint64_t held, bool waits);
/* How many more bytes a tunnel may take in that holds `held` by now, so that its buffers, which grow by doubling, stay
 * within its part. This is a part of what is free: the more is held, the smaller it is, so that first the largest holders
 * stop and who holds little goes on. A quarter of memory is kept for what has to become whole before it is given back:
 * there only the buffer counts that `grows`, by what it has taken already, since all else that is held waits for it.
 * An owner beyond its share gets nothing that others wait for. One within its share may fill that when there is no more
 * until what all hold of more than LIMITS_LEAST for each tunnel is twice as much as there is. */
enum { LIMITS_LEAST = 32 << 10 }; /* bytes: what a tunnel holds at most however short memory is */
size_t limits_room(const struct limits *limits, const struct limits_use *use, uint64_t held);
size_t limits_room_whole(const struct limits *limits, const struct limits_use *use, uint64_t held,
                         uint64_t grows);
/* Returns whether a buffer that holds `grows` bytes could grow if its owner held nothing else and memory were free:
 * what does not fit then is not waited for. */
bool limits_fits(const struct limits *limits, const struct limits_use *use, uint64_t grows);

/* Who gives way to those that wait: every LIMITS_ROUND all that could are shown, twice. The largest tunnels of the owner
 * that holds most are to end, as many as those that wait lack and a sixteenth of memory at most. Nobody's are who has
 * less than its share, unless all have. If it is clients without a token that lack room, within their slice, it is one
 * of these. */
#define LIMITS_ROUND (250 * MILLISECOND)
struct limits_round {
    uint64_t lacking; /* bytes to be given back */
    const struct limits_holder
        *nobody; /* NULL: anybody can be taken; else: those of whom this is the owner */
    const struct limits_holder
        *owner;    /* who holds most, maybe gone by now; of clients without a token: all of them */
    uint64_t most; /* what it holds */
    const struct limits_holder
        *one;               /* of clients without a token: the address that holds most; else the owner */
    uint64_t ones, largest; /* what that holds, and its largest tunnel */
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
