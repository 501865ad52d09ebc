/* SPDX-License-Identifier: MIT */
/*
 * base64url: RFC 4648 section 5 without padding, as RFC 7515 section 2 wants it. Decoding is strict: a
 * foreign character (also '=', blanks and line ends), an impossible length or a last character with bits that
 * are not part of a byte is an error, so each byte string has exactly one spelling.
 */
#ifndef CELLGATE_BASE_TEXT_BASE64URL_H
#define CELLGATE_BASE_TEXT_BASE64URL_H

#include "spoa/base/bytes/writer.h"

/* How many characters that many bytes become. */
static inline size_t base64url_length(size_t bytes)
{
    return bytes / 3 * 4 + (bytes % 3 ? bytes % 3 + 1 : 0);
}

/* False when text is not base64url or its bytes do not fit into w; w is then as it was, but for w->full. */
bool base64url_decode(struct slice text, struct writer *w) __attribute__((warn_unused_result));
void base64url_encode(struct slice bytes, struct writer *w);

#endif
