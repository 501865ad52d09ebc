/* SPDX-License-Identifier: MIT */
/* explain_egress: the part of `cellgate explain` about requests of a program in a sandbox. */
#ifndef CELLGATE_CTL_EXPLAIN_EGRESS_H
#define CELLGATE_CTL_EXPLAIN_EGRESS_H

#include "spoa/agent/decision/egress.h"
#include "spoa/base/bytes/texts.h"
#include "spoa/ctl/head_lines.h"

/* Whether the request is one of a sandbox: a CONNECT, or whatever it is if who asks is told. */
bool explain_egress_wants(struct slice request_line, struct slice sandbox);
/* What HAProxy would tell of it, written into w; of an https URL, as it would come inside of a CONNECT. False and *why: it is no
 * request, or does not fit. */
bool explain_egress_request(const struct head_lines *head, struct writer *w, struct egress_request *request,
                            struct fail *why);
/* As decide_view.addresses, by the resolver of the system; the agent asks name servers itself. */
enum lookup explain_egress_addresses(void *directory, struct slice space, struct slice sandbox,
                                     struct slice host, struct address *addresses, size_t *count);
/* Decides, prints the steps and the verdict, and tells the refusal. http2: the names of egress.http2. */
enum refusal explain_egress_print(bool json, const struct texts *http2, const struct decide_view *view,
                                  const struct egress_request *request, struct writer *scratch);

#endif
