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
    struct slice path; /* path of an HTTP request, without its query */
    bool upgrade;      /* the request is a WebSocket handshake */
    bool granted;
    struct grant grant;
    struct slice sandbox, space;
    bool proved; /* inside: a proof names the sandbox's owner at the time of the CONNECT */
    uint8_t owner[INSIDE_PROOF_OWNER];
    struct record record;
    struct egress_policy policy;
    bool matched;
    struct egress_rule rule;
    struct address address; /* the address to dial */
};

/* A step returns true to continue, or false if the verdict is complete. */
typedef bool egress_step(struct egress *e);

void egress_tell(const struct egress *e, const char *step, const char *text, struct slice detail);
/* Completes the verdict with a refusal; always returns false. */
bool egress_deny(struct egress *e, enum refusal refusal, const char *step, const char *why);
/* Like egress_deny, for a request that the rules do not allow; lets it through if the rules are in audit mode. */
bool egress_refuse_by_rules(struct egress *e, const char *step, const char *why);
/* Writes host and port of the target into the verdict, which outlives *e. */
void egress_note_target(struct egress *e);
/* Takes a name, "NAMESPACE/NAME" or "NAME", as the sandbox that asks. */
void egress_take_name(struct egress *e, struct slice name);

/* egress_http.c */
egress_step egress_http_target; /* finds the target of a request other than CONNECT, in its URL or Host */
egress_step egress_http_inside; /* finds the target and the sandbox of a request in an inspected connection */
egress_step egress_http_rules;  /* checks the request by its rule */
egress_step egress_http_credentials; /* adds the credentials that HAProxy sets */
/* Removes these credentials if the rules would have refused the request. */
void egress_http_withhold(struct egress *e);

#endif
