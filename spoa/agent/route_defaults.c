/* SPDX-License-Identifier: MIT */
/*
 * The built-in routes: clients of five systems work unchanged (docs/routing.md). Host forms come first: where
 * a domain belongs to a form, no path that an application in a sandbox may have is taken for one of ours.
 * Then headers, which a client sends on purpose, those of OpenSandbox before the path form on its bare domain;
 * then paths, the more exact before the others.
 */
#include "spoa/agent/route.h"

#define INGRESS_LABELS \
    "[\"{sandbox}-{port}-{expires}-{signature}.{domain...}\", \"{sandbox}-{port}.{domain...}\"]"

const char route_defaults[] =
    "[\n"
    "{\"name\":\"opencomputer-preview\", \"host\":\"{sandbox}-p{port}.<opencomputer>\", \"need\":\"http\"},\n"
    "{\"name\":\"opensandbox-ingress\", \"need\":\"http\",\n"
    " \"host\":[\"{sandbox}-{port}-{expires}-{signature}.<opensandbox>\", "
    "\"{sandbox}-{port}.<opensandbox>\"]},\n"
    "{\"name\":\"sandbox-sdk-preview\", \"host\":\"{port}-{sandbox}-{token}.<sandbox-sdk>\", "
    "\"need\":\"http\",\n"
    " \"ports\":\"1024-2999,3001-65535\"},\n"
    "{\"name\":\"daytona-preview\", \"host\":\"{port}-{sandbox}.<daytona>\", \"need\":\"http\"},\n"
    "{\"name\":\"daytona-signed-preview\", \"need\":\"http\",\n"
    " \"host\":[\"{port}-{token}.<daytona-signed>\", \"{port}-{sandbox}.<daytona-signed>\"]},\n"
    "{\"name\":\"e2b-preview\", \"host\":\"{port}-{sandbox}.<e2b>\", \"need\":\"http\"},\n"

    "{\"name\":\"opensandbox-ingress-to\", \"need\":\"http\", \"host_header\":\"keep\", "
    "\"cookies\":\"keep\",\n"
    " \"headers\":{\"OpenSandbox-Ingress-To\":" INGRESS_LABELS "}},\n"
    "{\"name\":\"opensandbox-ingress-header\", \"need\":\"http\", \"host_header\":\"keep\", "
    "\"cookies\":\"keep\",\n"
    " \"headers\":{\"OPEN-SANDBOX-INGRESS\":" INGRESS_LABELS "}},\n"
    "{\"name\":\"opensandbox-ingress-path\", \"host\":\"<opensandbox>\", \"need\":\"http\", "
    "\"to\":\"/{rest...}\",\n"
    " \"path\":[\"/{sandbox}/{port}/{expires}/{signature}/{rest...}\", \"/{sandbox}/{port}/{rest...}\"]},\n"
    "{\"name\":\"agent-sandbox\", \"need\":\"http\",\n"
    " \"headers\":{\"X-Sandbox-ID\":\"{sandbox}\", \"X-Sandbox-Namespace\":\"{namespace?default}\",\n"
    "  \"X-Sandbox-Port\":\"{port?8888}\"}, \"strip\":[\"Origin\"]},\n"

    "{\"name\":\"opencomputer-pty\", \"path\":\"/api/sandboxes/{sandbox}/pty/{session}\", \"upgrade\":true,\n"
    " \"via\":\"relay\", \"to\":\"/sandboxes/{sandbox}/pty/{session}\", \"need\":\"pty\", \"stream\":true,\n"
    " \"keepalive\":\"empty-frame\"},\n"
    "{\"name\":\"opencomputer-exec\", \"path\":\"/api/sandboxes/{sandbox}/exec/{session}\", "
    "\"upgrade\":true,\n"
    " \"via\":\"relay\", \"to\":\"/sandboxes/{sandbox}/exec/{session}\", \"need\":\"exec\",\n"
    " \"resume\":\"scrollback\", \"end\":\"exit-frame\", \"keepalive\":\"empty-frame\"},\n"
    "{\"name\":\"opencomputer-agent\", \"path\":\"/api/sandboxes/{sandbox}/agent/{session}\", "
    "\"upgrade\":true,\n"
    " \"via\":\"relay\", \"to\":\"/sandboxes/{sandbox}/agent/{session}\", \"need\":\"agent\",\n"
    " \"resume\":\"scrollback\", \"end\":\"exit-frame\", \"keepalive\":\"empty-frame\"},\n"
    "{\"name\":\"opencomputer-pty-api\", \"path\":\"/api/sandboxes/{sandbox}/pty/{rest...}\", "
    "\"upgrade\":false,\n"
    " \"to\":\"/sandboxes/{sandbox}/pty/{rest...}\", \"need\":\"pty\"},\n"
    "{\"name\":\"opencomputer-exec-api\", \"path\":\"/api/sandboxes/{sandbox}/exec/{rest...}\", "
    "\"upgrade\":false,\n"
    " \"to\":\"/sandboxes/{sandbox}/exec/{rest...}\", \"need\":\"exec\"},\n"
    "{\"name\":\"opencomputer-agent-api\", \"path\":\"/api/sandboxes/{sandbox}/agent/{rest...}\", "
    "\"upgrade\":false,\n"
    " \"to\":\"/sandboxes/{sandbox}/agent/{rest...}\", \"need\":\"agent\"},\n"
    "{\"name\":\"opencomputer-api\", \"path\":\"/api/sandboxes/{sandbox}/{rest...}\", \"upgrade\":false,\n"
    " \"to\":\"/sandboxes/{sandbox}/{rest...}\", \"need\":\"http\"},\n"
    "{\"name\":\"opensandbox-pty\", \"path\":\"[/v1]/sandboxes/{sandbox}/proxy/{port}/pty/{session}/ws\",\n"
    " \"upgrade\":true, \"via\":\"relay\", \"to\":\"/pty/{session}/ws\", \"need\":\"pty\",\n"
    " \"resume\":\"since\", \"end\":\"exit-json\", \"stream\":true},\n"
    "{\"name\":\"terminal\", \"path\":\"[/v1]/sandboxes/{sandbox}/proxy/{port}/terminal\", "
    "\"upgrade\":true,\n"
    " \"via\":\"relay\", \"to\":\"/terminal\", \"need\":\"pty\", \"resume\":\"cell\", \"stream\":true},\n"
    "{\"name\":\"opensandbox-proxy\", \"path\":\"[/v1]/sandboxes/{sandbox}/proxy/{port}/{rest...}\",\n"
    " \"to\":\"/{rest...}\", \"need\":\"http\"}\n"
    "]\n";
