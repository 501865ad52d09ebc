/* SPDX-License-Identifier: MIT */
/* daemon: what agent and relay have in common before and around their work: arguments, signals, descriptors. */
#ifndef CELLGATE_SERVICE_DAEMON_H
#define CELLGATE_SERVICE_DAEMON_H

#include <stdio.h>

#include "spoa/net/loop.h"
#include "spoa/service/options.h"

/* Exit codes. */
enum { DAEMON_OK = 0, DAEMON_FAILED = 1, DAEMON_USAGE = 2 };

/* ---- arguments ---- */
enum { DAEMON_OVERRIDES_MAX = 64 }; /* maximum number of -o */

/* The program, for -h and error messages. */
struct daemon_program {
    const char *name;    /* "cellgate-agent" */
    const char *summary; /* one sentence for -h */
    const char *section; /* "agent": -h lists its keys, and those without a section */
    bool
        has_keeper; /* the program has the options --no-keeper and --server-pid (spoa/service/keeper/keeper.h) */
};

struct daemon_arguments {
    const char *path;                            /* path of the configuration file */
    bool check;                                  /* -t: only check the configuration */
    bool no_keeper;                              /* --no-keeper: the daemon works in its own process */
    const char *server_pid;                      /* file of --server-pid, or NULL */
    const char *overrides[DAEMON_OVERRIDES_MAX]; /* texts "KEY=VALUE" of -o */
    size_t overrides_count;
};

/* Reads argv. Returns false if the program must end now with *exit_code (after -h, -V or a mistake); the text was written to `out` or
 * `err`. */
bool daemon_arguments(const struct daemon_program *program, int argc, char **argv,
                      struct daemon_arguments *arguments, FILE *out, FILE *err, int *exit_code) MUST_CHECK;

/* ---- signals ---- */
struct daemon_signals;

/* Call-backs for signals, run on the loop. */
struct daemon_handler {
    void (*reload)(void *context);    /* SIGHUP */
    void (*drain)(void *context);     /* the first SIGTERM or SIGINT */
    void (*stop)(void *context);      /* the second */
    void (*summary)(void *context);   /* SIGUSR1 */
    void (*hand_over)(void *context); /* SIGUSR2, from the keeper; NULL to ignore the signal */
    void *context;
};

/* Blocks these signals and ignores SIGPIPE. Call it before the first thread is started, because threads inherit this. */
void daemon_signals_block(void);
/* Delivers signals as call-backs of the loop. Returns NULL with *why if memory or descriptors are short. */
struct daemon_signals *daemon_signals_open(struct loop *loop, const struct daemon_handler *handler,
                                           struct fail *why) MUST_CHECK;
/* Stops the delivery; NULL is fine. */
void daemon_signals_close(struct daemon_signals *signals);

/* ---- descriptors ---- */
/* Raises the soft limit of open files to the hard limit, and stores it in *limit. Returns false with *why. */
bool daemon_raise_files(uint64_t *limit, struct fail *why) MUST_CHECK;

#endif
