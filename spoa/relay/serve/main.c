/* SPDX-License-Identifier: MIT */
/* cellgate-relay: command line, signals, admin listener. What it does for tunnels starts in relay.c. */
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "spoa/base/os/openssl_memory.h"
#include "spoa/relay/serve/views.h"
#include "spoa/service/daemon.h"
#include "spoa/service/monitor.h"
#include "spoa/service/notify.h"
#include "spoa/service/seccomp.h"

static const struct daemon_program program = {
    .name = "cellgate-relay",
    .summary = "Carries WebSocket tunnels for HAProxy, and keeps them over the loss of a worker.",
    .section = "relay",
};

struct process {
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
static void on_reload(void *context)
{
    struct process *p = context;
    (void)notify_reloading();
    relay_reload(p->relay);
    (void)notify_ready("reloaded");
}

static void on_drain(void *context)
{
    struct process *p = context;
    log_write(p->log, LOG_INFO, "draining");
    (void)notify_stopping("draining");
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

static int run(const struct daemon_arguments *arguments, struct settings *settings)
{
    struct process p = {0};
    struct fail why;

    daemon_signals_block();
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
        (void)notify_ready("ready");
        loop_run(p.loop);
    }
    finish(&p);
    if (!started)
        fprintf(stderr, "%s: %s\n", program.name, why.text);
    return started ? DAEMON_OK : DAEMON_FAILED;
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
    if (!arguments.check)
        return run(&arguments, settings);
    settings_print_warnings(settings, stderr);
    settings_free(settings);
    printf("%s: the configuration is valid, as far as the relay reads it\n", arguments.path);
    return DAEMON_OK;
}
