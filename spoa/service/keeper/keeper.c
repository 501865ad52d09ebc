/* SPDX-License-Identifier: MIT */
#include "spoa/service/keeper/keeper.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "spoa/base/os/time.h"
#include "spoa/service/daemon.h"
#include "spoa/service/keeper/keeper_exec.h"
#include "spoa/service/notify.h"

#define CHECK_TIME (10 * SECOND) /* longest time in which the new program checks the configuration */

enum {
    DEATHS_REMEMBERED = 64,
    KEPT_MAX = 2 * KEEPER_LISTENERS_MAX + 8,
    WORDS_AT_ONCE = 16,     /* largest number of words or signals that are handled before anything else is */
    WORDS_LEFT_MAX = 65536, /* capacity of the channel, in words: pipe(7) */
    TAKES_MAX = 4           /* largest number of servers that may die while they take over the same tunnels */
};

/* Result of on_ended and watch, in place of an exit code. */
enum { START_ANOTHER = -1 };

struct keeper {
    const struct keeper_options *options;
    int signals;    /* a signalfd */
    int channel[2]; /* a pipe: the server writes, the keeper reads */
    pid_t self, server;
    pid_t check;    /* process of the new program that checks the configuration (-t), or 0 */
    bool ready;     /* some server has been ready */
    bool stopping;  /* the service manager or an operator has requested the end */
    bool upgrading; /* the keeper has requested a handover from the server */
    bool same;      /* the upgrade is a restart of the present program */
    int old;        /* file of the previous program, which is executed again if no server gets ready, or -1 */
    uint64_t deadline; /* latest end of the check or the upgrade, in µs; UINT64_MAX if none is under way */
    struct keeper_server next;          /* information for the next server */
    int replaced[KEEPER_LISTENERS_MAX]; /* listeners of the previous program that this one does not use */
    size_t replaced_count;
    unsigned takes; /* number of servers that died while they took over the present tunnels */
    unsigned deaths_count;
    uint64_t deaths[DEATHS_REMEMBERED]; /* ring of the times when servers died, in µs of CLOCK_MONOTONIC */
};

static uint64_t clock_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * SECOND + (uint64_t)now.tv_nsec / 1000;
}

/* ---- messages ---- */

/* The log's thread belongs to the server, because the keeper clones and must have one thread. Its few lines have the log's form. */
static void say(const struct keeper *k, const char *level, const char *message, const char *more)
{
    struct timespec now;
    struct tm utc;
    char line[1024], at[32];

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

static pid_t clone_server(struct keeper *k)
{
    fflush(NULL); /* both processes would write the buffered bytes otherwise */
    atomic_store(&k->next.board->images, -1);
    salvager_forget(&k->next.board->salvager);
    pid_t pid = (pid_t)syscall(SYS_clone, (unsigned long)(CLONE_FILES | SIGCHLD), NULL, NULL, NULL, 0UL);
    if (pid == 0)
        serve(k);
    return pid;
}

/* ---- the table of descriptors ---- */

/* Lists the keeper's own descriptors; returns how many there are. */
static size_t list_kept(const struct keeper *k, int kept[static KEPT_MAX])
{
    const struct keeper_handover *h = k->options->handover;
    const int own[] = {k->signals, k->channel[0], k->channel[1], notify_descriptor(), k->old};
    size_t count = 0;

    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        if (own[i] > STDERR_FILENO)
            kept[count++] = own[i];
    for (size_t i = 0; i < h->listeners_count; i++)
        kept[count++] = h->listeners[i];
    for (size_t i = 0; i < k->replaced_count; i++)
        kept[count++] = k->replaced[i];
    return count;
}

static bool is_kept(const struct keeper *k, int fd)
{
    int kept[KEPT_MAX];
    size_t count = list_kept(k, kept);

    for (size_t i = 0; i < count; i++)
        if (kept[i] == fd)
            return true;
    return false;
}

/* Returns the memory file that the server, or its salvager, has written, or -1. A server that was taken over could name any descriptor: the keeper
 * closes the file when it has been read, and so it must not be one of the keeper's own. */
static int images_of(const struct keeper *k)
{
    int images = atomic_load(&k->next.board->images);
    return images > STDERR_FILENO && !is_kept(k, images) ? images : -1;
}

static void close_between(unsigned first, unsigned last)
{
#ifdef SYS_close_range
    if (syscall(SYS_close_range, first, last, 0U) == 0)
        return;
#endif
    struct rlimit files;
    /* up to the hard limit: the server may have raised its own soft one */
    unsigned end = getrlimit(RLIMIT_NOFILE, &files) == 0 ? (unsigned)files.rlim_max : 1024;
    for (unsigned fd = first; fd <= last && fd < end; fd++)
        close((int)fd);
}

/* Closes what a dead server has left in the shared table: what lies between the keeper's own descriptors. */
static void sweep(struct keeper *k)
{
    int kept[KEPT_MAX];
    size_t count = list_kept(k, kept);
    unsigned first = STDERR_FILENO + 1;

    for (;;) {
        unsigned nearest = UINT32_MAX;
        for (size_t i = 0; i < count; i++)
            if ((unsigned)kept[i] >= first && (unsigned)kept[i] < nearest)
                nearest = (unsigned)kept[i];
        if (nearest > first)
            close_between(first, nearest == UINT32_MAX ? nearest : nearest - 1);
        if (nearest == UINT32_MAX)
            break;
        first = nearest + 1;
    }
    k->next.images = -1;
}

static void close_unless_kept(const struct keeper *k, int fd)
{
    bool keeps = fd <= STDERR_FILENO || fd == k->next.images || is_kept(k, fd);

    if (!keeps && (fcntl(fd, F_GETFD) & FD_CLOEXEC))
        close(fd);
}

/* Closes what a server has left beside the descriptors that it, or its salvager, has handed over, as execve would do. */
static void sweep_closing(struct keeper *k)
{
    DIR *open = opendir("/proc/self/fd");

    if (!open) { /* the keeper cannot tell which descriptors belong to the handover, so it keeps none */
        sweep(k);
        return;
    }
    for (const struct dirent *entry; (entry = readdir(open));)
        if (entry->d_name[0] != '.' && atoi(entry->d_name) != dirfd(open))
            close_unless_kept(k, atoi(entry->d_name));
    closedir(open);
}

/* ---- upgrades ---- */

static struct keeper_handover handover_of(const struct keeper *k, int images)
{
    struct keeper_handover h = *k->options->handover;

    h.images = images;
    memcpy(h.deaths, k->next.deaths, sizeof h.deaths);
    memcpy(h.upgrades, k->next.upgrades, sizeof h.upgrades);
    h.upgrades[KEEPER_NOT_UPGRADED] += atomic_load(&k->next.board->refused);
    return h;
}

static void refuse_upgrade(struct keeper *k, const char *why)
{
    struct keeper_board *board = k->next.board;

    k->upgrading = false;
    k->deadline = UINT64_MAX;
    snprintf(board->why, sizeof board->why, "%s", why);
    atomic_fetch_add(&board->refused, 1);
    say(k, "error", "not upgraded", "");
    say(k, "error", why, "");
}

/* Lets the new program check the configuration. The server is served meanwhile, and replaced if it dies. */
static void begin_upgrade(struct keeper *k, bool same)
{
    struct fail why;

    if (!k->ready || k->check || k->upgrading || k->old >= 0 || k->stopping)
        return; /* one at a time */
    k->same = same;
    pid_t check = keeper_exec_check(same, k->options->argv, &why);
    if (check < 0) {
        refuse_upgrade(k, why.text);
        return;
    }
    k->check = check;
    k->deadline = clock_now() + CHECK_TIME;
}

/* The check has ended: asks the server to hand over, if it is good. */
static void on_checked(struct keeper *k, int status)
{
    k->check = 0;
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
        refuse_upgrade(k, "the new program does not find the configuration good (-t)");
        return;
    }
    say(k, "info", "upgrading", "");
    k->upgrading = true;
    k->deadline = clock_now() + k->options->patience;
    (void)kill(k->server, SIGUSR2);
}

static void end_check(struct keeper *k)
{
    if (!k->check)
        return;
    (void)kill(k->check, SIGKILL);
    (void)waitpid(k->check, NULL, 0);
    k->check = 0;
}

/* The server has written what the next one needs. Does not return, unless the new program cannot be executed: then this program
 * starts the next server. */
static void finish_upgrade(struct keeper *k)
{
    struct fail why;
    int images = images_of(k);
    struct keeper_handover h = handover_of(k, images);

    if (images < 0)
        sweep(k); /* without images, descriptors that survive execve would belong to no tunnel */
    keeper_exec(k->same, k->options->argv, &h, &why);
    refuse_upgrade(k, why.text);
    k->next.images = images;
    sweep_closing(k);
}

/* The new program, which this is, gets no server ready. Does not return, unless the old program cannot be executed. */
static void go_back(struct keeper *k)
{
    struct fail why;
    struct keeper_handover h = handover_of(k, k->next.images);

    h.upgrades[KEEPER_NOT_UPGRADED]++;
    h.upgrades[KEEPER_UPGRADED]--;
    for (size_t i = 0; i < k->replaced_count && h.listeners_count < KEEPER_LISTENERS_MAX; i++)
        h.listeners[h.listeners_count++] = k->replaced[i];
    say(k, "error", "no server of the new program gets ready: going back to the old one", "");
    keeper_exec_back(k->options->argv, &h, &why);
    say(k, "error", why.text, "");
}

/* ---- deaths ---- */

/* Notes a death and returns whether more than options.restarts servers have died within a minute. */
static bool too_many(struct keeper *k)
{
    uint64_t now = clock_now(), within = 0;

    k->deaths[k->deaths_count++ % DEATHS_REMEMBERED] = now;
    for (unsigned i = 0; i < DEATHS_REMEMBERED && i < k->deaths_count; i++)
        within += now - k->deaths[i] < 60 * SECOND;
    return within > k->options->restarts;
}

/* Handles the death of a server that was still taking over tunnels: the next server takes over the same tunnels, except for those that may
 * have killed it. After TAKES_MAX such deaths the next server starts without tunnels. */
static int take_again(struct keeper *k)
{
    struct keeper_server *next = &k->next;

    for (size_t i = 0; i < KEEPER_THREADS_MAX; i++) {
        unsigned read = atomic_exchange(&next->board->reads[i], 0);
        if (!read || next->left_out_count == KEEPER_LEFT_OUT_MAX)
            continue;
        next->left_out[next->left_out_count++] = read - 1;
        next->fates[KEEPER_POISONED]++;
    }
    if (++k->takes < TAKES_MAX) {
        say(k, "error", "the server did not get ready with what was handed over to it, trying again", "");
        sweep_closing(k);
    } else {
        say(k, "error", "no server gets ready with what was handed over, starting from nothing", "");
        sweep(k);
    }
    return START_ANOTHER;
}

/* A server that is not ready yet has died, or exited. */
static int on_stillborn(struct keeper *k, int exit_code)
{
    if (k->old >= 0)
        go_back(k);
    return k->next.images < 0 ? exit_code : take_again(k);
}

/* ---- to salvage ---- */

/* Waits for the end of the salvager, and kills it if it takes too long. Returns true if it has done its work. */
static bool await_salvager(const struct keeper *k, pid_t salvager)
{
    const struct timespec while_asleep = {.tv_nsec = 100000000};
    uint64_t deadline = clock_now() + k->options->patience;
    sigset_t child;
    int status;

    sigemptyset(&child);
    sigaddset(&child, SIGCHLD);
    while (waitpid(salvager, &status, WNOHANG) != salvager) {
        if (clock_now() >= deadline)
            (void)kill(salvager, SIGKILL);
        (void)sigtimedwait(&child, NULL, &while_asleep);
    }
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

/* Handles the death of a server that served: saves its tunnels, and closes its other descriptors. Writes the tunnels' fates into `more`, for
 * the log. */
static void salvage(struct keeper *k, char *more, size_t size)
{
    struct keeper_server *next = &k->next;
    unsigned fates[KEEPER_FATES];
    size_t len = strlen(more);

    for (unsigned fate = 0; fate < KEEPER_FATES; fate++)
        atomic_store(&next->board->fates[fate], 0);
    pid_t salvager = salvager_wake(&next->board->salvager);
    if (salvager && await_salvager(k, salvager))
        next->images = images_of(k);
    for (unsigned fate = 0; fate < KEEPER_FATES; fate++) {
        fates[fate] = atomic_load(&next->board->fates[fate]);
        next->fates[fate] += fates[fate];
    }
    snprintf(more + len, size - len, " saved=%u torn=%u poisoned=%u ending=%u", fates[KEEPER_SAVED],
             fates[KEEPER_TORN], fates[KEEPER_POISONED], fates[KEEPER_ENDING]);
    if (next->images >= 0)
        sweep_closing(k);
    else
        sweep(k);
}

/* Returns the exit code of the keeper, or START_ANOTHER. */
static int on_ended(struct keeper *k, int status)
{
    bool exited = WIFEXITED(status);
    int exit_code = exited ? WEXITSTATUS(status) : DAEMON_FAILED;
    char more[128];

    if (exited || !k->ready || k->stopping || k->next.images >= 0)
        salvager_end(&k->next.board->salvager); /* this server has left no tunnels to salvage */

    if (exited && exit_code == KEEPER_HANDED_OVER && k->upgrading) {
        if (k->stopping)
            return DAEMON_OK; /* the end was requested meanwhile, which the next program could not know */
        finish_upgrade(k);
        return START_ANOTHER;
    }
    if (exited && k->ready)
        return exit_code;
    snprintf(more, sizeof more, exited ? " status=%d" : " signal=%d", exited ? exit_code : WTERMSIG(status));
    if (!exited)
        k->next.deaths[WTERMSIG(status) == SIGKILL ? KEEPER_KILLED : KEEPER_CRASHED]++;
    if (k->stopping) {
        say(k, "error", "the server was killed while it stopped", more);
        return DAEMON_FAILED;
    }
    if (!k->ready) {
        say(k, "error", "the server ended before it was ready", more);
        return on_stillborn(k, exit_code);
    }
    if (k->upgrading)
        refuse_upgrade(k, "the server died before it had handed over");
    if (too_many(k)) {
        salvager_end(&k->next.board->salvager);
        say(k, "error", "the server dies over and over, giving up", more);
        return DAEMON_FAILED;
    }
    if (k->next.images >= 0)
        return take_again(k);
    salvage(k, more, sizeof more);
    say(k, "error", "the server died, starting another one", more);
    return START_ANOTHER;
}

/* ---- signals and words ---- */

static bool is_readable(int fd)
{
    struct pollfd waited = {.fd = fd, .events = POLLIN};
    return poll(&waited, 1, 0) == 1 && (waited.revents & POLLIN);
}

static void pass_on(struct keeper *k)
{
    struct signalfd_siginfo info;

    /* one at a time, when poll has said so: a server could make the descriptor block */
    for (int i = 0; i < WORDS_AT_ONCE && is_readable(k->signals) &&
                    read(k->signals, &info, sizeof info) == (ssize_t)sizeof info;
         i++) {
        if (info.ssi_signo == SIGCHLD)
            continue;
        if (info.ssi_signo == SIGUSR2) {
            begin_upgrade(k, false);
            continue;
        }
        k->stopping |= info.ssi_signo == SIGTERM || info.ssi_signo == SIGINT;
        (void)kill(k->server, (int)info.ssi_signo);
    }
}

static void on_ready(struct keeper *k)
{
    k->ready = true;
    for (size_t i = 0; i < k->replaced_count; i++)
        close(k->replaced[i]); /* clients would wait there for ever */
    k->replaced_count = 0;
    if (k->old >= 0) {
        close(k->old);
        k->old = -1;
        k->deadline = UINT64_MAX;
        say(k, "info", "upgraded", "");
    }
    if (k->next.images >= 0) {
        close(
            k->next.images); /* closes it for the server, too, which shares the table and has read the file */
        keeper_exec_close_all();
    }
    k->next.images = -1;
    k->next.left_out_count = 0;
    k->takes = 0;
    (void)notify_ready("ready");
}

/* Handles at most this number of the server's words. The server says no more than a byte, and is not listened to without a limit: it may
 * have been taken over, the service manager would believe any text, and the keeper has signals and deaths to handle, too. */
static void hear(struct keeper *k, int most)
{
    char word;

    for (int i = 0; i < most && is_readable(k->channel[0]) && read(k->channel[0], &word, 1) == 1; i++) {
        if (word == KEEPER_READY) {
            on_ready(k);
        } else if (word == KEEPER_RELOADING) {
            (void)notify_reloading();
        } else if (word == KEEPER_RELOADED) {
            (void)notify_ready("reloaded");
        } else if (word == KEEPER_STOPPING) {
            k->stopping = true;
            (void)notify_stopping("draining");
        } else if (word == KEEPER_UPGRADE || word == KEEPER_SAME) {
            begin_upgrade(k, word == KEEPER_SAME);
        }
    }
}

/* Returns the longest time to wait for an event, in ms; -1 for no limit. */
static int wait_time(const struct keeper *k)
{
    uint64_t now = clock_now();

    if (k->deadline == UINT64_MAX)
        return -1;
    return k->deadline <= now ? 0 : (int)((k->deadline - now) / 1000 + 1);
}

/* Handles the deadline: ends a check, or an upgrade, that has taken too long. */
static void on_late(struct keeper *k)
{
    k->deadline = UINT64_MAX;
    if (k->check) {
        end_check(k);
        refuse_upgrade(k, "the new program takes too long to check the configuration (-t)");
    } else {
        (void)kill(k->server, SIGKILL); /* on_ended handles this like any death */
    }
}

/* Waits until the server has ended; returns as on_ended. */
static int watch(struct keeper *k)
{
    struct pollfd waited[] = {{.fd = k->signals, .events = POLLIN}, {.fd = k->channel[0], .events = POLLIN}};
    int status;

    for (;;) {
        (void)poll(waited, sizeof waited / sizeof *waited, wait_time(k));
        hear(k, WORDS_AT_ONCE);
        pass_on(k);
        if (waitpid(k->server, &status, WNOHANG) == k->server) {
            hear(k, WORDS_LEFT_MAX); /* the next server has not said them */
            return on_ended(k, status);
        }
        if (k->check && waitpid(k->check, &status, WNOHANG) == k->check)
            on_checked(k, status);
        if (k->deadline <= clock_now())
            on_late(k);
    }
}

/* ---- the keeper ---- */

static bool open_keeper(struct keeper *k, struct fail *why)
{
    const struct keeper_handover *h = k->options->handover;
    sigset_t set;

    sigemptyset(&set);
    for (const int *number = (const int[]){SIGHUP, SIGUSR1, SIGUSR2, SIGTERM, SIGINT, SIGCHLD, 0}; *number;
         number++)
        sigaddset(&set, *number);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    k->signals = signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
    k->next.board =
        mmap(NULL, sizeof *k->next.board, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (k->signals < 0 || k->next.board == MAP_FAILED || pipe2(k->channel, O_NONBLOCK | O_CLOEXEC) != 0)
        return fail(why, "cannot watch the server: %s", strerror(errno));
    memcpy(k->next.deaths, h->deaths, sizeof h->deaths);
    memcpy(k->next.upgrades, h->upgrades, sizeof h->upgrades);
    memcpy(k->replaced, k->options->replaced, k->options->replaced_count * sizeof *k->replaced);
    k->replaced_count = k->options->replaced_count;
    k->next.channel = k->channel[1];
    k->next.images = h->images;
    k->self = getpid();
    k->next.keeper = k->self;
    if (k->old >= 0) { /* this program is new, and has to show that it can serve */
        k->next.upgrades[KEEPER_UPGRADED]++;
        k->deadline = clock_now() + k->options->patience;
    }
    /* a program that was executed by its descriptor is called by its number */
    (void)prctl(PR_SET_NAME, k->options->name);
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
    struct keeper k = {.options = options,
                       .signals = -1,
                       .channel = {-1, -1},
                       .old = options->handover->old,
                       .deadline = UINT64_MAX};
    int exit_code = START_ANOTHER;

    if (!open_keeper(&k, why)) {
        close_keeper(&k);
        return -1;
    }
    while (exit_code == START_ANOTHER) {
        k.server = clone_server(&k);
        if (k.server < 0) {
            fail(why, "cannot clone a server: %s", strerror(errno));
            if (k.deaths_count == 0)
                break;
            say(&k, "error", why->text, "");
            exit_code = DAEMON_FAILED;
            break;
        }
        write_pid(&k);
        exit_code = watch(&k);
    }
    end_check(&k);
    close_keeper(&k);
    return exit_code;
}

void keeper_tell(const struct keeper_server *server, enum keeper_word word)
{
    const char byte = (char)word;

    if (write(server->channel, &byte, 1) < 0)
        return; /* the pipe holds thousands of words that the keeper has not read: it has been stopped */
}
