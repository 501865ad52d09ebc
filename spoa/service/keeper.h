/* SPDX-License-Identifier: MIT */
/*
 * keeper: the process that holds a daemon's descriptors, while a second process, the server, does the work.
 *
 * Keeper and server share one table of descriptors (clone(2) with CLONE_FILES, without CLONE_VM). A server that is killed
 * or crashes closes nothing: its listening sockets, and the clients that wait in their backlog, are there for the next server,
 * which the keeper starts at once. The keeper reads nothing that a peer has sent. It has one thread and waits for signals:
 *
 *   SIGHUP, SIGUSR1, SIGTERM, SIGINT   are passed on to the server
 *   SIGCHLD                            the server has ended: another one is started, or the keeper ends with its exit code
 *
 * The server dies with the keeper (PR_SET_PDEATHSIG).
 */
#ifndef CELLGATE_SERVICE_KEEPER_H
#define CELLGATE_SERVICE_KEEPER_H

#include <stdbool.h>
#include <stddef.h>

#include "spoa/base/os/fail.h"

/* What a server tells its keeper, one byte each, through keeper_server.channel. */
enum keeper_word { KEEPER_READY = 'r', KEEPER_RELOADING = 'l', KEEPER_RELOADED = 'R', KEEPER_STOPPING = 's' };

/* Why a server died. */
enum keeper_cause {
    KEEPER_KILLED,  /* by SIGKILL: an operator, or the kernel for want of memory */
    KEEPER_CRASHED, /* by any other signal */
    KEEPER_CAUSES,
};

/* What a server knows of its keeper. */
struct keeper_server {
    int channel; /* write end: enum keeper_word */
    unsigned deaths
        [KEEPER_CAUSES]; /* the number of servers that have died before this one, by enum keeper_cause */
};

struct keeper_options {
    const char *name;     /* of the daemon, for messages */
    const char *pid_file; /* gets the server's process id, each time; NULL: none */
    unsigned restarts;    /* how many servers may die within a minute before the keeper gives up */
    const int *kept;      /* descriptors that every server gets, beside 0, 1 and 2: listening sockets */
    size_t kept_count;
    /* The server's work, on a thread of its own; returns the exit code. An exit code ends the keeper, too. */
    int (*serve)(void *context, const struct keeper_server *server);
    void *context;
};

/* Starts servers until one of them exits, or too many have died, and returns the exit code. The caller has one thread and has
 * blocked the signals of daemon_signals_block(). Returns -1 with *why, before anything is started, if the system has no such
 * clone: then the daemon does its work in its own process. */
int keeper_run(const struct keeper_options *options, struct fail *why) __attribute__((warn_unused_result));

/* On the server's side: tells the keeper, which tells the service manager. */
void keeper_tell(const struct keeper_server *server, enum keeper_word word);

#endif
