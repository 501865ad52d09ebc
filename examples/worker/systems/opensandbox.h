/* SPDX-License-Identifier: MIT */
/* opensandbox: what the terminals and the commands of OpenSandbox's execd have in common. */
#ifndef CELLGATE_WORKER_SYSTEMS_OPENSANDBOX_H
#define CELLGATE_WORKER_SYSTEMS_OPENSANDBOX_H

#include "examples/worker/protocol/manager_protocol.h"
#include "spoa/net/http_server.h"

#define OPENSANDBOX_SCOPE "execd" /* of its sessions, whichever way they were made */

#define OPENSANDBOX_STALL_MS 10000 /* of a terminal: their write limit */

/* An argv: the shell, with the command if that is not empty. */
void opensandbox_put_shell(struct writer *argv, struct slice command);
void opensandbox_refuse(struct http_exchange *x, enum manager_code code, const char *text);
/* The exchange that was made, or one that refuses a caller without the token; NULL stays NULL. */
struct http_exchange *opensandbox_guard(struct http_conn *h, struct http_exchange *x);
int opensandbox_signal(struct slice name); /* 0: none of theirs */

#endif
