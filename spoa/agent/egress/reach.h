/* SPDX-License-Identifier: MIT */
/*
 * reach: what kind of place an address is, for somebody inside of a sandbox who wants to go there. An IPv6 address that
 * carries an IPv4 address for a translator or a tunnel is the worse of both.
 *
 * Source: the IANA registries of special-purpose addresses (RFC 6890), RFC 4291 (mapped, compatible), RFC 3056 (6to4),
 * RFC 4380 (Teredo), RFC 5214 (ISATAP), RFC 6052 and RFC 8215 (NAT64).
 */
#ifndef CELLGATE_AGENT_EGRESS_REACH_H
#define CELLGATE_AGENT_EGRESS_REACH_H

#include "spoa/base/text/cidr.h"

enum reach {
    REACH_PUBLIC,
    REACH_PRIVATE,  /* networks of somebody's own: only where a rule says `private` */
    REACH_LOOPBACK, /* this machine: only where the configuration lists the network besides */
    REACH_NEVER     /* metadata services, the link, multicast, what is no address of a host */
};

enum reach reach_of(const struct address *address);

/* The IPv4 addresses that a translator or a tunnel may take an IPv6 address to; returns how many. */
enum { REACH_CARRIED = 3 };
size_t reach_carried(const struct address *address, struct address out[static REACH_CARRIED]);

#endif
