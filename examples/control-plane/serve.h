/* SPDX-License-Identifier: MIT */
/*
 * serve: the HTTP interface of the control plane for agents: GET /v1/sandboxes[/ID], POST /v1/sandboxes/ID/wake, and the events of
 * GET /v1/events. docs/directory.md specifies it.
 */
#ifndef CELLGATE_PLANE_SERVE_H
#define CELLGATE_PLANE_SERVE_H

#include "examples/control-plane/feed.h"
#include "examples/control-plane/plane.h"
#include "examples/worker/http/web_server.h"

/* The context of the HTTP server. */
struct serve {
    struct plane *plane;
    struct feed *feed;
    struct follower *followers;
    struct loop_timer comment; /* sends a comment to all followers, as a sign of life */
};

extern const struct web_server_route plane_routes[];

/* Starts to send changes of the plane to followers. */
void serve_open(struct serve *s, struct loop *loop);
void serve_close(struct serve *s);
/* These revoke tokens like plane_revoke and plane_revoke_token, and notify the agents that follow now or later. They return false with
 * *why, and change nothing, if that fails. */
bool serve_revoke(struct serve *s, int64_t not_before, struct fail *why);
bool serve_revoke_token(struct serve *s, struct slice jti, int64_t until, struct fail *why);

#endif
