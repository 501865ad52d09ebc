/* SPDX-License-Identifier: MIT */
/* json_write: appends parts of JSON documents to a buffer. Functions return false if the buffer refuses them; part of the text may
 * then have been appended, so the caller drops the document. */
#ifndef CELLGATE_BASE_JSON_JSON_WRITE_H
#define CELLGATE_BASE_JSON_JSON_WRITE_H

#include "spoa/base/bytes/buffer.h"

/* Writes a string with its quotes. Bytes that are not well-formed UTF-8 become U+FFFD, so any bytes give valid JSON. */
bool json_write_text(struct buffer *to, struct slice text) MUST_CHECK;
/* Returns the number of bytes that json_write_text writes. */
size_t json_text_len(struct slice text);
/* Formats like printf: for punctuation, literals and numbers. The result must be shorter than 1 KiB. */
__attribute__((format(printf, 2, 3))) bool json_write(struct buffer *to, const char *format, ...) MUST_CHECK;

#endif
