/* SPDX-License-Identifier: MIT */
/* cellgate networks: prints the configuration's `worker_networks` in the form of HAProxy's workers.lst, one per line. */
#include <stdio.h>

#include "spoa/ctl/configuration.h"
#include "spoa/ctl/ctl.h"

static const char usage[] =
    "usage: cellgate networks [--config FILE]\n"
    "Prints the networks that workers may be in, as HAProxy's workers.lst wants them:\n"
    "cellgate networks >/etc/cellgate/workers.lst\n";

static bool print(const struct settings *settings, struct fail *why)
{
    (void)why;
    for (size_t i = 0; i < settings->worker_networks.count; i++)
        puts(settings->worker_networks.at[i]);
    return true;
}

int ctl_networks(int argc, char **argv)
{
    return configuration_command(argc, argv, usage, print);
}
