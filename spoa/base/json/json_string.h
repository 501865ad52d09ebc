/* SPDX-License-Identifier: MIT */
/*
 * json_string: what stands between the quotes of a JSON string (RFC 8259 section 7). "Raw" is the text still
 * escaped.
 */
#ifndef CELLGATE_BASE_JSON_JSON_STRING_H
#define CELLGATE_BASE_JSON_JSON_STRING_H

#include "spoa/base/bytes/slice.h"

/* s begins behind the opening quote. NULL if all is well up to a closing
 * quote, which is then s.at[*len]; else what is wrong at s.at[*len]. Refuses
 * raw control characters, invalid UTF-8, \u0000 and lone surrogates. */
const char *json_string_check(struct slice s, size_t *len);

/* How many bytes at the front need neither a look nor an
 * escape: ASCII but controls, quotes and backslashes. */
size_t json_string_plain(struct slice s);
/* The length of the well-formed character (Unicode 15, table 3-7) at the front of s, which begins with a byte
 * from 0x80 on; 0 if there is none. */
size_t json_string_utf8(struct slice s);

/* ---- for raw text that passed the check ---- */
/* Writes at most raw.len bytes and gives their number. */
size_t json_string_unescape(struct slice raw, uint8_t *out);
/* By unescaped bytes, in memcmp's order; a prefix comes first. */
int json_string_compare(struct slice a, struct slice b);

#endif
