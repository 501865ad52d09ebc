/* SPDX-License-Identifier: MIT */
/*
 * mux_frame: the messages of cellgate.mux.v1 (docs/mux.md): one binary message each, of
 *
 *     type: 1 byte    number of the request: 4 bytes, big-endian    payload
 *
 * Pure.
 */
#ifndef CELLGATE_RELAY_MUX_FRAME_H
#define CELLGATE_RELAY_MUX_FRAME_H

#include "spoa/base/bytes/buffer.h"
#include "spoa/proto/http.h"

#define MUX_PROTOCOL "cellgate.mux.v1"

enum mux_frame_type {
    MUX_FRAME_REQUEST = 1,  /* client: JSON, see message.h */
    MUX_FRAME_RESPONSE = 2, /* gate: {"status":200,"headers":{"name":"value","name":["value","value"]}} */
    MUX_FRAME_DATA = 3,     /* both: bytes of the body */
    MUX_FRAME_END = 4,      /* both: of the body: nothing, or {"trailers":{...}} */
    MUX_FRAME_RESET =
        5, /* both: nothing more comes: nothing, or of the gate {"code":"...","message":"...","status":502} */
    MUX_FRAME_CREDIT = 6 /* both: 4 bytes, big-endian: so many more bytes of DATA may be sent */
};

enum {
    MUX_FRAME_HEAD = 5,              /* bytes */
    MUX_FRAME_MOST = 65536,          /* bytes of a payload */
    MUX_FRAME_CREDIT_MOST = 1 << 30, /* bytes that are not sent yet */
    MUX_FRAME_WINDOW = 65536, /* bytes that an answer has without CREDIT where its request names no window */
    MUX_FRAME_UPLOAD = 262144 /* bytes that a request's body has without CREDIT */
};

struct mux_frame {
    unsigned type; /* may be one that is not known */
    uint32_t number;
    struct slice payload;
};

/* False: it is shorter than its head, or the number is 0. */
bool mux_frame_read(struct slice message, struct mux_frame *frame);
/* Of a CREDIT's payload; 0: it is none. */
uint32_t mux_frame_credit(struct slice payload);

/* Each appends one whole WebSocket frame, of a server's, or nothing: false. */
bool mux_frame_put(struct buffer *out, enum mux_frame_type type, uint32_t number, struct slice payload)
    __attribute__((warn_unused_result));
bool mux_frame_put_credit(struct buffer *out, uint32_t number, uint32_t bytes)
    __attribute__((warn_unused_result));
bool mux_frame_put_response(struct buffer *out, uint32_t number, const struct http_head *head)
    __attribute__((warn_unused_result));
/* trailers: of their fields; NULL: none */
bool mux_frame_put_end(struct buffer *out, uint32_t number, const struct http_head *trailers)
    __attribute__((warn_unused_result));
bool mux_frame_put_error(struct buffer *out, uint32_t number, const char *code, const char *message,
                         unsigned status) __attribute__((warn_unused_result));

#endif
