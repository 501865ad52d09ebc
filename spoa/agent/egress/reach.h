/* SPDX-License-Identifier: MIT */
/*
 * reach: classifies an address as a destination of a program in a sandbox. An IPv6 address that carries an IPv4 address for a translator
 * or a tunnel gets the stricter class of the two.
 *
 * Source: the IANA registries of special-purpose addresses (RFC 6890), RFC 4291 (mapped, compatible), RFC 3056 (6to4), RFC 4380
 * (Teredo), RFC 5214 (ISATAP), RFC 6052 and RFC 8215 (NAT64).
 */
#ifndef CELLGATE_AGENT_EGRESS_REACH_H
#define CELLGATE_AGENT_EGRESS_REACH_H

#include "spoa/base/text/cidr.h"

enum reach {
    REACH_PUBLIC,
    REACH_PRIVATE,  /* private networks: only if a rule says `private` */
    REACH_LOOPBACK, /* this machine: only if the configuration also lists the network */
    REACH_NEVER     /* metadata services, link-local, multicast, and addresses of no host */
};

enum reach reach_of(const struct address *address);

/* Writes the IPv4 addresses that a translator or a tunnel may turn an IPv6 address into, and returns their number. */
enum { REACH_CARRIED = 3 };
size_t reach_carried(const struct address *address, struct address out[static REACH_CARRIED]);

#endif
