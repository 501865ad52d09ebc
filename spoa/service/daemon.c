/* SPDX-License-Identifier: MIT */
#include "spoa/service/daemon.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "spoa/service/settings.h"

/* ---- arguments ---- */

static void print_usage(const struct daemon_program *program, FILE *to)
{
    fprintf(to, "usage: %s [-c FILE] [-o KEY=VALUE]... [-t]%s\n", program->name,
            program->has_keeper ? " [--no-keeper] [--server-pid=FILE]" : "");
}

/* Prints the usage, and the keys that are the program's own or have no section. */
static void print_help(const struct daemon_program *program, FILE *to)
{
    size_t count;
    const struct option *table = settings_options(&count);
    print_usage(program, to);
    fprintf(to,
            "\n%s\n\n"
            "  -c FILE       the configuration (default: " SETTINGS_PATH ")\n"
            "  -o KEY=VALUE  instead of what the file says, or its default; may be given several times\n"
            "  -t            check the configuration and leave: 0 if it is good, 1 if not\n"
            "  -V, --version print the version\n"
            "  -h, --help    print this help\n"
            "%s\n"
            "SIGHUP reads the configuration again, SIGTERM drains, a second SIGTERM ends at once,\n"
            "SIGUSR1 logs a summary.%s Keys of the configuration:\n\n",
            program->summary,
            program->has_keeper
                ? "  --no-keeper   work in this process; else a process beside it keeps the sockets if this one dies\n"
                  "  --server-pid=FILE  the process id of the one that works, rewritten when another one takes over\n"
                : "",
            program->has_keeper ? " SIGUSR2 upgrades to the program at its path." : "");
    for (size_t i = 0; i < count; i++) {
        size_t section = strcspn(table[i].key, ".");
        if (!table[i].key[section] || slice_is(slice_of(table[i].key, section), program->section))
            options_help(to, &table[i], 1);
    }
}

/* Reports a mistake in the arguments. Returns false, with the exit code for it. */
static bool mistake(const struct daemon_program *program, FILE *err, const char *what, const char *word,
                    int *exit_code)
{
    fprintf(err, "%s: %s %s\n", program->name, what, word);
    print_usage(program, err);
    *exit_code = DAEMON_USAGE;
    return false;
}

/* Returns the key of an override by its present name, whichever name the text has. */
static struct slice overridden(const char *text)
{
    size_t count;
    const struct option *table = settings_options(&count);
    struct slice key = slice_of(text, strcspn(text, "="));
    const struct option *option = options_find(table, count, key);
    return option ? slice_text(option->key) : key;
}

/* Returns the letter of a long option, 0 if it has none, or '-' if there is no such option. */
static int long_option(const struct daemon_program *program, struct daemon_arguments *arguments,
                       const char *name)
{
    static const char server_pid[] = "server-pid=";

    if (strcmp(name, "help") == 0)
        return 'h';
    if (strcmp(name, "version") == 0)
        return 'V';
    if (program->has_keeper && strcmp(name, "no-keeper") == 0) {
        arguments->no_keeper = true;
        return 0;
    }
    if (program->has_keeper && strncmp(name, server_pid, sizeof server_pid - 1) == 0) {
        arguments->server_pid = name + sizeof server_pid - 1;
        return 0;
    }
    return '-';
}

bool daemon_arguments(const struct daemon_program *program, int argc, char **argv,
                      struct daemon_arguments *arguments, FILE *out, FILE *err, int *exit_code)
{
    *arguments = (struct daemon_arguments){.path = NULL};
    optind = 0; /* getopt starts over, for a second run in a test */
    opterr = 0;
    for (int option; (option = getopt(argc, argv, ":c:o:tVh-:")) != -1;) {
        if (option == '-') /* a long option */
            option = long_option(program, arguments, optarg);
        switch (option) {
        case 'c':
            if (arguments->path)
                return mistake(program, err, "given twice:", "-c", exit_code);
            arguments->path = optarg;
            break;
        case 'o':
            for (size_t i = 0; i < arguments->overrides_count; i++)
                if (slice_equal(overridden(arguments->overrides[i]), overridden(optarg)))
                    return mistake(program, err, "given twice:", optarg, exit_code);
            if (arguments->overrides_count == DAEMON_OVERRIDES_MAX) {
                fprintf(err, "%s: more than %d times -o\n", program->name, DAEMON_OVERRIDES_MAX);
                *exit_code = DAEMON_USAGE;
                return false;
            }
            arguments->overrides[arguments->overrides_count++] = optarg;
            break;
        case 't':
            arguments->check = true;
            break;
        case 0:
            break;
        case 'V':
            fprintf(out, "%s %s\n", program->name, CELLGATE_VERSION);
            *exit_code = DAEMON_OK;
            return false;
        case 'h':
            print_help(program, out);
            *exit_code = DAEMON_OK;
            return false;
        case '-':
            return mistake(program, err, "unknown option", argv[optind - 1], exit_code);
        default:
            return mistake(program, err, option == ':' ? "a value is missing after" : "unknown option",
                           (const char[]){'-', (char)optopt, '\0'}, exit_code);
        }
    }
    arguments->path = arguments->path ? arguments->path : SETTINGS_PATH;
    return optind == argc || mistake(program, err, "unexpected argument", argv[optind], exit_code);
}

/* ---- signals ---- */

struct daemon_signals {
    struct daemon_handler handler;
    struct loop_io io;
    bool draining; /* the first SIGTERM or SIGINT has come */
};

/* Returns the signals that the daemon handles. */
static sigset_t awaited(void)
{
    static const int numbers[] = {SIGHUP, SIGTERM, SIGINT, SIGUSR1, SIGUSR2};
    sigset_t set;
    sigemptyset(&set);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        sigaddset(&set, numbers[i]);
    return set;
}

void daemon_signals_block(void)
{
    sigset_t set = awaited();
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    signal(SIGPIPE, SIG_IGN);
}

static void on_ready(void *owner, int events)
{
    (void)events;
    struct daemon_signals *signals = owner;
    struct signalfd_siginfo info;
    if (read(loop_io_fd(&signals->io), &info, sizeof info) != (ssize_t)sizeof info)
        return;
    const struct daemon_handler *h = &signals->handler;
    if (info.ssi_signo == SIGHUP) {
        h->reload(h->context);
    } else if (info.ssi_signo == SIGUSR1) {
        h->summary(h->context);
    } else if (info.ssi_signo == SIGUSR2) {
        if (h->hand_over)
            h->hand_over(h->context);
    } else if (signals->draining) {
        h->stop(h->context);
    } else {
        signals->draining = true;
        h->drain(h->context);
    }
}

struct daemon_signals *daemon_signals_open(struct loop *loop, const struct daemon_handler *handler,
                                           struct fail *why)
{
    sigset_t set = awaited();
    struct daemon_signals *signals = calloc(1, sizeof *signals);
    int fd = signals ? signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC) : -1;
    if (fd < 0) {
        fail(why, "cannot wait for signals: %s", strerror(errno));
        free(signals);
        return NULL;
    }
    signals->handler = *handler;
    loop_io_open(&signals->io, loop, fd, on_ready, signals);
    loop_io_want(&signals->io, LOOP_READ);
    return signals;
}

void daemon_signals_close(struct daemon_signals *signals)
{
    if (!signals)
        return;
    loop_io_close(&signals->io);
    free(signals);
}

/* ---- descriptors ---- */

bool daemon_raise_files(uint64_t *limit, struct fail *why)
{
    struct rlimit files;
    if (getrlimit(RLIMIT_NOFILE, &files) < 0)
        return fail(why, "cannot read the limit of open files: %s", strerror(errno));
    files.rlim_cur = files.rlim_max;
    if (setrlimit(RLIMIT_NOFILE, &files) < 0)
        return fail(why, "cannot raise the limit of open files to %llu: %s",
                    (unsigned long long)files.rlim_max, strerror(errno));
    *limit = files.rlim_cur;
    return true;
}
