/* SPDX-License-Identifier: MIT */
/*
 * directory_queue: questions on their way to a directory. Waiting questions are served in turn of their owners
 * (spoa/base/table/fair.h), as many at once as the kind allows. A question that other owners wait for as well has a place in the line
 * of each of them, and is served when the first of these lines reaches it. So no owner waits for what somebody else has asked for.
 *
 * Any thread may call any function; the lock is held only while pointers move.
 */
#ifndef CELLGATE_AGENT_DIRECTORY_QUEUE_H
#define CELLGATE_AGENT_DIRECTORY_QUEUE_H

#include "spoa/agent/directory/cache.h"
#include "spoa/agent/directory/kind.h"

struct directory_queue;

/* Returns a new queue, or NULL if memory is short. limits->served is the kind's look_ups_at_once or wakes_at_once. */
struct directory_queue *directory_queue_new(const struct fair_limits *limits) MUST_CHECK;
/* Frees a queue, which must be empty; NULL is fine. */
void directory_queue_free(struct directory_queue *queue);

/* Adds a question on behalf of `owner`. The queue takes it over only if the result is ASK_BEGUN. */
enum directory_ask directory_queue_put(struct directory_queue *queue, struct directory_question *question,
                                       struct fair_owner owner) MUST_CHECK;
/* Gives the waiting question for `key`, if there is one, a place of `owner` too. Returns whether it got one. */
bool directory_queue_join(struct directory_queue *queue, struct slice key, struct fair_owner owner);
/* Returns the next question to serve, which counts as being served until directory_queue_leave, or NULL if none may be served now. */
struct directory_question *directory_queue_next(struct directory_queue *queue);
/* Removes and returns a question that waits since `since` or longer, or returns NULL. A question that other owners have joined later
 * only loses the older place. */
struct directory_question *directory_queue_late(struct directory_queue *queue, uint64_t since);
/* Sets a question that is being served aside: it takes no part in the service until directory_queue_again. */
void directory_queue_hold(struct directory_queue *queue, struct directory_question *question);
/* Lets a question that was set aside wait once more, after the other questions of its owner. */
void directory_queue_again(struct directory_queue *queue, struct directory_question *question);
/* Ends a question that is being served, or was set aside; the queue forgets it. */
void directory_queue_leave(struct directory_queue *queue, struct directory_question *question);
/* Refuses all questions from now on. */
void directory_queue_stop(struct directory_queue *queue);
/* Returns whether a question waits. */
bool directory_queue_is_waiting(struct directory_queue *queue);

#endif
