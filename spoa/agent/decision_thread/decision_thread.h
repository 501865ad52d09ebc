/* SPDX-License-Identifier: MIT */
/*
 * decision_thread: a thread of the agent with an event loop and two SPOP servers: for HAProxy (decisions) and for relays (questions,
 * subscriptions). It answers by its snapshot, which other threads replace between two questions.
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
    uint64_t waiter;                  /* the thread's bit in directory/cache.h */
    const struct hash_secret *owners; /* borrowed; for struct snapshot_finder, the same for all threads */
    int listener, relay_listener;     /* borrowed; all decision threads share them */
    struct listener_share *share, *relay_share; /* borrowed, for these listeners; may be NULL */
    struct peer_user haproxy_user, relay_user; /* users that may connect to listener, and to relay_listener */
    size_t token_cache;                        /* number of entries */
    struct token_store *token_store;           /* borrowed from all decision threads; NULL if there is none */
    /* borrowed; limit of the subscriptions of all decision threads */
    struct pending_quota *subscriptions;
    uint64_t lookup;      /* longest time that a question waits for a look-up, in µs */
    uint64_t host_lookup; /* longest time that a question waits for the addresses of a host outside, in µs */
    struct renew *renew;  /* NULL if sandboxes in use are not reported */
    const struct key *ticket_key; /* borrowed; checks relays' tickets; NULL if relays may ask nothing */
    struct metrics_shard *shard;
    struct log *log;
    struct log *audit;              /* NULL if audit is off */
    void (*drained)(void *context); /* called on the decision thread */
    void *context;
};

/* Starts the thread, which takes a reference of its own to `snapshot`. Returns NULL and *why if it cannot start. */
struct decision_thread *decision_thread_start(const struct decision_thread_options *options,
                                              struct snapshot *snapshot, struct fail *why);
/* For any thread. After decision_thread_hand_over() the thread decides new questions by this snapshot, of which it takes a reference.
 * After decision_thread_take() it also looks again at pending questions and subscriptions. There are two calls so that all threads have
 * the snapshot before one of them wakes and shows it to a client, who may then ask another thread. */
void decision_thread_hand_over(struct decision_thread *thread, struct snapshot *snapshot);
void decision_thread_take(struct decision_thread *thread);
/* For any thread: the record of this key may have changed, or its look-up was answered. */
void decision_thread_notify(struct decision_thread *thread, struct slice key);
/* For any thread, once. The thread accepts no new connections; existing ones end when they have their answers, or after `grace`
 * microseconds. */
void decision_thread_drain(struct decision_thread *thread, uint64_t grace);
/* Ends the thread; functions for any thread may still be called. */
void decision_thread_stop(struct decision_thread *thread);
void decision_thread_free(struct decision_thread *thread); /* must be stopped */
/* For any thread: adds this decision thread's SPOP counters to *sum. */
void decision_thread_count(const struct decision_thread *thread, struct server_counters *sum);

#endif
