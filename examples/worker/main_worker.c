/* SPDX-License-Identifier: MIT */
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

#include "examples/worker/bridge/worker_options.h"
#include "examples/worker/signals.h"
#include "examples/worker/systems/serve.h"

static const char help[] =
    "usage: cell-worker --listen ADDRESS --sandboxd PATH [options]\n"
    "\n"
    "A sandbox host's HTTP server: terminals, commands and plain pages over HTTP/1.1 and WebSockets, in the\n"
    "ways of OpenComputer, OpenSandbox and a plain browser terminal. The processes are kept by\n"
    "cell-sandboxd.\n"
    "\n"
    "IT RUNS COMMANDS FOR WHOEVER BRINGS ITS SECRET, OR REACHES ITS PORT WITH --open. Keep it on\n"
    "loopback, or in a network where only the cell's HAProxy and cellgate-relay can reach it.\n"
    "\n"
    "  --listen ADDRESS    for instance 127.0.0.1:9001; port 0 takes a free one\n"
    "  --sandboxd PATH     socket of cell-sandboxd\n"
    "  --secret-file FILE  every request must bring what is in FILE as Authorization: Bearer; the\n"
    "                      gate does, where the sandbox's record says so in its headers\n"
    "  --open              instead: no secret. Requests must be for a loopback address, localhost or\n"
    "                      --host, and pages of other origins are refused\n"
    "  --host NAME         a name that an open one answers to; may be repeated\n"
    "  --allow-remote      listen on an address that is not loopback; wants --secret-file\n"
    "  --name NAME         in the Server field and in /echo (worker)\n"
    "  --ui DIR            folder that is served under /ui/\n"
    "  --token-file FILE   /pty wants what is in FILE as X-EXECD-ACCESS-TOKEN\n"
    "  --replay-late       OpenComputer's sessions as its own workers serve them: a client is let in before\n"
    "                      the session is looked for, and a replay comes behind its 04\n"
    "  --lossy-attach      OpenComputer's commands lose output when a client attaches as its own workers "
    "lose it:\n"
    "                      the first client of a session gets its replay after its 04, without some chunks;\n"
    "                      each other one lacks what is said within 20 ms after its 04\n"
    "  --drain SECONDS     time for what is open when it is stopped (5)\n"
    "  --help, --version\n"
    "\n"
    "Prints 'listening ADDRESS' when it is ready. SIGTERM and SIGINT: /readyz says 503, WebSockets are\n"
    "closed 1001, requests are finished; a second one ends it now. Sessions live on in cell-sandboxd.\n"
    "Exit status: 0, 1 (cannot start), 2 (wrong arguments).\n";

static const char warning[] = "cell-worker: open: this runs commands for every program of this machine\n";

enum { SHOWN = -1, OK = 0, FAILED = 1, WRONG = 2 };

struct arguments {
    struct web_server_options server;
    struct worker_options serve;
    struct guard_options guard;
    const char *listen, *token_file;
    bool allow_remote;
};

static int wrong(const char *text, const char *what)
{
    fprintf(stderr, "cell-worker: %s%s (see --help)\n", text, what);
    return WRONG;
}

static int judge(struct arguments *a)
{
    struct fail why;
    struct slice name = slice_text(a->server.name);
    if (!a->listen || !a->serve.manager)
        return wrong("--listen and --sandboxd are needed", "");
    if (!net_parse(slice_text(a->listen), &a->server.listen, &why) || net_is_unix(&a->server.listen))
        return wrong("--listen wants an IP address and a port, not ", a->listen);
    if (!net_is_loopback(&a->server.listen) && !(a->allow_remote && a->guard.secret_file))
        return wrong("without --allow-remote and --secret-file only a loopback address is listened on, not ",
                     a->listen);
    if (guard_check(&a->guard))
        return wrong(guard_check(&a->guard), "");
    if (name.len > 64 || !http_is_token(name))
        return wrong("--name: letters, digits and -_. only, not ", a->server.name);
    return OK;
}

static int read_arguments(int argc, char **argv, struct arguments *a)
{
    static const struct option names[] = {{"listen", required_argument, NULL, 'l'},
                                          {"sandboxd", required_argument, NULL, 's'},
                                          {"name", required_argument, NULL, 'n'},
                                          {"ui", required_argument, NULL, 'u'},
                                          {"token-file", required_argument, NULL, 't'},
                                          {"replay-late", no_argument, NULL, 'L'},
                                          {"lossy-attach", no_argument, NULL, 'A'},
                                          {"drain", required_argument, NULL, 'd'},
                                          {"allow-remote", no_argument, NULL, 'r'},
                                          {"secret-file", required_argument, NULL, 'S'},
                                          {"open", no_argument, NULL, 'o'},
                                          {"host", required_argument, NULL, 'H'},
                                          {"help", no_argument, NULL, 'h'},
                                          {"version", no_argument, NULL, 'V'},
                                          {NULL, 0, NULL, 0}};
    uint64_t drain = 5;
    for (int c; (c = getopt_long(argc, argv, "hV", names, NULL)) != -1;) {
        switch (c) {
        case 'l':
            a->listen = optarg;
            break;
        case 's':
            a->serve.manager = optarg;
            break;
        case 'n':
            a->server.name = optarg;
            break;
        case 'u':
            a->serve.ui = optarg;
            break;
        case 't':
            a->token_file = optarg;
            break;
        case 'L':
            a->serve.replay_late = true;
            break;
        case 'A':
            a->serve.lossy_attach = true;
            break;
        case 'r':
            a->allow_remote = true;
            break;
        case 'S':
            a->guard.secret_file = optarg;
            break;
        case 'o':
            a->guard.open = true;
            break;
        case 'H':
            if (!guard_add_host(&a->guard, optarg))
                return wrong("--host: a name, at most 16 of them, not ", optarg);
            break;
        case 'h':
            fputs(help, stdout);
            return SHOWN;
        case 'V':
            puts("cell-worker " CELLGATE_VERSION);
            return SHOWN;
        case 'd':
            if (!slice_u64(slice_text(optarg), 3600, &drain))
                return wrong("--drain: seconds up to 3600, not ", optarg);
            break;
        default:
            return WRONG;
        }
    }
    a->server.drain = drain * SECOND;
    return optind == argc ? judge(a) : wrong("what is this: ", argv[optind]);
}

static void on_signal(void *owner, int number)
{
    (void)number;
    web_server_stop(owner);
}

static bool run(struct loop *loop, const struct arguments *a, struct fail *why)
{
    static const int numbers[] = {SIGTERM, SIGINT, 0};
    struct signals signals = {0};
    struct web_server *f = web_server_new(loop, &a->server, why);
    if (!f || !signals_open(&signals, loop, numbers, on_signal, f, why)) {
        web_server_free(f);
        return false;
    }
    if (a->guard.open)
        fputs(warning, stderr);
    web_server_say_listening(f);
    loop_run(loop);
    signals_close(&signals);
    web_server_free(f);
    return true;
}

int main(int argc, char **argv)
{
    struct arguments a = {.server = {.name = "worker", .routes = serve_routes, .context = &a.serve}};
    struct fail why;
    char *token = NULL, *secret = NULL;
    int status = read_arguments(argc, argv, &a);
    if (status != OK)
        return status == SHOWN ? OK : status;
    bool ready = guard_read_token(a.token_file, &token, &why) && guard_open(&a.guard, &secret, &why);
    a.serve.token = token;
    a.server.guard = a.guard.guard;
    struct loop *loop = ready ? loop_new(&why) : NULL;
    bool ran = loop && run(loop, &a, &why);
    if (!ran)
        fprintf(stderr, "cell-worker: %s\n", why.text);
    loop_free(loop);
    free(token);
    free(secret);
    return ran ? OK : FAILED;
}
