/* SPDX-License-Identifier: MIT */
/*
 * base64url: RFC 4648 section 5 without padding, as RFC 7515 section 2 uses it for tokens. Decoding is strict, so each byte string
 * has exactly one encoding: a character outside the alphabet (also '=', blanks and line ends), a length that no byte string has,
 * or a last character with bits beyond the last byte is an error.
 */
#ifndef CELLGATE_BASE_TEXT_BASE64URL_H
#define CELLGATE_BASE_TEXT_BASE64URL_H

#include "spoa/base/bytes/writer.h"

/* Returns the number of characters that encode this number of bytes. */
static inline size_t base64url_length(size_t bytes)
{
    return bytes / 3 * 4 + (bytes % 3 ? bytes % 3 + 1 : 0);
}

/* Appends the decoded bytes to w. Returns false if text is not base64url or the bytes do not fit; the content of w is then unchanged,
 * and w->full is set if room was short. */
bool base64url_decode(struct slice text, struct writer *w) MUST_CHECK;
/* Appends the encoded characters to w; w->full is set if they do not fit. */
void base64url_encode(struct slice bytes, struct writer *w);

#endif
