/* SPDX-License-Identifier: MIT */
/* Daytona: previews, signed ones too, and the toolbox. */
#include "spoa/agent/systems/profile.h"

static const char *const hosts[] = {
    /* clang-format off */
    JSON({"name": "daytona-preview", "host": "{port}-{sandbox}.<daytona>", "need": "http"}),
    JSON({"name": "daytona-signed-preview", "need": "http",
          "host": ["{port}-{token}.<daytona-signed>", "{port}-{sandbox}.<daytona-signed>"]}),
    /* clang-format on */
    NULL};

static const char *const paths[] = {
    /* clang-format off */
    JSON({"name": "daytona-toolbox-pty", "path": "/toolbox/{sandbox}/process/pty/{rest...}",
          "port": 2280, "to": "/process/pty/{rest...}", "need": "pty"}),
    JSON({"name": "daytona-toolbox", "path": "/toolbox/{sandbox}/{rest...}", "port": 2280,
          "to": "/{rest...}", "need": "exec"}),
    /* clang-format on */
    NULL};

const struct profile profile_daytona = {
    .ports = "2280,22222,33333", /* the toolbox, the web terminal, recordings: never public */
    .forms = {"daytona", "daytona-signed"},
    .sources = {"X-Daytona-Preview-Token", "DAYTONA_SANDBOX_AUTH_KEY", "label"},
    .routes = {[PROFILE_HOSTS] = hosts, [PROFILE_PATHS] = paths},
};
