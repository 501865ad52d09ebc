/* SPDX-License-Identifier: MIT */
/* loop_thread: a loop, and a thread that runs it until it is stopped. */
#ifndef CELLGATE_NET_LOOP_THREAD_H
#define CELLGATE_NET_LOOP_THREAD_H

#include "spoa/net/loop.h"

struct loop_thread;

struct loop_thread *loop_thread_start(struct fail *why); /* NULL and *why */
struct loop *loop_thread_loop(const struct loop_thread *thread);
/* Runs it on the thread of a loop, this one's or any other, behind what was posted before, and waits until it has run. Of
 * any other thread. */
void loop_call(struct loop *loop, void (*run)(void *context), void *context);
void loop_thread_call(struct loop_thread *thread, void (*run)(void *context), void *context);
/* Ends the thread and frees the loop, which first runs what is posted. NULL is fine. */
void loop_thread_stop(struct loop_thread *thread);

#endif
