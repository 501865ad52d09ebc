/* SPDX-License-Identifier: MIT */
/*
 * replay: decides by one connection alone when a worker's replay has ended, and what its outcome is.
 * A worker that has to fetch the ring first says `04` at once, and replays after it as if that were live; chunks may then be missing.
 * A ring that was not full and does not hold what was delivered is such a late replay. It is collected until it continues what was
 * delivered without a doubt, until it is a full ring, or until no more comes; output waits for that for ten seconds at most. A
 * replay that begins with all that was delivered passes, but the ring may have been full and have dropped some before: that is known
 * only when no more comes, and the outcome is open until then.
 */
#ifndef CELLGATE_RELAY_SCROLLBACK_REPLAY_H
#define CELLGATE_RELAY_SCROLLBACK_REPLAY_H

#include "spoa/relay/resume/adapter.h"
#include "spoa/relay/scrollback/state.h"

/* Each function returns false if memory is short. */

/* The worker has said `04`: its replay passes, or is taken for a late one. */
bool replay_marked(struct scrollback *s, uint64_t now, struct adapter_edit *edit)
    __attribute__((warn_unused_result));
/* More of a late replay was collected, `before` bytes had been: it passes if it can be compared by now. */
bool replay_look(struct scrollback *s, uint64_t before, struct adapter_edit *edit)
    __attribute__((warn_unused_result));
/* The replay passes, whatever its places are. more: it was too long to be collected, and the rest is not compared. */
bool replay_end(struct scrollback *s, bool more, struct adapter_edit *edit)
    __attribute__((warn_unused_result));
/* Nothing more of the replay will come: an open outcome is counted, and what is collected passes. */
bool replay_finish(struct scrollback *s, struct adapter_edit *edit) __attribute__((warn_unused_result));

/* Counts an open outcome: no more of the replay will come, or the worker has said more than a ring holds. */
void replay_confirm(struct scrollback *s, struct adapter_edit *edit);
/* Call when the worker has said some more output while the outcome may be open. */
void replay_heard(struct scrollback *s, struct adapter_edit *edit);

/* When replay_tick is to be called; UINT64_MAX: not at all. */
uint64_t replay_due(const struct scrollback *s);
bool replay_tick(struct scrollback *s, uint64_t now, struct adapter_edit *edit)
    __attribute__((warn_unused_result));

#endif
