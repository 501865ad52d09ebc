/* SPDX-License-Identifier: MIT */
/*
 * worker_url: parses the address of a worker in a record: http://HOST[:PORT], https://HOST[:PORT] or http+unix:/PATH. HOST is a name, an
 * IPv4 literal or an IPv6 literal in brackets. No user information and no path is allowed (RFC 3986 section 3.2).
 */
#ifndef CELLGATE_AGENT_MODEL_WORKER_URL_H
#define CELLGATE_AGENT_MODEL_WORKER_URL_H

#include "spoa/agent/model/record.h"

/* Parses an address. worker->host points into text; worker->addr is set if the host is a literal. Returns false and *why if the address
 * is invalid. */
bool worker_url_parse(struct slice text, struct worker *worker, struct fail *why);
/* Parses an IPv4 or IPv6 literal without brackets. */
bool address_parse(struct slice text, struct address *addr);
/* Returns whether the text is a DNS name: labels of letters, digits, inner hyphens and underscores, at most 253 bytes (RFC 1123 section
 * 2.1). */
bool hostname_valid(struct slice text);

#endif
