/* SPDX-License-Identifier: MIT */
/*
 * serve: everything that cell-worker serves, one maker of an exchange each; serve.c has the table.
 */
#ifndef CELLGATE_WORKER_SYSTEMS_SERVE_H
#define CELLGATE_WORKER_SYSTEMS_SERVE_H

#include "examples/worker/http/web_server.h"

extern const struct web_server_route serve_routes[];

/* opencomputer.c: the worker's routes of OpenComputer */
struct http_exchange *serve_opencomputer_pty_create(struct http_conn *h, const struct slice *parts);
struct http_exchange *serve_opencomputer_pty_resize(struct http_conn *h, const struct slice *parts);
struct http_exchange *serve_opencomputer_pty_delete(struct http_conn *h, const struct slice *parts);
struct http_exchange *serve_opencomputer_pty(struct http_conn *h, const struct slice *parts);
struct http_exchange *serve_opencomputer_exec_create(struct http_conn *h, const struct slice *parts);
struct http_exchange *serve_opencomputer_exec_kill(struct http_conn *h, const struct slice *parts);
struct http_exchange *serve_opencomputer_exec(struct http_conn *h, const struct slice *parts);

/* opensandbox.c: the terminals of OpenSandbox's execd */
struct http_exchange *serve_opensandbox_create(struct http_conn *h, const struct slice *parts);
struct http_exchange *serve_opensandbox_query(struct http_conn *h, const struct slice *parts);
struct http_exchange *serve_opensandbox_delete(struct http_conn *h, const struct slice *parts);
struct http_exchange *serve_opensandbox_ws(struct http_conn *h, const struct slice *parts);

/* command.c: its commands */
struct http_exchange *serve_opensandbox_command(struct http_conn *h, const struct slice *parts);
struct http_exchange *serve_opensandbox_command_query(struct http_conn *h, const struct slice *parts);
struct http_exchange *serve_opensandbox_command_signal(struct http_conn *h, const struct slice *parts);
struct http_exchange *serve_opensandbox_command_delete(struct http_conn *h, const struct slice *parts);
struct http_exchange *serve_opensandbox_command_interrupt(struct http_conn *h, const struct slice *parts);

struct http_exchange *serve_terminal(struct http_conn *h, const struct slice *parts);
struct http_exchange *serve_ws_echo(struct http_conn *h, const struct slice *parts);

/* pages.c, streams.c, ui.c: plain HTTP */
struct http_exchange *serve_echo(struct http_conn *h, const struct slice *parts);
struct http_exchange *serve_headers(struct http_conn *h, const struct slice *parts);
struct http_exchange *serve_health(struct http_conn *h, const struct slice *parts);
struct http_exchange *serve_ready(struct http_conn *h, const struct slice *parts);
struct http_exchange *serve_bytes(struct http_conn *h, const struct slice *parts);
struct http_exchange *serve_events(struct http_conn *h, const struct slice *parts);
struct http_exchange *serve_upload(struct http_conn *h, const struct slice *parts);
struct http_exchange *serve_ui(struct http_conn *h, const struct slice *parts);

#endif
