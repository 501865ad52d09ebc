/* SPDX-License-Identifier: MIT */
/* signals: delivers signals as events of a loop (signalfd(2)), so that a handler may call any function. */
#ifndef CELLGATE_WORKER_SIGNALS_H
#define CELLGATE_WORKER_SIGNALS_H

#include "spoa/net/loop.h"

struct signals {
    struct loop_io io;
    void (*on)(void *owner, int number);
    void *owner;
};

/* Blocks the signals of `numbers`, a list that ends with 0, and calls `on` for each one that arrives. Also ignores SIGPIPE, and resets
 * SIGCHLD. Returns false with *why if that fails. */
bool signals_open(struct signals *s, struct loop *loop, const int *numbers,
                  void (*on)(void *owner, int number), void *owner, struct fail *why);
void signals_close(struct signals *s);

#endif
