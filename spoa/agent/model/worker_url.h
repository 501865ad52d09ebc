/* SPDX-License-Identifier: MIT */
/*
 * worker_url: the address of a worker as a record writes it: http://HOST[:PORT], https://HOST[:PORT] or
 * http+unix:/PATH. HOST is a name, an IPv4 or a bracketed IPv6 literal. Nothing may follow (RFC 3986
 * section 3.2, without user information).
 */
#ifndef CELLGATE_AGENT_MODEL_WORKER_URL_H
#define CELLGATE_AGENT_MODEL_WORKER_URL_H

#include "spoa/agent/model/record.h"

/* worker->host points into text; worker->addr is set for
 * a literal. False: *why says what is wrong with it. */
bool worker_url_parse(struct slice text, struct worker *worker, struct fail *why);
/* An IPv4 or IPv6 literal without brackets. */
bool address_parse(struct slice text, struct address *addr);
/* A DNS name: labels of letters, digits, inner hyphens and underscores, 253 bytes at most (RFC 1123
 * section 2.1). */
bool hostname_valid(struct slice text);

#endif
