/* SPDX-License-Identifier: MIT */
/* cellgate: the operator's command. Each subcommand is a file of its own. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "spoa/ctl/ctl.h"

static const struct {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *help;
} commands[] = {
    {"token", ctl_token, "make a capability token, or say what one grants"},
    {"explain", ctl_explain, "say what the agent would decide about a request, and why"},
    {"attach", ctl_attach, "a terminal in a sandbox"},
    {"status", ctl_status, "what agent and relay are doing"},
    {"tunnels", ctl_tunnels, "the open tunnels"},
    {"top", ctl_top, "tunnels, memory, redials and gaps of the relay, again and again"},
    {"kick", ctl_kick, "close one tunnel"},
    {"drain", ctl_drain, "end the relay's tunnels in good order"},
    {"upgrade", ctl_upgrade, "replace the relay's program under open sockets"},
    {"wait", ctl_wait, "until a time has passed, or somebody has stopped listening: for hooks of a pod"},
    {"networks", ctl_networks, "the networks of workers, for HAProxy's workers.lst"},
    {"routes", ctl_routes, "the routes in force, as JSON"},
    {"headers", ctl_headers, "the headers that the configuration names, for HAProxy's environment"},
    {"certificates", ctl_certificates, "certificates for HTTP/2 inside of egress"},
    {"options", ctl_options, "every key of the configuration, for documentation"},
};

static void usage(FILE *to)
{
    fprintf(to, "usage: cellgate COMMAND [ARGUMENT]...\n\n");
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++)
        fprintf(to, "  %-12s %s\n", commands[i].name, commands[i].help);
    fprintf(to, "\n`cellgate COMMAND --help` says more. -V prints the version.\n");
}

/* Opens /dev/null for standard descriptors that are closed. Otherwise a file that is opened later could get such a number, and be used as
 * input or output by mistake. Reading these gives the end of the file; writing fails. */
static void fill_standard_descriptors(void)
{
    int fd;
    do
        fd = open("/dev/null", O_RDONLY);
    while (fd >= 0 && fd <= STDERR_FILENO);
    close(fd);
}

/* Flushes the output and returns an error if that fails, because a caller that saves the output must not take an empty file for the
 * result. */
static int say_all(int code)
{
    if (fflush(stdout) == 0 && !ferror(stdout))
        return code;
    fprintf(stderr, "cellgate: standard output: %s\n", strerror(errno));
    return code ? code : 1;
}

int main(int argc, char **argv)
{
    fill_standard_descriptors();
    if (argc >= 2 && (strcmp(argv[1], "-h") == 0 || strcmp(argv[1], "--help") == 0)) {
        usage(stdout);
        return 0;
    }
    if (argc >= 2 && (strcmp(argv[1], "-V") == 0 || strcmp(argv[1], "--version") == 0)) {
        printf("cellgate %s\n", CELLGATE_VERSION);
        return 0;
    }
    for (size_t i = 0; argc >= 2 && i < sizeof commands / sizeof *commands; i++)
        if (strcmp(argv[1], commands[i].name) == 0)
            return say_all(commands[i].run(argc - 1, argv + 1));
    if (argc >= 2)
        fprintf(stderr, "cellgate: there is no command %s\n\n", argv[1]);
    usage(stderr);
    return 2;
}
