/* SPDX-License-Identifier: MIT */
/*
 * decision_thread_parts: the private state of a decision thread. decision_thread.c has start and stop, HAProxy's questions and the
 * pending ones; decision_thread_egress.c has CONNECTs of sandboxes; decision_thread_relays.c has questions of relays. Only these files
 * use it.
 */
#ifndef CELLGATE_AGENT_DECISION_THREAD_DECISION_THREAD_PARTS_H
#define CELLGATE_AGENT_DECISION_THREAD_DECISION_THREAD_PARTS_H

#include "spoa/agent/decision_thread/answer_cache.h"
#include "spoa/agent/decision_thread/decision_thread.h"
#include "spoa/agent/decision_thread/mailbox.h"
#include "spoa/base/os/thread.h"

enum { SUBSCRIPTION_SECONDS = 60 };

#define REFUSAL_EVERY (10 * SECOND) /* shortest time between two such lines of the log, in µs */

enum pending_kind { PENDING_ROUTE, PENDING_EGRESS, PENDING_INSIDE, PENDING_RESOLVE, PENDING_SUBSCRIPTION };

struct decision_thread {
    struct decision_thread_options options;
    struct loop *loop;
    struct server *server, *relay_server;
    struct pending_table *pending; /* table of all pending questions below */
    struct pending *requests;      /* HAProxy's questions that wait for a look-up */
    struct pending
        *late_requests;      /* questions that wait on, because nothing in the cache could serve instead */
    struct pending *egress;  /* CONNECTs of sandboxes that wait for records, one after the other */
    struct pending *hosts;   /* CONNECTs that then wait for the addresses of a host outside */
    struct pending *redials; /* relays' questions that wait for a look-up */
    struct fair *waiting;    /* shares of the owners of all pending questions about sandboxes */
    struct fair *outside;    /* shares of the sandboxes in `egress` and `hosts` */
    struct fair *
        outside_payers; /* shares of their organisations, so that many sandboxes of one owner get no more than one owner's share */
    struct pending_quota redials_quota;
    struct pending *subscriptions; /* subscriptions of relays */
    struct mailbox *inbox;
    struct token_cache *cache;
    struct answer_cache *answers;
    struct auth_failure_limiter *limiter;
    uint8_t *scratch;
    pthread_t thread;

    struct snapshot *snapshot;       /* current snapshot of the thread */
    _Atomic(struct snapshot *) next; /* snapshot that was handed over and not taken yet */
    struct token_cache_counts reported;
    uint64_t clock;     /* loop_clock at the end of the last answer to HAProxy */
    uint64_t unix_read; /* loop_clock when unix_now was read */
    int64_t unix_now;   /* Unix seconds; never earlier than the arrival of the current question */
    uint64_t
        left_logged; /* loop_clock when a header that HAProxy does not remove was last logged; 0 for never */
    uint64_t refusal_logged; /* loop_clock when a refused relay was last logged; 0 for never */
    struct peer_refusals haproxy_refusals, relay_refusals; /* refused connections */

    struct loop_task take, work, drain, stop;
    uint64_t grace;
};

/* ---- decision_thread.c ---- */
/* Returns the time in Unix seconds. time(2) is not used, because it can be late by a tick: the issue time of a new token would be in the
 * future. */
int64_t decision_thread_unix_now(void);
/* Takes the newest snapshot; call it before each question. Another thread may have answered the same client by that snapshot already,
 * and the client must not see an older one. */
void decision_thread_take_newest(struct decision_thread *d);
/* Adds the token cache's counters since the last call to the metrics. */
void decision_thread_count_cache(struct decision_thread *d);
/* Keeps the question until the look-up that `finder` started is answered. */
bool decision_thread_keep(struct decision_thread *d, struct pending *among, struct pending_request pending,
                          const struct snapshot_finder *finder);

/* ---- decision_thread_egress.c ---- */
/* Answers a CONNECT, or a request in an inspected connection that a CONNECT has opened; pending.kind tells which. */
enum server_reply decision_thread_on_egress(struct decision_thread *d, struct pending_request pending,
                                            struct spop_actions *actions);
/* Tries to answer. Returns true if it answered, or the question waits for another look-up. With `last` it answers in any case, by the
 * data at hand. */
bool decision_thread_answer_egress(struct decision_thread *d, const struct pending_request *pending,
                                   bool last);

/* ---- decision_thread_relays.c ---- */
enum server_reply decision_thread_on_relay(void *context, struct slice name, struct spop_args args,
                                           struct spop_actions *actions, const struct server_ticket *ticket);
/* Tries to answer a pending question or subscription, and returns whether it did. With `last` it answers in any case, by the data at
 * hand. */
bool decision_thread_answer_relay_again(struct decision_thread *d, const struct pending_request *pending,
                                        bool last);
/* Marks the record as used by the subscription: the cache keeps the record, refreshes it by itself, and notifies of changes. */
void decision_thread_pin(struct decision_thread *d, struct pending_request *pending);
void decision_thread_unpin(void *context, const struct pending_request *pending);

#endif
