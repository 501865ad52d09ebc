/* SPDX-License-Identifier: MIT */
/* sandbox-sdk: previews. Its container server's own port is no preview's. */
#include "spoa/agent/systems/profile.h"

static const char *const hosts[] = {
    /* clang-format off */
    JSON({"name": "sandbox-sdk-preview", "host": "{port}-{sandbox}-{token}.<sandbox-sdk>",
          "need": "http", "ports": "1024-2999,3001-65535"}),
    /* clang-format on */
    NULL};

const struct profile profile_sandbox_sdk = {
    .ports = "3000",
    .forms = {"sandbox-sdk"},
    .sources = {"label"},
    .routes = {[PROFILE_HOSTS] = hosts},
};
