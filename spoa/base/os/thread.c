/* SPDX-License-Identifier: MIT */
#include "spoa/base/os/thread.h"

#include <signal.h>
#include <string.h>

bool thread_start(pthread_t *thread, void *(*run)(void *context), void *context, struct fail *why)
{
    sigset_t all, old;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    int error = pthread_create(thread, NULL, run, context);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    return error == 0 || fail(why, "cannot start a thread: %s", strerror(error));
}
