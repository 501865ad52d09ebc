/* SPDX-License-Identifier: MIT */
/*
 * decision_thread_parts: the inside of a decision thread. decision_thread.c has its life, what HAProxy asks and what waits;
 * decision_thread_egress.c CONNECTs of sandboxes; decision_thread_relays.c what relays ask. Private to these.
 */
#ifndef CELLGATE_AGENT_DECISION_THREAD_DECISION_THREAD_PARTS_H
#define CELLGATE_AGENT_DECISION_THREAD_DECISION_THREAD_PARTS_H

#include "spoa/agent/decision_thread/answer_cache.h"
#include "spoa/agent/decision_thread/decision_thread.h"
#include "spoa/agent/decision_thread/mailbox.h"
#include "spoa/base/os/thread.h"

enum { SUBSCRIPTION_SECONDS = 60 };

#define REFUSAL_EVERY (10 * SECOND) /* between two such lines of the log */

enum pending_kind { PENDING_ROUTE, PENDING_EGRESS, PENDING_INSIDE, PENDING_RESOLVE, PENDING_SUBSCRIPTION };

struct decision_thread {
    struct decision_thread_options options;
    struct loop *loop;
    struct server *server, *relay_server;
    struct pending_table *pending; /* of these */
    struct pending *requests;      /* HAProxy's, which wait for a look-up */
    struct pending *late_requests; /* those that wait on: nothing is known that could serve instead */
    struct pending *egress;        /* CONNECTs of sandboxes, which wait for a record, one behind the other */
    struct pending *hosts;         /* and then for the addresses of a host outside */
    struct pending *redials;       /* questions of relays that wait for a look-up */
    struct fair *waiting;          /* of all of these that are about sandboxes here: whose share each takes */
    struct fair *outside;          /* the same of `egress` and `hosts`, by sandboxes */
    struct fair *
        outside_payers; /* and by their organisations, so that many sandboxes have no more than one owner has */
    struct pending_quota redials_quota;
    struct pending *subscriptions; /* of relays */
    struct mailbox *inbox;
    struct token_cache *cache;
    struct answer_cache *answers;
    struct auth_failure_limiter *limiter;
    uint8_t *scratch;
    pthread_t thread;

    struct snapshot *snapshot;       /* of the thread */
    _Atomic(struct snapshot *) next; /* handed over, not taken yet */
    struct token_cache_counts reported;
    uint64_t clock;          /* loop_clock, at the end of the last answer to HAProxy */
    uint64_t unix_read;      /* loop_clock when unix_now was read */
    int64_t unix_now;        /* Unix seconds, never before the question arrived that is decided now */
    uint64_t left_logged;    /* the same of a header that HAProxy leaves */
    uint64_t refusal_logged; /* loop_clock: when it was logged last that a relay is refused; 0: never */
    struct peer_refusals haproxy_refusals, relay_refusals; /* of connections */

    struct loop_task take, work, drain, stop;
    uint64_t grace;
};

/* ---- decision_thread.c ---- */
/* Not time(2), which lags behind by up to a tick: a token that was issued just now would be of the future. */
int64_t decision_thread_unix_now(void);
/* Before a question: somebody may have been answered by the newest snapshot already, by another thread. */
void decision_thread_take_newest(struct decision_thread *d);
/* What the token cache has counted since the last time. */
void decision_thread_count_cache(struct decision_thread *d);
/* Keeps the question until the look-up that `finder` has begun is answered. */
bool decision_thread_keep(struct decision_thread *d, struct pending *among, struct pending_request pending,
                          const struct snapshot_finder *finder);

/* ---- decision_thread_egress.c ---- */
/* A CONNECT, or a request inside one: pending.kind says which. */
enum server_reply decision_thread_on_egress(struct decision_thread *d, struct pending_request pending,
                                            struct spop_actions *actions);
/* Whether it was answered, or waits for something else; `last`: whatever is known. */
bool decision_thread_answer_egress(struct decision_thread *d, const struct pending_request *pending,
                                   bool last);

/* ---- decision_thread_relays.c ---- */
enum server_reply decision_thread_on_relay(void *context, struct slice name, struct spop_args args,
                                           struct spop_actions *actions, const struct server_ticket *ticket);
/* Of a question or subscription that waits: whether it was answered; `last`: whatever is known. */
bool decision_thread_answer_relay_again(struct decision_thread *d, const struct pending_request *pending,
                                        bool last);
/* A subscription uses its record: the cache keeps it, has it looked up again by itself, and tells what changes. */
void decision_thread_pin(struct decision_thread *d, struct pending_request *pending);
void decision_thread_unpin(void *context, const struct pending_request *pending);

#endif
