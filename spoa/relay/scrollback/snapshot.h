/* SPDX-License-Identifier: MIT */
/*
 * snapshot: compares the snapshot of a second connection, which stands in s->replay meanwhile, with what was delivered and with the
 * held live output. Nothing passes here.
 */
#ifndef CELLGATE_RELAY_SCROLLBACK_SNAPSHOT_H
#define CELLGATE_RELAY_SCROLLBACK_SNAPSHOT_H

#include "spoa/relay/scrollback/state.h"

/* The held live output, while the snapshot stands in s->replay. */
struct snapshot_held {
    struct records records;
    uint64_t collected[2]; /* bytes of each stream */
};

/* Puts the snapshot of the check that runs in the place of the held output. Returns false if memory is short. */
bool snapshot_swap_in(struct scrollback *s, struct snapshot_held *held) __attribute__((warn_unused_result));
/* Frees the snapshot, and puts the held output back. Call it after snapshot_swap_in, whatever that returned. */
void snapshot_swap_out(struct scrollback *s, const struct snapshot_held *held);

/* Finds where the snapshot continues what was delivered. If the client has what the worker lacks, or the other way round, a gap is
 * noted. believed: a snapshot that lacks what the client has is believed. Returns false if the ring may still be filling. If memory
 * is short, *memory becomes false. */
bool snapshot_continues(struct scrollback *s, bool full, bool believed, struct delivered_place places[2],
                        bool *memory) __attribute__((warn_unused_result));
/* Finds how many bytes of the live output of each stream are in the snapshot. Returns false if that is not certain for both. */
bool snapshot_align(const struct scrollback *s, const struct records *live,
                    const struct delivered_place places[2], uint64_t at[2])
    __attribute__((warn_unused_result));

#endif
