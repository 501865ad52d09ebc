/* SPDX-License-Identifier: MIT */
/* agent-sandbox: its router's headers. */
#include "spoa/agent/systems/profile.h"

static const char *const headers[] = {
    /* clang-format off */
    JSON({"name": "agent-sandbox", "need": "http",
          "headers": {"X-Sandbox-ID": "{sandbox}", "X-Sandbox-Namespace": "{namespace?default}", "X-Sandbox-Port": "{port?8888}"},
          "strip": ["Origin"]}),
    /* clang-format on */
    NULL};

const struct profile profile_agent_sandbox = {
    .ports = "8080,8888,9090", /* sandboxd's REST, the runtime, sandboxd's gRPC */
    .routes = {[PROFILE_HEADERS] = headers},
};
