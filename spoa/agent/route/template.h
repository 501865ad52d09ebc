/* SPDX-License-Identifier: MIT */
/* template: the path for a worker, made of literal text and the captures of a route's patterns (pattern.h). */
#ifndef CELLGATE_AGENT_ROUTE_TEMPLATE_H
#define CELLGATE_AGENT_ROUTE_TEMPLATE_H

#include "spoa/agent/route/pattern.h"
#include "spoa/base/bytes/writer.h"

struct template;

/* Compiles "/files/{rest...}" (or "{rest}"). Returns NULL and *why unless the text begins with '/' and `names` has every capture. */
struct template *template_new(struct slice text, const struct capture_names *names, struct fail *why);
void template_free(struct template *template); /* template may be NULL */
struct slice template_text(const struct template *template);
/* Writes the path. An absent capture also drops the '/' before it, unless that is the path's first byte. */
void template_write(const struct template *template, const struct captures *captures, struct writer *w);

#endif
