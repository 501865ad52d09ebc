/* SPDX-License-Identifier: MIT */
/*
 * intents: which sandboxes were used, on its way to a control plane that lets them live on: renew
 * intents. Noting is for any thread: most notes find that the sandbox was noted a moment ago and take no lock.
 * What is not taken in time is let go, and so is what finds no room. Sans-I/O.
 */
#ifndef CELLGATE_AGENT_STATE_INTENTS_H
#define CELLGATE_AGENT_STATE_INTENTS_H

#include "spoa/base/bytes/buffer.h"
#include "spoa/base/os/time.h"

enum { INTENTS_KEY_MOST = 512, INTENTS_PATH_MOST = 256 };

struct intent {
    struct slice space, sandbox; /* space: absent or the namespace */
    struct slice path;           /* that the worker gets; left out of the text where it is absent or long */
    int64_t port;                /* of the sandbox; not positive: none was named */
};

struct intents;

/* every: microseconds between two intents of one sandbox. room: intents kept. NULL when out of memory. */
struct intents *intents_new(uint64_t every, size_t room);
void intents_free(struct intents *intents); /* NULL is fine */

/* now: loop_clock. Whether there was nothing to take before, and is now. */
bool intents_note(struct intents *intents, const struct intent *intent, uint64_t now);
/* Appends the oldest that was noted at `since` or later, as JSON, and forgets it and those before. unix_now: milliseconds, at
 * `now`. False: there is none, or no memory. */
bool intents_take(struct intents *intents, uint64_t since, uint64_t now, int64_t unix_now, struct buffer *to);
/* How many found no room, or were not taken in time, since this was asked last. */
uint64_t intents_lost(struct intents *intents);

#endif
