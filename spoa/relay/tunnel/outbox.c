/* SPDX-License-Identifier: MIT */
#include "spoa/relay/tunnel/outbox.h"

#include "spoa/base/reader.h"
#include "spoa/proto/ws.h"

#define MANY  16384 /* bytes of control frames that are worth looking for */
#define SPARE 16384 /* of memory, that an empty one keeps for the next message */

struct outbox outbox_with_limit(size_t limit)
{
    return (struct outbox){.frames = buffer_with_limit(limit)};
}

void outbox_free(struct outbox *outbox)
{
    buffer_free(&outbox->frames);
    outbox->sent = outbox->controls = 0;
}

bool outbox_put(struct outbox *outbox, struct slice frames)
{
    return buffer_put(&outbox->frames, frames);
}

void outbox_put_controls(struct outbox *outbox, size_t len)
{
    if (outbox->keeps)
        outbox->controls += len;
}

struct slice outbox_unsent(const struct outbox *outbox)
{
    return slice_from(buffer_slice(&outbox->frames), outbox->sent);
}

/* Bytes of the frame that begins here, its head included; more than there are when its head is not whole. */
static size_t measure(struct slice at, uint64_t *payload)
{
    struct reader r = reader_of(at);

    reader_u8(&r);
    uint8_t second = reader_u8(&r);
    *payload = second & 0x7f;
    if (*payload >= 126)
        *payload = reader_be(&r, *payload == 126 ? 2 : 8);
    if (second & 0x80)
        reader_take(&r, 4);
    return r.failed ? SIZE_MAX : at.len - r.rest.len + (size_t)*payload;
}

static size_t frame_len(struct slice at)
{
    uint64_t payload;
    return measure(at, &payload);
}

uint64_t outbox_payload(const struct outbox *outbox)
{
    uint64_t sum = 0, payload;

    for (struct slice rest = buffer_slice(&outbox->frames); rest.len;) {
        size_t frame = measure(rest, &payload);
        sum += ws_is_control(rest.at[0] & 0x0f) ? 0 : payload;
        rest = slice_from(rest, frame);
    }
    return sum;
}

static void note_message(struct outbox *outbox, uint8_t start)
{
    if (ws_is_control(start & 0x0f))
        return;
    if (start & 0x0f)
        outbox->message = start & 0x0f;
    if (start & 0x80)
        outbox->message = 0;
}

static void forget_controls(struct outbox *outbox, size_t len)
{
    outbox->controls -= len < outbox->controls ? len : outbox->controls;
}

/* In place: what is kept moves to the front of what is held. A message whose beginning is not there begins with what is
 * left of it, if its opcode is given. */
static size_t strip_controls(struct outbox *outbox, uint8_t message)
{
    struct slice rest = buffer_slice(&outbox->frames);
    uint8_t *to = (uint8_t *)rest.at;
    size_t kept = 0;

    while (rest.len) {
        struct slice frame = slice_sub(rest, 0, frame_len(rest)); /* the last one may not be whole yet */
        uint8_t start = rest.at[0];
        if (!ws_is_control(start & 0x0f)) {
            if (!kept && !(start & 0x0f))
                start |= message;
            memmove(to + kept, frame.at, frame.len);
            to[kept] = start;
            kept += frame.len;
        }
        rest = slice_from(rest, frame.len);
    }
    outbox->controls = 0;
    outbox->frames.end = outbox->frames.start + kept;
    buffer_consume(&outbox->frames, 0);
    return kept;
}

/* Control frames are not kept: those in front go at once, those behind what is kept when they are many. */
static void drop_controls(struct outbox *outbox)
{
    struct slice rest = buffer_slice(&outbox->frames);
    size_t frame;

    while (rest.len && ws_is_control(rest.at[0] & 0x0f) && (frame = frame_len(rest)) <= outbox->sent) {
        outbox->sent -= frame;
        forget_controls(outbox, frame);
        buffer_consume(&outbox->frames, frame);
        rest = buffer_slice(&outbox->frames);
    }
    if (outbox->controls >= MANY && outbox_empty(outbox))
        outbox->sent = strip_controls(outbox, 0);
}

void outbox_sent(struct outbox *outbox, size_t len)
{
    struct slice rest = buffer_slice(&outbox->frames);
    size_t consumed = 0, frame;

    outbox->sent += len;
    if (outbox->keeps) {
        drop_controls(outbox);
        return;
    }
    while (rest.len && (frame = frame_len(rest)) <= outbox->sent) {
        note_message(outbox, rest.at[0]);
        outbox->sent -= frame;
        consumed += frame;
        rest = slice_from(rest, frame);
    }
    buffer_consume(&outbox->frames, consumed);
}

bool outbox_cut(const struct outbox *outbox)
{
    struct slice rest = buffer_slice(&outbox->frames);
    size_t sent = outbox->sent, frame;

    while (rest.len && (frame = frame_len(rest)) <= sent) {
        sent -= frame;
        rest = slice_from(rest, frame);
    }
    return sent > 0;
}

bool outbox_release(struct outbox *outbox, uint64_t messages, bool unsent, uint64_t *payload)
{
    struct slice all = buffer_slice(&outbox->frames), rest = all;
    size_t controls = 0;
    uint64_t len;

    *payload = 0;
    while (messages && rest.len) {
        size_t frame = measure(rest, &len);
        if (frame > rest.len)
            return false;
        if (!ws_is_control(rest.at[0] & 0x0f)) {
            *payload += len;
            messages -= rest.at[0] >> 7;
        } else {
            controls += frame;
        }
        rest = slice_from(rest, frame);
    }
    size_t released = all.len - rest.len;
    if (messages || (!unsent && released > outbox->sent))
        return false;
    outbox->sent -= released < outbox->sent ? released : outbox->sent;
    forget_controls(outbox, controls);
    if (rest.len || outbox->frames.size > SPARE)
        buffer_consume(&outbox->frames, released);
    else
        outbox->frames.start = outbox->frames.end = 0; /* the next message needs the memory again */
    drop_controls(outbox);
    return true;
}

void outbox_trim(struct outbox *outbox)
{
    if (buffer_len(&outbox->frames) == 0)
        buffer_free(&outbox->frames);
}

bool outbox_salvage(struct outbox *outbox)
{
    size_t kept = strip_controls(outbox, outbox->message);

    outbox->sent = 0;
    outbox->message = 0;
    return kept > 0;
}
