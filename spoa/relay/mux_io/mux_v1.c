/* SPDX-License-Identifier: MIT */
#include "spoa/relay/mux_io/mux_parts.h"

#include "spoa/base/bytes/writer.h"
#include "spoa/proto/ws_handshake.h"

enum { PARTS = 64 }; /* parts of an answer per event: other requests come next */

static void break_off(struct mux_io *io, const char *why)
{
    mux_end_socket(io, MUX_END_PROTOCOL, 1002, why);
}

bool mux_v1_is_offered(struct slice protocols, const char *protocol)
{
    return ws_handshake_offers(protocols, slice_text(protocol));
}

void mux_v1_begin(struct mux_request *r, const struct mux_message *m, uint32_t number)
{
    r->v1 = (struct mux_v1){.number = number,
                            .response = mux_response_of(slice_is(m->method, "HEAD")),
                            .credit = m->window < 0 ? MUX_FRAME_WINDOW : (uint32_t)m->window,
                            .granted = MUX_FRAME_UPLOAD,
                            .left = m->length < 0 ? UINT64_MAX : (uint64_t)m->length,
                            .follows = m->follows,
                            .chunked = m->length < 0};
}

/* ---- the answer ---- */

static bool put_response(struct mux_request *r)
{
    struct http_head head;
    bool good = mux_response_head(&r->v1.response, &head) &&
                mux_frame_put_response(mux_out(r->io), r->v1.number, &head);
    mux_response_forget_head(&r->v1.response);
    return good;
}

static bool put_end(struct mux_request *r)
{
    struct http_head trailers;
    bool some = mux_response_trailers(&r->v1.response, &trailers);
    return mux_frame_put_end(mux_out(r->io), r->v1.number, some ? &trailers : NULL);
}

static enum mux_step take_part(struct mux_request *r, enum mux_part part, struct slice piece, bool *fits)
{
    struct buffer *out = mux_out(r->io);
    switch (part) {
    case MUX_PART_HEAD:
        *fits = put_response(r);
        return *fits ? MUX_MORE : MUX_BROKEN;
    case MUX_PART_BODY:
        r->v1.credit -= (uint32_t)piece.len;
        *fits = mux_frame_put(out, MUX_FRAME_DATA, r->v1.number, piece);
        return *fits ? MUX_MORE : MUX_BROKEN;
    case MUX_PART_END:
        *fits = put_end(r);
        return *fits ? MUX_DONE : MUX_BROKEN;
    case MUX_PART_BAD:
        *fits = mux_response_has_head(&r->v1.response)
                    ? mux_frame_put_error(out, r->v1.number, "STREAM_ERROR", "The answer was cut.", 502)
                    : mux_frame_put_error(out, r->v1.number, "INTERNAL_ERROR", "There was no answer.", 502);
        return MUX_BROKEN;
    case MUX_PART_NO_MEMORY:
        *fits = false;
        return MUX_BROKEN;
    default:
        return MUX_MORE;
    }
}

void mux_v1_answer(struct mux_request *r)
{
    struct slice all = buffer_slice(&r->up.in), rest = all, piece;
    enum mux_part part = MUX_PART_HEAD;
    enum mux_step step = MUX_MORE;
    bool fits = true;
    unsigned parts = 0;
    while (step == MUX_MORE && part != MUX_PART_MORE && parts++ < PARTS) {
        size_t most = r->v1.credit < MUX_FRAME_MOST ? r->v1.credit : MUX_FRAME_MOST;
        part = mux_response_next(&r->v1.response, &rest, most, &piece);
        step = take_part(r, part, piece, &fits);
    }
    if (step == MUX_MORE && r->v1.cut && !rest.len)
        step = take_part(r, mux_response_cut(&r->v1.response), slice_of("", 0), &fits);
    stream_consume(&r->up, all.len - rest.len);
    if (step == MUX_MORE && part != MUX_PART_MORE)
        stream_offer_again(&r->up);
    mux_conclude(r, step, fits);
}

/* ---- the request's body ---- */

static void refuse_body(struct mux_request *r, const char *why)
{
    struct mux_io *io = r->io;
    if (mux_say_error(io, slice_text(NULL), r->v1.number, "INVALID_REQUEST", why, 400))
        mux_drop(r, MUX_OUTCOME_REFUSED);
}

/* Grants the client credit for its body, so that the granted bytes and those waiting here are MUX_FRAME_UPLOAD together. Small grants
 * wait, because each one is a message. */
static void grant(struct mux_request *r)
{
    size_t waits = buffer_len(&r->up.out), out = r->v1.granted + waits;
    if (!r->v1.follows || out >= MUX_FRAME_UPLOAD || MUX_FRAME_UPLOAD - out < MUX_FRAME_UPLOAD / 4)
        return;
    uint32_t more = (uint32_t)(MUX_FRAME_UPLOAD - out);
    r->v1.granted += more;
    if (!mux_frame_put_credit(mux_out(r->io), r->v1.number, more))
        mux_end_for_memory(r->io);
}

void mux_v1_sent(struct mux_request *r)
{
    struct mux_io *io = r->io;
    grant(r);
    mux_settle(io);
}

/* Appends a piece of the body to the output, as a chunk (RFC 9112 section 7.1) if the body's length is unknown. */
static bool put_piece(struct mux_request *r, struct slice bytes)
{
    struct buffer *out = &r->up.out;
    char size[16];
    if (!r->v1.chunked)
        return buffer_put(out, bytes);
    int len = snprintf(size, sizeof size, "%zx\r\n", bytes.len);
    return buffer_put(out, slice_of(size, (size_t)len)) && buffer_put(out, bytes) &&
           buffer_put(out, SLICE_LITERAL("\r\n"));
}

static bool put_last(struct mux_request *r, struct slice trailers)
{
    struct buffer *out = &r->up.out;
    return !r->v1.chunked || (buffer_put(out, SLICE_LITERAL("0\r\n")) && buffer_put(out, trailers) &&
                              buffer_put(out, SLICE_LITERAL("\r\n")));
}

static void send_body(struct mux_request *r, bool good)
{
    if (!good) {
        refuse_body(r, "There is no room for the body.");
        return;
    }
    stream_send_soon(&r->up);
    mux_note_request(r);
}

static void take_data(struct mux_request *r, struct slice bytes)
{
    if (!r->v1.follows) {
        refuse_body(r, "DATA behind the end of the body.");
    } else if (bytes.len > r->v1.granted) {
        refuse_body(r, "More DATA than there was credit for.");
    } else if (bytes.len > r->v1.left) {
        refuse_body(r, "More DATA than `length` says.");
    } else if (bytes.len) {
        r->v1.granted -= (uint32_t)bytes.len;
        r->v1.left -= r->v1.chunked ? 0 : bytes.len;
        send_body(r, put_piece(r, bytes));
    }
}

static void take_end(struct mux_request *r, struct slice text)
{
    static _Thread_local uint8_t memory[16384];
    struct writer trailers = writer_of(memory, sizeof memory);
    if (!r->v1.follows) {
        refuse_body(r, "END behind the end of the body.");
    } else if (!r->v1.chunked && r->v1.left) {
        refuse_body(r, "Less DATA than `length` says.");
    } else if (!mux_trailers_read(text, &trailers)) {
        refuse_body(r, "The trailers are none.");
    } else {
        r->v1.follows = false;
        send_body(r, put_last(r, writer_slice(&trailers)));
    }
}

/* ---- messages ---- */

static void take_credit(struct mux_request *r, struct slice payload)
{
    uint32_t more = mux_frame_credit(payload);
    if (!more || more > MUX_FRAME_CREDIT_MOST - r->v1.credit) {
        break_off(r->io, "credit");
        return;
    }
    r->v1.credit += more;
    mux_v1_answer(r);
}

static void take_request(struct mux_io *io, const struct mux_frame *frame)
{
    struct mux_message m = mux_message_read_v1(frame->payload);
    io->last = frame->number;
    if (m.kind == MUX_REQUEST)
        mux_ask(io, &m, frame->number);
    else if (mux_say_error(io, slice_text(NULL), frame->number, "INVALID_REQUEST", m.wrong, 400))
        metrics_add(io->thread->shard, METRIC_MUX_REQUESTS, METRIC_INDEX(MUX_OUTCOME_REFUSED), 1);
    mux_message_free(&m);
}

void mux_v1_take(struct mux_io *io, struct slice message)
{
    struct mux_frame frame;
    if (!mux_frame_read(message, &frame)) {
        break_off(io, "no type or no number");
        return;
    }
    if (frame.type < MUX_FRAME_REQUEST || frame.type > MUX_FRAME_CREDIT)
        return; /* a message type of a later version */
    bool known = frame.number <= io->last;
    if (frame.type == MUX_FRAME_REQUEST && known) {
        break_off(io, "a request's number is not higher than those before");
    } else if (frame.type == MUX_FRAME_REQUEST) {
        take_request(io, &frame);
    } else if (!known) {
        break_off(io, "a number of no request");
    } else {
        struct mux_request *r = mux_find(io, slice_text(NULL), frame.number);
        if (!r) /* the request ended before the client knew */
            return;
        if (frame.type == MUX_FRAME_DATA)
            take_data(r, frame.payload);
        else if (frame.type == MUX_FRAME_END)
            take_end(r, frame.payload);
        else if (frame.type == MUX_FRAME_RESET)
            mux_drop(r, MUX_OUTCOME_CANCELLED);
        else if (frame.type == MUX_FRAME_CREDIT)
            take_credit(r, frame.payload);
    }
}
