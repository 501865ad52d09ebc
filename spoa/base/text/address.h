/* SPDX-License-Identifier: MIT */
/* address: an IP address without a port, and its text. */
#ifndef CELLGATE_BASE_TEXT_ADDRESS_H
#define CELLGATE_BASE_TEXT_ADDRESS_H

#include "spoa/base/bytes/writer.h"

struct address {
    uint8_t family;    /* 4 for IPv4, 6 for IPv6, 0 for no address */
    uint8_t bytes[16]; /* in network order; an IPv4 address uses the first four, the others are zero */
};

/* Writes the address as inet_ntop does: "10.0.0.5", "fd00::5". Writes nothing if there is no address. IPv4 addresses are formatted
 * without printf, because each decision writes one. */
void address_write(struct writer *w, const struct address *address);

#endif
