/* SPDX-License-Identifier: MIT */
/*
 * mux_frame: reads and writes the messages of cellgate.mux.v1 (docs/mux.md). Each is one binary message:
 *
 *     type: 1 byte    number of the request: 4 bytes, big-endian    payload
 *
 * The functions are pure.
 */
#ifndef CELLGATE_RELAY_MUX_FRAME_H
#define CELLGATE_RELAY_MUX_FRAME_H

#include "spoa/base/bytes/buffer.h"
#include "spoa/proto/http.h"

#define MUX_PROTOCOL "cellgate.mux.v1"

enum mux_frame_type {
    MUX_FRAME_REQUEST = 1, /* sent by the client: JSON, see message.h */
    /* sent by the gate: {"status":200,"headers":{"name":"value","name":["value","value"]}} */
    MUX_FRAME_RESPONSE = 2,
    MUX_FRAME_DATA = 3, /* sent by both sides: bytes of the body */
    MUX_FRAME_END = 4,  /* sent by both sides to end the body; empty, or {"trailers":{...}} */
    /* sent by both sides to abort; empty, or by the gate {"code":"...","message":"...","status":502} */
    MUX_FRAME_RESET = 5,
    /* sent by both sides: the number of bytes of DATA that the peer may send in addition, 4 bytes, big-endian */
    MUX_FRAME_CREDIT = 6
};

enum {
    MUX_FRAME_HEAD = 5,              /* bytes */
    MUX_FRAME_MOST = 65536,          /* largest payload in bytes */
    MUX_FRAME_CREDIT_MOST = 1 << 30, /* largest credit in bytes */
    MUX_FRAME_WINDOW = 65536, /* initial credit of an answer in bytes, if its request names no window */
    MUX_FRAME_UPLOAD = 262144 /* initial credit of a request's body in bytes */
};

struct mux_frame {
    unsigned type; /* enum mux_frame_type, or an unknown type */
    uint32_t number;
    struct slice payload;
};

/* Splits a message. Returns false if the message is shorter than a head, or the number is 0. */
bool mux_frame_read(struct slice message, struct mux_frame *frame);
/* Returns the number in the payload of a CREDIT, or 0 if the payload is malformed. */
uint32_t mux_frame_credit(struct slice payload);

/* Each function appends one whole WebSocket frame of a server. Returns false and appends nothing if there is no room. */
bool mux_frame_put(struct buffer *out, enum mux_frame_type type, uint32_t number, struct slice payload)
    __attribute__((warn_unused_result));
bool mux_frame_put_credit(struct buffer *out, uint32_t number, uint32_t bytes)
    __attribute__((warn_unused_result));
bool mux_frame_put_response(struct buffer *out, uint32_t number, const struct http_head *head)
    __attribute__((warn_unused_result));
/* Appends an END with the fields of `trailers`, which is NULL if there are none. */
bool mux_frame_put_end(struct buffer *out, uint32_t number, const struct http_head *trailers)
    __attribute__((warn_unused_result));
bool mux_frame_put_error(struct buffer *out, uint32_t number, const char *code, const char *message,
                         unsigned status) __attribute__((warn_unused_result));

#endif
