/* SPDX-License-Identifier: MIT */
/* cellgate routes: the routes in force, in the order in which they are tried, as JSON. */
#include <stdio.h>
#include <string.h>

#include "spoa/agent/route.h"
#include "spoa/ctl/ctl.h"
#include "spoa/lib/settings.h"

enum { TEXT_MOST = 16 << 20 };

static bool print_of(const struct settings *settings, struct fail *why)
{
    const struct route_nodes nodes = {settings->systems, settings->routes, settings->domains, settings->services};
    struct buffer text = buffer_with_limit(TEXT_MOST);
    struct routes *routes = routes_new(settings->doc, &nodes, why);
    bool good = routes && (routes_write(routes, &text) || fail(why, "out of memory"));
    if (good)
        good = fwrite(buffer_slice(&text).at, 1, buffer_len(&text), stdout) == buffer_len(&text) &&
               (fflush(stdout) == 0 || fail(why, "cannot write"));
    buffer_free(&text);
    routes_free(routes);
    return good;
}

static int print(const char *path)
{
    struct fail why = {""};
    struct settings *settings = settings_load(path, NULL, 0, &why);
    bool good = settings && print_of(settings, &why);
    if (!good)
        fprintf(stderr, "%s\n", why.text);
    if (settings)
        settings_free(settings);
    return good ? 0 : 1;
}

int ctl_routes(int argc, char **argv)
{
    if (argc == 1)
        return print(SETTINGS_PATH);
    if (argc == 3 && (strcmp(argv[1], "--config") == 0 || strcmp(argv[1], "-c") == 0))
        return print(argv[2]);
    bool help = argc == 2 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0);
    fprintf(help ? stdout : stderr,
            "usage: cellgate routes [--config FILE]\n"
            "Prints the routes in force as JSON, in the order in which they are tried: `routes`, as a configuration would\n"
            "list them, and `off`, the names of those whose form of host has no domain.\n");
    return help ? 0 : 2;
}
