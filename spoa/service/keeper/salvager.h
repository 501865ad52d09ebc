/* SPDX-License-Identifier: MIT */
/*
 * salvager: a process that shares the server's memory (clone(2) with CLONE_VM, without CLONE_THREAD) and its descriptors, and sleeps. The
 * kernel frees the memory of a process only when nobody shares it any more: after a server's death by SIGKILL or a crash, its salvager finds
 * all of that memory as it was, at the same addresses, with the heap and the stacks. Nothing has to be prepared for that while the server works, so
 * the server is as fast and as small as without a salvager.
 *
 * The salvager is cloned before the server reads what a peer sends, and confines itself as the server does: whoever has written hostile bytes into the
 * server's memory gets nothing from the salvager that the server did not have. The salvager trusts nothing there. A lock may be held for ever,
 * so it takes none, and does not use malloc. A pointer may be wild: salvager_try survives that.
 *
 * The kernel's OOM killer kills all processes that share a memory, the salvager too. So does a core dump before Linux 5.16: there the
 * server is made undumpable.
 */
#ifndef CELLGATE_SERVICE_KEEPER_SALVAGER_H
#define CELLGATE_SERVICE_KEEPER_SALVAGER_H

#include <stdatomic.h>
#include <stdbool.h>
#include <sys/types.h>

#include "spoa/base/bytes/must_check.h"
#include "spoa/base/os/fail.h"

/* In memory that the keeper shares with both. */
struct salvager_board {
    _Atomic unsigned state; /* a futex: enum salvager_state */
    _Atomic pid_t pid;      /* process id, or 0; the keeper checks that the process is its child */
};

enum salvager_state { SALVAGER_NONE, SALVAGER_SLEEPS, SALVAGER_FAILED, SALVAGER_WORKS };

struct salvager_options {
    struct salvager_board *board;
    pid_t keeper; /* with which the salvager ends */
    /* Confines the calling process. Returns false if that fails. */
    bool (*confine)(void *context);
    /* Saves what can be saved of the memory, after the server's death. */
    void (*salvage)(void *context);
    void *context;
};

/* In the server: begins a salvager. Returns false with *why if the system refuses; then there is none. The options are copied. */
bool salvager_begin(const struct salvager_options *options, struct fail *why) MUST_CHECK;
/* In the keeper: forgets the salvager of the server before. */
void salvager_forget(struct salvager_board *board);
/* In the keeper, after the server's end: ends the salvager, if there is one. */
void salvager_end(struct salvager_board *board);
/* In the keeper, after the server's death: wakes the salvager. Returns its process id, or 0 if there is none. */
pid_t salvager_wake(struct salvager_board *board);
/* In the salvager: runs `run`, and returns false if it has died of a wild pointer or of an assertion. What it has changed stays changed. */
bool salvager_try(void (*run)(void *context), void *context) MUST_CHECK;

#endif
