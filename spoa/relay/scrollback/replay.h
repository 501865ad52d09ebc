/* SPDX-License-Identifier: MIT */
/*
 * replay: decides from a single connection when a worker's replay has ended, and what the outcome of the resume is.
 * A worker that must first fetch the ring sends `04` at once, and replays the ring after `04` as if it were live output; chunks may then
 * be missing. This is a late replay. The relay recognises it by a replay before `04` that is shorter than a full ring and does not hold
 * the delivered output. A late replay is collected until it certainly continues the delivered output, until it is as long as a full
 * ring, or until the worker falls silent; the client waits for ten seconds at most. A replay that begins with all delivered output
 * passes, but the ring may have been full and have dropped chunks before that. The relay only knows when the worker falls silent, and
 * the outcome is open until then.
 */
#ifndef CELLGATE_RELAY_SCROLLBACK_REPLAY_H
#define CELLGATE_RELAY_SCROLLBACK_REPLAY_H

#include "spoa/relay/resume/adapter.h"
#include "spoa/relay/scrollback/state.h"

/* Each function returns false if memory is short. */

/* Handles the worker's `04`: passes its replay, or expects a late one. */
bool replay_marked(struct scrollback *s, uint64_t now, struct adapter_edit *edit)
    __attribute__((warn_unused_result));
/* Handles growth of a late replay beyond `before` bytes: passes the replay if the comparison is possible now. */
bool replay_look(struct scrollback *s, uint64_t before, struct adapter_edit *edit)
    __attribute__((warn_unused_result));
/* Passes the replay, with a gap if the comparison is not certain. more: the replay is too long to be collected, and its rest passes
 * without a comparison. */
bool replay_end(struct scrollback *s, bool more, struct adapter_edit *edit)
    __attribute__((warn_unused_result));
/* Handles the end of the replay: passes the collected output, and counts an open outcome. */
bool replay_finish(struct scrollback *s, struct adapter_edit *edit) __attribute__((warn_unused_result));

/* Counts an open outcome. Call when no more of the replay will come, or when the worker has sent more than a ring holds. */
void replay_confirm(struct scrollback *s, struct adapter_edit *edit);
/* Call after each piece of live output: counts an open outcome if the worker has sent more than a ring holds. */
void replay_heard(struct scrollback *s, struct adapter_edit *edit);

/* Returns the time for the next replay_tick, in µs; UINT64_MAX if there is none. */
uint64_t replay_due(const struct scrollback *s);
/* Handles a worker that stayed silent until replay_due. Does nothing before that time. */
bool replay_tick(struct scrollback *s, uint64_t now, struct adapter_edit *edit)
    __attribute__((warn_unused_result));

#endif
