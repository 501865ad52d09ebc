/* SPDX-License-Identifier: MIT */
/*
 * pending: requests that are answered later than they came: the relays' subscriptions, and whatever needs a record
 * that is being looked up. Each has a ticket, the key of its sandbox, and a copy of the message's arguments;
 * its time is the same for all of one `pending`. Those of a thread share a table, in which a key is found once, whatever
 * is waited for. For one thread: a decision thread's.
 *
 * However many there are, and whoever asks: to add, to end and to tell take the same short time each. What follows from
 * that is done by pending_work in pieces that end when its time does: answers that are due, questions whose key or whose
 * connection was notified. Who is notified twice before it was looked at is looked at once.
 */
#ifndef CELLGATE_AGENT_DECISION_THREAD_PENDING_H
#define CELLGATE_AGENT_DECISION_THREAD_PENDING_H

#include "spoa/base/table/fair.h"
#include "spoa/base/table/hash.h"
#include "spoa/spop/server.h"

struct pending_table;
struct pending;

struct pending_request {
    struct server_ticket ticket;
    struct slice key;
    struct spop_args args;
    uint64_t begun;          /* loop_clock */
    int kind;                /* the caller's */
    struct fair_owner owner; /* whose share it takes */
    /* The hash of whose of `payers`, of the same rank: of many owners, as all sandboxes of an organisation are. */
    uint64_t payer;
    void *pinned; /* the caller's */
};

/* What neighbours may take of the memory for questions, which several threads may share. A connection gets at most as much
 * as it leaves to others: one alone half, of n that want all each the n + 1st part, and the next one still gets some. */
struct pending_quota {
    uint64_t most; /* in units of PENDING_UNIT bytes; a question takes one at least */
    _Atomic uint64_t used;
};

enum { PENDING_UNIT = 512, PENDING_PLACE = 2048 };

struct pending_options {
    struct loop *loop;
    uint64_t patience;           /* microseconds until a question is due */
    size_t most, most_bytes;     /* questions, and their memory */
    struct pending_quota *quota; /* NULL: none but these */
    /* Borrowed: whose shares a question takes, in units of PENDING_PLACE bytes. It needs room in both. Either may be NULL, and payers is if
     * fair is. */
    struct fair *fair, *payers;
    /* Its time is over: it is to be answered. */
    void (*due)(void *context, const struct pending_request *request);
    /* Something changed that may be of use to it: true when it was answered. */
    bool (*notify)(void *context, struct pending_request *request);
    /* Whether its connection takes an answer at the moment; if not, it is not notified now and is due a time later. May be
     * NULL. */
    bool (*room)(void *context, const struct pending_request *request);
    /* It is not kept any more, for whatever reason. May be NULL. */
    void (*gone)(void *context, const struct pending_request *request);
    void *context;
};

/* work: there is something for pending_work to do. NULL when out of memory. */
struct pending_table *pending_table_new(void (*work)(void *context), void *context);
/* With all that are in it; answers nothing. NULL is fine. */
void pending_table_free(struct pending_table *table);
/* In the table, for as long as that is there. NULL when out of memory. */
struct pending *pending_new(struct pending_table *table, const struct pending_options *options);
/* Copies key and arguments. It has not begun before the one that was added last: they end in that order. False
 * when out of memory or full: answer at once then. */
bool pending_add(struct pending *pending, const struct pending_request *request);
/* Whether its owner and its payer may have one more like this. */
bool pending_has_room(const struct pending *pending, const struct pending_request *request);
/* Those of a key, in the whole table, or all of one `pending` are looked at: `notify` is called for each, later. */
void pending_notify(struct pending_table *table, struct slice key);
void pending_notify_all(struct pending *pending);
/* The connection is gone: nobody is to be answered there. */
void pending_drop(struct pending *pending, uint32_t slot, uint32_t generation);
/* The time of the question with this ticket is over now. False: there is none. */
bool pending_end(struct pending *pending, const struct server_ticket *ticket);
/* Until loop_clock is `until`, and a step at least. Whether there is more to do. */
bool pending_work(struct pending_table *table, uint64_t until);
size_t pending_count(const struct pending *pending);

#endif
