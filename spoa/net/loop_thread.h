/* SPDX-License-Identifier: MIT */
/* loop_thread: a loop with a thread that runs it until it is stopped. */
#ifndef CELLGATE_NET_LOOP_THREAD_H
#define CELLGATE_NET_LOOP_THREAD_H

#include "spoa/net/loop.h"

struct loop_thread;

/* Starts a thread. Returns NULL and fills *why if memory, descriptors or threads are short. */
struct loop_thread *loop_thread_start(struct fail *why) MUST_CHECK;
struct loop *loop_thread_loop(const struct loop_thread *thread);
/* Runs run(context) on the thread of a loop, after everything that was posted before, and waits until it has returned. Must be called
 * from another thread. The loop need not be that of a loop_thread. */
void loop_call(struct loop *loop, void (*run)(void *context), void *context);
void loop_thread_call(struct loop_thread *thread, void (*run)(void *context), void *context);
/* Ends the thread, runs what is still posted, and frees the loop. NULL is fine. */
void loop_thread_stop(struct loop_thread *thread);

#endif
