/* SPDX-License-Identifier: MIT */
/* thread: starts threads in which all signals are blocked, so that the main thread alone handles them. */
#ifndef CELLGATE_BASE_OS_THREAD_H
#define CELLGATE_BASE_OS_THREAD_H

#include <pthread.h>

#include "spoa/base/os/fail.h"

/* Starts run(context) in a new thread, which the caller joins. Returns false and fills *why ("cannot start a thread: ...") if the
 * system refuses. */
bool thread_start(pthread_t *thread, void *(*run)(void *context), void *context, struct fail *why) MUST_CHECK;

#endif
