/* SPDX-License-Identifier: MIT */
/* OpenSandbox: its ingress, by host, header and path (headers before the path on its bare domain), and its server's proxy. */
#include "spoa/agent/systems/profile.h"

static const char *const hosts[] = {
    /* clang-format off */
    JSON({"name": "opensandbox-ingress", "need": "http",
          "host": ["{sandbox}-{port}-{expires}-{signature}.<opensandbox>", "{sandbox}-{port}.<opensandbox>"]}),
    /* clang-format on */
    NULL};

static const char *const headers[] = {
    /* clang-format off */
    JSON({"name": "opensandbox-ingress-to", "need": "http", "host_header": "keep", "cookies": "keep",
          "auth": "keep",
          "headers": {"OpenSandbox-Ingress-To": ["f1.{namespace64}.{sandbox64}.{port}.{key_id}.{mac}", "{sandbox}-{port}-{expires}-{signature}.{domain...}", "{sandbox}-{port}.{domain...}"]}}),
    JSON({"name": "opensandbox-ingress-header", "need": "http", "host_header": "keep",
          "cookies": "keep", "auth": "keep",
          "headers": {"OPEN-SANDBOX-INGRESS": ["f1.{namespace64}.{sandbox64}.{port}.{key_id}.{mac}", "{sandbox}-{port}-{expires}-{signature}.{domain...}", "{sandbox}-{port}.{domain...}"]}}),
    JSON({"name": "opensandbox-ingress-path", "host": "<opensandbox>", "need": "http",
          "to": "/{rest...}",
          "path": ["/f1.{namespace64}.{sandbox64}.{port}.{key_id}.{mac}/{rest...}", "/{sandbox}/{port}/{expires}/{signature}/{rest...}", "/{sandbox}/{port}/{rest...}"]}),
    /* clang-format on */
    NULL};

static const char *const paths[] = {
    /* clang-format off */
    JSON({"name": "opensandbox-pty", "path": "[/v1]/sandboxes/{sandbox}/proxy/{port}/pty/{session}/ws",
          "upgrade": true, "via": "relay", "to": "/pty/{session}/ws", "need": "pty", "resume": "since",
          "end": "exit-json", "stream": true}),
    JSON({"name": "terminal", "path": "[/v1]/sandboxes/{sandbox}/proxy/{port}/terminal",
          "upgrade": true, "via": "relay", "to": "/terminal", "need": "pty", "resume": "cell",
          "stream": true}),
    JSON({"name": "opensandbox-proxy", "path": "[/v1]/sandboxes/{sandbox}/proxy/{port}/{rest...}",
          "to": "/{rest...}", "need": "http"}),
    /* clang-format on */
    NULL};

const struct profile profile_opensandbox = {
    .ports = "44772,18080",
    .forms = {"opensandbox"},
    .sources = {"OpenSandbox-Secure-Access"},
    .routes = {[PROFILE_HOSTS] = hosts, [PROFILE_HEADERS] = headers, [PROFILE_PATHS] = paths},
};
