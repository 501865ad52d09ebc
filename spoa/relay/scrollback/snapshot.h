/* SPDX-License-Identifier: MIT */
/*
 * snapshot: compares a second connection's snapshot with the delivered output and with the held live output. The snapshot takes the
 * place of s->replay for that time. No function here passes output to the client.
 */
#ifndef CELLGATE_RELAY_SCROLLBACK_SNAPSHOT_H
#define CELLGATE_RELAY_SCROLLBACK_SNAPSHOT_H

#include "spoa/relay/scrollback/state.h"

/* The held live output while the snapshot is in s->replay. */
struct snapshot_held {
    struct records records;
    uint64_t collected[2]; /* bytes of each stream */
};

/* Moves the held output to *held, and the current check's snapshot to s->replay. Returns false if memory is short. */
bool snapshot_swap_in(struct scrollback *s, struct snapshot_held *held) __attribute__((warn_unused_result));
/* Frees the snapshot, and moves the held output back to s->replay. Call it after snapshot_swap_in, even if that returned false. */
void snapshot_swap_out(struct scrollback *s, const struct snapshot_held *held);

/* Finds the places where the snapshot continues the delivered output, and notes a gap if the client and the snapshot differ before
 * them. believed: the snapshot counts as complete even if it lacks output that the client has. Returns false if the worker's ring may
 * still be filling. Sets *memory to false if memory is short. */
bool snapshot_continues(struct scrollback *s, bool full, bool believed, struct delivered_place places[2],
                        bool *memory) __attribute__((warn_unused_result));
/* Finds the number of bytes at[i] of each stream's live output that are also in the snapshot. Returns false unless both are certain. */
bool snapshot_align(const struct scrollback *s, const struct records *live,
                    const struct delivered_place places[2], uint64_t at[2])
    __attribute__((warn_unused_result));

#endif
