/* SPDX-License-Identifier: MIT */
/* pass: hands collected output, the outcome of a resume and a held exit to the client, through a `struct adapter_edit`. */
#ifndef CELLGATE_RELAY_SCROLLBACK_PASS_H
#define CELLGATE_RELAY_SCROLLBACK_PASS_H

#include "spoa/relay/resume/adapter.h"
#include "spoa/relay/scrollback/state.h"

/* Passes the replay from the places on; the places count from what was delivered when its worker was asked. The phase becomes
 * PASSING. Returns false if memory is short. */
bool pass_replay(struct scrollback *s, struct delivered_place places[2], struct adapter_edit *edit)
    __attribute__((warn_unused_result));
/* Passes the held live output from the places on, after what edit->insert has already. The phase becomes PASSING. Returns false if
 * memory is short. */
bool pass_held(struct scrollback *s, const uint64_t at[2], struct adapter_edit *edit)
    __attribute__((warn_unused_result));
/* Counts the outcome, or notes a gap for the time when the worker is settled. */
void pass_outcome(struct scrollback *s, bool gap, struct adapter_edit *edit);
/* Passes the exit that `settle` holds, if there is one and the client has none. Returns false if memory is short. */
bool pass_exit(struct scrollback *s, const struct settle *settle, struct adapter_edit *edit)
    __attribute__((warn_unused_result));

#endif
