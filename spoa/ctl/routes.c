/* SPDX-License-Identifier: MIT */
/* cellgate routes: prints the active routes as JSON, in the order in which the agent tries them. */
#include <stdio.h>

#include "spoa/agent/state/policy.h"
#include "spoa/ctl/configuration.h"
#include "spoa/ctl/ctl.h"

enum { TEXT_MOST = 16 << 20 };

static const char usage[] = "usage: cellgate routes [--config FILE]\n"
                            "Prints the routes in force as JSON, in the order in which they are tried: "
                            "`routes`, as a configuration would\n"
                            "list them, and `off`, the names of those whose form of host has no domain.\n";

static bool print(const struct settings *settings, struct fail *why)
{
    struct buffer text = buffer_with_limit(TEXT_MOST);
    struct routes *routes = policy_routes(settings, why);
    bool good = routes && (routes_write(routes, &text) || fail(why, "out of memory"));
    if (good)
        good = fwrite(buffer_slice(&text).at, 1, buffer_len(&text), stdout) == buffer_len(&text) ||
               fail(why, "cannot write");
    buffer_free(&text);
    routes_free(routes);
    return good;
}

int ctl_routes(int argc, char **argv)
{
    return configuration_command(argc, argv, usage, print);
}
