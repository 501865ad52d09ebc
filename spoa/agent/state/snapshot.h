/* SPDX-License-Identifier: MIT */
/*
 * snapshot: all that a decision reads beside the request, at one moment: policy, records, names. Immutable
 * and counted by reference; a change of any part makes a new snapshot that shares the others.
 */
#ifndef CELLGATE_AGENT_STATE_SNAPSHOT_H
#define CELLGATE_AGENT_STATE_SNAPSHOT_H

#include "spoa/agent/decision/egress.h"
#include "spoa/agent/directory/directory.h"
#include "spoa/agent/directory/names.h"
#include "spoa/agent/directory/records.h"
#include "spoa/agent/state/host_cache.h"
#include "spoa/agent/state/policy.h"
#include "spoa/base/table/references.h"

struct snapshot_parts {
    struct policy *policy;       /* never NULL */
    struct records *records;     /* NULL: the directory has not been loaded yet, or is asked */
    struct directory *directory; /* NULL: there are only records */
    struct names *resolver;   /* borrowed: gets names that an asked directory's records need; may be NULL */
    struct host_cache *hosts; /* borrowed: of hosts outside; may be NULL */
    struct name_table *names; /* NULL: none is resolved yet */
    int64_t not_before;       /* the directory's */
    struct revoked *revoked;  /* the directory's; NULL: none */
};

struct snapshot {
    struct snapshot_parts parts;
    atomic_uint references; /* of snapshot_retain and snapshot_release alone */
};

/* Takes references of its own to all parts. NULL when out of memory. */
struct snapshot *snapshot_new(const struct snapshot_parts *parts);
struct snapshot *snapshot_retain(struct snapshot *snapshot);
void snapshot_release(struct snapshot *snapshot); /* NULL is fine */

/* How a decision looks records up, and what it has found. */
struct snapshot_finder {
    bool last;                        /* it has waited enough: the last good record will do */
    bool wakes;                       /* a suspended sandbox that it needs is woken */
    uint64_t waiter;                  /* the bit of who asks, as of directory/cache.h */
    struct fair_owner owner;          /* whose share look-ups take, until the decision says who asks */
    const struct hash_secret *owners; /* borrowed; tells them apart; NULL: each record is its own owner */
    size_t len;                       /* of the key that was asked for last */
    uint8_t key[256];
    const struct snapshot *snapshot; /* this and what follows is its own */
    struct shared_record *held;      /* what the last look-up in a directory's cache has found */
    unsigned look_ups;               /* of the decision there */
    enum lookup found;
    bool alike; /* the last one was for somebody of whom nothing is proven */
    bool ahead; /* it was snapshot_finds, and no decision has used it yet */
};

/* The view of a decision at `now` (Unix seconds); what it finds is valid until snapshot_finder_done. The
 * snapshot is borrowed. */
struct decide_view snapshot_view(const struct snapshot *snapshot, struct snapshot_finder *finder,
                                 struct token_cache *cache, int64_t now);
/* Whether a decision that looks the key up now would find this very record. It is looked up as the decision would, which
 * then has what was found here: for an answer that is to be given again, or else for the decision that replaces it. */
bool snapshot_finds(const struct snapshot *snapshot, struct snapshot_finder *finder, struct slice key,
                    bool alike, const struct shared_record *record);
void snapshot_finder_done(struct snapshot_finder *finder);
/* The key of a host outside, by which those who wait for its addresses are notified; no sandbox has one like it. Empty if it
 * is too long. */
struct slice snapshot_host_key(struct slice host, uint8_t memory[256]);
bool snapshot_is_host_key(struct slice key);
/* The key that a directory is asked for; empty if it is too long for one. space may be absent. */
struct slice snapshot_key(struct slice space, struct slice sandbox, uint8_t memory[256]);

#endif
