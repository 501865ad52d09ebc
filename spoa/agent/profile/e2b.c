/* SPDX-License-Identifier: MIT */
/* e2b: previews, envd, and one endpoint for all sandboxes that its SDK addresses by headers. */
#include "spoa/agent/profile/profile.h"

static const char *const hosts[] = {
    /* clang-format off */
    JSON({"name": "e2b-envd", "host": "{port}-{sandbox}.<e2b>", "ports": "49983", "need": "exec"}),
    JSON({"name": "e2b-preview", "host": "{port}-{sandbox}.<e2b>", "need": "http"}),
    /* clang-format on */
    NULL};

static const char *const headers[] = {
    /* clang-format off */
    JSON({"name": "e2b-envd-header", "ports": "49983", "need": "exec",
          "headers": {"E2b-Sandbox-Id": "{sandbox}", "E2b-Sandbox-Port": "{port?49983}"},
          "host_header": "keep", "cookies": "keep", "auth": "keep"}),
    JSON({"name": "e2b-header", "need": "http",
          "headers": {"E2b-Sandbox-Id": "{sandbox}", "E2b-Sandbox-Port": "{port?49983}"},
          "host_header": "keep", "cookies": "keep", "auth": "keep"}),
    /* clang-format on */
    NULL};

const struct profile profile_e2b = {
    .ports = "49983",
    .withheld = {49983, {"init", "freeze", "unfreeze", "fsfreeze", "fsthaw", "collapse", "upgrade"}},
    .forms = {"e2b"},
    .sources = {"e2b-traffic-access-token"},
    .routes = {[PROFILE_HOSTS] = hosts, [PROFILE_HEADERS] = headers},
};
