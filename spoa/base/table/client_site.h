/* SPDX-License-Identifier: MIT */
/*
 * client_site: the owner of a client of whom nothing but the address is known. Agent and relay share places among these owners by the
 * same names. One customer has an address of IPv4, or up to a /48 of IPv6: a /64 is one owner, and those of a /48 are
 * CLIENT_SITE_OWNERS at most.
 */
#ifndef CELLGATE_BASE_TABLE_CLIENT_SITE_H
#define CELLGATE_BASE_TABLE_CLIENT_SITE_H

#include "spoa/base/table/hash.h"
#include "spoa/base/text/address.h"

enum { CLIENT_SITE_OWNERS = 16 };

/* Returns the owner's name as an address: that of IPv4; of IPv6 the /48, with the number of the owner (keyed) in its fourth group and
 * nothing after that. */
struct address client_site(const struct address *source, const struct hash_secret *secret);

#endif
