/* SPDX-License-Identifier: MIT */
#include "spoa/relay/mux/frame.h"

#include "spoa/base/bytes/reader.h"
#include "spoa/base/bytes/writer.h"
#include "spoa/base/json/json_write.h"
#include "spoa/proto/ws.h"
#include "spoa/relay/mux/response.h"

bool mux_frame_read(struct slice message, struct mux_frame *frame)
{
    struct reader r = reader_of(message);
    frame->type = reader_u8(&r);
    frame->number = reader_u32(&r);
    frame->payload = r.rest;
    return !r.failed && frame->number != 0;
}

uint32_t mux_frame_credit(struct slice payload)
{
    struct reader r = reader_of(payload);
    uint32_t bytes = reader_u32(&r);
    return reader_done(&r) ? bytes : 0;
}

bool mux_frame_put(struct buffer *out, enum mux_frame_type type, uint32_t number, struct slice payload)
{
    uint8_t memory[WS_HEAD_MAX + MUX_FRAME_HEAD];
    const struct ws_frame frame = {.opcode = WS_BINARY, .fin = true, .length = MUX_FRAME_HEAD + payload.len};
    struct writer w = writer_of(memory, sizeof memory);
    size_t room;
    w.len = ws_encode_head(memory, &frame);
    writer_u8(&w, (uint8_t)type);
    writer_be(&w, number, 4);
    uint8_t *to = buffer_room(out, w.len + payload.len, &room);
    if (!to)
        return false;
    memcpy(to, memory, w.len);
    if (payload.len)
        memcpy(to + w.len, payload.at, payload.len);
    buffer_commit(out, w.len + payload.len);
    return true;
}

bool mux_frame_put_credit(struct buffer *out, uint32_t number, uint32_t bytes)
{
    uint8_t payload[4];
    struct writer w = writer_of(payload, sizeof payload);
    writer_be(&w, bytes, 4);
    return mux_frame_put(out, MUX_FRAME_CREDIT, number, writer_slice(&w));
}

/* Appends the frame if `good`, and frees the payload. `good` is false if the payload did not fit. */
static bool finish(struct buffer *out, enum mux_frame_type type, uint32_t number, struct buffer *payload,
                   bool good)
{
    good = good && mux_frame_put(out, type, number, buffer_slice(payload));
    buffer_free(payload);
    return good;
}

bool mux_frame_put_response(struct buffer *out, uint32_t number, const struct http_head *head)
{
    struct buffer text = buffer_with_limit(BUFFER_LIMIT_MAX);
    bool good = json_write(&text, "{\"status\":%u,\"headers\":{", head->status) &&
                mux_put_headers(&text, head, true) && json_write(&text, "}}");
    return finish(out, MUX_FRAME_RESPONSE, number, &text, good);
}

bool mux_frame_put_end(struct buffer *out, uint32_t number, const struct http_head *trailers)
{
    struct buffer text = buffer_with_limit(BUFFER_LIMIT_MAX);
    bool good = !trailers || !trailers->count ||
                (json_write(&text, "{\"trailers\":{") && mux_put_headers(&text, trailers, true) &&
                 json_write(&text, "}}"));
    return finish(out, MUX_FRAME_END, number, &text, good);
}

bool mux_frame_put_error(struct buffer *out, uint32_t number, const char *code, const char *message,
                         unsigned status)
{
    struct buffer text = buffer_with_limit(1024);
    bool good =
        json_write(&text, "{\"code\":\"%s\",\"message\":\"%s\",\"status\":%u}", code, message, status);
    return finish(out, MUX_FRAME_RESET, number, &text, good);
}
