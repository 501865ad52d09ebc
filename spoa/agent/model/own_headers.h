/* SPDX-License-Identifier: MIT */
/*
 * own_headers: headers that the configuration names, as credentials or as addresses, beyond those that haproxy.cfg knows.
 * HAProxy has to remove them, too: it reads $CELLGATE_HEADERS, and sends the agent what that says (request.h:
 * `removed`), so that a request with one that it would hand on to a worker is refused instead.
 */
#ifndef CELLGATE_AGENT_MODEL_OWN_HEADERS_H
#define CELLGATE_AGENT_MODEL_OWN_HEADERS_H

#include "spoa/agent/model/request.h"
#include "spoa/base/bytes/writer.h"
#include "spoa/service/options.h"

/* What is wrong with the name; NULL: nothing. */
const char *own_header_defect(struct slice name);
/* Whether haproxy.cfg removes it of every request anyway. */
bool own_header_is_known(struct slice name);
/* Whether HAProxy said with the request that it removes it, in whatever spelling: the configuration names it. */
bool own_header_is_removed(const struct request *request, struct slice name);
/* Adds the name, unless it is known or there. False when out of memory. */
bool own_headers_add(struct texts *names, struct slice name);
/* $CELLGATE_HEADERS for all of them: the expressions with '|' between them. Appends to what w has. */
void own_headers_pattern(const struct texts *names, struct writer *w);
/* The first of names that the request has, in whatever spelling, and HAProxy leaves where it is; NULL: none. */
const char *own_headers_left(const struct texts *names, const struct request *request);

#endif
