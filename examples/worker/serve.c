/* SPDX-License-Identifier: MIT */
#include "examples/worker/serve.h"

const struct serve_options *serve_options(struct http_conn *h)
{
    return web_server_context(web_server_of(h));
}

const struct web_server_route serve_routes[] = {
    {"POST", "/sandboxes/*/pty", serve_opencomputer_pty_create},
    {"GET", "/sandboxes/*/pty/*", serve_opencomputer_pty},
    {"DELETE", "/sandboxes/*/pty/*", serve_opencomputer_pty_delete},
    {"POST", "/sandboxes/*/pty/*/resize", serve_opencomputer_pty_resize},
    {"POST", "/sandboxes/*/exec", serve_opencomputer_exec_create},
    {"GET", "/sandboxes/*/exec/*", serve_opencomputer_exec},
    {"POST", "/sandboxes/*/exec/*/kill", serve_opencomputer_exec_kill},
    {"POST", "/pty", serve_opensandbox_create},
    {"GET", "/pty/*", serve_opensandbox_query},
    {"DELETE", "/pty/*", serve_opensandbox_delete},
    {"GET", "/pty/*/ws", serve_opensandbox_ws},
    {"POST", "/command", serve_opensandbox_command},
    {"DELETE", "/command", serve_opensandbox_command_interrupt},
    {"GET", "/command/*", serve_opensandbox_command_query},
    {"DELETE", "/command/*", serve_opensandbox_command_delete},
    {"POST", "/command/*/signal", serve_opensandbox_command_signal},
    {"GET", "/command/status/*", serve_opensandbox_command_query},
    {"GET", "/terminal", serve_terminal},
    {"GET", "/ws-echo", serve_ws_echo},
    {"", "/echo", serve_echo},
    {"GET", "/bytes", serve_bytes},
    {"HEAD", "/bytes", serve_bytes},
    {"GET", "/events", serve_events},
    {"PUT", "/upload", serve_upload},
    {"POST", "/upload", serve_upload},
    {"GET", "/headers", serve_headers},
    {"GET", "/health", serve_health},
    {"GET", "/healthz", serve_health},
    {"GET", "/readyz", serve_ready},
    {"HEAD", "/health", serve_health},
    {"HEAD", "/healthz", serve_health},
    {"HEAD", "/readyz", serve_ready},
    {"GET", "/ui/", serve_ui},
    {"HEAD", "/ui/", serve_ui},
    {"GET", "/ui/*", serve_ui},
    {"HEAD", "/ui/*", serve_ui},
    {"", NULL, NULL},
};
