/* SPDX-License-Identifier: MIT */
/* cellgate-agent: command line, signals, admin listener. agent.c implements the work for HAProxy. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "spoa/agent/directory/file.h"
#include "spoa/agent/serve/agent.h"
#include "spoa/base/os/openssl_memory.h"
#include "spoa/service/admin.h"
#include "spoa/service/control.h"
#include "spoa/service/daemon.h"
#include "spoa/service/monitor.h"
#include "spoa/service/notify.h"
#include "spoa/service/seccomp.h"

static const struct daemon_program program = {
    .name = "cellgate-agent",
    .summary = "Decides for HAProxy, over SPOP, where each request goes and whether it may.",
    .section = "agent",
};

enum { PAGES = 4, COMMANDS = 3 };

/* The system calls that the agent needs in addition to those of every daemon, to watch files. */
static const int calls[] = {__NR_inotify_init1, __NR_inotify_add_watch, __NR_inotify_rm_watch};

struct process {
    struct loop *loop;
    struct log *log, *audit;
    struct agent *agent;
    struct admin *admin;
    struct monitor *monitor;
    struct admin_page pages[PAGES];
    struct control *control;
    struct control_command commands[COMMANDS];
    struct daemon_signals *signals;
};

/* ---- admin listener ---- */

static bool page_metrics(void *context, struct slice query, struct admin_answer *answer)
{
    (void)query;
    answer->type = ADMIN_PROMETHEUS;
    return agent_write_metrics(((struct process *)context)->agent, &answer->body);
}

static bool page_status(void *context, struct slice query, struct admin_answer *answer)
{
    (void)query;
    answer->type = ADMIN_JSON;
    return agent_write_status(((struct process *)context)->agent, &answer->body) &&
           buffer_put(&answer->body, SLICE_LITERAL("\n"));
}

static bool page_health(void *context, struct slice query, struct admin_answer *answer)
{
    (void)context, (void)query;
    return buffer_put(&answer->body, SLICE_LITERAL("ok\n"));
}

static bool page_ready(void *context, struct slice query, struct admin_answer *answer)
{
    const char *why;
    (void)query;
    answer->status = agent_ready(((struct process *)context)->agent, &why) ? 200 : 503;
    return buffer_put(&answer->body, slice_text(why)) && buffer_put(&answer->body, SLICE_LITERAL("\n"));
}

/* ---- events of the process ---- */

static void on_started(void *context)
{
    const char *why;
    struct process *p = context;
    agent_ready(p->agent, &why);
    (void)notify_ready(why);
}

static void on_reload(void *context)
{
    struct process *p = context;
    (void)notify_reloading();
    struct fail why;
    (void)agent_reload(p->agent, &why); /* the agent logs the error */
    (void)notify_ready("reloaded");
}

static void on_drain(void *context)
{
    struct process *p = context;
    log_write(p->log, LOG_INFO, "draining");
    (void)notify_stopping("draining");
    agent_drain(p->agent);
}

static void on_stop(void *context)
{
    loop_stop(((struct process *)context)->loop);
}

static void on_summary(void *context)
{
    agent_log_status(((struct process *)context)->agent);
}

/* ---- the operator's commands ---- */

static bool command_reload(void *context, const struct json *doc, const json_node *request,
                           struct buffer *members, struct fail *why)
{
    (void)doc, (void)request, (void)members;
    struct process *p = context;
    return agent_reload(p->agent, why);
}

static bool command_drain(void *context, const struct json *doc, const json_node *request,
                          struct buffer *members, struct fail *why)
{
    (void)doc, (void)request, (void)members, (void)why;
    on_drain(context);
    return true;
}

static bool command_status(void *context, const struct json *doc, const json_node *request,
                           struct buffer *members, struct fail *why)
{
    (void)doc, (void)request;
    struct process *p = context;
    return (buffer_put(members, SLICE_LITERAL(",\"status\":")) && agent_write_status(p->agent, members)) ||
           fail(why, "the answer is too large");
}

/* ---- the process ---- */

static bool open_admin(struct process *p, const struct settings *settings, struct fail *why)
{
    const struct admin_page pages[PAGES] = {{"/metrics", page_metrics, p},
                                            {"/healthz", page_health, p},
                                            {"/readyz", page_ready, p},
                                            {"/status", page_status, p}};
    memcpy(p->pages, pages, sizeof pages);
    int listener = net_listen(&settings->agent.admin, 0600, why);
    if (listener < 0)
        return false;
    p->admin = admin_new(p->loop, listener, p->pages, PAGES, NULL);
    return p->admin || fail(why, "out of memory");
}

static bool open_monitor(struct process *p, const struct settings *settings, struct fail *why)
{
    const struct monitor_options options = {.address = &settings->agent.monitor,
                                            .token_file = settings->agent.monitor_token_file,
                                            .pages = p->pages,
                                            .count = PAGES};
    return monitor_open(&p->monitor, p->loop, &options, why);
}

static bool open_control(struct process *p, const struct settings *settings, struct fail *why)
{
    const struct control_command commands[COMMANDS] = {
        {"reload", command_reload, p}, {"drain", command_drain, p}, {"status", command_status, p}};
    memcpy(p->commands, commands, sizeof commands);
    int listener = net_listen(&settings->agent.control, 0600, why);
    if (listener < 0)
        return false;
    p->control = control_new(p->loop, listener, p->commands, COMMANDS);
    return p->control || fail(why, "out of memory");
}

static bool start_agent(struct process *p, const struct daemon_arguments *arguments, struct policy *policy,
                        struct fail *why)
{
    const struct daemon_handler signals = {
        .reload = on_reload, .drain = on_drain, .stop = on_stop, .summary = on_summary, .context = p};
    const struct agent_options options = {.loop = p->loop,
                                          .log = p->log,
                                          .audit = p->audit,
                                          .config = arguments->path,
                                          .overrides = arguments->overrides,
                                          .override_count = arguments->overrides_count,
                                          .started = on_started,
                                          .drained = on_stop,
                                          .context = p};
    p->signals = notify_open(why) ? daemon_signals_open(p->loop, &signals, why) : NULL;
    if (!p->signals || !open_admin(p, policy->settings, why) || !open_monitor(p, policy->settings, why) ||
        !open_control(p, policy->settings, why)) {
        policy_release(policy);
        return false;
    }
    const enum seccomp_mode mode = (enum seccomp_mode)policy->settings->seccomp;
    p->agent = agent_start(&options, policy, why);
    return p->agent && seccomp_confine(mode, calls, sizeof calls / sizeof *calls, why);
}

static void finish(struct process *p)
{
    monitor_close(p->monitor);
    admin_free(p->admin);
    control_free(p->control);
    agent_stop(p->agent);
    daemon_signals_close(p->signals);
    loop_free(p->loop);
    log_free(p->audit);
    log_free(p->log);
}

static bool check_record(const void *context, const struct json *doc, const json_node *record,
                         struct fail *why)
{
    return egress_config_check(context, doc, json_member(record, "egress"), why);
}

static void print_public(const struct option *table, size_t count, const void *values)
{
    size_t at = 0;
    struct fail what;
    while (options_exposed_secret(table, count, values, "relay.", &at, &what) != FILE_PRIVATE)
        fprintf(stderr, "warning: %s\n", what.text);
}

/* Prints the warnings that a start would log. */
static void print_warnings(const struct policy *policy)
{
    size_t count;
    const struct option *table = settings_options(&count);
    const struct directory_options *directory = policy->directory;
    const struct texts *of_tokens = tokens_warnings(policy->tokens);
    settings_print_warnings(policy->settings, stderr);
    print_public(table, count, policy->settings);
    print_public(directory->kind->options, directory->kind->options_count, directory->own);
    for (size_t i = 0; i < of_tokens->count; i++)
        fprintf(stderr, "warning: %s\n", of_tokens->at[i]);
}

/* Implements -t: checks the configuration, and the directory's file if it exists. */
static int check_configuration(const struct policy *policy)
{
    const struct settings *s = policy->settings;
    const struct directory_file_check check = {check_record, policy->egress};
    struct directory_load load;
    struct fail why;
    const char *path = directory_options_file(policy->directory);
    print_warnings(policy);
    if (!egress_config_check(policy->egress, s->doc, s->egress.fallback, &why)) {
        fprintf(stderr, "%s\n", why.text);
        return DAEMON_FAILED;
    }
    if (!path || access(path, F_OK) != 0) {
        fprintf(stderr, "%s%sthe configuration is valid\n", path ? path : "",
                path ? ": not there yet; " : "");
        return DAEMON_OK;
    }
    if (!directory_file_load_checked(path, &check, &load, &why)) {
        fprintf(stderr, "%s\n", why.text);
        return DAEMON_FAILED;
    }
    if (load.exposed)
        fprintf(
            stderr,
            "warning: %s: everybody on this machine can read it, and the headers of %zu records: chmod 600\n",
            path, load.exposed);
    fprintf(stderr, "the configuration is valid, the directory has %zu sandboxes\n",
            records_count(load.records));
    records_release(load.records);
    revoked_release(load.revoked);
    return DAEMON_OK;
}

int main(int argc, char **argv)
{
    struct daemon_arguments arguments;
    struct process process = {0};
    struct fail why = {"out of memory"};
    uint64_t files;
    int code;
    if (!daemon_arguments(&program, argc, argv, &arguments, stdout, stderr, &code))
        return code;
    struct policy *policy = NULL;
    if (openssl_memory_begin(&why))
        policy = policy_load(arguments.path, arguments.overrides, arguments.overrides_count, &why);
    if (!policy) {
        fprintf(stderr, "%s\n", why.text);
        return DAEMON_FAILED;
    }
    if (arguments.check) {
        code = check_configuration(policy);
        policy_release(policy);
        return code;
    }
    daemon_signals_block();
    process.log = log_new(STDERR_FILENO, (enum log_level)policy->settings->log_level);
    process.audit = log_new(STDERR_FILENO, LOG_INFO); /* independent of log_level */
    process.loop = loop_new(&why);
    bool good = process.log && process.audit && process.loop && daemon_raise_files(&files, &why);
    if (!good)
        policy_release(policy);
    good = good && start_agent(&process, &arguments, policy, &why);
    if (good)
        loop_run(process.loop);
    else
        fprintf(stderr, "%s: %s\n", program.name, why.text);
    finish(&process);
    return good ? DAEMON_OK : DAEMON_FAILED;
}
