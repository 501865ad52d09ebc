/* SPDX-License-Identifier: MIT */
/*
 * ws: reads and writes WebSocket frames (RFC 6455 section 5) without collecting payload. The decoder refuses every frame that the
 * sender's role forbids. It does not check that text is UTF-8: that is left to the endpoints.
 *
 * The decoder reports a data frame as a head and pieces of payload; a piece is a slice of the input, masked if the frame is. It
 * reports a control frame once, whole and unmasked.
 */
#ifndef CELLGATE_PROTO_WS_H
#define CELLGATE_PROTO_WS_H

#include "spoa/base/bytes/image.h"
#include "spoa/base/bytes/slice.h"

#define WS_HEAD_MAX          14  /* bytes of the longest frame head */
#define WS_CONTROL_MAX       125 /* bytes of payload in a control frame */
#define WS_CONTROL_FRAME_MAX (2 + 4 + WS_CONTROL_MAX)
#define WS_NO_CODE           1005 /* stands for a Close without a code; never sent */

enum ws_opcode {
    WS_CONTINUATION = 0,
    WS_TEXT = 1,
    WS_BINARY = 2,
    WS_CLOSE = 8,
    WS_PING = 9,
    WS_PONG = 10,
};

/* The head of a frame. */
struct ws_frame {
    enum ws_opcode opcode;
    bool fin;
    bool masked;
    uint8_t mask[4];
    uint64_t length; /* bytes of payload */
};

enum ws_sender {
    WS_CLIENT, /* must mask its frames */
    WS_SERVER, /* must not mask its frames */
};

enum ws_event {
    WS_MORE,  /* no event before more bytes arrive */
    WS_HEAD,  /* a data frame begins, with the head decoder.frame */
    WS_PIECE, /* some payload of that frame; an empty frame has one empty piece */
    /* a whole Ping, Pong or Close, with the head decoder.frame; ws_control_payload has its payload */
    WS_CONTROL,
    /* the sender violates the protocol: send Close decoder.close_code and end; decoder.why is the reason */
    WS_BAD,
};

struct ws_piece {
    struct slice bytes; /* still masked if the frame is */
    uint64_t offset;    /* position of the first byte in the payload */
    bool last;          /* the frame ends with this piece */
};

struct ws_decoder {
    struct ws_frame frame; /* head of the current frame */
    /* Largest payload of a data frame that is reported in one piece only, in bytes: the payload stays in the caller's input until all
     * of it has arrived. 0 means that pieces are reported as they arrive. */
    size_t whole;
    enum ws_sender sender;

    uint16_t close_code; /* after a Close, its code or WS_NO_CODE; after WS_BAD, the code to send (1002) */
    /* Payload of the control frame that was reported. A decoder of ws_decoder_of uses memory that all decoders of a thread share, so
     * the payload is valid until the thread's next ws_decode. */
    uint8_t *control;
    const char *why; /* after WS_BAD, the reason for a log; never contains input */

    /* private */
    uint64_t offset;         /* payload bytes of the current frame that were taken */
    uint8_t state, head_len; /* head_len counts the bytes of `head` */
    bool in_message;         /* the next data frame must be a continuation */
    bool collects;           /* control frames are collected in the caller's memory */
    uint8_t head[WS_HEAD_MAX];
};

struct ws_decoder ws_decoder_of(enum ws_sender sender, size_t whole);
/* Returns a decoder for a caller that does not keep its input: control frames are collected in the caller's memory, which must stay
 * in place as long as the decoder. */
struct ws_decoder ws_decoder_with(enum ws_sender sender, uint8_t control[static WS_CONTROL_MAX]);

/* Takes bytes off *in and reports at most one event. With WS_MORE some bytes stay in *in only if a control frame, or a data frame of at
 * most `whole` bytes, is incomplete: the caller passes them again, with more after them. A decoder of ws_decoder_with leaves none.
 * Bytes after a Close are dropped. WS_BAD is final. */
enum ws_event ws_decode(struct ws_decoder *d, struct slice *in, struct ws_piece *piece) MUST_CHECK;

/* The fast path: takes a whole message off *in, as ws_decode would with a head and a last piece. The message must be complete, in one
 * frame with a head in its shortest form, of at most `max` bytes and fewer than 64 KiB, and the decoder must be between two messages.
 * Returns false, and changes nothing, for anything else: ws_decode then handles it. */
bool ws_decode_whole(struct ws_decoder *d, struct slice *in, uint64_t max, struct ws_piece *piece) MUST_CHECK;
/* Returns the number of bytes at the beginning of `in` that hold the rest of the current frame and at most `frames` whole ones after
 * it; `in` is the next input of ws_decode. A caller that bounds its work by frames cuts `in` there, between two frames, so that the
 * decoder leaves nothing of the first part. Returns in.len if `in` ends earlier. Costs a few nanoseconds for each frame. */
size_t ws_some(const struct ws_decoder *d, struct slice in, unsigned frames);
/* Returns true if the next byte begins a message or a control frame between two messages. */
bool ws_between_messages(const struct ws_decoder *d);

/* Returns the payload of the control frame that was reported. */
static inline struct slice ws_control_payload(const struct ws_decoder *d)
{
    return slice_of(d->control, (size_t)d->frame.length);
}

/* Returns the number of payload bytes of the current data frame that were not reported yet; 0 between two frames. After WS_BAD, returns
 * the number of bytes of the refused frame that follow the bytes which ws_decode took, or INT64_MAX if the head is incomplete. */
uint64_t ws_untold(const struct ws_decoder *d);

/* Advances by `len` payload bytes that bypass the decoder, because the caller splices them. At most ws_untold bytes. */
void ws_skip(struct ws_decoder *d, uint64_t len);
/* Returns the number of bytes that the current or the next frame head needs at least, never 0. The decoder must not be within a
 * payload. */
size_t ws_head_rest(const struct ws_decoder *d);
/* Returns true if a frame head has begun and is incomplete. */
static inline bool ws_in_head(const struct ws_decoder *d)
{
    return d->head_len > 0;
}

/* Returns the reason of the Close that was reported; empty if there is none. */
struct slice ws_close_reason(const struct ws_decoder *d);

static inline bool ws_is_control(enum ws_opcode opcode)
{
    return (opcode & 8) != 0;
}

/* Returns true if a Close frame may have this code (section 7.4). */
bool ws_close_code_legal(unsigned code);
/* Returns true if the reason is UTF-8 (section 5.5.1). */
bool ws_close_reason_legal(struct slice reason);

/* Masks or unmasks: to[i] = from[i] ^ mask[(offset + i) % 4]. `to` may be `from`; otherwise they must not overlap. */
void ws_mask(uint8_t *to, const uint8_t *from, size_t len, const uint8_t mask[4], uint64_t offset);

/* Returns the head under which `len` bytes of the frame's payload, from `offset` on, are sent as a fragment of their own. The first
 * fragment keeps the opcode and the others are continuations; only the fragment that reaches the end keeps FIN. The mask is rotated so
 * that the bytes, still masked with the frame's mask, are valid under the new head. */
struct ws_frame ws_fragment(const struct ws_frame *frame, uint64_t offset, uint64_t len);

/* Writes a frame's head in its shortest form. Returns its length. */
size_t ws_encode_head(uint8_t to[WS_HEAD_MAX], const struct ws_frame *frame);
/* Writes a frame's head into the memory directly before its payload, of which the caller may overwrite `room` bytes. Returns the whole
 * frame, or an absent slice, and writes nothing, if the head does not fit. */
struct slice ws_put_head(struct slice payload, size_t room, const struct ws_frame *frame) MUST_CHECK;
/* Writes a whole control frame with at most WS_CONTROL_MAX bytes of the payload. `mask` is NULL for a frame of a server. Returns the
 * frame's length. */
size_t ws_encode_control(uint8_t to[WS_CONTROL_FRAME_MAX], enum ws_opcode opcode, struct slice payload,
                         const uint8_t *mask);
/* Writes a Close, without a payload if the code is WS_NO_CODE. A reason over 123 bytes is cut between two characters. */
size_t ws_encode_close(uint8_t to[WS_CONTROL_FRAME_MAX], unsigned code, struct slice reason,
                       const uint8_t *mask);

/* For a decoder that lives between two calls of ws_decode. Its owner sets `whole`. */
extern const struct image_table ws_decoder_table;

#endif
