/* SPDX-License-Identifier: MIT */
/*
 * compare: finds where the replay in s->replay continues what the client had when its worker was asked, for each stream:
 *   - if the ring was never full, the count says it, provided that the bytes before that place agree;
 *   - otherwise the last bytes delivered say it, if they occur exactly once;
 *   - otherwise there may be a gap, and what can be a repetition is not passed on.
 * A stream without a place of its own continues where the other one does, or later if it may have said the rest: a ring drops its
 * oldest chunks, so everything after a chunk that it holds is complete.
 */
#ifndef CELLGATE_RELAY_SCROLLBACK_COMPARE_H
#define CELLGATE_RELAY_SCROLLBACK_COMPARE_H

#include "spoa/relay/scrollback/state.h"

/* Finds the place of each stream by itself. holed: chunks of the replay may be missing. Returns false if memory is short. */
bool compare_replay(const struct scrollback *s, bool full, bool holed, struct delivered_place places[2])
    __attribute__((warn_unused_result));
/* Returns true if the client may lack some of the session. A stream without a place then gets one by the other stream's. */
bool compare_gap(const struct scrollback *s, bool full, struct delivered_place places[2]);
/* Returns true if the replay of both streams begins with all that was delivered. */
bool compare_begins(const struct scrollback *s, const struct delivered_place places[2]);

#endif
