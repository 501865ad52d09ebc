/* SPDX-License-Identifier: MIT */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "examples/worker/manager/session_manager.h"
#include "examples/worker/signals.h"

#define SESSIONS     256
#define SESSIONS_MAX 512
#define CONNECTIONS  1024
#define MEMORY_MIB   512
#define GRACE        600
#define WAIT         600
#define SECONDS_MAX  86400

static const char help[] =
    "usage: cell-sandboxd --socket PATH [--sessions N] [--memory MIB] [--grace SECONDS]\n"
    "                     [--wait SECONDS]\n"
    "\n"
    "Keeps the terminals and processes of a sandbox host alive, whatever happens to the cell-workers in\n"
    "front of it. It runs commands for whoever can open its socket: PATH is created with mode 0600, for\n"
    "the same user only.\n"
    "\n"
    "  --socket PATH    Unix socket for cell-worker; removed at the end\n"
    "  --sessions N     at most so many sessions, those that have ended included (256, at most 512)\n"
    "  --memory MIB     at most so much memory for their output (512)\n"
    "  --grace SECONDS  so long a Cell-Resume tunnel may be away before its session is hung up (600)\n"
    "  --wait SECONDS   so long a terminal that starts for its first client waits for it (600)\n"
    "  --help           this text\n"
    "  --version        the version\n"
    "\n"
    "Prints 'listening PATH' when it is ready. SIGTERM and SIGINT hang up all sessions, kill what is\n"
    "left after two seconds, and end it; a second one ends it now. Exit status: 0, 1 (cannot start),\n"
    "2 (wrong arguments).\n";

enum { SHOWN = -1, OK = 0, FAILED = 1, WRONG = 2 };

static bool number_of(const char *text, uint64_t max, const char *option, uint64_t *value)
{
    if (slice_u64(slice_text(text), max, value) && *value > 0)
        return true;
    fprintf(stderr, "cell-sandboxd: %s: a number from 1 to %llu, not '%s'\n", option, (unsigned long long)max,
            text);
    return false;
}

static int read_arguments(int argc, char **argv, struct session_manager_options *options)
{
    static const struct option names[] = {
        {"socket", required_argument, NULL, 'l'}, {"sessions", required_argument, NULL, 's'},
        {"memory", required_argument, NULL, 'm'}, {"help", no_argument, NULL, 'h'},
        {"grace", required_argument, NULL, 'g'},  {"wait", required_argument, NULL, 'w'},
        {"version", no_argument, NULL, 'V'},      {NULL, 0, NULL, 0}};
    uint64_t sessions = SESSIONS, memory = MEMORY_MIB, grace = GRACE, wait = WAIT;
    for (int c; (c = getopt_long(argc, argv, "hV", names, NULL)) != -1;) {
        if (c == 'l')
            options->path = optarg;
        else if (c == 'h' || c == 'V')
            return fputs(c == 'h' ? help : "cell-sandboxd " CELLGATE_VERSION "\n", stdout), SHOWN;
        else if ((c != 's' || !number_of(optarg, SESSIONS_MAX, "--sessions", &sessions)) &&
                 (c != 'g' || !number_of(optarg, SECONDS_MAX, "--grace", &grace)) &&
                 (c != 'w' || !number_of(optarg, SECONDS_MAX, "--wait", &wait)) &&
                 (c != 'm' || !number_of(optarg, 1 << 20, "--memory", &memory)))
            return WRONG;
    }
    if (optind != argc || !options->path) {
        fputs("cell-sandboxd: --socket PATH is needed, and nothing else (see --help)\n", stderr);
        return WRONG;
    }
    options->sessions = (unsigned)sessions;
    options->memory = memory << 20;
    options->connections = CONNECTIONS;
    options->grace = grace * SECOND;
    options->wait = wait * SECOND;
    return OK;
}

static void on_signal(void *owner, int number)
{
    if (number == SIGCHLD)
        session_manager_reap(owner);
    else
        session_manager_stop(owner);
}

/* Opens descriptors 0 to 2 if they are closed, so that no other descriptor gets one of these numbers, which a child replaces. */
static void fill_standard_descriptors(void)
{
    int fd;
    do
        fd = open("/dev/null", O_RDWR | O_CLOEXEC);
    while (fd >= 0 && fd <= STDERR_FILENO);
    close(fd);
}

static bool run(struct loop *loop, const struct session_manager_options *options, struct fail *why)
{
    static const int numbers[] = {SIGCHLD, SIGTERM, SIGINT, SIGHUP, 0};
    struct signals signals = {0};
    struct session_manager *manager = session_manager_new(loop, options, why);
    if (!manager || !signals_open(&signals, loop, numbers, on_signal, manager, why)) {
        session_manager_free(manager);
        return false;
    }
    printf("listening %s\n", options->path);
    fflush(stdout);
    loop_run(loop);
    signals_close(&signals);
    session_manager_free(manager);
    return true;
}

int main(int argc, char **argv)
{
    struct session_manager_options options = {0};
    struct fail why;
    int status = read_arguments(argc, argv, &options);
    if (status != OK)
        return status == SHOWN ? OK : status;
    fill_standard_descriptors();
    struct loop *loop = loop_new(&why);
    bool ran = loop && run(loop, &options, &why);
    if (!ran)
        fprintf(stderr, "cell-sandboxd: %s\n", why.text);
    loop_free(loop);
    return ran ? OK : FAILED;
}
