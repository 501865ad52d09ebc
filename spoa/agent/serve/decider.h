/* SPDX-License-Identifier: MIT */
/*
 * decider: one thread of the agent: a loop with the SPOP servers for HAProxy (decisions) and for relays
 * (resolves, watches). It answers by its snapshot, which others replace from outside between two turns of
 * the loop.
 */
#ifndef CELLGATE_AGENT_SERVE_DECIDER_H
#define CELLGATE_AGENT_SERVE_DECIDER_H

#include "spoa/agent/serve/relay_user.h"
#include "spoa/agent/serve/renew.h"
#include "spoa/agent/serve/snapshot.h"
#include "spoa/agent/serve/waits.h"
#include "spoa/service/log.h"
#include "spoa/service/metrics.h"
#include "spoa/spop/server.h"

struct decider;

struct decider_options {
    int listener, relay_listener; /* borrowed; shared by all deciders */
    struct relay_user relay_user; /* who may connect to relay_listener */
    size_t token_cache;           /* entries */
    struct waits_quota *watches;  /* borrowed, of all deciders: what relays' watches may take */
    double lookup;                /* seconds that a question waits for a look-up */
    struct renew *renew;          /* NULL: nobody is told of sandboxes in use */
    const struct key *ticket_key; /* borrowed; of what relays may ask for; NULL: nothing */
    struct metrics_shard *shard;
    struct log *log;
    struct log *audit; /* NULL: as if it were switched off */
    void (*drained)(void *context); /* called on the decider's thread */
    void *context;
};

/* Takes a reference of its own to snapshot. Starts the thread. NULL and *why when that cannot be done. */
struct decider *decider_start(const struct decider_options *options, struct snapshot *snapshot,
                              struct fail *why);
/* Any thread: from its next turn on the decider decides by this snapshot, of which it takes a reference. */
void decider_use(struct decider *decider, struct snapshot *snapshot);
/* Any thread: what is known of this key may have changed, or a look-up of it was answered. */
void decider_news(struct decider *decider, struct slice key);
/* Any thread, once: no new connections; those that are there end when they have their answers, or after
 * `grace` seconds. */
void decider_drain(struct decider *decider, double grace);
/* Ends the thread; the others' functions may still be called. */
void decider_stop(struct decider *decider);
void decider_free(struct decider *decider); /* stopped */
/* Any thread: adds this decider's SPOP counters to *sum. */
void decider_count(const struct decider *decider, struct server_counters *sum);

#endif
