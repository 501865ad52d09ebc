/* SPDX-License-Identifier: MIT */
/* cidr: networks as people write them, "10.0.0.0/8", "fc00::/7", a single address without "/". */
#ifndef CELLGATE_BASE_TEXT_CIDR_H
#define CELLGATE_BASE_TEXT_CIDR_H

#include "spoa/base/bytes/slice.h"
#include "spoa/base/text/address.h"

struct cidr {
    struct address network;
    uint8_t bits;
};

/* False for anything else, bits set behind the prefix ("10.0.0.1/8") included: that is mostly a slip. */
bool cidr_parse(struct slice text, struct cidr *cidr);
/* An IPv4 address in IPv6 clothes (::ffff:10.0.0.1) counts as the IPv4 address that it reaches; so
 * does a network of such. */
bool cidr_contains(const struct cidr *cidr, const struct address *address);
/* That IPv4 address; any other as it is. */
struct address cidr_unmapped(const struct address *address);
/* Whether an address belongs to a cloud's metadata service, or to the link, where these are found: 169.254.0.0/16,
 * fe80::/10, fd00:ec2::254 and their like, also where IPv6 carries the IPv4 address: mapped, compatible, 6to4, NAT64. */
bool cidr_is_metadata(const struct address *address);
/* Whether no address of the network could be anything else. */
bool cidr_within_metadata(const struct cidr *cidr);
bool cidr_any_contains(const struct cidr *cidrs, size_t count, const struct address *address);

#endif
