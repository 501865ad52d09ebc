/* SPDX-License-Identifier: MIT */
/* OpenComputer: its API below /api, previews, terminals and execs. */
#include "spoa/agent/systems/profile.h"

static const char *const hosts[] = {
    /* clang-format off */
    JSON({"name": "opencomputer-preview", "host": "{sandbox}-p{port}.<opencomputer>", "need": "http"}),
    /* clang-format on */
    NULL};

static const char *const paths[] = {
    /* clang-format off */
    JSON({"name": "opencomputer-pty", "path": "/api/sandboxes/{sandbox}/pty/{session}",
          "upgrade": true, "via": "relay", "to": "/sandboxes/{sandbox}/pty/{session}", "need": "pty",
          "stream": true, "keepalive": "empty-frame"}),
    JSON({"name": "opencomputer-exec", "path": "/api/sandboxes/{sandbox}/exec/{session}",
          "upgrade": true, "via": "relay", "to": "/sandboxes/{sandbox}/exec/{session}", "need": "exec",
          "resume": "scrollback", "end": "exit-frame", "keepalive": "empty-frame"}),
    JSON({"name": "opencomputer-agent", "path": "/api/sandboxes/{sandbox}/agent/{session}",
          "upgrade": true, "via": "relay", "to": "/sandboxes/{sandbox}/agent/{session}",
          "need": "agent", "resume": "scrollback", "end": "exit-frame", "keepalive": "empty-frame"}),
    JSON({"name": "opencomputer-pty-api", "path": "/api/sandboxes/{sandbox}/pty/{rest...}",
          "upgrade": false, "to": "/sandboxes/{sandbox}/pty/{rest...}", "need": "pty"}),
    JSON({"name": "opencomputer-exec-api", "path": "/api/sandboxes/{sandbox}/exec/{rest...}",
          "upgrade": false, "to": "/sandboxes/{sandbox}/exec/{rest...}", "need": "exec"}),
    JSON({"name": "opencomputer-agent-api", "path": "/api/sandboxes/{sandbox}/agent/{rest...}",
          "upgrade": false, "to": "/sandboxes/{sandbox}/agent/{rest...}", "need": "agent"}),
    JSON({"name": "opencomputer-api", "path": "/api/sandboxes/{sandbox}/{rest...}", "upgrade": false,
          "to": "/sandboxes/{sandbox}/{rest...}", "need": "http"}),
    /* clang-format on */
    NULL};

const struct profile profile_opencomputer = {
    .forms = {"opencomputer"},
    .sources = {"X-OC-Preview-Token"},
    .routes = {[PROFILE_HOSTS] = hosts, [PROFILE_PATHS] = paths},
};
