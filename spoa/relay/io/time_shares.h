/* SPDX-License-Identifier: MIT */
/*
 * time_shares: which share of a thread's time (spoa/net/loop.h) each tunnel, mux socket and egress connection of that thread is served
 * in. All of one owner are in one share: those of an organisation, else of a sandbox, else of a client's address. For one thread.
 */
#ifndef CELLGATE_RELAY_IO_TIME_SHARES_H
#define CELLGATE_RELAY_IO_TIME_SHARES_H

#include "spoa/base/hash.h"
#include "spoa/base/hash_table.h"
#include "spoa/net/loop.h"

struct time_shares {
    struct loop *loop;
    struct hash_secret secret;
    struct hash_table table;
    struct loop_share
        unknown; /* of those whose owner is unknown, or has no share of its own for want of memory */
};

/* Returns false if the kernel gives no random bytes. */
bool time_shares_open(struct time_shares *shares, struct loop *loop) __attribute__((warn_unused_result));
/* All that was taken has been given back, and the loop has been freed. Zeroed ones are fine. */
void time_shares_close(struct time_shares *shares);

/* Returns the owner's share, for one user of it: `client` counts if neither organisation nor sandbox is known. Never fails. */
struct loop_share *time_shares_take(struct time_shares *shares, struct slice space, struct slice org,
                                    struct slice sandbox, struct slice client);
/* Ends a use of it: no descriptor of this user is open any more. NULL is fine. */
void time_shares_give(struct time_shares *shares, struct loop_share *share);

#endif
