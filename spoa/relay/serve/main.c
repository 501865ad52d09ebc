/* SPDX-License-Identifier: MIT */
/* cellgate-relay: command line, keeper, signals, admin listener. What the relay does for tunnels starts in relay.c. */
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "spoa/base/os/openssl_memory.h"
#include "spoa/relay/serve/views.h"
#include "spoa/service/daemon.h"
#include "spoa/service/keeper.h"
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
    const struct keeper_server *keeper; /* NULL: the process has none */
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

static void on_summary(void *context)
{
    relay_log_summary(((struct process *)context)->relay);
}

/* ---- the process ---- */
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
    static const int calls[] = {SYS_splice};
    const struct daemon_handler signals = {on_reload, on_drain, on_stop, on_summary, p};
    const struct relay_options options = {.loop = p->loop,
                                          .log = p->log,
                                          .config = arguments->path,
                                          .overrides = arguments->overrides,
                                          .override_count = arguments->overrides_count,
                                          .keeper = p->keeper,
                                          .drained = on_stop,
                                          .context = p};
    p->signals = notify_open(why) ? daemon_signals_open(p->loop, &signals, why) : NULL;
    if (!p->signals || !open_admin(p, settings, why) || !open_monitor(p, settings, why) ||
        !open_control(p, settings, why))
        return false;
    p->relay = relay_start(&options, settings, why);
    return p->relay && seccomp_confine((enum seccomp_mode)settings->seccomp, calls, 1, why);
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
    struct settings *settings; /* as the file was when the program started */
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
    finish(&p);
    if (!started)
        fprintf(stderr, "%s: %s\n", program.name, why.text);
    return started ? DAEMON_OK : DAEMON_FAILED;
}

/* Opens the listeners in this process, so that they outlive a server. Returns how many, or -1 with *why. */
static int listen_for_servers(const struct settings_relay *s, int listeners[static NET_KEPT_MAX],
                              struct fail *why)
{
    const struct {
        const struct net_address *address;
        mode_t mode;
    } wanted[] = {{&s->listen, 0660}, {&s->admin, 0600}, {&s->control, 0600}, {&s->monitor, 0660}};
    int count = 0;

    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
        if (wanted[i].address->len == 0)
            continue;
        listeners[count] = net_listen(wanted[i].address, wanted[i].mode, why);
        if (listeners[count] < 0)
            return -1;
        net_keep(wanted[i].address, listeners[count++]);
    }
    return count;
}

static int keep(struct job *job)
{
    int listeners[NET_KEPT_MAX];
    struct fail why;
    int count = notify_open(&why) ? listen_for_servers(&job->settings->relay, listeners, &why) : -1;
    const struct keeper_options options = {.name = "cellgate-relay",
                                           .pid_file = job->arguments->server_pid,
                                           .restarts = (unsigned)job->settings->relay.max_restarts,
                                           .kept = listeners,
                                           .kept_count = (size_t)count,
                                           .serve = work,
                                           .context = job};

    if (count < 0) {
        fprintf(stderr, "%s: %s\n", program.name, why.text);
        return DAEMON_FAILED;
    }
    int exit_code = keeper_run(&options, &why);
    if (exit_code >= 0)
        return exit_code;
    fprintf(stderr, "%s: works without a keeper: %s\n", program.name, why.text);
    return work(job, NULL);
}

int main(int argc, char **argv)
{
    struct daemon_arguments arguments;
    struct fail why;
    int exit_code;

    if (!daemon_arguments(&program, argc, argv, &arguments, stdout, stderr, &exit_code))
        return exit_code;
    struct settings *settings = NULL;
    if (openssl_memory_begin(&why))
        settings = settings_load(arguments.path, arguments.overrides, arguments.overrides_count, &why);
    if (!settings) {
        fprintf(stderr, "%s\n", why.text);
        return DAEMON_FAILED;
    }
    if (!arguments.check) {
        struct job job = {&arguments, settings};
        daemon_signals_block();
        return arguments.no_keeper ? work(&job, NULL) : keep(&job);
    }
    settings_print_warnings(settings, stderr);
    settings_free(settings);
    printf("%s: the configuration is valid, as far as the relay reads it\n", arguments.path);
    return DAEMON_OK;
}
