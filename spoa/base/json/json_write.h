/* SPDX-License-Identifier: MIT */
/* json_write: parts of JSON documents, appended to a buffer. Each is false when the buffer is full. */
#ifndef CELLGATE_BASE_JSON_JSON_WRITE_H
#define CELLGATE_BASE_JSON_JSON_WRITE_H

#include "spoa/base/bytes/buffer.h"

/* A string in its quotes. Bytes that are not well-formed
 * UTF-8 become U+FFFD, so any bytes give valid JSON. */
bool json_write_text(struct buffer *to, struct slice text) __attribute__((warn_unused_result));
/* Returns the number of bytes that json_write_text writes. */
size_t json_text_len(struct slice text);
/* printf into the buffer, up to 1 KiB at a time: for punctuation, literals and numbers. */
__attribute__((format(printf, 2, 3), warn_unused_result)) bool json_write(struct buffer *to,
                                                                          const char *format, ...);

#endif
