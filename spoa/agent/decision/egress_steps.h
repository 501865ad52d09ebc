/* SPDX-License-Identifier: MIT */
/* egress_steps: the state that the steps of an egress decision share (egress.c, egress_http.c). */
#ifndef CELLGATE_AGENT_DECISION_EGRESS_STEPS_H
#define CELLGATE_AGENT_DECISION_EGRESS_STEPS_H

#include "spoa/agent/decision/egress.h"
#include "spoa/agent/egress/target.h"
#include "spoa/agent/token/inside_proof.h"

struct egress {
    const struct decide_view *view;
    const struct egress_request *request;
    struct writer *scratch;
    struct egress_verdict *verdict;
    bool pending;
    struct target target;
    struct slice path; /* of an HTTP request, without its query */
    bool upgrade;      /* it is a WebSocket's handshake */
    bool granted;
    struct grant grant;
    struct slice sandbox, space;
    bool proved; /* inside: a proof says whose the sandbox was when its CONNECT was let through */
    uint8_t owner[INSIDE_PROOF_OWNER];
    struct record record;
    struct egress_policy policy;
    bool matched;
    struct egress_rule rule;
    struct address address; /* the one that is dialled */
};

/* Every step returns true to go on; false: the verdict is complete. */
typedef bool egress_step(struct egress *e);

void egress_tell(const struct egress *e, const char *step, const char *text, struct slice detail);
/* Completes the verdict with a refusal; always false. */
bool egress_deny(struct egress *e, enum refusal refusal, const char *step, const char *why);
/* The same for what the rules do not allow, which passes where they are in the mode `audit`. */
bool egress_refuse_by_rules(struct egress *e, const char *step, const char *why);
/* Host and port of the target into the verdict, which outlives *e. */
void egress_note_target(struct egress *e);
/* "NAMESPACE/NAME", or a name. */
void egress_take_name(struct egress *e, struct slice name);

/* egress_http.c */
egress_step
    egress_http_target; /* what a request says that is no CONNECT: where it wants to go, by the one or the other */
egress_step egress_http_inside;      /* the same of one inside, and whose it is */
egress_step egress_http_rules;       /* what its rule says of it */
egress_step egress_http_credentials; /* what HAProxy puts on it */
/* Nothing of that where the rules would have refused the request. */
void egress_http_withhold(struct egress *e);

#endif
