/* SPDX-License-Identifier: MIT */
/*
 * snapshot: everything that a decision reads other than the request, at one moment: policy, records, names. Immutable and counted by
 * reference. A change of one part makes a new snapshot, which shares the other parts.
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
    struct records *records;     /* NULL if the directory was not loaded yet, or is asked for each record */
    struct directory *directory; /* NULL if there are only records of a file */
    struct names
        *resolver; /* borrowed; gets names of workers in records of an asked directory; may be NULL */
    struct host_cache *hosts; /* borrowed; addresses of hosts outside; may be NULL */
    struct name_table *names; /* NULL if no name is resolved yet */
    int64_t not_before;       /* the directory's, in Unix seconds */
    struct revoked *revoked;  /* the directory's list; NULL if there is none */
};

struct snapshot {
    struct snapshot_parts parts;
    atomic_uint references; /* used by snapshot_retain and snapshot_release only */
};

/* Makes a snapshot, which takes references of its own to all parts. Returns NULL if memory is short. */
struct snapshot *snapshot_new(const struct snapshot_parts *parts);
struct snapshot *snapshot_retain(struct snapshot *snapshot);
void snapshot_release(struct snapshot *snapshot); /* snapshot may be NULL */

/* The parameters and results of a decision's look-ups. */
struct snapshot_finder {
    bool last;               /* the question has waited long enough, so the last good record is enough */
    bool wakes;              /* a suspended sandbox that the decision needs must be woken */
    uint64_t waiter;         /* bit of the asking thread in directory/cache.h */
    struct fair_owner owner; /* owner whose share look-ups use, until the decision names its asker */
    const struct hash_secret
        *owners; /* borrowed; secret for the hashes of owners; NULL if each record is its own owner */
    size_t len;  /* length of the last key */
    uint8_t key[256];
    const struct snapshot *snapshot; /* private, like all members below */
    struct shared_record *held;      /* record that the last look-up in a directory's cache found */
    unsigned look_ups;               /* number of the decision's look-ups in the directory's cache */
    enum lookup found;
    bool alike; /* the last look-up was for a caller who has proved nothing */
    bool ahead; /* snapshot_finds made the last look-up, and no decision has used its result yet */
};

/* Returns the view of a decision at `now` (Unix seconds). It borrows the snapshot; records it finds are valid until
 * snapshot_finder_done. */
struct decide_view snapshot_view(const struct snapshot *snapshot, struct snapshot_finder *finder,
                                 struct token_cache *cache, int64_t now);
/* Returns whether a decision that looks the key up now would find exactly this record. The look-up is that of a decision. If the cached
 * answer cannot be reused, the decision that follows takes over the result. */
bool snapshot_finds(const struct snapshot *snapshot, struct snapshot_finder *finder, struct slice key,
                    bool alike, const struct shared_record *record);
void snapshot_finder_done(struct snapshot_finder *finder);
/* Returns the key of a host outside; questions that wait for its addresses are notified by it. No sandbox has such a key. Empty if the
 * host is too long. */
struct slice snapshot_host_key(struct slice host, uint8_t memory[256]);
bool snapshot_is_host_key(struct slice key);
/* Returns the key of a sandbox in the directory; empty if it is too long. `space` may be absent. */
struct slice snapshot_key(struct slice space, struct slice sandbox, uint8_t memory[256]);

#endif
