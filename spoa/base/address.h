/* SPDX-License-Identifier: MIT */
#ifndef CELLGATE_BASE_ADDRESS_H
#define CELLGATE_BASE_ADDRESS_H

#include <stdint.h>

struct address { /* IPv4: family 4, first 4 bytes; IPv6: family 6; 0: none */
    uint8_t family;
    uint8_t bytes[16];
};

#endif
