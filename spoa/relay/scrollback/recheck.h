/* SPDX-License-Identifier: MIT */
/*
 * recheck: decides by second connections to the worker that serves when its output is complete, and holds its live output until then
 * (spoa/relay/scrollback/settle.h). If no snapshot can be had, or none continues what was delivered, what is held is judged as that of a
 * worker that is asked once (spoa/relay/scrollback/replay.h).
 */
#ifndef CELLGATE_RELAY_SCROLLBACK_RECHECK_H
#define CELLGATE_RELAY_SCROLLBACK_RECHECK_H

#include "spoa/relay/resume/adapter.h"
#include "spoa/relay/scrollback/state.h"

/* The worker's own `04` was handled with an s->settle: live output is held from now on. */
void recheck_hold_live(struct scrollback *s);
/* Holds live output. If there is no room, nothing is held any more, and *held is false. Returns false if memory is short. */
bool recheck_hold_output(struct scrollback *s, struct slice bytes, bool *held, struct adapter_edit *edit)
    __attribute__((warn_unused_result));
/* Holds the exit. Returns false if it is to pass at once. */
bool recheck_hold_exit(struct scrollback *s, const struct adapter_piece *piece)
    __attribute__((warn_unused_result));
/* No further check is made: what is held passes, or is judged as a late replay. Returns false if memory is short. */
bool recheck_give_up(struct scrollback *s, struct adapter_edit *edit) __attribute__((warn_unused_result));
/* The worker was lost before it was settled: the next one replays what was held. */
void recheck_lost(struct scrollback *s);

/* These do what `struct adapter` says of recheck_at, recheck, recheck_piece and recheck_ended. */
uint64_t recheck_due(const struct scrollback *s);
bool recheck_tick(struct scrollback *s, uint64_t now, struct adapter_edit *edit, bool *begin)
    __attribute__((warn_unused_result));
bool recheck_read(struct scrollback *s, const struct adapter_piece *piece)
    __attribute__((warn_unused_result));
void recheck_ended(struct scrollback *s, uint64_t now);

#endif
