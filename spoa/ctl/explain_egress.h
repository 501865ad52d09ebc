/* SPDX-License-Identifier: MIT */
/* explain_egress: explains requests of a program in a sandbox, for `cellgate explain`. */
#ifndef CELLGATE_CTL_EXPLAIN_EGRESS_H
#define CELLGATE_CTL_EXPLAIN_EGRESS_H

#include "spoa/agent/decision/egress.h"
#include "spoa/base/bytes/texts.h"
#include "spoa/ctl/head_lines.h"

/* Returns true if the request comes from a sandbox: it is a CONNECT, or `sandbox` is given. */
bool explain_egress_wants(struct slice request_line, struct slice sandbox);
/* Builds the request that HAProxy would report to the agent, written into `w`; an https URL becomes a request inside a CONNECT. Returns
 * false and sets *why if the request is invalid or does not fit. */
bool explain_egress_request(const struct head_lines *head, struct writer *w, struct egress_request *request,
                            struct fail *why);
/* Implements decide_view.addresses by the system's resolver; the agent queries name servers itself. */
enum lookup explain_egress_addresses(void *directory, struct slice space, struct slice sandbox,
                                     struct slice host, struct address *addresses, size_t *count);
/* Decides, prints the steps and the verdict, and returns the refusal. `http2` are the names of egress.http2. */
enum refusal explain_egress_print(bool json, const struct texts *http2, const struct decide_view *view,
                                  const struct egress_request *request, struct writer *scratch);

#endif
