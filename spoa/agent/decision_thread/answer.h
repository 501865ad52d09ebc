/* SPDX-License-Identifier: MIT */
/*
 * answer: converts between SPOP and the decision: the arguments of `cell-route` to a struct request, and a struct verdict to variables
 * `txn.cell.*`. Both follow the tables in request.h and verdict.h.
 */
#ifndef CELLGATE_AGENT_DECISION_THREAD_ANSWER_H
#define CELLGATE_AGENT_DECISION_THREAD_ANSWER_H

#include "spoa/agent/decision/egress.h"
#include "spoa/agent/model/request.h"
#include "spoa/agent/model/verdict.h"
#include "spoa/spop/spop.h"

/* Reads the arguments; slices of *request point into the frame. Arguments that are not in the table are ignored; missing ones, or NULL,
 * are absent or zero. Returns false if one has a wrong type, which means that the SPOE file is not cellgate's. */
bool request_from_args(struct spop_args args, struct request *request);

/* Sets a variable for each present field, and `verdict` last, because HAProxy silently drops everything after an action that it cannot
 * read. If the answer does not fit into the frame, the request is too large, and the answer is deny, request_too_large. If even that
 * does not fit, actions->out->full stays set. Returns whether the verdict itself was written. */
bool answer_write(const struct verdict *verdict, struct spop_actions *actions);

/* The same functions for `cell-egress` and, with `inside`, `cell-egress-request`, whose variables are `txn.egress.*`. */
bool egress_request_from_args(struct spop_args args, bool inside, struct egress_request *request);
void egress_answer_write(const struct egress_verdict *verdict, struct spop_actions *actions);

/* Answers a message that is unknown or malformed: deny, agent_unavailable. */
void answer_unavailable(struct spop_actions *actions);

#endif
