/* SPDX-License-Identifier: MIT */
#include "tests/unit/support.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "spoa/service/daemon.h"
#include "spoa/service/notify.h"
#include "spoa/service/settings.h"

/* ---- arguments ---- */

static struct daemon_program program = {.name = "cellgate-agent", .summary = "Decides.", .section = "agent"};
static struct daemon_arguments arguments;
static char *said, *complained;
static int code;

/* Runs with the words of `line` as arguments. */
static bool run(const char *line)
{
    static char words[512]; /* the arguments point here */
    char *argv[80] = {"cellgate-agent"}, *rest = NULL;
    size_t said_len, complained_len;
    int argc = 1;
    free(said);
    free(complained);
    FILE *out = open_memstream(&said, &said_len), *err = open_memstream(&complained, &complained_len);
    snprintf(words, sizeof words, "%s", line);
    for (char *word = strtok_r(words, " ", &rest); word; word = strtok_r(NULL, " ", &rest))
        argv[argc++] = word;
    argv[argc] = NULL;
    code = -1;
    bool go = daemon_arguments(&program, argc, argv, &arguments, out, err, &code);
    fclose(out);
    fclose(err);
    return go;
}

static void arguments_are_read(void **state)
{
    (void)state;
    assert_true(run(""));
    assert_string_equal(arguments.path, "/etc/cellgate/cellgate.json");
    assert_false(arguments.check);
    assert_int_equal(arguments.overrides_count, 0);
    assert_true(run("-c x.json -o a=1 -t -o b=2"));
    assert_string_equal(arguments.path, "x.json");
    assert_true(arguments.check);
    assert_int_equal(arguments.overrides_count, 2);
    assert_string_equal(arguments.overrides[1], "b=2");
    assert_string_equal(said, "");
}

static void options_of_the_keeper_are_for_daemons_that_have_one(void **state)
{
    (void)state;
    assert_false(run("--no-keeper"));
    assert_int_equal(code, 2);
    program.has_keeper = true;
    assert_true(run("--no-keeper -t"));
    assert_true(arguments.no_keeper && arguments.check);
    assert_null(arguments.server_pid);
    assert_true(run("--server-pid=/run/x.pid"));
    assert_false(arguments.no_keeper);
    assert_string_equal(arguments.server_pid, "/run/x.pid");
    assert_false(run("--server-pid"));
    assert_int_equal(code, 2);
    assert_false(run("-h"));
    assert_non_null(strstr(said, "[--no-keeper]"));
    program.has_keeper = false;
}

static void help_and_version_leave_with_success(void **state)
{
    (void)state;
    assert_false(run("-V"));
    assert_int_equal(code, 0);
    assert_string_equal(said, "cellgate-agent " CELLGATE_VERSION "\n");
    assert_false(run("-h"));
    assert_int_equal(code, 0);
    assert_non_null(strstr(said, "usage: cellgate-agent [-c FILE]"));
    assert_non_null(strstr(said, "\n  cell\n"));
    assert_non_null(strstr(said, "\n  agent.listen\n"));
    assert_null(strstr(said, "relay.keepalive"));
    assert_false(run("--help"));
    assert_int_equal(code, 0);
    assert_non_null(strstr(said, "usage: cellgate-agent [-c FILE]"));
    assert_false(run("--version"));
    assert_string_equal(said, "cellgate-agent " CELLGATE_VERSION "\n");
    assert_string_equal(complained, "");
}

static void mistakes_leave_with_a_reason(void **state)
{
    (void)state;
    static const struct {
        const char *line, *why;
    } cases[] = {
        {"-x", "cellgate-agent: unknown option -x\n"},
        {"--config x.json", "cellgate-agent: unknown option --config\n"},
        {"-c", "cellgate-agent: a value is missing after -c\n"},
        {"-t extra", "cellgate-agent: unexpected argument extra\n"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_false(run(cases[i].line));
        assert_int_equal(code, 2);
        assert_int_equal(strncmp(complained, cases[i].why, strlen(cases[i].why)), 0);
        assert_non_null(strstr(complained, "usage: "));
    }
    char many[512] = "";
    for (int i = 0; i <= DAEMON_OVERRIDES_MAX; i++)
        strcat(many, "-oa=1 ");
    assert_false(run(many));
    assert_int_equal(code, 2);
}

/* ---- signals ---- */

static char events[16];

static void note(char event)
{
    events[strlen(events)] = event;
}

static void on_reload(void *context)
{
    note(*(const char *)context);
}

static void on_drain(void *context)
{
    (void)context;
    note('d');
}

static void on_stop(void *context)
{
    (void)context;
    note('s');
}

static void on_summary(void *context)
{
    (void)context;
    note('u');
}

static void signals_come_as_callbacks_of_the_loop(void **state)
{
    (void)state;
    struct fail why;
    char reload = 'r';
    daemon_signals_block();
    struct loop *loop = loop_new(&why);
    struct daemon_signals *signals = daemon_signals_open(
        loop, &(struct daemon_handler){on_reload, on_drain, on_stop, on_summary, NULL, &reload}, &why);
    static const int sent[] = {SIGHUP, SIGUSR1, SIGTERM, SIGHUP, SIGINT, SIGTERM};
    for (size_t i = 0; i < sizeof sent / sizeof *sent; i++) {
        raise(sent[i]);
        loop_turn(loop, true);
    }
    raise(SIGPIPE);
    assert_string_equal(events, "rudrss");
    daemon_signals_close(signals);
    daemon_signals_close(NULL);
    loop_free(loop);
}

static void the_limit_of_files_is_raised(void **state)
{
    (void)state;
    struct rlimit before, now;
    struct fail why;
    uint64_t limit = 0;
    getrlimit(RLIMIT_NOFILE, &before);
    setrlimit(RLIMIT_NOFILE, &(struct rlimit){64, before.rlim_max});
    assert_true(daemon_raise_files(&limit, &why));
    getrlimit(RLIMIT_NOFILE, &now);
    assert_int_equal(limit, before.rlim_max);
    assert_int_equal(now.rlim_cur, before.rlim_max);
}

/* ---- the service manager ---- */

/* A manager at this address; gives its socket. */
static int manager(const char *name)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    memcpy(address.sun_path, name, strlen(name));
    if (*name == '@')
        address.sun_path[0] = '\0';
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK, 0);
    socklen_t len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(name));
    assert_int_equal(bind(fd, (struct sockaddr *)&address, len), 0);
    setenv("NOTIFY_SOCKET", name, 1);
    return fd;
}

static const char *told(int fd)
{
    static char text[600];
    ssize_t len = recv(fd, text, sizeof text - 1, 0);
    text[len > 0 ? len : 0] = '\0';
    return text;
}

static void the_manager_is_told(void **state)
{
    (void)state;
    char names[2][64];
    snprintf(names[0], sizeof names[0], "/tmp/cellgate-notify-%d", (int)getpid());
    snprintf(names[1], sizeof names[1], "@cellgate-notify-%d", (int)getpid());
    for (int i = 0; i < 2; i++) {
        int fd = manager(names[i]);
        assert_true(notify_ready("serving"));
        assert_string_equal(told(fd), "READY=1\nSTATUS=serving");
        assert_true(notify_ready(NULL));
        assert_string_equal(told(fd), "READY=1\n");
        assert_true(notify_reloading());
        assert_int_equal(strncmp(told(fd), "RELOADING=1\nMONOTONIC_USEC=", 27), 0);
        assert_true(notify_stopping("draining"));
        assert_string_equal(told(fd), "STOPPING=1\nSTATUS=draining");
        close(fd);
        assert_false(notify_ready(NULL));
    }
    unlink(names[0]);
}

static void without_a_manager_nothing_happens(void **state)
{
    (void)state;
    unsetenv("NOTIFY_SOCKET");
    assert_true(notify_ready("x"));
    setenv("NOTIFY_SOCKET", "", 1);
    assert_true(notify_stopping(NULL));
    char name[200] = "/";
    memset(name + 1, 'x', sizeof name - 2);
    setenv("NOTIFY_SOCKET", name, 1);
    assert_false(notify_ready("x"));
    unsetenv("NOTIFY_SOCKET");
}

static int clean(void **state)
{
    (void)state;
    free(said);
    free(complained);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(arguments_are_read),
        cmocka_unit_test(options_of_the_keeper_are_for_daemons_that_have_one),
        cmocka_unit_test(help_and_version_leave_with_success),
        cmocka_unit_test(mistakes_leave_with_a_reason),
        cmocka_unit_test(signals_come_as_callbacks_of_the_loop),
        cmocka_unit_test(the_limit_of_files_is_raised),
        cmocka_unit_test(the_manager_is_told),
        cmocka_unit_test(without_a_manager_nothing_happens),
    };
    return cmocka_run_group_tests(tests, NULL, clean);
}
