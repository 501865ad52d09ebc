/* SPDX-License-Identifier: MIT */
/*
 * limits: bounds the tunnels, mux sockets and their requests, and egress connections of all threads together. The limits count
 * their number (in total, and per sandbox, organisation, token and client address), the memory that they hold, and the number that
 * collect a replay at once. A lock is needed only when one of them begins or ends. Any thread may call these functions.
 *
 * Each tunnel has one owner, and the memory of all tunnels of an owner is added up. The owner is the organisation, else the
 * sandbox, else the address prefix of an unauthenticated client. Unauthenticated clients count as one owner together, and share a
 * part of the memory and of the number of tunnels. "Tunnel" below means any of the things counted.
 */
#ifndef CELLGATE_RELAY_THREAD_LIMITS_H
#define CELLGATE_RELAY_THREAD_LIMITS_H

#include <stdatomic.h>

#include "spoa/base/bytes/slice.h"
#include "spoa/base/os/time.h"
#include "spoa/base/text/address.h"

/* The criteria by which tunnels are counted, beside their total: X(name). */
#define LIMITS(X)                                                                          \
    X(sandbox)                                                                             \
    X(org)                                                                                 \
    X(token)                                                                               \
    X(refused)         /* refused tunnels, all together */                                 \
    X(egress)          /* egress connections of programs in sandboxes, all together */     \
    X(mux)             /* WebSockets of many requests, and these requests, all together */ \
    X(client)          /* a part of these, of one unauthenticated client address */        \
    X(unauthenticated) /* a part of these, of all unauthenticated clients */

enum limit {
#define X(name) LIMIT_##name,
    LIMITS(X)
#undef X
        LIMIT_COUNT,
    LIMIT_tunnels = LIMIT_COUNT,
    LIMIT_NONE, /* no limit is reached */
    LIMIT_MEMORY
};
extern const char *const limit_names[]; /* names of LIMITS and `tunnels`, with NULL after the last */

/* The default limits, as divisors of the total. */
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

struct limits_settings { /* 0 means unlimited */
    uint64_t tunnels, most[LIMIT_COUNT];
    uint64_t memory; /* bytes held */
};

/* The owner of a tunnel. An absent or empty member is not counted. */
struct limits_owner {
    struct slice space, sandbox, org, token;
    struct slice client; /* address prefix of an unauthenticated client; all other slices are then absent */
    bool refused;
    bool egress; /* an egress connection of the sandbox, counted apart from tunnels to the sandbox */
    /* an upgrade inside an egress connection; a sandbox has a separate, equal limit of these */
    bool inside;
    bool mux;      /* a WebSocket of many requests, or a request in one */
    bool kept;     /* was counted before the limits were set: enters whatever they are */
    uint64_t most; /* the sandbox's own limit, beside the configured one; 0 if there is none */
};

struct limits;

/* Returns new limits, or NULL if memory is short. */
struct limits *limits_new(const struct limits_settings *settings);
void limits_free(struct limits *limits);
/* Changes the settings. Existing tunnels are kept. */
void limits_set(struct limits *limits, const struct limits_settings *settings);

/* Counts a tunnel. Call before dialling its worker, and limits_leave once both sides are closed. Returns LIMIT_NONE, or the limit
 * that allows no further tunnel, or LIMIT_MEMORY. */
enum limit limits_enter(struct limits *limits, const struct limits_owner *owner)
    __attribute__((warn_unused_result));
void limits_leave(struct limits *limits, const struct limits_owner *owner);
/* Counts a tunnel that entered without an organisation for the organisation now known, which becomes the owner of the tunnel's
 * memory. Returns LIMIT_org or LIMIT_MEMORY and changes nothing if that fails. */
struct limits_use;
enum limit limits_name_org(struct limits *limits, const struct limits_owner *owner, struct limits_use *use)
    __attribute__((warn_unused_result));
/* Returns the number of tunnels that this limit allows the owner, for messages about a reached limit. */
uint64_t limits_most(const struct limits *limits, const struct limits_owner *owner, enum limit limit);
uint64_t limits_tunnels(const struct limits *limits);

/* Writes the owner name of an unauthenticated client (limits_owner.client; client_site.h). */
enum { LIMITS_CLIENT_NAME = 46 };
void limits_client_name(const struct limits *limits, const struct address *source,
                        char name[LIMITS_CLIENT_NAME]);

/* The sandboxes with most tunnels, in descending order, for views. */
enum {
    LIMITS_NAME_SHOWN = 200
}; /* bytes kept of namespace "/" sandbox; the namespace `default` is omitted */
struct limits_busy {
    uint64_t tunnels;
    size_t len;
    uint8_t name[LIMITS_NAME_SHOWN];
};
/* Fills at most `room` entries and returns their number. */
size_t limits_busiest(struct limits *limits, struct limits_busy *busy, size_t room);

/* Adds a change of held memory, in bytes. */
void limits_hold(struct limits *limits, int64_t bytes);
uint64_t limits_held(const struct limits *limits);
/* Returns true if more than half of `memory` is held. */
bool limits_is_short(const struct limits *limits);

/* The memory that one tunnel holds, its permit to collect a replay, and its owner. An owner's share is the memory divided by the number of
 * owners that hold any; all unauthenticated clients are one owner. Together they may hold 1/LIMITS_SLICE of the memory, and one address half of
 * that. */
struct limits_holder;
struct limits_use {
    struct limits_holder *holder;
    uint64_t held, wanted;
    bool replays; /* has a permit to collect a replay (limits_replay_begin) */
};
enum { LIMITS_SLICE = 4 }; /* a quarter */

/* Begins a use, to be ended by limits_use_end. Never fails: if memory is short, an unknown unauthenticated client is the owner. */
struct limits_use limits_use_begin(struct limits *limits, const struct limits_owner *owner);
/* Ends a use, which then holds nothing and has no permit. A zeroed use is allowed. */
void limits_use_end(struct limits *limits, struct limits_use *use);
/* Gives the use to another owner, with its permit. */
void limits_use_move(struct limits *limits, struct limits_use *use, const struct limits_owner *owner);
/* Sets the number of bytes that the tunnel holds, which the caller also reports to limits_hold. `waits` is true if a message of the
 * tunnel cannot be completed, and its memory not be freed, because memory is short. */
void limits_use_set(struct limits *limits, struct limits_use *use, uint64_t held, bool waits);
/* Returns the number of further bytes that a tunnel holding `held` bytes may read, so that its buffers, which double in size, stay
 * within the tunnel's part. The part is a fraction of the free memory and shrinks as memory fills, so that the largest holders stop
 * first. limits_room leaves a quarter of the memory to limits_room_whole, for messages that must be complete before their memory is
 * freed; only the buffer that `grows` counts there, because all other held memory waits for that buffer. An owner above its share
 * gets no memory that others wait for. An owner below its share may fill the share even if no memory is free, as long as the sum of
 * all tunnels' memory above LIMITS_LEAST each is less than twice the memory. */
enum { LIMITS_LEAST = 32 << 10 }; /* bytes that a tunnel may hold however short memory is */
size_t limits_room(const struct limits *limits, const struct limits_use *use, uint64_t held);
size_t limits_room_whole(const struct limits *limits, const struct limits_use *use, uint64_t held,
                         uint64_t grows);
/* Returns whether a buffer that holds `grows` bytes could grow if its owner held nothing else and memory were free:
 * what does not fit then is not waited for. */
bool limits_fits(const struct limits *limits, const struct limits_use *use, uint64_t grows);

/* A round of eviction, to free memory for waiting tunnels. Every LIMITS_ROUND, the caller passes all tunnels that could end to
 * limits_round_look, and then to limits_round_takes. The largest tunnels of the owner that holds most are evicted, until the missing
 * memory or a sixteenth of all memory is free. An owner below its share is spared unless all are. If only unauthenticated clients
 * lack memory, within their slice, one of them is chosen. */
#define LIMITS_ROUND (250 * MILLISECOND)
struct limits_round {
    uint64_t lacking;                   /* bytes still to be freed */
    const struct limits_holder *nobody; /* the only owner that can be chosen; NULL if any can */
    const struct limits_holder
        *owner;    /* owner that holds most, maybe freed by now; one owner for all unauthenticated clients */
    uint64_t most; /* bytes that `owner` holds */
    const struct limits_holder *one; /* unauthenticated address that holds most; otherwise equal to `owner` */
    uint64_t ones, largest;          /* bytes held by `one`, and by its largest tunnel */
};

/* Begins a round. Returns false if no tunnel waits, or memory is free. */
bool limits_round_begin(const struct limits *limits, struct limits_round *round);
void limits_round_look(struct limits_round *round, const struct limits_use *use);
/* Returns true if the caller must end this tunnel. Call after limits_round_look for all tunnels. */
bool limits_round_takes(const struct limits *limits, struct limits_round *round,
                        const struct limits_use *use);

/* The largest replay in bytes. The number of permits is the memory divided by it, at least 1. Owners share the permits by the rule of
 * fair_is_part: an owner that collects many replays leaves some permits to others, whose first permit is then free. All
 * unauthenticated clients are one owner. */
enum { LIMITS_REPLAY_LEN = 4 << 20 };

/* Takes a permit to collect a replay, if the use has none. Returns false if the owner may have no more. */
bool limits_replay_begin(struct limits *limits, struct limits_use *use) __attribute__((warn_unused_result));
/* Returns the permit. Does nothing if the use has none. */
void limits_replay_end(struct limits *limits, struct limits_use *use);
/* Returns true if only one tunnel collects a replay. A single replay is never refused memory. */
bool limits_replay_alone(const struct limits *limits);

#endif
