/* SPDX-License-Identifier: MIT */
/*
 * manager_client: the worker's end of a conversation with the session manager (manager_protocol.h), for one
 * request or one client.
 */
#ifndef CELLGATE_WORKER_BRIDGE_MANAGER_CLIENT_H
#define CELLGATE_WORKER_BRIDGE_MANAGER_CLIENT_H

#include "examples/worker/http/web_server.h"
#include "examples/worker/protocol/manager_protocol.h"
#include "spoa/net/stream.h"

struct manager_client {
    /* set by the user; room may be NULL. `message` may close it. `lost`: the session manager has ended the
     * conversation. */
    void (*message)(void *user, const struct manager_message *m);
    void (*room)(void *user); /* what was put has been sent */
    void (*lost)(void *user);
    void *user;

    /* private */
    struct web_server *server;
    struct stream stream;
    bool paused;
};

/* Connects and says HELLO; false when the session manager is not there. */
bool manager_client_open(struct manager_client *client, struct web_server *server, const char *path);
/* What was put is still sent, for as long as the session manager takes it and the HTTP server is there. A zeroed or
 * closed client may be closed. */
void manager_client_close(struct manager_client *client);
/* On a closed client, or when memory is short, the message is lost and the conversation with it. A session manager
 * that has gone gets nothing any more, but is `lost` only when all that it has said is read. */
void manager_client_put(struct manager_client *client, const struct manager_message *m);
/* INPUT in as many messages as it takes. */
void manager_client_put_input(struct manager_client *client, struct slice bytes);
bool manager_client_is_full(const struct manager_client *client);      /* stop putting INPUT until `room` */
void manager_client_pause(struct manager_client *client, bool paused); /* no messages until it is over */

#endif
