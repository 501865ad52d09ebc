/* SPDX-License-Identifier: MIT */
/*
 * decision_thread: one thread of the agent: a loop with the SPOP servers for HAProxy (decisions) and for relays
 * (questions, subscriptions). It answers by its snapshot, which others replace from outside between two questions.
 */
#ifndef CELLGATE_AGENT_DECISION_THREAD_DECISION_THREAD_H
#define CELLGATE_AGENT_DECISION_THREAD_DECISION_THREAD_H

#include "spoa/agent/decision_thread/pending.h"
#include "spoa/agent/state/renew.h"
#include "spoa/agent/state/snapshot.h"
#include "spoa/service/log.h"
#include "spoa/service/metrics.h"
#include "spoa/service/peer_user.h"
#include "spoa/spop/server.h"

struct decision_thread;

struct decision_thread_options {
    uint64_t waiter;                  /* its bit, as of directory/cache.h */
    const struct hash_secret *owners; /* borrowed; of struct snapshot_finder, the same for all threads */
    int listener, relay_listener;     /* borrowed; shared by all decision threads */
    struct listener_share *share, *relay_share; /* borrowed, of these; may be NULL */
    struct peer_user haproxy_user, relay_user;  /* who may connect to listener, and to relay_listener */
    size_t token_cache;                         /* entries */
    struct token_store *token_store;            /* borrowed, of all decision threads; NULL: none */
    /* borrowed, of all decision threads: what relays' subscriptions may take */
    struct pending_quota *subscriptions;
    uint64_t lookup;              /* microseconds that a question waits for a look-up */
    uint64_t host_lookup;         /* the same, of the addresses of a host outside */
    struct renew *renew;          /* NULL: sandboxes in use are not reported */
    const struct key *ticket_key; /* borrowed; of what relays may ask for; NULL: nothing */
    struct metrics_shard *shard;
    struct log *log;
    struct log *audit;              /* NULL: as if it were switched off */
    void (*drained)(void *context); /* called on the decision thread's thread */
    void *context;
};

/* Takes a reference of its own to snapshot. Starts the thread. NULL and *why when that cannot be done. */
struct decision_thread *decision_thread_start(const struct decision_thread_options *options,
                                              struct snapshot *snapshot, struct fail *why);
/* Any thread: what is asked of the decision thread from now on it decides by this snapshot, of which it takes a reference.
 * What waits and subscribes already it looks at anew behind decision_thread_take. Two calls, so that all threads have it
 * before one of them wakes and shows it to somebody, who then asks another one. */
void decision_thread_hand_over(struct decision_thread *thread, struct snapshot *snapshot);
void decision_thread_take(struct decision_thread *thread);
/* Any thread: what is known of this key may have changed, or a look-up of it was answered. */
void decision_thread_notify(struct decision_thread *thread, struct slice key);
/* Any thread, once: no new connections; those that are there end when they have their answers, or after
 * `grace` microseconds. */
void decision_thread_drain(struct decision_thread *thread, uint64_t grace);
/* Ends the thread; the others' functions may still be called. */
void decision_thread_stop(struct decision_thread *thread);
void decision_thread_free(struct decision_thread *thread); /* stopped */
/* Any thread: adds this decision thread's SPOP counters to *sum. */
void decision_thread_count(const struct decision_thread *thread, struct server_counters *sum);

#endif
