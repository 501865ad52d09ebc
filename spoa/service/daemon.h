/* SPDX-License-Identifier: MIT */
/* daemon: what agent and relay have in common before and around their work: arguments, signals, descriptors.
 */
#ifndef CELLGATE_SERVICE_DAEMON_H
#define CELLGATE_SERVICE_DAEMON_H

#include <stdio.h>

#include "spoa/net/loop.h"
#include "spoa/service/options.h"

/* Exit codes. */
enum { DAEMON_OK = 0, DAEMON_FAILED = 1, DAEMON_USAGE = 2 };

/* ---- arguments ---- */
enum { DAEMON_OVERRIDES_MAX = 64 };

struct daemon_program {
    const char *name;    /* "cellgate-agent" */
    const char *summary; /* one sentence for -h */
    const char *section; /* "agent": whose keys -h lists, beside those of no section */
    bool has_keeper;     /* it knows --no-keeper and --server-pid (spoa/service/keeper.h) */
};

struct daemon_arguments {
    const char *path; /* of the configuration */
    bool check;       /* -t: check it and leave */
    bool no_keeper;   /* --no-keeper: the daemon works in its own process */
    const char *server_pid; /* --server-pid=FILE; NULL: it is not written */
    const char *overrides[DAEMON_OVERRIDES_MAX];
    size_t overrides_count;
};

/* Reads argv. False when the program is to leave at once with *exit_code (after -h, -V or a mistake): what
 * had to be said was written to `out` or `err`. */
bool daemon_arguments(const struct daemon_program *program, int argc, char **argv,
                      struct daemon_arguments *arguments, FILE *out, FILE *err, int *exit_code);

/* ---- signals ---- */
struct daemon_signals;

struct daemon_handler {
    void (*reload)(void *context);  /* SIGHUP */
    void (*drain)(void *context);   /* the first SIGTERM or SIGINT */
    void (*stop)(void *context);    /* the second */
    void (*summary)(void *context); /* SIGUSR1 */
    void (*hand_over)(void *context); /* SIGUSR2, of the keeper's; NULL: it is ignored */
    void *context;
};

/* Before the first thread is started: all threads inherit that these signals wait for daemon_signals_open.
 * SIGPIPE is ignored. */
void daemon_signals_block(void);
/* From now on signals come as callbacks of the loop. NULL when there is no descriptor or memory. */
struct daemon_signals *daemon_signals_open(struct loop *loop, const struct daemon_handler *handler,
                                           struct fail *why);
void daemon_signals_close(struct daemon_signals *signals); /* NULL is fine */

/* ---- descriptors ---- */
/* Raises the limit of open files to the hard one; *limit is what it is then. */
bool daemon_raise_files(uint64_t *limit, struct fail *why);

#endif
