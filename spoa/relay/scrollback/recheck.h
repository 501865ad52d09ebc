/* SPDX-License-Identifier: MIT */
/*
 * recheck: finds out by second connections to the serving worker when its output is complete, and holds the worker's live output until
 * then (spoa/relay/scrollback/settle.h). If no snapshot arrives, or none continues the delivered output, the held output is judged like
 * that of a worker with a single connection (spoa/relay/scrollback/replay.h).
 */
#ifndef CELLGATE_RELAY_SCROLLBACK_RECHECK_H
#define CELLGATE_RELAY_SCROLLBACK_RECHECK_H

#include "spoa/relay/resume/adapter.h"
#include "spoa/relay/scrollback/state.h"

/* Holds live output from now on. Call after the worker's own `04` was handled; s->settle must exist. */
void recheck_hold_live(struct scrollback *s);
/* Holds a piece of live output. If there is no room, all held output is passed, and *held becomes false. Returns false if memory is
 * short. */
bool recheck_hold_output(struct scrollback *s, struct slice bytes, bool *held, struct adapter_edit *edit)
    __attribute__((warn_unused_result));
/* Holds the exit code. Returns false if the caller must pass it at once. */
bool recheck_hold_exit(struct scrollback *s, const struct adapter_piece *piece)
    __attribute__((warn_unused_result));
/* Ends the checks: passes the held output, or judges it as a late replay. Returns false if memory is short. */
bool recheck_give_up(struct scrollback *s, struct adapter_edit *edit) __attribute__((warn_unused_result));
/* Discards the checks of a worker that was lost before it was settled. The next worker replays the held output. */
void recheck_lost(struct scrollback *s);

/* These implement recheck_at, recheck, recheck_piece and recheck_ended of `struct adapter` (spoa/relay/resume/adapter.h). */
uint64_t recheck_due(const struct scrollback *s);
bool recheck_tick(struct scrollback *s, uint64_t now, struct adapter_edit *edit, bool *begin)
    __attribute__((warn_unused_result));
bool recheck_read(struct scrollback *s, const struct adapter_piece *piece)
    __attribute__((warn_unused_result));
void recheck_ended(struct scrollback *s, uint64_t now);

#endif
