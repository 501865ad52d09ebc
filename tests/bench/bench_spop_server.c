/* SPDX-License-Identifier: MIT */
/*
 * The agent's SPOP server with a handler that decides nothing: what the server itself costs.
 *
 *     bench_spop_server unix@/tmp/x.sock        until SIGINT or SIGTERM; then prints its counters
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/signalfd.h>

#include "spoa/agent/server.h"
#include "spoa/lib/net.h"

static enum server_reply on_message(void *context, struct slice name, struct spop_args args,
                                    struct spop_actions *actions, const struct server_ticket *ticket)
{
    (void)context, (void)name, (void)args, (void)ticket;
    spop_set_var(actions, SPOP_TRANSACTION, SLICE_LITERAL("verdict"), spop_text(SLICE_LITERAL("deny")));
    return SERVER_NOW;
}

static void on_signal(void *owner, int events)
{
    (void)events;
    loop_stop(owner);
}

static void stop_on_signals(struct loop_io *io, struct loop *loop)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGTERM);
    sigprocmask(SIG_BLOCK, &set, NULL);
    loop_io_open(io, loop, signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK), on_signal, loop);
    loop_io_want(io, LOOP_READ);
}

static void print_counters(const struct server_counters *counters)
{
#define X(field, help) printf("%-16s %llu\n", #field, (unsigned long long)counters->field);
    SERVER_COUNTERS(X)
#undef X
    struct rusage used;
    getrusage(RUSAGE_SELF, &used);
    double seconds = (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
                     (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec) / 1e6;
    double acks = (double)counters->acks;
    printf("%-16s %.3f (recv and send)\n", "calls per ACK",
           (double)(counters->reads + counters->writes) / acks);
    printf("%-16s %.0f\n", "ACKs per CPU second", acks / seconds);
}

int main(int argc, char **argv)
{
    struct fail why = {"usage: bench_spop_server ADDRESS"};
    struct net_address address;
    struct loop *loop = NULL;
    int listener = -1;
    if (argc != 2 || !net_parse(slice_text(argv[1]), &address, &why) ||
        (listener = net_listen(&address, 0600, &why)) < 0 || !(loop = loop_new(&why))) {
        fprintf(stderr, "%s\n", why.text);
        return EXIT_FAILURE;
    }
    struct loop_io signals;
    stop_on_signals(&signals, loop);
    struct server_handler handler = {.message = on_message};
    struct server *server = server_new(loop, listener, &SERVER_OPTIONS_DEFAULT, &handler);
    if (!server)
        return EXIT_FAILURE;
    loop_run(loop);
    print_counters(server_counters(server));
    server_free(server);
    loop_io_close(&signals);
    loop_free(loop);
    net_unlisten(listener);
    return EXIT_SUCCESS;
}
