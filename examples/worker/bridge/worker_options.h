/* SPDX-License-Identifier: MIT */
/*
 * worker_options: what cell-worker was started with: the context of its HTTP server.
 */
#ifndef CELLGATE_WORKER_BRIDGE_WORKER_OPTIONS_H
#define CELLGATE_WORKER_BRIDGE_WORKER_OPTIONS_H

#include "examples/worker/http/web_server.h"

struct worker_options {
    const char *manager; /* path of cell-sandboxd's socket */
    const char *ui;      /* folder of static files; NULL: none */
    const char *token;   /* that X-EXECD-ACCESS-TOKEN must hold on /pty and /command; NULL: any */
    /* OpenComputer's: a replay comes behind its `04`, and a session is looked for behind the 101. */
    bool replay_late;
    /* OpenComputer's: a client that attaches loses what its own worker loses then (attach_loss.h). */
    bool lossy_attach;
};

static inline const struct worker_options *worker_options(struct http_conn *h)
{
    return web_server_context(web_server_of(h));
}

#endif
