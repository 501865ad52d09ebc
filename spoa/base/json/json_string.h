/* SPDX-License-Identifier: MIT */
/*
 * json_string: the content of a JSON string, between its quotes (RFC 8259 section 7). Text that is still escaped is called raw.
 */
#ifndef CELLGATE_BASE_JSON_JSON_STRING_H
#define CELLGATE_BASE_JSON_JSON_STRING_H

#include "spoa/base/bytes/slice.h"

/* Checks raw text that begins after the opening quote. Returns NULL if it is valid up to a closing quote, which is then s.at[*len].
 * Otherwise returns the error, a constant text, whose place is s.at[*len]. Refuses raw control characters, invalid UTF-8, \u0000
 * and lone surrogates. */
const char *json_string_check(struct slice s, size_t *len) MUST_CHECK;

/* Returns true for a byte that stands for itself and needs no further check: ASCII without controls, quotes and backslashes. */
static inline bool json_string_is_plain(uint8_t c)
{
    return c >= 0x20 && c < 0x80 && c != '"' && c != '\\';
}

/* Returns the number of plain bytes at the front. */
size_t json_string_plain(struct slice s);
/* Returns the length of the well-formed UTF-8 character (Unicode 15, table 3-7) at the front of s, or 0 if there is none. The first
 * byte must be 0x80 or above. */
size_t json_string_utf8(struct slice s);

/* ---- for raw text that json_string_check has accepted ---- */
/* Writes the unescaped bytes, at most raw.len, and returns their number. */
size_t json_string_unescape(struct slice raw, uint8_t *out);
/* Compares two raw texts by their unescaped bytes, in the order of memcmp; a prefix comes first. */
int json_string_compare(struct slice a, struct slice b);

#endif
