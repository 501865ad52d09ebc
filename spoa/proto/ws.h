/* SPDX-License-Identifier: MIT */
/*
 * ws: WebSocket frames (RFC 6455 section 5), read and written without collecting payload. The decoder refuses
 * whatever the sender's role forbids; UTF-8 is the endpoints' business.
 *
 * Data frames are reported as a head and pieces of payload, which are slices of the input as they came over the
 * wire, masked if the frame is. Control frames are reported once, whole and unmasked.
 */
#ifndef CELLGATE_PROTO_WS_H
#define CELLGATE_PROTO_WS_H

#include "spoa/base/bytes/image.h"
#include "spoa/base/bytes/slice.h"

#define WS_HEAD_MAX          14  /* bytes of the longest frame head */
#define WS_CONTROL_MAX       125 /* bytes of payload in a control frame */
#define WS_CONTROL_FRAME_MAX (2 + 4 + WS_CONTROL_MAX)
#define WS_NO_CODE           1005 /* stands for a Close without a code; never on the wire */

enum ws_opcode {
    WS_CONTINUATION = 0,
    WS_TEXT = 1,
    WS_BINARY = 2,
    WS_CLOSE = 8,
    WS_PING = 9,
    WS_PONG = 10,
};

struct ws_frame {
    enum ws_opcode opcode;
    bool fin;
    bool masked;
    uint8_t mask[4];
    uint64_t length; /* of the payload */
};

enum ws_sender {
    WS_CLIENT, /* must mask */
    WS_SERVER, /* must not */
};

enum ws_event {
    WS_MORE,    /* nothing to tell before more bytes come */
    WS_HEAD,    /* a data frame begins: decoder.frame */
    WS_PIECE,   /* some of its payload; an empty frame has one empty piece */
    WS_CONTROL, /* a Ping, Pong or Close is there: decoder.frame, its payload in decoder.control */
    WS_BAD,     /* send Close decoder.close_code and end; decoder.why says why */
};

struct ws_piece {
    struct slice bytes; /* as on the wire */
    uint64_t offset;    /* in the frame, where these begin */
    bool last;          /* the frame ends with these */
};

struct ws_decoder {
    struct ws_frame frame; /* the one that is being reported */
    /* A data frame of at most so many bytes is reported in one piece only: until it is complete its payload stays
     * in the caller's input. 0: pieces as they come. */
    size_t whole;
    enum ws_sender sender;

    uint16_t close_code; /* after a Close: its code or WS_NO_CODE; after WS_BAD: what to send, 1002 */
    /* The payload of the control frame that is being reported: until the thread's next ws_decode, in memory that all
     * decoders share. Or in WS_CONTROL_MAX bytes that the caller has set this to; see ws_decode. */
    uint8_t *control;
    const char *why; /* after WS_BAD; never holds input */

    /* private */
    uint64_t offset;
    uint8_t state, head_len;
    bool in_message; /* a continuation is due */
    bool collects;   /* in the caller's memory */
    uint8_t head[WS_HEAD_MAX];
};

struct ws_decoder ws_decoder_of(enum ws_sender sender, size_t whole);
/* For who does not keep input: control frames are collected in memory of the caller's. */
struct ws_decoder ws_decoder_with(enum ws_sender sender, uint8_t control[static WS_CONTROL_MAX]);

/* Takes bytes off *in and tells at most one event. WS_MORE leaves bytes in *in only while a control frame, or a data
 * frame of at most `whole` bytes, is incomplete: these must come again, with more behind them. One of ws_decoder_with
 * leaves none. Whatever follows a Close is dropped; WS_BAD is final. */
enum ws_event ws_decode(struct ws_decoder *d, struct slice *in, struct ws_piece *piece)
    __attribute__((warn_unused_result));

/* Between two messages: the one at the beginning of *in, if it is there whole, in one frame with a head in its shortest form, has
 * at most `most` bytes and fewer than 64 KiB. As ws_decode would by a head and a last piece. False: nothing was done, ask
 * ws_decode. */
bool ws_decode_whole(struct ws_decoder *d, struct slice *in, uint64_t most, struct ws_piece *piece)
    __attribute__((warn_unused_result));
/* Returns the number of bytes at the beginning of `in`, which is what ws_decode gets next, that hold the end of the current frame
 * and at most `frames` whole ones. `in` is cut between two frames, so that handling the first part leaves nothing of it. All
 * of `in` if that ends before. It costs a few nanoseconds a frame: who bounds its work by frames asks this first. */
size_t ws_some(const struct ws_decoder *d, struct slice in, unsigned frames);
/* Whether a message begins with the next byte, or a control frame. */
bool ws_between_messages(const struct ws_decoder *d);

static inline struct slice ws_control_payload(const struct ws_decoder *d)
{
    return slice_of(d->control, (size_t)d->frame.length);
}

/* Returns the number of payload bytes of the data frame at hand that were not reported yet. After WS_BAD it is the number of bytes
 * of the refused frame that follow what ws_decode took, or INT64_MAX if the frame's head is not whole. */
uint64_t ws_untold(const struct ws_decoder *d);

/* So many of these pass without being decoded. */
void ws_skip(struct ws_decoder *d, uint64_t len);
/* Between two frames, or within a head: bytes of that head that are certainly still to come, never none. */
size_t ws_head_rest(const struct ws_decoder *d);
/* A head has begun and is not whole. */
static inline bool ws_in_head(const struct ws_decoder *d)
{
    return d->head_len > 0;
}

/* The reason in a Close that was reported; empty when there is none. */
struct slice ws_close_reason(const struct ws_decoder *d);

static inline bool ws_is_control(enum ws_opcode opcode)
{
    return (opcode & 8) != 0;
}

/* Whether a code may stand in a Close frame (section 7.4). */
bool ws_close_code_legal(unsigned code);
/* Whether it is UTF-8 (section 5.5.1). */
bool ws_close_reason_legal(struct slice reason);

/* to[i] = from[i] ^ mask[(offset + i) % 4]. `to` may be `from`; they must not overlap otherwise. */
void ws_mask(uint8_t *to, const uint8_t *from, size_t len, const uint8_t mask[4], uint64_t offset);

/* The frame in which `len` bytes of `frame`'s payload from `offset` on are sent as a fragment of their own:
 * the first keeps the opcode, others continue it, only the one that reaches the end keeps FIN, and the mask
 * is turned so that the bytes need no new masking. The whole frame is its own only fragment. */
struct ws_frame ws_fragment(const struct ws_frame *frame, uint64_t offset, uint64_t len);

/* Writes a frame's head, in its shortest form; returns its length. */
size_t ws_encode_head(uint8_t to[WS_HEAD_MAX], const struct ws_frame *frame);
/* Writes a frame's head into the memory in front of its payload, of which `room` bytes are the caller's to change. The
 * whole frame; absent, and nothing is written, when the head does not fit there. */
struct slice ws_put_head(struct slice payload, size_t room, const struct ws_frame *frame)
    __attribute__((warn_unused_result));
/* Writes a whole control frame; mask is NULL from a server. At most WS_CONTROL_MAX bytes of payload are
 * taken. Returns the frame's length. */
size_t ws_encode_control(uint8_t to[WS_CONTROL_FRAME_MAX], enum ws_opcode opcode, struct slice payload,
                         const uint8_t *mask);
/* A Close; WS_NO_CODE gives one without payload. A reason over 123 bytes is cut between two characters. */
size_t ws_encode_close(uint8_t to[WS_CONTROL_FRAME_MAX], unsigned code, struct slice reason,
                       const uint8_t *mask);

/* Between two calls of ws_decode; sender and whole stay as they are. `why` is lost. */
void ws_decoder_image(struct image *image, struct ws_decoder *d);

#endif
