/* SPDX-License-Identifier: MIT */
/*
 * keeper: the process that holds a daemon's descriptors, while a second process, the server, does the work.
 *
 * Keeper and server share one table of descriptors (clone(2) with CLONE_FILES, without CLONE_VM). A server that is killed
 * or crashes closes nothing: its listening sockets, and the clients that wait in their backlog, are there for the next server,
 * which the keeper starts at once. The keeper reads nothing that a peer has sent. It has one thread and waits for signals:
 *
 *   SIGHUP, SIGUSR1, SIGTERM, SIGINT   are passed on to the server
 *   SIGUSR2                            asks for an upgrade
 *   SIGCHLD                            the server has ended: another one is started, or the keeper ends with its exit code
 *
 * The server dies with the keeper (PR_SET_PDEATHSIG).
 *
 * An upgrade: the keeper checks the program at its own path (`-t`) and sends SIGUSR2 to the server. The server writes what the next
 * server needs into a memory file and exits with KEEPER_HANDED_OVER. The keeper executes the new program with the same descriptors
 * (keeper_exec.h). If the new server is not ready in time, the keeper executes the old program again, with the same memory file.
 */
#ifndef CELLGATE_SERVICE_KEEPER_KEEPER_H
#define CELLGATE_SERVICE_KEEPER_KEEPER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "spoa/service/keeper/keeper_exec.h"
#include "spoa/service/keeper/salvager.h"

/* Messages of a server to its keeper, one byte each, through keeper_server.channel. */
enum keeper_word {
    KEEPER_READY = 'r',
    KEEPER_RELOADING = 'l',
    KEEPER_RELOADED = 'R',
    KEEPER_STOPPING = 's',
    KEEPER_UPGRADE = 'u', /* an operator asks for an upgrade */
    KEEPER_SAME =
        'U', /* an operator asks to restart the present program, with the settings that a reload cannot change */
};

/* The exit code of a server that has handed over. */
enum { KEEPER_HANDED_OVER = 75 };

/* The fate of a tunnel whose server has died (salvager.h). */
enum keeper_fate {
    KEEPER_SAVED,    /* the next server continues the tunnel */
    KEEPER_TORN,     /* the server died while it handled an event of the tunnel */
    KEEPER_POISONED, /* the tunnel's memory was damaged */
    KEEPER_ENDING,   /* the tunnel's client had no answer yet, or the tunnel was closing */
    KEEPER_FATES,
};

enum { KEEPER_THREADS_MAX = 64, KEEPER_LEFT_OUT_MAX = 256 };

/* Memory that keeper and server share. The keeper does not trust it. The comments name the process that writes a field. */
struct keeper_board {
    _Atomic int images; /* server: descriptor of its memory file when it hands over, or -1 */
    _Atomic unsigned
        refused; /* keeper: number of upgrades that an operator requested and that did not begin */
    struct salvager_board salvager;
    _Atomic unsigned
        fates[KEEPER_FATES]; /* salvager: number of tunnels with each fate, of the last server that died */
    /* server that takes tunnels over: per thread, 1 + the number of the record that the thread reads, or 0 */
    _Atomic unsigned reads[KEEPER_THREADS_MAX];
    char why[256]; /* keeper: reason why the last upgrade failed; empty if none did */
};

/* The keeper's information for a server. */
struct keeper_server {
    int channel; /* write end of a pipe for enum keeper_word */
    int images;  /* memory file with the tunnels of the previous server, or -1 */
    struct keeper_board *board;
    pid_t keeper;
    unsigned left_out[KEEPER_LEFT_OUT_MAX]; /* records of `images` that servers have died of */
    size_t left_out_count;
    unsigned fates[KEEPER_FATES];   /* number of tunnels with each fate, of all earlier servers that died */
    unsigned deaths[KEEPER_CAUSES]; /* the number of servers that have died before this one */
    unsigned upgrades[KEEPER_OUTCOMES]; /* the number of upgrades before this server */
};

struct keeper_options {
    const char *name;     /* name of the daemon, for messages */
    char *const *argv;    /* arguments of the program */
    const char *pid_file; /* file that always has the present server's process id, or NULL */
    unsigned restarts;    /* number of servers that may die within a minute before the keeper gives up */
    uint64_t patience;    /* longest time for an upgrade, in µs */
    /* Listening sockets, which every server gets, and the handover of the previous program. */
    const struct keeper_handover *handover;
    /* Listening sockets of the previous program that this one does not use, at most KEEPER_LISTENERS_MAX. They are closed when a server is
     * ready; the previous program gets them back if none is. */
    const int *replaced;
    size_t replaced_count;
    /* The server's work, on a thread of its own; returns the exit code. An exit code but KEEPER_HANDED_OVER ends the keeper, too. */
    int (*serve)(void *context, const struct keeper_server *server);
    void *context;
};

/* Starts servers until one of them exits, or too many have died, and returns the exit code. The caller has one thread and has
 * blocked the signals of daemon_signals_block(). Returns -1 with *why, before anything is started, if the system has no such
 * clone: then the daemon does its work in its own process. */
int keeper_run(const struct keeper_options *options, struct fail *why) __attribute__((warn_unused_result));

/* Sends a message from the server to the keeper, which informs the service manager. */
void keeper_tell(const struct keeper_server *server, enum keeper_word word);

#endif
