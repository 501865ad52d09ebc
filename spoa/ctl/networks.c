/* SPDX-License-Identifier: MIT */
/* cellgate networks: `worker_networks` of the configuration in the form of HAProxy's workers.lst, a line each. */
#include <stdio.h>
#include <string.h>

#include "spoa/ctl/ctl.h"
#include "spoa/lib/settings.h"

static int print(const char *path)
{
    struct fail why;
    struct settings *settings = settings_load(path, NULL, 0, &why);
    if (!settings) {
        fprintf(stderr, "%s\n", why.text);
        return 1;
    }
    for (size_t i = 0; i < settings->worker_networks.count; i++)
        puts(settings->worker_networks.at[i]);
    settings_free(settings);
    return 0;
}

int ctl_networks(int argc, char **argv)
{
    if (argc == 1)
        return print(SETTINGS_PATH);
    if (argc == 3 && (strcmp(argv[1], "--config") == 0 || strcmp(argv[1], "-c") == 0))
        return print(argv[2]);
    bool help = argc == 2 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0);
    fprintf(help ? stdout : stderr,
            "usage: cellgate networks [--config FILE]\n"
            "Prints the networks that workers may be in, as HAProxy's workers.lst wants them:\n"
            "cellgate networks >/etc/cellgate/workers.lst\n");
    return help ? 0 : 2;
}
