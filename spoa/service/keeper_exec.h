/* SPDX-License-Identifier: MIT */
/*
 * keeper_exec: how a keeper becomes another program and keeps its descriptors. The process id stays. The next program
 * finds in its environment ($CELLGATE_HANDOVER) which descriptors it has got:
 *
 *   program=11 images=9 old=10 deaths=0,1 upgrades=2,0 listeners=3,5
 *
 * The server has written the images of its tunnels into a memory file (memfd_create(2)), which begins with the descriptors of
 * those tunnels (struct keeper_images). `old` is the program that the keeper was before; it is executed again, with the same
 * images, if the next one does not serve in time.
 */
#ifndef CELLGATE_SERVICE_KEEPER_EXEC_H
#define CELLGATE_SERVICE_KEEPER_EXEC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "spoa/base/os/fail.h"

enum { KEEPER_LISTENERS_MAX = 8 };

/* Why a server died. */
enum keeper_cause {
    KEEPER_KILLED,  /* by SIGKILL: an operator, or the kernel for want of memory */
    KEEPER_CRASHED, /* by any other signal */
    KEEPER_CAUSES,
};

enum keeper_outcome { KEEPER_UPGRADED, KEEPER_NOT_UPGRADED, KEEPER_OUTCOMES };

/* The head of a memory file with images. Each descriptor follows as an int32_t. */
struct keeper_images {
    uint64_t magic; /* KEEPER_IMAGES */
    uint64_t count; /* of descriptors */
};

#define KEEPER_IMAGES UINT64_C(0x31736567616d6963)

/* What one program hands to the next. */
struct keeper_handover {
    int listeners[KEEPER_LISTENERS_MAX];
    size_t listeners_count;
    int program; /* by which this program was executed; it is not needed any more */
    int images;  /* -1: there are none */
    int old;     /* the program before; -1: there is none to go back to */
    unsigned deaths[KEEPER_CAUSES];
    unsigned upgrades[KEEPER_OUTCOMES];
};

/* Opens the program at the path from which this process was started, which a package may have replaced since, or, with
 * `same`, the program that this process is. Returns -1 with *why if there is none, or if another account could have written it. */
int keeper_exec_open(bool same, struct fail *why);
/* Runs `program -t` with the arguments of this process. Returns false with *why if it does not find the configuration good, or takes
 * longer than ten seconds. */
bool keeper_exec_check(int program, char *const argv[], struct fail *why) __attribute__((warn_unused_result));
/* Becomes `program`, which gets `handover`. Returns only if that fails, with *why; then all is as before. */
void keeper_exec(int program, char *const argv[], const struct keeper_handover *handover, struct fail *why);
/* Reads what the program before has handed over, and makes its descriptors close-on-exec again. Returns false if there is nothing. */
bool keeper_exec_taken(struct keeper_handover *handover);

#endif
