/* SPDX-License-Identifier: MIT */
/*
 * top: an overview for operators whose size does not depend on the number of tunnels: the first tunnels in some order, the sandboxes with
 * most tunnels, the last tunnels that ended, and the sums of counters. Each thread reads each of its tunnels once, and describes only the
 * ones that are shown.
 */
#ifndef CELLGATE_RELAY_SERVE_TOP_H
#define CELLGATE_RELAY_SERVE_TOP_H

#include "spoa/base/bytes/buffer.h"
#include "spoa/base/os/fail.h"
#include "spoa/relay/thread/limits.h"
#include "spoa/relay/thread/relay_thread.h"

/* The keys for sorting tunnels, the largest first: X(name). */
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
    size_t rows; /* number of tunnels to show, at most TOP_ROWS_MOST */
    size_t filter_len;
    uint8_t filter
        [TOP_FILTER]; /* text in lower case that a tunnel's sandbox, route, worker, state, ... must contain */
};

/* Makes a question of three texts, each of which may be absent for the default. Returns false with *why if one is invalid. */
bool top_question(struct top_question *question, struct slice sort, struct slice rows, struct slice filter,
                  struct fail *why);
/* Like top_question, from a query "sort=held&rows=20&filter=a%20b". Unknown parameters are ignored. */
bool top_question_query(struct top_question *question, struct slice query, struct fail *why);

struct top;

/* Returns an empty answer to the question, or NULL if memory is short. */
struct top *top_new(const struct top_question *question);
void top_free(struct top *top);
/* Adds the tunnels of a thread to the answer `top`. Runs on that thread. */
void top_look(struct relay_thread *thread, void *top);
/* Writes members of an object: "matching", "shown", "ends", "sandboxes". Returns false if the buffer is full. */
bool top_write(struct top *top, struct limits *limits, struct buffer *to);
/* Writes the counters since the start as members of an object: "gaps", "redials_by_cause", "reasons", "refused", "opened" and bytes. Returns
 * false if the buffer is full. */
bool top_write_counts(struct relay_metrics *metrics, struct buffer *to);

#endif
