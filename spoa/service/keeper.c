/* SPDX-License-Identifier: MIT */
#include "spoa/service/keeper.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "spoa/base/os/time.h"
#include "spoa/service/daemon.h"
#include "spoa/service/notify.h"

enum { DEATHS_REMEMBERED = 64 };

struct keeper {
    const struct keeper_options *options;
    int signals;    /* a signalfd */
    int channel[2]; /* a pipe: the server writes, the keeper reads */
    pid_t self, server;
    bool ready;                /* some server has been ready */
    bool stopping;             /* the service manager or an operator has asked for the end */
    struct keeper_server next; /* what the next server is told */
    unsigned deaths_count;
    uint64_t deaths[DEATHS_REMEMBERED]; /* a ring: when servers died, in µs of CLOCK_MONOTONIC */
};

/* ---- messages ---- */

/* The log's thread belongs to the server, because the keeper clones and must have one thread. Its few lines have the log's form. */
static void say(const struct keeper *k, const char *level, const char *message, const char *more)
{
    struct timespec now;
    struct tm utc;
    char line[512], at[32];

    clock_gettime(CLOCK_REALTIME, &now);
    gmtime_r(&now.tv_sec, &utc);
    strftime(at, sizeof at, "%Y-%m-%dT%H:%M:%S", &utc);
    int len = snprintf(line, sizeof line, "ts=%s.%03ldZ level=%s msg=\"%s: %s\" pid=%d%s\n", at,
                       now.tv_nsec / 1000000, level, k->options->name, message, (int)k->server, more);
    if (len > 0 && write(STDERR_FILENO, line, (size_t)len < sizeof line ? (size_t)len : sizeof line - 1) < 0)
        return; /* nobody reads the log, and there is no other place to say so */
}

static void write_pid(const struct keeper *k)
{
    char part[4096];

    if (!k->options->pid_file ||
        snprintf(part, sizeof part, "%s.part", k->options->pid_file) >= (int)sizeof part)
        return;
    FILE *file = fopen(part, "we");
    if (!file)
        return;
    bool written = fprintf(file, "%d\n", (int)k->server) > 0;
    if (fclose(file) == 0 && written)
        (void)rename(part, k->options->pid_file);
}

/* ---- the server ---- */
struct work {
    const struct keeper *keeper;
    int exit_code;
};

static void *work(void *context)
{
    struct work *w = context;
    const struct keeper_options *o = w->keeper->options;

    w->exit_code = o->serve(o->context, &w->keeper->next);
    return NULL;
}

/* The server's first act is a thread that does all the work: a clone by the raw system call leaves the C library with the
 * keeper's idea of the main thread's id, which functions such as raise() would use. */
static _Noreturn void serve(const struct keeper *k)
{
    struct work w = {k, EXIT_FAILURE};
    pthread_t thread;

    /* the keeper may have died before prctl: then nobody would end this server */
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || getppid() != k->self)
        _exit(EXIT_FAILURE);
    /* a terminal sends Ctrl-C to the whole group: the keeper alone gets it, and passes it on once */
    (void)setpgid(0, 0);
    if (pthread_create(&thread, NULL, work, &w) == 0)
        pthread_join(thread, NULL);
    exit(w.exit_code);
}

static pid_t clone_server(const struct keeper *k)
{
    fflush(NULL); /* else both processes would write what is buffered */
    pid_t pid = (pid_t)syscall(SYS_clone, (unsigned long)(CLONE_FILES | SIGCHLD), NULL, NULL, NULL, 0UL);
    if (pid == 0)
        serve(k);
    return pid;
}

/* ---- the table of descriptors ---- */

static bool is_kept(const struct keeper *k, int fd)
{
    if (fd == k->signals || fd == k->channel[0] || fd == k->channel[1] || fd == notify_descriptor())
        return true;
    for (size_t i = 0; i < k->options->kept_count; i++)
        if (fd == k->options->kept[i])
            return true;
    return false;
}

static void close_between(unsigned first, unsigned last)
{
#ifdef SYS_close_range
    if (syscall(SYS_close_range, first, last, 0U) == 0)
        return;
#endif
    struct rlimit files;
    unsigned end = getrlimit(RLIMIT_NOFILE, &files) == 0 ? (unsigned)files.rlim_cur : 1024;
    for (unsigned fd = first; fd <= last && fd < end; fd++)
        close((int)fd);
}

/* Closes what a dead server has left in the shared table. The keeper has opened what it keeps at its start, so those numbers
 * are low. */
static void sweep(const struct keeper *k)
{
    unsigned first = STDERR_FILENO + 1, highest = first;

    for (size_t i = 0; i < k->options->kept_count; i++)
        highest = (unsigned)k->options->kept[i] > highest ? (unsigned)k->options->kept[i] : highest;
    for (const int *fd = (const int[]){k->signals, k->channel[0], k->channel[1], -1}; *fd >= 0; fd++)
        highest = (unsigned)*fd > highest ? (unsigned)*fd : highest;
    if (notify_descriptor() > (int)highest)
        highest = (unsigned)notify_descriptor();
    for (unsigned fd = first; fd <= highest; fd++)
        if (!is_kept(k, (int)fd))
            close((int)fd);
    close_between(highest + 1, UINT32_MAX);
}

/* ---- deaths ---- */

static uint64_t clock_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * SECOND + (uint64_t)now.tv_nsec / 1000;
}

/* Notes a death and returns whether more than options.restarts servers have died within a minute. */
static bool too_many(struct keeper *k)
{
    uint64_t now = clock_now(), within = 0;

    k->deaths[k->deaths_count++ % DEATHS_REMEMBERED] = now;
    for (unsigned i = 0; i < DEATHS_REMEMBERED && i < k->deaths_count; i++)
        within += now - k->deaths[i] < 60 * SECOND;
    return within > k->options->restarts;
}

/* Returns the exit code of the keeper, or -1 if another server is to be started. */
static int on_ended(struct keeper *k, int status)
{
    char more[64];

    if (WIFEXITED(status))
        return WEXITSTATUS(status);
    k->next.deaths[WTERMSIG(status) == SIGKILL ? KEEPER_KILLED : KEEPER_CRASHED]++;
    snprintf(more, sizeof more, " signal=%d", WTERMSIG(status));
    if (k->stopping) {
        say(k, "error", "the server was killed while it stopped", more);
        return DAEMON_FAILED;
    }
    if (!k->ready) {
        say(k, "error", "the server died before it was ready", more);
        return DAEMON_FAILED;
    }
    if (too_many(k)) {
        say(k, "error", "the server dies over and over, giving up", more);
        return DAEMON_FAILED;
    }
    say(k, "error", "the server died, starting another one", more);
    return -1;
}

/* ---- signals and words ---- */

static void pass_on(struct keeper *k)
{
    struct signalfd_siginfo info;

    while (read(k->signals, &info, sizeof info) == (ssize_t)sizeof info) {
        if (info.ssi_signo == SIGCHLD)
            continue;
        k->stopping |= info.ssi_signo == SIGTERM || info.ssi_signo == SIGINT;
        (void)kill(k->server, (int)info.ssi_signo);
    }
}

/* The server says no more than a byte: it may have been taken over, and the service manager would believe any text. */
static void hear(struct keeper *k)
{
    char word;

    while (read(k->channel[0], &word, 1) == 1) {
        if (word == KEEPER_READY) {
            k->ready = true;
            (void)notify_ready("ready");
        } else if (word == KEEPER_RELOADING) {
            (void)notify_reloading();
        } else if (word == KEEPER_RELOADED) {
            (void)notify_ready("reloaded");
        } else if (word == KEEPER_STOPPING) {
            k->stopping = true;
            (void)notify_stopping("draining");
        }
    }
}

/* Waits until the server has ended; returns as on_ended. */
static int watch(struct keeper *k)
{
    struct pollfd waited[] = {{.fd = k->signals, .events = POLLIN}, {.fd = k->channel[0], .events = POLLIN}};
    int status;

    for (;;) {
        (void)poll(waited, sizeof waited / sizeof *waited, -1);
        hear(k);
        pass_on(k);
        if (waitpid(k->server, &status, WNOHANG) == k->server) {
            hear(k);
            return on_ended(k, status);
        }
    }
}

/* ---- the keeper ---- */

static bool open_keeper(struct keeper *k, struct fail *why)
{
    sigset_t set;

    sigemptyset(&set);
    for (const int *number = (const int[]){SIGHUP, SIGUSR1, SIGTERM, SIGINT, SIGCHLD, 0}; *number; number++)
        sigaddset(&set, *number);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    k->signals = signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
    if (k->signals < 0 || pipe2(k->channel, O_NONBLOCK | O_CLOEXEC) != 0)
        return fail(why, "cannot watch the server: %s", strerror(errno));
    k->next.channel = k->channel[1];
    k->self = getpid();
    return notify_open(why);
}

static void close_keeper(struct keeper *k)
{
    close(k->signals);
    close(k->channel[0]);
    close(k->channel[1]);
}

int keeper_run(const struct keeper_options *options, struct fail *why)
{
    struct keeper k = {.options = options, .signals = -1, .channel = {-1, -1}};
    int exit_code = -1;

    if (!open_keeper(&k, why)) {
        close_keeper(&k);
        return -1;
    }
    while (exit_code < 0) {
        k.server = clone_server(&k);
        if (k.server < 0) {
            fail(why, "cannot clone a server: %s", strerror(errno));
            exit_code = k.deaths_count ? DAEMON_FAILED : -1;
            if (k.deaths_count)
                say(&k, "error", why->text, "");
            break;
        }
        write_pid(&k);
        exit_code = watch(&k);
        if (exit_code < 0)
            sweep(&k);
    }
    close_keeper(&k);
    return exit_code;
}

void keeper_tell(const struct keeper_server *server, enum keeper_word word)
{
    const char byte = (char)word;

    if (write(server->channel, &byte, 1) < 0)
        return; /* the pipe holds thousands of words that the keeper has not read: it has been stopped */
}
