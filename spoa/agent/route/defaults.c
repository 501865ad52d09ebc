/* SPDX-License-Identifier: MIT */
/*
 * The built-in routes: clients of six systems work unchanged (docs/routing.md). Those of the systems that are
 * on keep this order. Host forms come first: where a domain belongs to a form, no path that an application in
 * a sandbox may have is taken for one of ours. Then headers, which a client sends on purpose, those of
 * OpenSandbox before the path form on its bare domain; then paths, the more exact before the others.
 */
#include "spoa/agent/route/table.h"

#define INGRESS_LABELS \
    "[\"{sandbox}-{port}-{expires}-{signature}.{domain...}\", \"{sandbox}-{port}.{domain...}\"]"

/* One endpoint for all sandboxes, as e2b's SDK addresses it. */
#define E2B_HEADERS \
    "\"headers\":{\"E2b-Sandbox-Id\":\"{sandbox}\", \"E2b-Sandbox-Port\":\"{port?49983}\"}," \
    " \"host_header\":\"keep\", \"cookies\":\"keep\", \"auth\":\"keep\""

const struct route_default route_defaults[] = {
    {SYSTEM_OPENCOMPUTER,
     "{\"name\":\"opencomputer-preview\", \"host\":\"{sandbox}-p{port}.<opencomputer>\", \"need\":\"http\"}"},
    {SYSTEM_OPENSANDBOX, "{\"name\":\"opensandbox-ingress\", \"need\":\"http\","
                         " \"host\":[\"{sandbox}-{port}-{expires}-{signature}.<opensandbox>\", "
                         "\"{sandbox}-{port}.<opensandbox>\"]}"},
    {SYSTEM_SANDBOX_SDK,
     "{\"name\":\"sandbox-sdk-preview\", \"host\":\"{port}-{sandbox}-{token}.<sandbox-sdk>\", "
     "\"need\":\"http\","
     " \"ports\":\"1024-2999,3001-65535\"}"},
    {SYSTEM_DAYTONA,
     "{\"name\":\"daytona-preview\", \"host\":\"{port}-{sandbox}.<daytona>\", \"need\":\"http\"}"},
    {SYSTEM_DAYTONA,
     "{\"name\":\"daytona-signed-preview\", \"need\":\"http\","
     " \"host\":[\"{port}-{token}.<daytona-signed>\", \"{port}-{sandbox}.<daytona-signed>\"]}"},
    {SYSTEM_E2B, "{\"name\":\"e2b-envd\", \"host\":\"{port}-{sandbox}.<e2b>\", \"ports\":\"49983\", \"need\":\"exec\"}"},
    {SYSTEM_E2B, "{\"name\":\"e2b-preview\", \"host\":\"{port}-{sandbox}.<e2b>\", \"need\":\"http\"}"},
    {SYSTEM_OPENSANDBOX, "{\"name\":\"opensandbox-ingress-to\", \"need\":\"http\", \"host_header\":\"keep\", "
                         "\"cookies\":\"keep\", \"auth\":\"keep\","
                         " \"headers\":{\"OpenSandbox-Ingress-To\":" INGRESS_LABELS "}}"},
    {SYSTEM_OPENSANDBOX,
     "{\"name\":\"opensandbox-ingress-header\", \"need\":\"http\", \"host_header\":\"keep\", "
     "\"cookies\":\"keep\", \"auth\":\"keep\","
     " \"headers\":{\"OPEN-SANDBOX-INGRESS\":" INGRESS_LABELS "}}"},
    {SYSTEM_OPENSANDBOX,
     "{\"name\":\"opensandbox-ingress-path\", \"host\":\"<opensandbox>\", \"need\":\"http\", "
     "\"to\":\"/{rest...}\","
     " \"path\":[\"/{sandbox}/{port}/{expires}/{signature}/{rest...}\", \"/{sandbox}/{port}/{rest...}\"]}"},
    {SYSTEM_E2B, "{\"name\":\"e2b-envd-header\", \"ports\":\"49983\", \"need\":\"exec\", " E2B_HEADERS "}"},
    {SYSTEM_E2B, "{\"name\":\"e2b-header\", \"need\":\"http\", " E2B_HEADERS "}"},
    {SYSTEM_AGENT_SANDBOX,
     "{\"name\":\"agent-sandbox\", \"need\":\"http\","
     " \"headers\":{\"X-Sandbox-ID\":\"{sandbox}\", \"X-Sandbox-Namespace\":\"{namespace?default}\","
     "  \"X-Sandbox-Port\":\"{port?8888}\"}, \"strip\":[\"Origin\"]}"},
    {SYSTEM_OPENCOMPUTER,
     "{\"name\":\"opencomputer-pty\", \"path\":\"/api/sandboxes/{sandbox}/pty/{session}\", \"upgrade\":true,"
     " \"via\":\"relay\", \"to\":\"/sandboxes/{sandbox}/pty/{session}\", \"need\":\"pty\", \"stream\":true,"
     " \"keepalive\":\"empty-frame\"}"},
    {SYSTEM_OPENCOMPUTER,
     "{\"name\":\"opencomputer-exec\", \"path\":\"/api/sandboxes/{sandbox}/exec/{session}\", "
     "\"upgrade\":true,"
     " \"via\":\"relay\", \"to\":\"/sandboxes/{sandbox}/exec/{session}\", \"need\":\"exec\","
     " \"resume\":\"scrollback\", \"end\":\"exit-frame\", \"keepalive\":\"empty-frame\"}"},
    {SYSTEM_OPENCOMPUTER,
     "{\"name\":\"opencomputer-agent\", \"path\":\"/api/sandboxes/{sandbox}/agent/{session}\", "
     "\"upgrade\":true,"
     " \"via\":\"relay\", \"to\":\"/sandboxes/{sandbox}/agent/{session}\", \"need\":\"agent\","
     " \"resume\":\"scrollback\", \"end\":\"exit-frame\", \"keepalive\":\"empty-frame\"}"},
    {SYSTEM_OPENCOMPUTER,
     "{\"name\":\"opencomputer-pty-api\", \"path\":\"/api/sandboxes/{sandbox}/pty/{rest...}\", "
     "\"upgrade\":false,"
     " \"to\":\"/sandboxes/{sandbox}/pty/{rest...}\", \"need\":\"pty\"}"},
    {SYSTEM_OPENCOMPUTER,
     "{\"name\":\"opencomputer-exec-api\", \"path\":\"/api/sandboxes/{sandbox}/exec/{rest...}\", "
     "\"upgrade\":false,"
     " \"to\":\"/sandboxes/{sandbox}/exec/{rest...}\", \"need\":\"exec\"}"},
    {SYSTEM_OPENCOMPUTER,
     "{\"name\":\"opencomputer-agent-api\", \"path\":\"/api/sandboxes/{sandbox}/agent/{rest...}\", "
     "\"upgrade\":false,"
     " \"to\":\"/sandboxes/{sandbox}/agent/{rest...}\", \"need\":\"agent\"}"},
    {SYSTEM_OPENCOMPUTER,
     "{\"name\":\"opencomputer-api\", \"path\":\"/api/sandboxes/{sandbox}/{rest...}\", \"upgrade\":false,"
     " \"to\":\"/sandboxes/{sandbox}/{rest...}\", \"need\":\"http\"}"},
    {SYSTEM_OPENSANDBOX,
     "{\"name\":\"opensandbox-pty\", \"path\":\"[/v1]/sandboxes/{sandbox}/proxy/{port}/pty/{session}/ws\","
     " \"upgrade\":true, \"via\":\"relay\", \"to\":\"/pty/{session}/ws\", \"need\":\"pty\","
     " \"resume\":\"since\", \"end\":\"exit-json\", \"stream\":true}"},
    {SYSTEM_OPENSANDBOX,
     "{\"name\":\"terminal\", \"path\":\"[/v1]/sandboxes/{sandbox}/proxy/{port}/terminal\", "
     "\"upgrade\":true,"
     " \"via\":\"relay\", \"to\":\"/terminal\", \"need\":\"pty\", \"resume\":\"cell\", \"stream\":true}"},
    {SYSTEM_OPENSANDBOX,
     "{\"name\":\"opensandbox-proxy\", \"path\":\"[/v1]/sandboxes/{sandbox}/proxy/{port}/{rest...}\","
     " \"to\":\"/{rest...}\", \"need\":\"http\"}"},
    {SYSTEM_DAYTONA, "{\"name\":\"daytona-toolbox-pty\", \"path\":\"/toolbox/{sandbox}/process/pty/{rest...}\", \"port\":2280,"
                     " \"to\":\"/process/pty/{rest...}\", \"need\":\"pty\"}"},
    {SYSTEM_DAYTONA, "{\"name\":\"daytona-toolbox\", \"path\":\"/toolbox/{sandbox}/{rest...}\", \"port\":2280,"
                     " \"to\":\"/{rest...}\", \"need\":\"exec\"}"},
};
const size_t route_defaults_count = sizeof route_defaults / sizeof *route_defaults;
_Static_assert(sizeof route_defaults / sizeof *route_defaults <= ROUTE_DEFAULTS_MAX, "too many built-in routes");
