/* SPDX-License-Identifier: MIT */
/*
 * resp: the Redis serialization protocol, version 2 (RESP2), as far as a directory needs it. Sans-I/O: bytes in, values out.
 * Everything is bounded: a line has at most RESP_LINE bytes, a string RESP_TEXT, an array RESP_PARTS elements, none of which is an
 * array. A server that exceeds a bound gets its connection closed.
 *
 * This parser exists because hiredis 0.14 ends the process with an assertion if a server sends something that was not asked for, and
 * buffers strings of any length.
 */
#ifndef CELLGATE_PROTO_RESP_H
#define CELLGATE_PROTO_RESP_H

#include "spoa/base/bytes/buffer.h"

enum { RESP_LINE = 1024, RESP_TEXT = 64 * 1024 + 1, RESP_PARTS = 4 };

enum resp_kind { RESP_STATUS, RESP_ERROR, RESP_INTEGER, RESP_STRING, RESP_NIL, RESP_ARRAY };

struct resp_part {
    enum resp_kind kind; /* never RESP_ARRAY */
    struct slice text;   /* the text of a string, a status, an error or an integer; points into the input */
};

/* One value. A value that is no array is its own only part. */
struct resp {
    enum resp_kind kind;
    size_t count; /* number of parts */
    struct resp_part parts[RESP_PARTS];
};

enum resp_result {
    RESP_VALUE, /* a whole value was taken */
    RESP_MORE,  /* more bytes are needed */
    RESP_BROKEN /* the bytes violate the protocol or a bound: close the connection */
};
/* Takes one whole value off *in. After RESP_MORE *in is unchanged: call again with the same bytes and more after them. */
enum resp_result resp_next(struct slice *in, struct resp *value) MUST_CHECK;

/* Appends a command of these words. Returns false, and appends nothing, if the buffer refuses them. */
bool resp_command(struct buffer *to, const struct slice *words, size_t count) MUST_CHECK;

#endif
