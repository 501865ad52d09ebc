/* SPDX-License-Identifier: MIT */
/*
 * An agent on libspop-agent's header with a handler that decides nothing: what the library itself costs.
 *
 *     bench_spop_server unix@/tmp/x.sock
 *
 * On SIGINT or SIGTERM it ends and prints its counters.
 */
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "spoa/spop/spop_agent.h"

static struct spop_agent *agent;

static void on_message(void *context, struct spop_agent_message *message, struct spop_agent_answer *answer)
{
    (void)context, (void)message;
    spop_agent_set_text(answer, SPOP_AGENT_TXN, "verdict", "deny");
}

static void on_signal(int signal)
{
    (void)signal;
    spop_agent_stop(agent);
}

static void print_counters(void)
{
    const char *name, *help;
    uint64_t value;
    double calls = 0, acks = 0;
    for (unsigned i = 0; spop_agent_counter(agent, i, &name, &help, &value); i++) {
        printf("%-16s %" PRIu64 "\n", name, value);
        if (strcmp(name, "reads") == 0 || strcmp(name, "writes") == 0)
            calls += (double)value;
        if (strcmp(name, "acks") == 0)
            acks = (double)value;
    }
    struct rusage used;
    getrusage(RUSAGE_SELF, &used);
    double seconds = (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
                     (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec) / 1e6;
    printf("calls per ACK    %.3f (recv and send)\n", calls / acks);
    printf("ACKs per CPU second %.0f\n", acks / seconds);
}

int main(int argc, char **argv)
{
    if (argc != 2) {
        fprintf(stderr, "usage: bench_spop_server ADDRESS\n");
        return EXIT_FAILURE;
    }
    agent = spop_agent_new("cell");
    if (!agent || !spop_agent_on(agent, NULL, on_message, NULL) || !spop_agent_listen(agent, argv[1], 0600)) {
        fprintf(stderr, "%s\n", spop_agent_error(agent));
        return EXIT_FAILURE;
    }
    signal(SIGINT, on_signal);
    signal(SIGTERM, on_signal);
    bool ran = spop_agent_run(agent);
    print_counters();
    spop_agent_free(agent);
    return ran ? EXIT_SUCCESS : EXIT_FAILURE;
}
