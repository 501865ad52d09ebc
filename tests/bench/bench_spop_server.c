/* SPDX-License-Identifier: MIT */
/*
 * The agent's SPOP server with a handler that decides nothing: what the server itself costs.
 *
 *     bench_spop_server unix@/tmp/x.sock
 *
 * On SIGINT or SIGTERM it drains, prints its counters and ends.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/signalfd.h>

#include "spoa/net/net.h"
#include "spoa/spop/server.h"

static enum server_reply on_message(void *context, struct slice name, struct spop_args args,
                                    struct spop_actions *actions, const struct server_ticket *ticket)
{
    (void)context, (void)name, (void)args, (void)ticket;
    spop_set_var(actions, SPOP_TRANSACTION, SLICE_LITERAL("verdict"), spop_text(SLICE_LITERAL("deny")));
    return SERVER_NOW;
}

struct bench {
    struct loop *loop;
    struct server *server;
    struct loop_io signals;
};

static void on_drained(void *context)
{
    loop_stop(((struct bench *)context)->loop);
}

static void on_signal(void *owner, int events)
{
    (void)events;
    struct bench *bench = owner;
    loop_io_close(&bench->signals);
    server_drain(bench->server, 1, on_drained, bench);
}

static void drain_on_signals(struct bench *bench)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGTERM);
    sigprocmask(SIG_BLOCK, &set, NULL);
    loop_io_open(&bench->signals, bench->loop, signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK), on_signal,
                 bench);
    loop_io_want(&bench->signals, LOOP_READ);
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
    struct bench bench = {.loop = NULL};
    int listener = -1;
    if (argc != 2 || !net_parse(slice_text(argv[1]), &address, &why) ||
        (listener = net_listen(&address, 0600, &why)) < 0 || !(bench.loop = loop_new(&why))) {
        fprintf(stderr, "%s\n", why.text);
        return EXIT_FAILURE;
    }
    const struct server_handler handler = {.message = on_message};
    bench.server = server_new(bench.loop, listener, &SERVER_OPTIONS_DEFAULT, &handler);
    if (!bench.server)
        return EXIT_FAILURE;
    drain_on_signals(&bench);
    loop_run(bench.loop);
    print_counters(server_counters(bench.server));
    server_free(bench.server);
    loop_free(bench.loop);
    net_unlisten(listener);
    return EXIT_SUCCESS;
}
