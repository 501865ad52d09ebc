/* SPDX-License-Identifier: MIT */
#include "spoa/proto/ws.h"
#include "spoa/base/bytes/reader.h"
#include "spoa/base/bytes/writer.h"
#include "spoa/base/json/json_string.h"

/* ws_some and ws_decoder_image rely on this order. */
enum {
    STATE_HEAD,    /* within a head, or between two frames */
    STATE_PAYLOAD, /* within a data frame's payload */
    STATE_CONTROL, /* within a control frame's payload */
    STATE_CLOSED,  /* after a Close */
    STATE_BAD,     /* after WS_BAD */
};

#define CLOSE_PROTOCOL_ERROR 1002

struct ws_decoder ws_decoder_of(enum ws_sender sender, size_t whole)
{
    return (struct ws_decoder){.sender = sender, .whole = whole, .state = STATE_HEAD};
}

struct ws_decoder ws_decoder_with(enum ws_sender sender, uint8_t control[static WS_CONTROL_MAX])
{
    return (struct ws_decoder){.sender = sender, .state = STATE_HEAD, .control = control, .collects = true};
}

bool ws_close_code_legal(unsigned code)
{
    if (code < 3000)
        return code >= 1000 && code <= 1014 && code != 1004 && code != 1005 && code != 1006;
    return code <= 4999;
}

bool ws_close_reason_legal(struct slice reason)
{
    while (reason.len) {
        size_t step = reason.at[0] < 0x80 ? 1 : json_string_utf8(reason);
        if (!step)
            return false;
        reason = slice_from(reason, step);
    }
    return true;
}

static enum ws_event refuse(struct ws_decoder *d, const char *why)
{
    d->state = STATE_BAD;
    d->close_code = CLOSE_PROTOCOL_ERROR;
    d->why = why;
    return WS_BAD;
}

/* ---- heads ---- */

/* Checks the two bytes that begin every frame. Returns NULL, or why they are refused. */
static const char *check_start(const struct ws_decoder *d)
{
    unsigned opcode = d->head[0] & 0x0f, length = d->head[1] & 0x7f;
    bool fin = d->head[0] & 0x80, masked = d->head[1] & 0x80;

    if (d->head[0] & 0x70)
        return "reserved bit";
    if (opcode > WS_PONG || (opcode > WS_BINARY && opcode < WS_CLOSE))
        return "reserved opcode";
    if (masked != (d->sender == WS_CLIENT))
        return masked ? "masked frame from a server" : "unmasked frame from a client";
    if (opcode & 8)
        return !fin                      ? "fragmented control frame"
               : length > WS_CONTROL_MAX ? "control frame over 125 bytes"
                                         : NULL;
    if ((opcode == WS_CONTINUATION) != d->in_message)
        return d->in_message ? "new message inside a message" : "continuation of no message";
    return NULL;
}

/* Returns the length of the head that has begun, as far as its bytes tell: at least 2. */
static unsigned head_len(const struct ws_decoder *d)
{
    unsigned length = d->head[1] & 0x7f, wide = length == 127 ? 8 : length == 126 ? 2 : 0;

    return d->head_len < 2 ? 2 : 2 + wide + (d->head[1] & 0x80 ? 4u : 0u);
}

/* Reads the length of a payload. Returns false if a shorter form could hold it, or if it exceeds 2^63 - 1 (section 5.2). */
static bool take_length(struct reader *r, unsigned length, uint64_t *value)
{
    if (length < 126) {
        *value = length;
        return true;
    }
    *value = reader_be(r, length == 126 ? 2 : 8);
    return length == 126 ? *value >= 126 : *value > UINT16_MAX && *value <= INT64_MAX;
}

/* Refuses the frame whose first two bytes are there. The rest of its head, as far as *in has it, says how long the frame is. */
static enum ws_event refuse_frame(struct ws_decoder *d, struct slice *in, const char *why)
{
    size_t missing = head_len(d) - d->head_len;
    struct slice more = slice_sub(*in, 0, missing);
    struct reader r = reader_of(slice_of(d->head + 2, head_len(d) - 2));

    if (more.len)
        memcpy(d->head + d->head_len, more.at, more.len);
    *in = slice_from(*in, more.len);
    d->frame.length = INT64_MAX;
    if (more.len == missing)
        (void)take_length(&r, d->head[1] & 0x7f, &d->frame.length);
    d->offset = 0;
    return refuse(d, why);
}

static enum ws_event parse_head(struct ws_decoder *d)
{
    struct reader r = reader_of(slice_of(d->head + 2, d->head_len - 2));
    struct ws_frame *frame = &d->frame;

    *frame =
        (struct ws_frame){.opcode = d->head[0] & 0x0f, .fin = d->head[0] & 0x80, .masked = d->head[1] & 0x80};
    d->offset = 0;
    if (!take_length(&r, d->head[1] & 0x7f, &frame->length))
        return refuse(d, "length is not in its shortest form or too large");
    for (unsigned i = 0; frame->masked && i < 4; i++)
        frame->mask[i] = reader_u8(&r);

    d->head_len = 0;
    if (ws_is_control(frame->opcode)) {
        d->state = STATE_CONTROL;
        return WS_MORE;
    }
    d->in_message = !frame->fin;
    d->state = STATE_PAYLOAD;
    return WS_HEAD;
}

static enum ws_event decode_head(struct ws_decoder *d, struct slice *in)
{
    while (in->len > 0) {
        d->head[d->head_len++] = in->at[0];
        *in = slice_from(*in, 1);

        const char *why = d->head_len == 2 ? check_start(d) : NULL;
        if (why)
            return refuse_frame(d, in, why);
        if (d->head_len == head_len(d))
            return parse_head(d);
    }
    return WS_MORE;
}

/* ---- payload ---- */

static enum ws_event decode_payload(struct ws_decoder *d, struct slice *in, struct ws_piece *piece)
{
    uint64_t left = d->frame.length - d->offset;
    bool complete = in->len >= left;

    if (!complete && (in->len == 0 || d->frame.length <= d->whole))
        return WS_MORE;
    *piece = (struct ws_piece){slice_sub(*in, 0, complete ? (size_t)left : in->len), d->offset, complete};
    *in = slice_from(*in, piece->bytes.len);
    d->offset += piece->bytes.len;
    if (complete)
        d->state = STATE_HEAD;
    return WS_PIECE;
}

static enum ws_event decode_control(struct ws_decoder *d, struct slice *in)
{
    static _Thread_local uint8_t shared[WS_CONTROL_MAX];
    struct slice bytes = slice_sub(*in, 0, (size_t)(d->frame.length - d->offset));

    if (!d->collects && bytes.len < d->frame.length)
        return WS_MORE;
    if (!d->collects)
        d->control = shared;
    ws_mask(d->control + d->offset, bytes.at, bytes.len, d->frame.mask, d->offset);
    *in = slice_from(*in, bytes.len);
    d->offset += bytes.len;
    if (d->offset < d->frame.length)
        return WS_MORE;
    if (d->frame.opcode != WS_CLOSE) {
        d->state = STATE_HEAD;
        return WS_CONTROL;
    }
    if (d->frame.length == 1)
        return refuse(d, "close payload of one byte");
    d->close_code = (uint16_t)(d->frame.length ? d->control[0] << 8 | d->control[1] : WS_NO_CODE);
    if (d->frame.length && !ws_close_code_legal(d->close_code))
        return refuse(d, "illegal close code");
    d->state = STATE_CLOSED;
    return WS_CONTROL;
}

enum ws_event ws_decode(struct ws_decoder *d, struct slice *in, struct ws_piece *piece)
{
    if (d->state == STATE_HEAD) {
        enum ws_event event = decode_head(d, in);
        if (event != WS_MORE || d->state == STATE_HEAD)
            return event;
    }
    switch (d->state) {
    case STATE_PAYLOAD:
        return decode_payload(d, in, piece);
    case STATE_CONTROL:
        return decode_control(d, in);
    case STATE_CLOSED:
        *in = slice_from(*in, in->len);
        return WS_MORE;
    default:
        return WS_BAD;
    }
}

bool ws_between_messages(const struct ws_decoder *d)
{
    return d->state == STATE_HEAD && !d->head_len && !d->in_message;
}

/* Returns the length of the head at the beginning of `in`, and that of its payload; 0 if ws_decode_whole does not take such a frame. */
static size_t whole_head(const struct ws_decoder *d, struct slice in, uint64_t *length)
{
    bool masked = d->sender == WS_CLIENT;

    if (in.len < 2 || (in.at[0] != (0x80 | WS_TEXT) && in.at[0] != (0x80 | WS_BINARY)) ||
        masked != (in.at[1] & 0x80) >> 7)
        return 0;
    *length = in.at[1] & 0x7f;
    if (*length < 126)
        return masked ? 6 : 2;
    if (*length == 127 || in.len < 4)
        return 0;
    *length = (uint64_t)in.at[2] << 8 | in.at[3];
    return *length < 126 ? 0 : masked ? 8 : 4;
}

bool ws_decode_whole(struct ws_decoder *d, struct slice *in, uint64_t max, struct ws_piece *piece)
{
    uint64_t length = 0;
    size_t head = whole_head(d, *in, &length);

    if (!head || length > max || in->len < head + length)
        return false;
    d->frame = (struct ws_frame){
        .opcode = in->at[0] & 0x0f, .fin = true, .masked = d->sender == WS_CLIENT, .length = length};
    if (d->frame.masked)
        memcpy(d->frame.mask, in->at + head - 4, 4);
    d->offset = length;
    *piece = (struct ws_piece){slice_of(in->at + head, (size_t)length), 0, true};
    *in = slice_from(*in, head + (size_t)length);
    return true;
}

/* Returns the length of the frame that begins with this head, of which `there` bytes have arrived; UINT64_MAX if it is incomplete. */
static uint64_t frame_len(const uint8_t *head, size_t there)
{
    unsigned wide = 0;
    uint64_t length = there < 2 ? 0 : head[1] & 0x7f;

    if (length >= 126)
        wide = length == 126 ? 2 : 8;
    size_t len = 2 + wide + (there >= 2 && head[1] & 0x80 ? 4 : 0);
    if (there < len)
        return UINT64_MAX;
    for (unsigned i = 0; i < wide; i++)
        length = (i ? length << 8 : 0) | head[2 + i];
    return length > INT64_MAX ? UINT64_MAX : len + length;
}

/* Returns the bytes left of a frame whose head the decoder has begun, or UINT64_MAX if the head is incomplete. */
static uint64_t frame_rest(const struct ws_decoder *d, struct slice in)
{
    uint8_t head[WS_HEAD_MAX];
    struct slice more = slice_sub(in, 0, sizeof head - d->head_len);

    memcpy(head, d->head, d->head_len);
    if (more.len)
        memcpy(head + d->head_len, more.at, more.len);
    uint64_t len = frame_len(head, d->head_len + more.len);
    return len == UINT64_MAX ? len : len - d->head_len;
}

size_t ws_some(const struct ws_decoder *d, struct slice in, unsigned frames)
{
    bool inside = d->state == STATE_PAYLOAD || d->state == STATE_CONTROL;
    uint64_t len = inside ? d->frame.length - d->offset : frame_rest(d, in);
    size_t at = 0;

    if (d->state > STATE_CONTROL)
        return in.len;
    for (frames += inside; len < in.len - at; len = frame_len(in.at + at, in.len - at)) {
        at += (size_t)len;
        if (!--frames)
            return at;
    }
    return in.len;
}

uint64_t ws_untold(const struct ws_decoder *d)
{
    return d->state == STATE_PAYLOAD || d->state == STATE_BAD ? d->frame.length - d->offset : 0;
}

void ws_skip(struct ws_decoder *d, uint64_t len)
{
    d->offset += len;
    if (d->offset == d->frame.length)
        d->state = STATE_HEAD;
}

size_t ws_head_rest(const struct ws_decoder *d)
{
    return head_len(d) - d->head_len;
}

struct slice ws_close_reason(const struct ws_decoder *d)
{
    return slice_from(ws_control_payload(d), 2);
}

/* ---- masking ---- */

/* Rotates a mask so that it begins at `offset`. */
static void turn_mask(uint8_t turned[4], const uint8_t mask[4], uint64_t offset)
{
    for (unsigned i = 0; i < 4; i++)
        turned[i] = mask[(offset + i) & 3];
}

void ws_mask(uint8_t *to, const uint8_t *from, size_t len, const uint8_t mask[4], uint64_t offset)
{
    uint8_t turned[8];
    uint64_t word, block[4];
    size_t i = 0;

    turn_mask(turned, mask, offset);
    memcpy(turned + 4, turned, 4);
    memcpy(&word, turned, 8);
    /* compilers turn blocks of a fixed size into vector instructions */
    for (; len - i >= sizeof(block); i += sizeof(block)) {
        memcpy(block, from + i, sizeof(block));
        for (unsigned k = 0; k < 4; k++)
            block[k] ^= word;
        memcpy(to + i, block, sizeof(block));
    }
    for (; i < len; i++)
        to[i] = from[i] ^ turned[i & 3];
}

/* ---- writing ---- */

struct ws_frame ws_fragment(const struct ws_frame *frame, uint64_t offset, uint64_t len)
{
    struct ws_frame part = *frame;

    if (offset > 0)
        part.opcode = WS_CONTINUATION;
    part.fin = frame->fin && offset + len == frame->length;
    part.length = len;
    turn_mask(part.mask, frame->mask, offset);
    return part;
}

size_t ws_encode_head(uint8_t to[WS_HEAD_MAX], const struct ws_frame *frame)
{
    struct writer w = writer_of(to, WS_HEAD_MAX);
    uint8_t masked = frame->masked ? 0x80 : 0;

    writer_u8(&w, (uint8_t)((frame->fin ? 0x80 : 0) | frame->opcode));
    if (frame->length < 126) {
        writer_u8(&w, (uint8_t)(masked | frame->length));
    } else {
        bool wide = frame->length > UINT16_MAX;
        writer_u8(&w, masked | (wide ? 127 : 126));
        writer_be(&w, frame->length, wide ? 8 : 2);
    }
    if (frame->masked)
        writer_put(&w, slice_of(frame->mask, 4));
    return w.len;
}

struct slice ws_put_head(struct slice payload, size_t room, const struct ws_frame *frame)
{
    uint8_t head[WS_HEAD_MAX];
    size_t len = ws_encode_head(head, frame);

    if (len > room)
        return slice_text(NULL);
    uint8_t *at = (uint8_t *)payload.at - len;
    memcpy(at, head, len);
    return slice_of(at, len + payload.len);
}

size_t ws_encode_control(uint8_t to[WS_CONTROL_FRAME_MAX], enum ws_opcode opcode, struct slice payload,
                         const uint8_t *mask)
{
    struct slice kept = slice_sub(payload, 0, WS_CONTROL_MAX);
    struct ws_frame frame = {.opcode = opcode, .fin = true, .masked = mask != NULL, .length = kept.len};

    if (mask)
        memcpy(frame.mask, mask, 4);
    size_t head = ws_encode_head(to, &frame);
    ws_mask(to + head, kept.at, kept.len, frame.mask, 0);
    return head + kept.len;
}

/* Returns the longest prefix of s that has at most max bytes and does not end within a UTF-8 character. */
static struct slice cut_text(struct slice s, size_t max)
{
    if (s.len <= max)
        return s;
    while (max > 0 && (s.at[max] & 0xc0) == 0x80)
        max--;
    return slice_sub(s, 0, max);
}

size_t ws_encode_close(uint8_t to[WS_CONTROL_FRAME_MAX], unsigned code, struct slice reason,
                       const uint8_t *mask)
{
    uint8_t payload[WS_CONTROL_MAX];
    struct writer w = writer_of(payload, sizeof(payload));

    if (code != WS_NO_CODE) {
        writer_be(&w, code, 2);
        writer_put(&w, cut_text(reason, WS_CONTROL_MAX - 2));
    }
    return ws_encode_control(to, WS_CLOSE, writer_slice(&w), mask);
}

/* ---- as an image ---- */
static const struct image_field frame_fields[] = {
    IMAGE_NUMBER(struct ws_frame, opcode, 15), /* of a frame that was bad: any */
    IMAGE_FLAG(struct ws_frame, fin),          IMAGE_FLAG(struct ws_frame, masked),
    IMAGE_BYTES(struct ws_frame, mask),        IMAGE_ANY(struct ws_frame, length),
};
static IMAGE_TABLE(frame_table, struct ws_frame, frame_fields);

/* Writes the bytes of a head that is not whole. The bytes after them are of an earlier head, and no decoder reads them again. */
static void image_head(struct image *image, void *object)
{
    struct ws_decoder *d = object;
    uint64_t len = d->head_len;

    if (!image_bit(image, len))
        return;
    image_number(image, &len, sizeof d->head - 1);
    if (image->failed)
        return;
    d->head_len = (uint8_t)len;
    image_bytes(image, d->head, len);
}

static bool holds(const void *object)
{
    const struct ws_decoder *d = object;

    return d->offset <= d->frame.length &&
           (d->state != STATE_CONTROL || (d->frame.length <= WS_CONTROL_MAX && d->offset == 0)) &&
           (d->state != STATE_HEAD || d->head_len < head_len(d)) &&
           (d->state != STATE_HEAD || d->head_len < 2 || !check_start(d));
}

static const struct image_field decoder_fields[] = {
    IMAGE_PART(struct ws_decoder, frame, &frame_table),
    IMAGE_DERIVED(struct ws_decoder, whole), /* the owner sets it */
    IMAGE_NUMBER(struct ws_decoder, sender, WS_SERVER),
    IMAGE_ANY(struct ws_decoder, close_code),
    IMAGE_DERIVED(struct ws_decoder, control), /* one that collects in the owner's memory has no image */
    IMAGE_ANEW(struct ws_decoder, why),        /* it is only read right after its event */
    IMAGE_ANY(struct ws_decoder, offset),
    IMAGE_NUMBER(struct ws_decoder, state, STATE_BAD),
    IMAGE_BY(struct ws_decoder, head_len, image_head),
    IMAGE_FLAG(struct ws_decoder, in_message),
    IMAGE_DERIVED(struct ws_decoder, collects),
    IMAGE_DERIVED(struct ws_decoder, head), /* by head_len */
};
IMAGE_TABLE(ws_decoder_table, struct ws_decoder, decoder_fields, .holds = holds);
