/* SPDX-License-Identifier: MIT */
/*
 * keeper_exec: how a keeper becomes another program and keeps its descriptors. The process id stays. The next program
 * finds in its environment ($CELLGATE_HANDOVER) which descriptors it has got:
 *
 *   images=9 old=10,66304,2621 deaths=0,1 upgrades=2,0 listeners=3,5
 *
 * The server has written the images of its tunnels into a memory file (memfd_create(2)), and has made the descriptors of those tunnels
 * survive execve; all else is close-on-exec. `old` is the program that the keeper was before; it is executed again, with the same images and
 * descriptors, if the next one does not serve in time.
 */
#ifndef CELLGATE_SERVICE_KEEPER_KEEPER_EXEC_H
#define CELLGATE_SERVICE_KEEPER_KEEPER_EXEC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "spoa/base/bytes/must_check.h"
#include "spoa/base/os/fail.h"

enum { KEEPER_LISTENERS_MAX = 8 };

/* Why a server died. */
enum keeper_cause {
    KEEPER_KILLED,  /* SIGKILL, from an operator or from the kernel when memory is short */
    KEEPER_CRASHED, /* any other signal */
    KEEPER_CAUSES,
};

enum keeper_outcome { KEEPER_UPGRADED, KEEPER_NOT_UPGRADED, KEEPER_OUTCOMES };

/* The handover from one program to the next. */
struct keeper_handover {
    int listeners[KEEPER_LISTENERS_MAX];
    size_t listeners_count;
    int images; /* -1 if there are none */
    int old;    /* descriptor of the previous program's file; -1 if there is none to go back to */
    uint64_t old_device, old_inode; /* identity of that file (stat(2)) */
    unsigned deaths[KEEPER_CAUSES];
    unsigned upgrades[KEEPER_OUTCOMES];
};

/* Security: a program is found by its path, and executed only if no other account can have written the file. An attacker who controls the
 * server shares the keeper's descriptors, and must not be able to choose the program. If `same` is true, the program is that of this
 * process; otherwise it is the one that is now installed at the path from which this process was started. */

/* Starts `-t` with the arguments of this process, as a child that inherits no descriptor of the tunnels. Returns its process id, or -1 with
 * *why if the program cannot be run. The program finds the configuration good if the child exits with 0. */
pid_t keeper_exec_check(bool same, char *const argv[], struct fail *why) MUST_CHECK;
/* Executes that program, which gets `handover`, and this program as `old`. No server may be alive. Returns only if that fails, with *why;
 * nothing has changed then. */
void keeper_exec(bool same, char *const argv[], const struct keeper_handover *handover, struct fail *why);
/* Executes handover->old again, if it is still the same file. Returns only if that fails, with *why. */
void keeper_exec_back(char *const argv[], const struct keeper_handover *handover, struct fail *why);
/* Reads the handover of the previous program. Returns false if there is none. The tunnels' descriptors still survive execve. */
bool keeper_exec_taken(struct keeper_handover *handover);
/* Makes all descriptors close-on-exec, including those of a server, which shares the table. */
void keeper_exec_close_all(void);

#endif
