/* SPDX-License-Identifier: MIT */
/*
 * compare: finds, for each stream, the place where the replay in s->replay continues the output that the client had when the relay
 * dialled the replay's worker:
 *   - if the ring was never full, the place is the number of delivered bytes, provided that the bytes before it agree;
 *   - otherwise the place is after the last delivered bytes, if these occur exactly once;
 *   - otherwise there may be a gap, and bytes that may be a repetition are not passed on.
 * A stream whose own place is not found continues where the other stream does, or later if its bytes until then may be a repetition. A
 * ring drops its oldest chunks, so the ring is complete after any chunk that it holds.
 */
#ifndef CELLGATE_RELAY_SCROLLBACK_COMPARE_H
#define CELLGATE_RELAY_SCROLLBACK_COMPARE_H

#include "spoa/relay/scrollback/state.h"

/* Finds the place of each stream by itself. full: the ring may have dropped its oldest chunks. holed: other chunks of the replay may be
 * missing. Returns false if memory is short. */
bool compare_replay(const struct scrollback *s, bool full, bool holed, struct delivered_place places[2])
    __attribute__((warn_unused_result));
/* Returns true if the client may lack some of the session. A stream whose place was not found gets the place of the other stream. */
bool compare_gap(const struct scrollback *s, bool full, struct delivered_place places[2]);
/* Returns true if the replay of both streams begins with all delivered output. */
bool compare_begins(const struct scrollback *s, const struct delivered_place places[2]);

#endif
