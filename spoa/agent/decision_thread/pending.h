/* SPDX-License-Identifier: MIT */
/*
 * pending: questions that are answered later: subscriptions of relays, and questions that wait for the look-up of a record. Each has a
 * ticket, the key of its sandbox, and a copy of the message's arguments. All questions of one `pending` have the same timeout. The
 * `pending`s of a thread share a table, which finds a key once for all of them. For one thread, a decision thread.
 *
 * To add, to end and to notify take the same short time, however many questions there are. pending_work does the work that follows, in
 * slices of limited time: it answers questions that are due, and looks at questions whose key or connection was notified. Several
 * notifications of a question before the look cause one look.
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
    uint64_t begun;          /* loop_clock of the arrival */
    int kind;                /* set and used by the caller */
    struct fair_owner owner; /* owner whose share the question takes */
    /* hash of the owner in `payers`, with the same rank: an owner of many owners, like the organisation of many sandboxes */
    uint64_t payer;
    void *pinned; /* set and used by the caller */
};

/* A memory limit that several `pending`s, also of other threads, may share. A connection gets at most as much as it leaves free for
 * others: one alone gets half, each of n greedy ones gets 1/(n + 1), and the next one still gets some. */
struct pending_quota {
    uint64_t most; /* in units of PENDING_UNIT bytes; a question takes at least one */
    _Atomic uint64_t used;
};

enum { PENDING_UNIT = 512, PENDING_PLACE = 2048 };

struct pending_options {
    struct loop *loop;
    uint64_t patience;           /* time until a question is due, in µs */
    size_t most, most_bytes;     /* limits of the number of questions, and of their memory in bytes */
    struct pending_quota *quota; /* NULL if there are no limits but these */
    /* Borrowed. The shares that a question takes, in units of PENDING_PLACE bytes; both must have room for it. Either may be NULL;
     * `payers` must be NULL if `fair` is. */
    struct fair *fair, *payers;
    /* Called when the question's time is over; the callback must answer it. */
    void (*due)(void *context, const struct pending_request *request);
    /* Called when something changed that may allow an answer; returns true if the callback answered. */
    bool (*notify)(void *context, struct pending_request *request);
    /* Returns whether the question's connection can take an answer now. If not, `notify` is called later, and a due question gets
     * another timeout. May be NULL. */
    bool (*room)(void *context, const struct pending_request *request);
    /* Called when the question is removed, for whatever reason. May be NULL. */
    void (*gone)(void *context, const struct pending_request *request);
    void *context;
};

/* `work` is called when pending_work has something to do. Returns NULL if memory is short. */
struct pending_table *pending_table_new(void (*work)(void *context), void *context);
/* Frees the table with all questions and answers none. table may be NULL. */
void pending_table_free(struct pending_table *table);
/* Makes a `pending` that belongs to the table. Returns NULL if memory is short. */
struct pending *pending_new(struct pending_table *table, const struct pending_options *options);
/* Adds a question and copies its key and arguments. `begun` must not be earlier than that of the last added question, because questions
 * end in this order. Returns false if memory is short or a limit is reached; the caller must then answer at once. */
bool pending_add(struct pending *pending, const struct pending_request *request);
/* Returns whether the question's owner and payer have room for one more. */
bool pending_has_room(const struct pending *pending, const struct pending_request *request);
/* Notify the questions with a key in the whole table, or all questions of one `pending`: `notify` is called for each later. */
void pending_notify(struct pending_table *table, struct slice key);
void pending_notify_all(struct pending *pending);
/* Removes the questions of a closed connection; none of them is answered. */
void pending_drop(struct pending *pending, uint32_t slot, uint32_t generation);
/* Ends the time of the question with this ticket. Returns false if there is none. */
bool pending_end(struct pending *pending, const struct server_ticket *ticket);
/* Works until loop_clock reaches `until`, at least one step. Returns whether work is left. */
bool pending_work(struct pending_table *table, uint64_t until);
size_t pending_count(const struct pending *pending);

#endif
