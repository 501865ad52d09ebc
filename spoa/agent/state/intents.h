/* SPDX-License-Identifier: MIT */
/*
 * intents: a queue of recently used sandboxes for a control plane that extends their life ("renew intents"). Any thread may note a use:
 * most calls find that the sandbox was noted a moment ago, and take no lock. Intents that are not taken in time, or find no room, are
 * dropped. Sans-I/O.
 */
#ifndef CELLGATE_AGENT_STATE_INTENTS_H
#define CELLGATE_AGENT_STATE_INTENTS_H

#include "spoa/base/bytes/buffer.h"
#include "spoa/base/os/time.h"

enum { INTENTS_KEY_MOST = 512, INTENTS_PATH_MOST = 256 };

struct intent {
    struct slice space, sandbox; /* `space` is absent, or the namespace */
    struct slice path;           /* path at the worker; omitted in the text if it is absent or too long */
    int64_t port;                /* port of the sandbox; 0 or negative if none was named */
};

struct intents;

/* `every` is the shortest time between two intents of one sandbox, in µs; `room` is the number of intents that the queue holds. Returns
 * NULL if memory is short. */
struct intents *intents_new(uint64_t every, size_t room);
void intents_free(struct intents *intents); /* intents may be NULL */

/* Notes a use at `now` (loop_clock). Returns whether the queue was empty before, and is not now. */
bool intents_note(struct intents *intents, const struct intent *intent, uint64_t now);
/* Appends the oldest intent noted at `since` or later, as JSON, and removes it and all older ones. unix_now is the time at `now`, in
 * milliseconds. Returns false if there is none, or memory is short. */
bool intents_take(struct intents *intents, uint64_t since, uint64_t now, int64_t unix_now, struct buffer *to);
/* Returns the number of intents dropped since the last call. */
uint64_t intents_lost(struct intents *intents);

#endif
