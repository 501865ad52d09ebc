/* SPDX-License-Identifier: MIT */
/* signals: as events of a loop (signalfd), so that a handler may do whatever any other callback may. */
#ifndef CELLGATE_WORKER_SIGNALS_H
#define CELLGATE_WORKER_SIGNALS_H

#include "spoa/net/loop.h"

struct signals {
    struct loop_io io;
    void (*on)(void *owner, int number);
    void *owner;
};

/* Blocks the signals of `numbers` (0 ends the list) for this process and tells of them; ignores SIGPIPE, and SIGCHLD no
 * more. */
bool signals_open(struct signals *s, struct loop *loop, const int *numbers,
                  void (*on)(void *owner, int number), void *owner, struct fail *why);
void signals_close(struct signals *s);

#endif
