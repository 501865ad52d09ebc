/* SPDX-License-Identifier: MIT */
/* pass: hands collected output, the outcome of a resume and a held exit code to the client, through a `struct adapter_edit`. */
#ifndef CELLGATE_RELAY_SCROLLBACK_PASS_H
#define CELLGATE_RELAY_SCROLLBACK_PASS_H

#include "spoa/relay/resume/adapter.h"
#include "spoa/relay/scrollback/state.h"

/* Passes the replay from the places on, and sets the phase to PASSING. A place is a position in the replay, found by comparison with
 * the output that was delivered when the relay dialled the worker. Returns false if memory is short. */
bool pass_replay(struct scrollback *s, struct delivered_place places[2], struct adapter_edit *edit)
    __attribute__((warn_unused_result));
/* Appends to edit->insert the held live output without the first at[i] bytes of each stream, and sets the phase to PASSING. Returns
 * false if memory is short. */
bool pass_held(struct scrollback *s, const uint64_t at[2], struct adapter_edit *edit)
    __attribute__((warn_unused_result));
/* Reports the outcome of the resume; while the worker is not settled, only notes a gap for that report. */
void pass_outcome(struct scrollback *s, bool gap, struct adapter_edit *edit);
/* Passes the exit code that `settle` holds, unless the client has received one. Returns false if memory is short. */
bool pass_exit(struct scrollback *s, const struct settle *settle, struct adapter_edit *edit)
    __attribute__((warn_unused_result));

#endif
