/* SPDX-License-Identifier: MIT */
/*
 * address-lists: tells HAProxy whether a client's address is known, blocked or unknown, by a list of networks.
 *
 *     address-lists unix@/run/lists.sock lists.txt
 */
#include <arpa/inet.h>
#include <signal.h>
#include <spop_agent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NETWORKS_MOST 10000

struct network {
    unsigned char address[16];
    size_t len, bits; /* of 4 or 16 bytes, how many bits count */
    char standing[16];
};

static struct network networks[NETWORKS_MOST];
static size_t network_count;
static struct spop_agent *agent;

static int contains(const struct network *network, struct spop_agent_bytes address)
{
    const size_t whole = network->bits / 8, rest = network->bits % 8;
    if (address.len != network->len || memcmp(address.at, network->address, whole) != 0)
        return 0;
    return !rest || ((unsigned char)address.at[whole] ^ network->address[whole]) >> (8 - rest) == 0;
}

/* The question. The first line of the list that fits is the answer. */
static void check(void *context, struct spop_agent_message *message, struct spop_agent_answer *answer)
{
    struct spop_agent_value ip;
    size_t i = 0;
    (void)context;
    if (!spop_agent_arg(message, "ip", &ip) || (ip.kind != SPOP_AGENT_IPV4 && ip.kind != SPOP_AGENT_IPV6))
        return; /* nothing is set: HAProxy gets txn.lists.error */
    while (i < network_count && !contains(&networks[i], ip.bytes))
        i++;
    spop_agent_set_text(answer, SPOP_AGENT_TXN, "standing",
                        i < network_count ? networks[i].standing : "unknown");
}

/* A line: "known 192.0.2.0/24", "blocked 2001:db8::1"; empty ones and those that begin with # are skipped. */
static int read_line(char *line, struct network *network)
{
    char *word = strtok(line, " \t\n"), *address = strtok(NULL, "/ \t\n"), *bits = strtok(NULL, " \t\n");
    char *end = NULL;
    if (!address || strlen(word) >= sizeof network->standing)
        return 0;
    memcpy(network->standing, word, strlen(word) + 1);
    network->len = strchr(address, ':') ? 16 : 4;
    network->bits = bits ? strtoul(bits, &end, 10) : network->len * 8;
    return (!end || !*end) && network->bits <= network->len * 8 &&
           inet_pton(network->len == 4 ? AF_INET : AF_INET6, address, network->address) == 1;
}

static int read_list(const char *path)
{
    char line[256];
    FILE *file = fopen(path, "r");
    if (!file)
        return perror(path), 0;
    for (int number = 1; fgets(line, sizeof line, file); number++) {
        if (line[0] == '#' || line[0] == '\n')
            continue;
        if (network_count == NETWORKS_MOST || !read_line(line, &networks[network_count++]))
            return fprintf(stderr, "%s:%d: not WORD ADDRESS[/BITS], or one too many\n", path, number), 0;
    }
    return fclose(file) == 0;
}

static void on_signal(int signal)
{
    (void)signal;
    spop_agent_stop(agent); /* NOLINT(bugprone-signal-handler): it is made for this */
}

int main(int argc, char **argv)
{
    if (argc != 3)
        return fprintf(stderr, "usage: %s ADDRESS LIST\n", argv[0]), 2;
    if (!read_list(argv[2]))
        return 1;
    agent = spop_agent_new("lists"); /* option var-prefix of spoe.conf */
    if (!agent || !spop_agent_on(agent, "check-address", check, NULL) ||
        !spop_agent_listen(agent, argv[1], 0660))
        return fprintf(stderr, "%s: %s\n", argv[0], spop_agent_error(agent)), 1;
    signal(SIGTERM, on_signal);
    signal(SIGINT, on_signal);
    bool ran = spop_agent_run(agent);
    spop_agent_free(agent);
    return ran ? 0 : 1;
}
