/* SPDX-License-Identifier: MIT */
/*
 * time_shares: which share of a thread's time (spoa/net/loop.h) each tunnel, mux socket and egress connection of that thread is served
 * in. All of one owner (limits.h) are in one share: those of an organisation, else of a sandbox, else of the address of a client that has
 * shown no token. The shares of these clients are one group: towards the others they are one owner. For one thread.
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
        unknown; /* of who has not said yet who it is, or has no share of its own for want of memory */
    struct loop_share nobody; /* the group of clients without a token */
};

/* Returns false if the kernel gives no random bytes. */
bool time_shares_open(struct time_shares *shares, struct loop *loop) __attribute__((warn_unused_result));
/* All that was taken has been given back, and the loop has been freed. Zeroed ones are fine. */
void time_shares_close(struct time_shares *shares);

/* Returns the owner's share, for one user of it. Never fails. */
struct loop_share *time_shares_take(struct time_shares *shares, const struct limits_owner *owner);
/* Ends a use of it: no descriptor of this user is open any more. NULL is fine. */
void time_shares_give(struct time_shares *shares, struct loop_share *share);

#endif
