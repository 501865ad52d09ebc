/* SPDX-License-Identifier: MIT */
/*
 * snapshot: all that a decision reads beside the request, at one moment: policy, records, names. Immutable
 * and counted by reference; a change of any part makes a new snapshot that shares the others.
 */
#ifndef CELLGATE_AGENT_SNAPSHOT_H
#define CELLGATE_AGENT_SNAPSHOT_H

#include "spoa/agent/decide.h"
#include "spoa/agent/names.h"
#include "spoa/agent/policy.h"
#include "spoa/agent/records.h"

struct snapshot_parts {
    struct policy *policy;    /* never NULL */
    struct records *records;  /* NULL: the directory has not been loaded yet */
    struct name_table *names; /* NULL: none is resolved yet */
    int64_t not_before;       /* the directory's */
};

struct snapshot {
    struct snapshot_parts parts;
    unsigned references; /* atomic; of snapshot_retain and snapshot_release alone */
};

/* Takes references of its own to all parts. NULL when out of memory. */
struct snapshot *snapshot_new(const struct snapshot_parts *parts);
struct snapshot *snapshot_retain(struct snapshot *snapshot);
void snapshot_release(struct snapshot *snapshot); /* NULL is fine */

/* The view of a decision at `now` (Unix seconds). Valid while the snapshot is held. */
struct decide_view snapshot_view(const struct snapshot *snapshot, struct token_cache *cache, int64_t now);

#endif
