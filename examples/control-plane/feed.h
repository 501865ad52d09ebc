/* SPDX-License-Identifier: MIT */
/*
 * feed: the control plane's changes as server-sent events. The last FEED_KEPT are kept, so that who comes again
 * goes on behind the one it saw last. An id begins with the time this process began: who asks for what another
 * process sent gets none of it, and looks everything up again, as it does whenever it connects.
 */
#ifndef CELLGATE_PLANE_FEED_H
#define CELLGATE_PLANE_FEED_H

#include "spoa/base/bytes/buffer.h"

#define FEED_KEPT 1024

struct feed;

struct feed *feed_new(void); /* NULL when out of memory */
void feed_free(struct feed *feed);

/* An event as it goes to everybody: valid until FEED_KEPT more. Absent when out of memory. */
struct slice feed_add(struct feed *feed, const char *name, struct slice data);
/* Appends what came behind the event of that id; nothing if it is not known, and less when it is too much. */
void feed_since(const struct feed *feed, struct slice last_id, struct buffer *to);

#endif
