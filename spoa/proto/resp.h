/* SPDX-License-Identifier: MIT */
/*
 * resp: what Redis speaks (the Redis serialization protocol, version 2), as much of it as a directory needs.
 * Sans-I/O: bytes in, values out. Everything is bounded: a line has RESP_LINE bytes, a text RESP_TEXT, an
 * array RESP_PARTS parts that are no arrays; what is longer breaks the connection.
 *
 * A parser of our own, because hiredis 0.14 ends the process by an assertion when a server says what it was
 * not asked, and takes texts of any length into memory.
 */
#ifndef CELLGATE_PROTO_RESP_H
#define CELLGATE_PROTO_RESP_H

#include "spoa/base/bytes/buffer.h"

enum { RESP_LINE = 1024, RESP_TEXT = 64 * 1024 + 1, RESP_PARTS = 4 };

enum resp_kind { RESP_STATUS, RESP_ERROR, RESP_INTEGER, RESP_STRING, RESP_NIL, RESP_ARRAY };

struct resp_part {
    enum resp_kind kind; /* never RESP_ARRAY */
    struct slice text;   /* of a string, a status, an error; points into the input */
};

/* One value; a single one has itself as its only part. */
struct resp {
    enum resp_kind kind;
    size_t count;
    struct resp_part parts[RESP_PARTS];
};

enum resp_result { RESP_VALUE, RESP_MORE, RESP_BROKEN };
/* Takes one whole value off *in; with RESP_MORE *in stays as it is: come again with more behind it. */
enum resp_result resp_next(struct slice *in, struct resp *value);

/* Appends a command of these words. False when they do not fit; then nothing was appended. */
bool resp_command(struct buffer *to, const struct slice *words, size_t count)
    __attribute__((warn_unused_result));

#endif
