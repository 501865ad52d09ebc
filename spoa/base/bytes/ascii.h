/* SPDX-License-Identifier: MIT */
/*
 * ascii: classes of ASCII characters. Unlike those of the C library they do not depend on the locale, and every byte is a valid argument:
 * protocols define their words in ASCII, whatever language the machine is set to.
 */
#ifndef CELLGATE_BASE_BYTES_ASCII_H
#define CELLGATE_BASE_BYTES_ASCII_H

#include <stdbool.h>
#include <stdint.h>

/* Returns true for '0' to '9'. */
static inline bool ascii_is_digit(uint8_t c)
{
    return c >= '0' && c <= '9';
}

/* Returns the lower-case letter for an upper-case one, and any other byte unchanged. */
static inline uint8_t ascii_lower(uint8_t c)
{
    return c >= 'A' && c <= 'Z' ? (uint8_t)(c | 0x20) : c;
}

static inline bool ascii_is_alphanumeric(uint8_t c)
{
    uint8_t lower = ascii_lower(c);
    return ascii_is_digit(c) || (lower >= 'a' && lower <= 'z');
}

/* Returns the value of a hexadecimal digit in either case, 0 to 15, or -1 if c is none. */
static inline int ascii_hex_value(uint8_t c)
{
    uint8_t lower = ascii_lower(c);
    if (ascii_is_digit(c))
        return c - '0';
    return lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : -1;
}

#endif
