/* SPDX-License-Identifier: MIT */
/*
 * audit: writes a line of the log for each decision that admits a client: the caller (the token's sub, jti, kid, org), the target
 * (sandbox, route, need, worker), and the source address. It never writes a credential. Values of clients cannot end a line or begin a
 * field, and each is cut at AUDIT_VALUE bytes. The lines have a queue of their own, so that they cause no other lines to be dropped;
 * dropped ones are counted.
 */
#ifndef CELLGATE_AGENT_DECISION_THREAD_AUDIT_H
#define CELLGATE_AGENT_DECISION_THREAD_AUDIT_H

#include "spoa/agent/decision/egress.h"
#include "spoa/agent/model/verdict.h"
#include "spoa/service/log.h"

enum { AUDIT_VALUE = 256 };

/* Returns whether the verdict admits the client: direct, relay or redirect, without a refusal. */
bool audit_wanted(const struct verdict *verdict, int which /* enum settings_audit */);
void audit_write(struct log *log, const struct verdict *verdict);
/* Writes a line for each decision about a CONNECT, whatever its result. */
void audit_write_egress(struct log *log, const struct egress_request *request,
                        const struct egress_verdict *verdict);

#endif
