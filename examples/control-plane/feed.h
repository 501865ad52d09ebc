/* SPDX-License-Identifier: MIT */
/*
 * feed: the control plane's changes as server-sent events. The feed keeps the last FEED_KEPT events, so that an agent that reconnects
 * continues after the event it saw last. An event's id begins with the start time of this process. An agent that sends the id of
 * another process's event gets no old events, and looks up all records again, as it does after any connect.
 */
#ifndef CELLGATE_PLANE_FEED_H
#define CELLGATE_PLANE_FEED_H

#include "spoa/base/bytes/buffer.h"

#define FEED_KEPT 1024 /* number of events */

struct feed;

/* Returns NULL if memory is short. */
struct feed *feed_new(void);
/* Frees the feed; NULL is fine. */
void feed_free(struct feed *feed);

/* Adds an event and returns its text for all agents, which is valid until FEED_KEPT more events were added. Returns an absent slice if
 * memory is short. */
struct slice feed_add(struct feed *feed, const char *name, struct slice data);
/* Appends the events after the one with this id, as far as `to` has room; none if the id is unknown or too old. */
void feed_since(const struct feed *feed, struct slice last_id, struct buffer *to);

#endif
