/* SPDX-License-Identifier: MIT */
/* thread: starts threads that leave all signals to the main one. */
#ifndef CELLGATE_BASE_OS_THREAD_H
#define CELLGATE_BASE_OS_THREAD_H

#include <pthread.h>

#include "spoa/base/os/fail.h"

/* False and *why ("cannot start a thread: ..."). */
bool thread_start(pthread_t *thread, void *(*run)(void *context), void *context, struct fail *why);

#endif
