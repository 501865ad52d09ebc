/* SPDX-License-Identifier: MIT */
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

#include "examples/control-plane/commands.h"
#include "examples/worker/signals.h"

#define CONTROL "/run/cellgate/plane.sock"

static const char help[] =
    "usage: cell-plane serve --listen ADDRESS [--state FILE] [options]\n"
    "       cell-plane [--control PATH] COMMAND\n"
    "\n"
    "A small control plane: it says where each sandbox is to agents whose directory is of kind http,\n"
    "tells them of changes at once, and wakes sandboxes.\n"
    "\n"
    "commands of an operator, over the control socket:\n"
    "  list                 all sandboxes\n"
    "  set ID RECORD        a record in JSON: '{\"worker\":\"http://127.0.0.1:9001\"}'\n"
    "  move ID [WORKER]     to that worker, or to the next of --worker\n"
    "  suspend ID, wake ID, stop ID, remove ID\n"
    "  revoke SECONDS       tokens issued before that time (Unix seconds) are no longer good\n"
    "  revoke-token JTI EXP that token, which expires at that time (Unix seconds), is no longer good\n"
    "\n"
    "  --control PATH       socket for these commands (" CONTROL ")\n"
    "  --listen ADDRESS     for agents, for instance 127.0.0.1:8081; port 0 takes a free one\n"
    "  --secret-file FILE   agents must send what is in FILE as Authorization: Bearer (their\n"
    "                       directory's token_file); --token-file is its old name\n"
    "  --open               instead: no secret, for whatever runs on this machine\n"
    "  --host NAME          a name that an open one answers to, beside localhost; may be repeated\n"
    "  --allow-remote       listen on an address that is not loopback; wants --secret-file\n"
    "  --state FILE         where sandboxes are kept; a change is in it before anybody hears of it\n"
    "  --worker URL         where a sandbox may be moved to or woken; may be repeated\n"
    "  --worker-secret-file FILE   what these workers ask for (cell-worker --secret-file): records on\n"
    "                       one of them get it among their headers, as Authorization: Bearer\n"
    "  --wake SECONDS       that waking takes (1)\n"
    "  --help, --version\n"
    "\n"
    "Prints 'listening ADDRESS' when it is ready. Exit status: 0, 1 (cannot start; refused),\n"
    "2 (wrong arguments).\n";

enum { SHOWN = -1, OK = 0, FAILED = 1, WRONG = 2 };

struct arguments {
    struct web_server_options server;
    struct plane_options plane;
    struct guard_options guard;
    const char *listen, *control, *worker_secret_file;
    bool allow_remote;
};

static int wrong(const char *text, const char *what)
{
    fprintf(stderr, "cell-plane: %s%s (see --help)\n", text, what);
    return WRONG;
}

static int judge_serve(struct arguments *a)
{
    struct fail why;
    if (!a->listen)
        return wrong("serve needs --listen", "");
    if (!net_parse(slice_text(a->listen), &a->server.listen, &why) || net_is_unix(&a->server.listen))
        return wrong("--listen wants an IP address and a port, not ", a->listen);
    if (!net_is_loopback(&a->server.listen) && !(a->allow_remote && a->guard.secret_file))
        return wrong("without --allow-remote and --secret-file only a loopback address is listened on, not ",
                     a->listen);
    if (guard_check(&a->guard))
        return wrong(guard_check(&a->guard), "");
    return OK;
}

static bool read_wake(const char *text, uint64_t *time)
{
    char *end;
    double seconds = strtod(text, &end);
    bool good = *text && !*end && seconds >= 0 && seconds <= 3600;
    if (good)
        *time = (uint64_t)(seconds * (double)SECOND);
    return good;
}

static int take(int c, struct arguments *a)
{
    switch (c) {
    case 'l':
        a->listen = optarg;
        break;
    case 'c':
        a->control = optarg;
        break;
    case 's':
        a->plane.state = optarg;
        break;
    case 't':
        a->guard.secret_file = optarg;
        break;
    case 'o':
        a->guard.open = true;
        break;
    case 'H':
        if (!guard_add_host(&a->guard, optarg))
            return wrong("--host: a name, at most 16 of them, not ", optarg);
        break;
    case 'W':
        a->worker_secret_file = optarg;
        break;
    case 'r':
        a->allow_remote = true;
        break;
    case 'w':
        if (a->plane.worker_count == PLANE_WORKERS_MAX)
            return wrong("too many: --worker ", optarg);
        a->plane.workers[a->plane.worker_count++] = optarg;
        break;
    case 'k':
        return read_wake(optarg, &a->plane.wake_time) ? OK : wrong("--wake: seconds, not ", optarg);
    case 'h':
        fputs(help, stdout);
        return SHOWN;
    case 'V':
        puts("cell-plane " CELLGATE_VERSION);
        return SHOWN;
    default:
        return WRONG;
    }
    return OK;
}

static int read_arguments(int argc, char **argv, struct arguments *a)
{
    static const struct option names[] = {
        {"listen", required_argument, NULL, 'l'}, {"control", required_argument, NULL, 'c'},
        {"state", required_argument, NULL, 's'},  {"token-file", required_argument, NULL, 't'},
        {"open", no_argument, NULL, 'o'},         {"secret-file", required_argument, NULL, 't'},
        {"host", required_argument, NULL, 'H'},   {"worker-secret-file", required_argument, NULL, 'W'},
        {"worker", required_argument, NULL, 'w'}, {"wake", required_argument, NULL, 'k'},
        {"allow-remote", no_argument, NULL, 'r'}, {"help", no_argument, NULL, 'h'},
        {"version", no_argument, NULL, 'V'},      {NULL, 0, NULL, 0}};
    int status = OK;
    for (int c; status == OK && (c = getopt_long(argc, argv, "hV", names, NULL)) != -1;)
        status = take(c, a);
    if (status == OK && optind == argc)
        return wrong("a command is needed", "");
    return status;
}

static void on_signal(void *owner, int number)
{
    (void)number;
    web_server_stop(owner);
}

/* Opens the control socket at `path`. Replaces a socket file that is left from an earlier process, but not one with a listener. */
static struct control *open_control(struct loop *loop, const char *path,
                                    const struct control_command *commands, size_t count, struct fail *why)
{
    char text[NET_TEXT];
    struct net_address address;
    snprintf(text, sizeof text, "unix@%s", path);
    int listener = net_parse(slice_text(text), &address, why) ? net_listen(&address, 0600, why) : -1;
    struct control *control = listener < 0 ? NULL : control_new(loop, listener, commands, count);
    if (listener >= 0 && !control)
        fail(why, "out of memory");
    return control;
}

static bool run(struct loop *loop, struct arguments *a, struct serve *serve, struct fail *why)
{
    static const int numbers[] = {SIGTERM, SIGINT, 0};
    struct signals signals = {0};
    struct control_command commands[COMMANDS_MAX];
    size_t count = commands_fill(serve, commands);
    struct web_server_options server = a->server;
    server.context = serve;
    struct web_server *f = web_server_new(loop, &server, why);
    struct control *control = f ? open_control(loop, a->control, commands, count, why) : NULL;
    bool good = control && signals_open(&signals, loop, numbers, on_signal, f, why);
    if (good) {
        serve_open(serve, loop);
        web_server_say_listening(f);
        loop_run(loop);
        serve_close(serve);
        signals_close(&signals);
    }
    control_free(control);
    web_server_free(f);
    return good;
}

/* Reads the secret that workers require, as the value of an Authorization field. *authorization is NULL if `path` is. */
static bool read_authorization(const char *path, char **authorization, struct fail *why)
{
    char *secret = NULL;
    bool good = guard_read_secret(path, &secret, why);
    if (good && secret && asprintf(authorization, "Bearer %s", secret) < 0) {
        *authorization = NULL;
        good = fail(why, "out of memory");
    }
    free(secret);
    return good;
}

static bool serve_plane(struct loop *loop, struct arguments *a, struct fail *why)
{
    char *secret = NULL, *authorization = NULL;
    struct serve serve = {.feed = feed_new()};
    bool good = (serve.feed || fail(why, "out of memory")) && guard_open(&a->guard, &secret, why) &&
                read_authorization(a->worker_secret_file, &authorization, why);
    a->server.guard = a->guard.guard;
    a->plane.authorization = authorization;
    good = good && (serve.plane = plane_new(loop, &a->plane, why)) && run(loop, a, &serve, why);
    plane_free(serve.plane);
    feed_free(serve.feed);
    free(secret);
    free(authorization);
    return good;
}

int main(int argc, char **argv)
{
    struct arguments a = {.server = {.name = "cell-plane", .routes = plane_routes, .drain = SECOND},
                          .plane = {.wake_time = SECOND},
                          .control = CONTROL};
    struct fail why;
    int status = read_arguments(argc, argv, &a);
    if (status != OK)
        return status == SHOWN ? OK : status;
    if (strcmp(argv[optind], "serve") != 0)
        return commands_ask(a.control, argc - optind, argv + optind);
    status = optind + 1 == argc ? judge_serve(&a) : wrong("what is this: ", argv[optind + 1]);
    if (status != OK)
        return status;
    struct loop *loop = loop_new(&why);
    bool ran = loop && serve_plane(loop, &a, &why);
    if (!ran)
        fprintf(stderr, "cell-plane: %s\n", why.text);
    loop_free(loop);
    return ran ? OK : FAILED;
}
