/* SPDX-License-Identifier: MIT */
/*
 * directory_dns: the directory kind `dns`: no store of records at all. A sandbox is where a name that is made
 * of its id and namespace says, as agent-sandbox's router falls back to. A thread of its own asks (dns.h).
 *
 * Id and namespace must each be one label of a name: an id "a.kube-system" must not lead somewhere else.
 */
#ifndef CELLGATE_AGENT_DIRECTORY_DNS_H
#define CELLGATE_AGENT_DIRECTORY_DNS_H

#include "spoa/agent/directory/kind.h"

extern const struct directory_kind directory_kind_dns;

#endif
