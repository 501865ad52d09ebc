/* SPDX-License-Identifier: MIT */
/*
 * cidr: IP networks as people write them: "10.0.0.0/8", "fc00::/7", or a single address without "/". An IPv4-mapped IPv6 address
 * (::ffff:10.0.0.1, RFC 4291 section 2.5.5.2) reaches an IPv4 host, so all functions here treat it as that IPv4 address:
 * otherwise a client could pass an IPv4 rule by spelling its address as IPv6.
 */
#ifndef CELLGATE_BASE_TEXT_CIDR_H
#define CELLGATE_BASE_TEXT_CIDR_H

#include "spoa/base/bytes/slice.h"
#include "spoa/base/text/address.h"

struct cidr {
    struct address network; /* the bits after the prefix are zero */
    uint8_t bits;           /* length of the prefix: at most 32 for IPv4, 128 for IPv6 */
};

/* Reads a network. Returns false for any other text, also for bits after the prefix ("10.0.0.1/8"), which are mostly a typing error.
 * A network of IPv4-mapped addresses becomes the IPv4 network. */
bool cidr_parse(struct slice text, struct cidr *cidr) MUST_CHECK;
/* Returns true if the network contains the address. */
bool cidr_contains(const struct cidr *cidr, const struct address *address);
/* Returns true if one of the networks contains the address. */
bool cidr_any_contains(const struct cidr *cidrs, size_t count, const struct address *address);
/* Returns the IPv4 address of an IPv4-mapped one, and any other address unchanged. */
struct address cidr_unmapped(const struct address *address);
/* Returns true if the address may answer as the metadata service of a cloud, which hands out credentials: link-local addresses
 * (169.254.0.0/16, fe80::/10), the fixed addresses of several clouds, and IPv6 addresses that carry such an IPv4 address for a
 * translator or a tunnel (mapped, compatible, 6to4, NAT64). */
bool cidr_is_metadata(const struct address *address);
/* Returns true if the whole network lies within the addresses for which cidr_is_metadata is true. */
bool cidr_within_metadata(const struct cidr *cidr);

#endif
