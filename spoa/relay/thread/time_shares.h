/* SPDX-License-Identifier: MIT */
/*
 * time_shares: assigns each tunnel, mux socket and egress connection of a thread to a share of the thread's time (spoa/net/loop.h).
 * Each owner (limits.h) has one share: an organisation, else a sandbox, else the address of an unauthenticated client. The shares
 * of unauthenticated clients form one group, which counts as one owner. A time_shares belongs to one thread.
 */
#ifndef CELLGATE_RELAY_THREAD_TIME_SHARES_H
#define CELLGATE_RELAY_THREAD_TIME_SHARES_H

#include "spoa/base/table/hash.h"
#include "spoa/base/table/hash_table.h"
#include "spoa/net/loop.h"
#include "spoa/relay/thread/limits.h"

struct time_shares {
    struct loop *loop;
    struct hash_secret secret;
    struct hash_table table;
    struct loop_share
        unknown; /* share of users without a known owner, and of owners for whose share memory was short */
    struct loop_share nobody; /* the group of unauthenticated clients */
};

/* Returns false if the kernel gives no random bytes. */
bool time_shares_open(struct time_shares *shares, struct loop *loop) __attribute__((warn_unused_result));
/* Frees the memory. Call after all shares were returned and the loop was freed. Zeroed shares are allowed. */
void time_shares_close(struct time_shares *shares);

/* Returns the owner's share, for one user of it. Never fails. */
struct loop_share *time_shares_take(struct time_shares *shares, const struct limits_owner *owner);
/* Ends one use of a share. All descriptors of this user must be closed. NULL is allowed. */
void time_shares_give(struct time_shares *shares, struct loop_share *share);

#endif
