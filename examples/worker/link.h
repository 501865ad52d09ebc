/* SPDX-License-Identifier: MIT */
/*
 * link: the worker's end of a conversation with the keeper (keeper_protocol.h), for one request or one
 * client.
 */
#ifndef CELLGATE_WORKER_LINK_H
#define CELLGATE_WORKER_LINK_H

#include "examples/worker/front.h"
#include "examples/worker/keeper_protocol.h"
#include "spoa/net/stream.h"

struct link {
    /* set by the user; room may be NULL. `message` may close the link. `lost`: the keeper has ended the
     * conversation. */
    void (*message)(void *user, const struct keeper_message *m);
    void (*room)(void *user); /* what was put has been sent */
    void (*lost)(void *user);
    void *user;

    /* private */
    struct front *front;
    struct stream stream;
    bool paused;
};

/* Connects and says HELLO; false when the keeper is not there. */
bool link_open(struct link *l, struct front *front, const char *path);
/* What was put is still sent, for as long as the keeper takes it and the front is there. A zeroed or closed link may be
 * closed. */
void link_close(struct link *l);
bool link_is_open(const struct link *l);
/* On a closed link, or when memory is short, the message is lost and the link with it. A keeper that has gone gets
 * nothing any more, but is `lost` only when all that it has said is read. */
void link_put(struct link *l, const struct keeper_message *m);
/* INPUT in as many messages as it takes. */
void link_put_input(struct link *l, struct slice bytes);
bool link_is_full(const struct link *l);      /* stop putting INPUT until `room` */
void link_pause(struct link *l, bool paused); /* no messages until it is over */

#endif
