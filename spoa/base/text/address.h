/* SPDX-License-Identifier: MIT */
/* address: an IP address, without a port, and its text. */
#ifndef CELLGATE_BASE_TEXT_ADDRESS_H
#define CELLGATE_BASE_TEXT_ADDRESS_H

#include "spoa/base/bytes/writer.h"

struct address { /* IPv4: family 4, first 4 bytes; IPv6: family 6; 0: none */
    uint8_t family;
    uint8_t bytes[16];
};

/* "10.0.0.5", "fd00::5", as inet_ntop; nothing of none. For what is written often, therefore without printf. */
void address_write(struct writer *w, const struct address *address);

#endif
