/* SPDX-License-Identifier: MIT */
/*
 * serve: what agents ask of the control plane: GET /v1/sandboxes[/ID], POST /v1/sandboxes/ID/wake and the events of
 * GET /v1/events. docs/directory.md has the contract.
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
    struct loop_timer comment; /* so that a follower knows that we are there */
};

extern const struct web_server_route plane_routes[];

/* From now on changes of the plane go to followers. */
void serve_open(struct serve *s, struct loop *loop);
void serve_close(struct serve *s);
/* Revokes tokens issued before that time, for agents that follow now or later. False with *why: nothing has changed. */
bool serve_revoke(struct serve *s, int64_t not_before, struct fail *why);
bool serve_revoke_token(struct serve *s, struct slice jti, int64_t until, struct fail *why);

#endif
