/* SPDX-License-Identifier: MIT */
/* template: the path that a worker gets, made of literal text and what a route's patterns captured
 * (pattern.h). */
#ifndef CELLGATE_AGENT_ROUTE_TEMPLATE_H
#define CELLGATE_AGENT_ROUTE_TEMPLATE_H

#include "spoa/agent/route/pattern.h"
#include "spoa/base/bytes/writer.h"

struct template;

/* "/files/{rest...}" (or "{rest}"): begins with '/', every capture is among names. NULL and *why. */
struct template *template_new(struct slice text, const struct capture_names *names, struct fail *why);
void template_free(struct template *template); /* NULL is fine */
struct slice template_text(const struct template *template);
/* An absent capture takes the '/' before it along, unless that is the path's first byte. */
void template_write(const struct template *template, const struct captures *captures, struct writer *w);

#endif
