/* SPDX-License-Identifier: MIT */
/*
 * process: starts a program on a terminal of its own or on three pipes. The program leads a new session (setsid(2)), so its process
 * group is its pid. All descriptors are non-blocking and closed at exec; the caller must close them.
 */
#ifndef CELLGATE_WORKER_SESSION_PROCESS_H
#define CELLGATE_WORKER_SESSION_PROCESS_H

#include <sys/types.h>

#include "spoa/base/bytes/slice.h"
#include "spoa/base/os/fail.h"

struct process_plan {
    bool terminal;
    uint16_t cols, rows;
    const char *cwd;   /* working directory; NULL or "" for the caller's */
    char *const *argv; /* program and arguments; argv[0] is searched in PATH */
    char *const
        *env; /* texts "NAME=value", in addition to a few variables of the caller (PATH, HOME, LANG, ...) */
};

struct process {
    pid_t pid;
    int in, out, err; /* on a terminal, `in` and `out` are its master, and `err` is -1 */
};

enum process_result {
    PROCESS_STARTED,
    PROCESS_IMPOSSIBLE, /* the folder or the program does not exist, or cannot be used */
    PROCESS_NO_ROOM,    /* the machine has no free descriptor, terminal, process or memory */
};
/* Starts the program. On failure, *why has the reason. */
enum process_result process_start(const struct process_plan *plan, struct process *p, struct fail *why);
/* Sends a signal to the leader's process group, and to the foreground group of `terminal` (the master, or -1 for none). */
void process_signal(pid_t leader, int terminal, int signal);
/* Sends SIGKILL to all processes of the leaders' sessions, including jobs with a process group of their own. Reads the list of all
 * processes of the machine once, because many sessions may end together. */
void process_kill_sessions(const pid_t *leaders, size_t count);
void process_resize(int terminal, uint16_t cols, uint16_t rows);
/* Returns the exit code of a wait status as a shell has it: 0-255, or 128 + n after signal n. */
uint32_t process_exit_code(int status);

#endif
