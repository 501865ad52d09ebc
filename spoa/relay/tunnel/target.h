/* SPDX-License-Identifier: MIT */
/*
 * target: the worker to dial, and what the agent answers about where it is. A `struct answer` is a view for
 * the time of one call; a `struct target` that was set owns a copy of its texts.
 */
#ifndef CELLGATE_RELAY_TUNNEL_TARGET_H
#define CELLGATE_RELAY_TUNNEL_TARGET_H

#include "spoa/base/bytes/image.h"
#include "spoa/base/bytes/slice.h"
#include "spoa/base/text/address.h"
#include "spoa/proto/refusal.h"

struct target {
    struct address addr; /* or unix_path */
    uint16_t port;
    bool tls;
    struct slice unix_path; /* absent: TCP */
    struct slice sni;
    struct slice host;    /* Host towards the worker; absent: keep the client's */
    struct slice headers; /* to be added: {u16be length, name, u16be length, value}* */
    bool withhold;  /* the client's Authorization is the sandbox's access secret, and not for its worker */
    uint8_t *texts; /* what the slices point into, if it is owned */
};

/* There is somewhere to dial. */
bool target_known(const struct target *target);
/* The same worker: address, port, TLS or Unix path. */
bool target_same(const struct target *a, const struct target *b);
/* Replaces *to by a copy; false, and *to is as before, when out of memory. */
bool target_set(struct target *to, const struct target *from) __attribute__((warn_unused_result));
void target_free(struct target *target);
/* The same on the heap, for targets that are rarely there: *to is NULL or a whole one. */
bool target_put(struct target **to, const struct target *from) __attribute__((warn_unused_result));
void target_drop(struct target **target);
/* The next of target.headers off *rest; false at the end or on broken bytes. */
bool target_header(struct slice *rest, struct slice *name, struct slice *value);

/* What cell-resolve and cell-watch say. */
enum answer_state {
    ANSWER_RUNNING, /* these three may have a target */
    ANSWER_MIGRATING,
    ANSWER_WAKING,
    ANSWER_SUSPENDED,
    ANSWER_STOPPED,
    ANSWER_ABSENT,
    ANSWER_UNAVAILABLE, /* the directory or the agent cannot say */
    ANSWER_NOT_ADMITTED /* no agent of this key has let the tunnel in */
};
extern const char *const answer_state_names[]; /* in this order, NULL behind the last */

struct answer {
    enum answer_state state;
    enum refusal
        refused; /* the authorisation is gone: REFUSAL_token_revoked, token_expired, not_granted; or the relay's own limit is
                             reached: REFUSAL_too_many_tunnels */
    bool unwatched;  /* of a watch: the agent has none, it is to be asked from time to time */
    bool agent_lost; /* of ANSWER_UNAVAILABLE: it is the agent that cannot be asked */
    int64_t epoch;
    struct target target;
    /* What the directory has said since the tunnel was let in, and the ticket that says it, too. */
    struct slice ticket; /* absent: the tunnel's stays */
    struct slice org;    /* whose the sandbox is; absent: as was known */
    bool settled, own;   /* its place is known now; own: it is the worker's own port */
};

extern const struct image_table target_table;

#endif
