/* SPDX-License-Identifier: MIT */
/* explain_egress: the part of `cellgate explain` about a CONNECT of a program in a sandbox. */
#ifndef CELLGATE_CTL_EXPLAIN_EGRESS_H
#define CELLGATE_CTL_EXPLAIN_EGRESS_H

#include "spoa/agent/decision/egress.h"
#include "spoa/ctl/head_lines.h"

/* Whether the request line is of a CONNECT. */
bool explain_egress_wants(struct slice request_line);
/* Its target, and the header lines as HAProxy would tell them, written into w. False and *why: they do not fit. */
bool explain_egress_request(const struct head_lines *head, struct writer *w, struct egress_request *request, struct fail *why);
/* As decide_view.addresses, by the resolver of the system; the agent asks name servers itself. */
enum lookup explain_egress_addresses(void *directory, struct slice space, struct slice sandbox,
                                     struct slice host, struct address *addresses, size_t *count);
/* Decides, prints the steps and the verdict, and tells the refusal. */
enum refusal explain_egress_print(bool json, const struct decide_view *view, const struct egress_request *request,
                                  struct writer *scratch);

#endif
