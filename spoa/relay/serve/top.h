/* SPDX-License-Identifier: MIT */
/*
 * top: what an operator looks for, in an answer that is small however many tunnels there are: those that are first in some
 * order, the sandboxes with most tunnels, the last ends, and the sums of what is counted. A thread looks at each of its
 * tunnels once and describes those that are shown.
 */
#ifndef CELLGATE_RELAY_SERVE_TOP_H
#define CELLGATE_RELAY_SERVE_TOP_H

#include "spoa/base/bytes/buffer.h"
#include "spoa/base/os/fail.h"
#include "spoa/relay/thread/limits.h"
#include "spoa/relay/thread/relay_thread.h"

/* By what tunnels are sorted, the largest first. X(name) */
#define TOP_ORDERS(X) X(held) X(age) X(idle) X(bytes) X(redials) X(gap)

enum top_order {
#define X(name) TOP_##name,
    TOP_ORDERS(X)
#undef X
        TOP_ORDERS_COUNT
};

enum { TOP_ROWS = 50, TOP_ROWS_MOST = 200, TOP_SANDBOXES = 20, TOP_FILTER = 128 };

struct top_question {
    enum top_order order;
    size_t rows; /* TOP_ROWS_MOST at most */
    size_t filter_len;
    uint8_t filter
        [TOP_FILTER]; /* what a tunnel's sandbox, route, worker, state and so on are searched for; in lower case */
};

/* sort, rows, filter: absent ones leave what is default. False and *why. */
bool top_question(struct top_question *question, struct slice sort, struct slice rows, struct slice filter,
                  struct fail *why);
/* The same of a query "sort=held&rows=20&filter=a%20b"; what it does not know it skips. */
bool top_question_query(struct top_question *question, struct slice query, struct fail *why);

struct top;

/* NULL when out of memory. */
struct top *top_new(const struct top_question *question);
void top_free(struct top *top);
/* On the thread. */
void top_look(struct relay_thread *thread, void *top);
/* Members of an object: "matching", "shown", "ends", "sandboxes". False: the buffer is full. */
bool top_write(struct top *top, struct limits *limits, struct buffer *to);
/* The same of what is counted since the start: "gaps", "redials_by_cause", "reasons", "refused", "opened" and bytes. */
bool top_write_counts(struct relay_metrics *metrics, struct buffer *to);

#endif
