/* SPDX-License-Identifier: MIT */
/*
 * answer: between SPOP and the decision: the arguments of `cell-route` become a struct request, a struct
 * verdict becomes variables `txn.cell.*`. Both follow the tables in request.h and verdict.h.
 */
#ifndef CELLGATE_AGENT_DECISION_THREAD_ANSWER_H
#define CELLGATE_AGENT_DECISION_THREAD_ANSWER_H

#include "spoa/agent/decision/egress.h"
#include "spoa/agent/model/request.h"
#include "spoa/agent/model/verdict.h"
#include "spoa/spop/spop.h"

/* Slices of *request point into the frame. Arguments that are not in the
 * table are ignored; those that are not there, or NULL, are absent or zero.
 * False: one has another type than it should, so the SPOE file is not ours. */
bool request_from_args(struct spop_args args, struct request *request);

/* Sets a variable for everything that is present, and `verdict` last, as HAProxy silently drops what follows
 * an action that it cannot read. What does not fit the frame is because the request is too large: deny,
 * request_too_large; only if that does not fit either is actions->out->full left set. Whether the verdict itself was
 * written. */
bool answer_write(const struct verdict *verdict, struct spop_actions *actions);

/* The same of `cell-egress` and, `inside`, `cell-egress-request`, whose variables are `txn.egress.*`. */
bool egress_request_from_args(struct spop_args args, bool inside, struct egress_request *request);
void egress_answer_write(const struct egress_verdict *verdict, struct spop_actions *actions);

/* A message that is not ours, or that cannot be understood, is answered too: deny, agent_unavailable. */
void answer_unavailable(struct spop_actions *actions);

#endif
