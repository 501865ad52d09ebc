/* SPDX-License-Identifier: MIT */
/*
 * audit: one line of the log for each decision that lets somebody in: who (the token's sub, jti, kid, org), to what (sandbox,
 * route, need, worker), from where. Never a credential. Values of clients cannot end a line or begin a field, and each is
 * cut at AUDIT_VALUE bytes. Lines have a queue of their own, so that they drop none of the others; what did not fit is
 * counted.
 */
#ifndef CELLGATE_AGENT_DECISION_THREAD_AUDIT_H
#define CELLGATE_AGENT_DECISION_THREAD_AUDIT_H

#include "spoa/agent/decision/egress.h"
#include "spoa/agent/model/verdict.h"
#include "spoa/service/log.h"

enum { AUDIT_VALUE = 256 };

/* Whether the verdict lets somebody in: direct, relay or redirect, without a refusal. */
bool audit_wanted(const struct verdict *verdict, int which /* enum settings_audit */);
void audit_write(struct log *log, const struct verdict *verdict);
/* A line for each decision about a CONNECT, whatever it was. */
void audit_write_egress(struct log *log, const struct egress_request *request,
                        const struct egress_verdict *verdict);

#endif
