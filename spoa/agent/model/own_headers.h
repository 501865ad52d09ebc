/* SPDX-License-Identifier: MIT */
/*
 * own_headers: headers that the configuration uses for credentials or addresses and that haproxy.cfg does not know. HAProxy must remove
 * them before a worker sees them: it reads their names from $CELLGATE_HEADERS and sends the agent that value (request.h: `removed`). If
 * a request has such a header and HAProxy would not remove it, the agent refuses the request.
 */
#ifndef CELLGATE_AGENT_MODEL_OWN_HEADERS_H
#define CELLGATE_AGENT_MODEL_OWN_HEADERS_H

#include "spoa/agent/model/request.h"
#include "spoa/base/bytes/writer.h"
#include "spoa/service/options.h"

/* Returns the defect of the name, or NULL if it is valid. */
const char *own_header_defect(struct slice name);
/* Returns whether haproxy.cfg removes the header of every request anyway. */
bool own_header_is_known(struct slice name);
/* Returns whether HAProxy said with the request that it removes this header, with '-' or '_' in its name. */
bool own_header_is_removed(const struct request *request, struct slice name);
/* Adds the name, unless haproxy.cfg knows it or the list has it. Returns false if memory is short. */
bool own_headers_add(struct texts *names, struct slice name);
/* Appends the value of $CELLGATE_HEADERS to w: an expression for each name, separated by '|'. */
void own_headers_pattern(const struct texts *names, struct writer *w);
/* Returns the first of the names that the request has, with '-' or '_', and that HAProxy does not remove; NULL if there is none. */
const char *own_headers_left(const struct texts *names, const struct request *request);

#endif
