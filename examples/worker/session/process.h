/* SPDX-License-Identifier: MIT */
/*
 * process: starts a program on a terminal of its own or on three pipes, as the leader of a new session
 * (setsid), so that its process group is its pid. All descriptors are non-blocking, closed at exec, and the
 * caller's to close.
 */
#ifndef CELLGATE_WORKER_SESSION_PROCESS_H
#define CELLGATE_WORKER_SESSION_PROCESS_H

#include <sys/types.h>

#include "spoa/base/bytes/slice.h"
#include "spoa/base/os/fail.h"

struct process_plan {
    bool terminal;
    uint16_t cols, rows;
    const char *cwd;   /* NULL or "": the caller's */
    char *const *argv; /* argv[0] is looked up in PATH */
    char *const *env;  /* "NAME=value", in addition to a few of the caller's (PATH, HOME, LANG, ...) */
};

struct process {
    pid_t pid;
    int in, out, err; /* on a terminal in == out is its master and err is -1 */
};

enum process_result {
    PROCESS_STARTED,
    PROCESS_IMPOSSIBLE, /* the folder or the program is not one */
    PROCESS_NO_ROOM,    /* this machine has no descriptor, terminal, process or memory left for it */
};
/* Why it was not started is in *why. */
enum process_result process_start(const struct process_plan *plan, struct process *p, struct fail *why);
/* To the leader's group and, on a terminal (its master, or -1), to the group in its foreground. */
void process_signal(pid_t leader, int terminal, int signal);
/* SIGKILL to all processes of the leaders' sessions, jobs with a group of their own included. Looks at every process of
 * the machine, once: many sessions may end together. */
void process_kill_sessions(const pid_t *leaders, size_t count);
void process_resize(int terminal, uint16_t cols, uint16_t rows);
/* What waitid or waitpid said, as a shell tells it: 0-255, or 128 + n after signal n. */
uint32_t process_exit_code(int status);

#endif
