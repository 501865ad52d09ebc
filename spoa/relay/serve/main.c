/* SPDX-License-Identifier: MIT */
/* cellgate-relay: command line, keeper, signals, admin listener. What the relay does for tunnels starts in relay.c. */
#include <stdatomic.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "spoa/base/os/openssl_memory.h"
#include "spoa/relay/serve/views.h"
#include "spoa/service/daemon.h"
#include "spoa/service/keeper/keeper.h"
#include "spoa/service/keeper/keeper_exec.h"
#include "spoa/service/keeper/salvager.h"
#include "spoa/service/monitor.h"
#include "spoa/service/notify.h"
#include "spoa/service/seccomp.h"

static const struct daemon_program program = {
    .name = "cellgate-relay",
    .summary = "Carries WebSocket tunnels for HAProxy, and keeps them over the loss of a worker.",
    .section = "relay",
    .has_keeper = true,
};

struct process {
    const struct keeper_server *keeper; /* NULL without a keeper */
    enum seccomp_mode seccomp;
    bool hands_over;
    struct loop *loop;
    struct log *log;
    struct relay *relay;
    struct admin *admin;
    struct monitor *monitor;
    struct admin_page pages[VIEWS_PAGES];
    struct control *control;
    struct control_command commands[VIEWS_COMMANDS];
    struct daemon_signals *signals;
};

/* ---- events of the process ---- */

/* The service manager hears the keeper, or a process without one. */
static void tell(const struct process *p, enum keeper_word word)
{
    if (p->keeper)
        keeper_tell(p->keeper, word);
    else if (word == KEEPER_RELOADING)
        (void)notify_reloading();
    else if (word == KEEPER_STOPPING)
        (void)notify_stopping("draining");
    else
        (void)notify_ready(word == KEEPER_READY ? "ready" : "reloaded");
}

static void on_reload(void *context)
{
    struct process *p = context;
    tell(p, KEEPER_RELOADING);
    relay_reload(p->relay);
    tell(p, KEEPER_RELOADED);
}

static void on_drain(void *context)
{
    struct process *p = context;
    log_write(p->log, LOG_INFO, "draining");
    tell(p, KEEPER_STOPPING);
    relay_drain(p->relay);
}

static void on_stop(void *context)
{
    loop_stop(((struct process *)context)->loop);
}

static void on_hand_over(void *context)
{
    struct process *p = context;
    p->hands_over = p->keeper != NULL;
    if (p->hands_over)
        loop_stop(p->loop);
}

static void on_summary(void *context)
{
    relay_log_summary(((struct process *)context)->relay);
}

/* ---- the process ---- */
static bool confine(enum seccomp_mode mode, struct fail *why)
{
    static const int calls[] = {SYS_splice, SYS_memfd_create, SYS_pwrite64};

    return seccomp_confine(mode, calls, sizeof calls / sizeof *calls, why);
}

static bool confine_salvager(void *context)
{
    struct fail why;
    return confine(((struct process *)context)->seccomp, &why);
}

static void on_salvage(void *context)
{
    const struct process *p = context;

    if (p->relay)
        relay_salvage(p->relay);
}

/* Starts the salvager. A failure is only logged: without a salvager the relay works, but its tunnels are lost if its process dies. */
static void begin_salvager(struct process *p)
{
    struct fail why;

    if (!p->keeper)
        return;
    const struct salvager_options options = {.board = &p->keeper->board->salvager,
                                             .keeper = p->keeper->keeper,
                                             .confine = confine_salvager,
                                             .salvage = on_salvage,
                                             .context = p};
    if (!salvager_begin(&options, &why))
        log_write(p->log, LOG_WARN, "tunnels do not survive a crash", LOG_TEXT("why", why.text));
}

static bool open_admin(struct process *p, const struct settings *settings, struct fail *why)
{
    views_pages(p->pages, &p->relay);
    int listener = net_listen(&settings->relay.admin, 0600, why);
    if (listener < 0)
        return false;
    p->admin = admin_new(p->loop, listener, p->pages, VIEWS_PAGES, NULL);
    return p->admin || fail(why, "out of memory");
}

static bool open_monitor(struct process *p, const struct settings *settings, struct fail *why)
{
    const struct monitor_options options = {.address = &settings->relay.monitor,
                                            .token_file = settings->relay.monitor_token_file,
                                            .pages = p->pages,
                                            .count = VIEWS_PAGES};
    return monitor_open(&p->monitor, p->loop, &options, why);
}

static bool open_control(struct process *p, const struct settings *settings, struct fail *why)
{
    views_commands(p->commands, &p->relay);
    int listener = net_listen(&settings->relay.control, 0600, why);
    if (listener < 0)
        return false;
    p->control = control_new(p->loop, listener, p->commands, VIEWS_COMMANDS);
    return p->control || fail(why, "out of memory");
}

static bool start(struct process *p, const struct daemon_arguments *arguments,
                  const struct settings *settings, struct fail *why)
{
    const struct daemon_handler signals = {.reload = on_reload,
                                           .drain = on_drain,
                                           .stop = on_stop,
                                           .summary = on_summary,
                                           .hand_over = on_hand_over,
                                           .context = p};
    const struct relay_options options = {.loop = p->loop,
                                          .log = p->log,
                                          .config = arguments->path,
                                          .overrides = arguments->overrides,
                                          .override_count = arguments->overrides_count,
                                          .keeper = p->keeper,
                                          .drained = on_stop,
                                          .context = p};
    p->seccomp = (enum seccomp_mode)settings->seccomp;
    begin_salvager(p);
    p->signals = notify_open(why) ? daemon_signals_open(p->loop, &signals, why) : NULL;
    if (!p->signals || !open_admin(p, settings, why) || !open_monitor(p, settings, why) ||
        !open_control(p, settings, why))
        return false;
    p->relay = relay_start(&options, settings, why);
    if (!p->relay || !confine(p->seccomp, why))
        return false;
    relay_serve(p->relay); /* after `confine`, because this reads the file of another process */
    return true;
}

static void finish(struct process *p)
{
    control_free(p->control);
    monitor_close(p->monitor);
    admin_free(p->admin);
    relay_stop(p->relay);
    daemon_signals_close(p->signals);
    loop_free(p->loop);
    log_free(p->log);
}

struct job {
    const struct daemon_arguments *arguments;
    struct settings *settings; /* content of the file when the program started */
};

/* Returns the settings that a server starts with: those of the file now, because a reload may have changed them since the keeper
 * read it, or those of the start if the file is not good any more. */
static struct settings *settings_for(const struct job *job, const struct keeper_server *keeper)
{
    const struct daemon_arguments *a = job->arguments;
    struct fail why;

    if (!keeper || keeper->deaths[KEEPER_KILLED] + keeper->deaths[KEEPER_CRASHED] == 0)
        return job->settings;
    struct settings *now = settings_load(a->path, a->overrides, a->overrides_count, &why);
    if (!now)
        fprintf(stderr, "%s: the configuration of the start is used: %s\n", program.name, why.text);
    return now ? now : job->settings;
}

/* Does the relay's work in this process; returns the exit code. */
static int work(void *context, const struct keeper_server *keeper)
{
    struct job *job = context;
    const struct daemon_arguments *arguments = job->arguments;
    struct settings *settings = settings_for(job, keeper);
    struct process p = {.keeper = keeper};
    struct fail why;

    p.log = log_new(STDERR_FILENO, (enum log_level)settings->log_level);
    p.loop = p.log ? loop_new(&why) : NULL;
    if (!p.log)
        fail(&why, "out of memory");
    bool started = p.loop && start(&p, arguments, settings, &why);
    if (started)
        settings_log_warnings(settings, p.log);
    settings_free(settings);
    if (started) {
        log_write(p.log, LOG_INFO, "relay started");
        tell(&p, KEEPER_READY);
        loop_run(p.loop);
    }
    if (p.hands_over) {
        atomic_store(&keeper->board->images, relay_hand_over(p.relay));
        log_free(p.log);
        return KEEPER_HANDED_OVER; /* all else is the next server's, or ends with the process */
    }
    finish(&p);
    if (!started)
        fprintf(stderr, "%s: %s\n", program.name, why.text);
    return started ? DAEMON_OK : DAEMON_FAILED;
}

/* Returns a listener that the program before has handed over and that listens at this address, or -1. */
static int inherited(const struct keeper_handover *taken, const struct net_address *address)
{
    struct net_address local;

    for (size_t i = 0; i < taken->listeners_count; i++)
        if (net_local(taken->listeners[i], &local) && net_same(&local, address))
            return taken->listeners[i];
    return -1;
}

/* Removes a listener from the handover of the previous program. */
static void use(struct keeper_handover *taken, int fd)
{
    size_t kept = 0;

    for (size_t i = 0; i < taken->listeners_count; i++)
        if (taken->listeners[i] != fd)
            taken->listeners[kept++] = taken->listeners[i];
    taken->listeners_count = kept;
}

/* Opens the listeners in this process, so that the listeners outlive a server, or takes those of the previous program. The listeners of that
 * program that this one does not use remain in `taken`. */
static bool listen_for_servers(const struct settings_relay *s, struct keeper_handover *handover,
                               struct keeper_handover *taken, struct fail *why)
{
    const struct {
        const struct net_address *address;
        mode_t mode;
    } wanted[] = {{&s->listen, 0660}, {&s->admin, 0600}, {&s->control, 0600}, {&s->monitor, 0660}};

    *taken = *handover;
    handover->listeners_count = 0;
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
        if (wanted[i].address->len == 0)
            continue;
        int fd = inherited(taken, wanted[i].address);
        use(taken, fd);
        fd = fd >= 0 ? fd : net_listen(wanted[i].address, wanted[i].mode, why);
        if (fd < 0)
            return false;
        net_keep(wanted[i].address, fd);
        handover->listeners[handover->listeners_count++] = fd;
    }
    return true;
}

/* This program cannot start. If it is the new one of an upgrade, the process becomes the old one again. */
static int give_up(const struct keeper_handover *handover, char *const argv[], const char *text)
{
    struct keeper_handover h = *handover;
    struct fail why;

    fprintf(stderr, "%s\n", text);
    if (h.old < 0)
        return DAEMON_FAILED;
    h.upgrades[KEEPER_NOT_UPGRADED]++;
    keeper_exec_back(argv, &h, &why);
    fprintf(stderr, "%s: %s\n", program.name, why.text);
    return DAEMON_FAILED;
}

static int keep(struct job *job, struct keeper_handover *handover, char *const argv[])
{
    struct fail why, named;
    struct keeper_handover unused;
    const struct keeper_handover before = *handover;

    if (!notify_open(&why) || !listen_for_servers(&job->settings->relay, handover, &unused, &why)) {
        fail(&named, "%s: %s", program.name, why.text);
        return give_up(&before, argv, named.text);
    }
    const struct keeper_options options = {.name = program.name,
                                           .argv = argv,
                                           .pid_file = job->arguments->server_pid,
                                           .restarts = (unsigned)job->settings->relay.max_restarts,
                                           .patience =
                                               (uint64_t)job->settings->relay.upgrade_timeout * MILLISECOND,
                                           .handover = handover,
                                           .replaced = unused.listeners,
                                           .replaced_count = unused.listeners_count,
                                           .serve = work,
                                           .context = job};
    int exit_code = keeper_run(&options, &why);
    if (exit_code < 0) {
        fprintf(stderr, "%s: works without a keeper: %s\n", program.name, why.text);
        exit_code = work(job, NULL);
    }
    for (size_t i = 0; i < handover->listeners_count; i++)
        net_unlisten(handover->listeners[i]);
    return exit_code;
}

int main(int argc, char **argv)
{
    struct daemon_arguments arguments;
    struct fail why;
    int exit_code;

    if (!daemon_arguments(&program, argc, argv, &arguments, stdout, stderr, &exit_code))
        return exit_code;
    struct keeper_handover handover;
    struct settings *settings = NULL;
    (void)keeper_exec_taken(&handover);
    if (openssl_memory_begin(&why))
        settings = settings_load(arguments.path, arguments.overrides, arguments.overrides_count, &why);
    if (!settings)
        return give_up(&handover, argv, why.text);
    if (!arguments.check) {
        struct job job = {&arguments, settings};
        daemon_signals_block();
        return arguments.no_keeper ? work(&job, NULL) : keep(&job, &handover, argv);
    }
    settings_print_warnings(settings, stderr);
    settings_free(settings);
    printf("%s: the configuration is valid, as far as the relay reads it\n", arguments.path);
    return DAEMON_OK;
}
