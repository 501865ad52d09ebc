/* SPDX-License-Identifier: MIT */
/*
 * directory_queue: questions on their way to a directory. Those that wait are served by their owners in turn (spoa/base/table/fair.h),
 * as many at once as the kind takes. A question that other owners wait for as well stands in the line of each of them, and is served
 * when the first of these lines comes to it. So nobody waits for what somebody else has asked for.
 *
 * Any thread may call everything; the lock is held only while pointers move.
 */
#ifndef CELLGATE_AGENT_DIRECTORY_QUEUE_H
#define CELLGATE_AGENT_DIRECTORY_QUEUE_H

#include "spoa/agent/directory/cache.h"
#include "spoa/agent/directory/kind.h"

struct directory_queue;

/* limits->served: as of struct directory_kind. NULL when out of memory. */
struct directory_queue *directory_queue_new(const struct fair_limits *limits);
void directory_queue_free(struct directory_queue *queue); /* it is empty; NULL is fine */

/* Takes the question over, unless it returns something else than ASK_BEGUN. */
enum directory_ask directory_queue_put(struct directory_queue *queue, struct directory_question *question,
                                       struct fair_owner owner);
/* Another owner waits for the question with this key, if one waits. Returns true if that has changed something. */
bool directory_queue_join(struct directory_queue *queue, struct slice key, struct fair_owner owner);
/* Returns the next question to be served; NULL: there is none, or none may be now. */
struct directory_question *directory_queue_next(struct directory_queue *queue);
/* Takes out a question that has waited since then or longer; NULL: there is none. One that other owners have joined later waits
 * on for these. */
struct directory_question *directory_queue_late(struct directory_queue *queue, uint64_t since);
/* A question that is served is not served for a while, and waits once more. */
void directory_queue_hold(struct directory_queue *queue, struct directory_question *question);
void directory_queue_again(struct directory_queue *queue, struct directory_question *question);
/* A question that is served, or held, has ended. */
void directory_queue_leave(struct directory_queue *queue, struct directory_question *question);
/* No question is taken any more. */
void directory_queue_stop(struct directory_queue *queue);
bool directory_queue_is_waiting(struct directory_queue *queue); /* whether some wait */

#endif
