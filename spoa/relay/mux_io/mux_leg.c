/* SPDX-License-Identifier: MIT */
/* mux_leg: one connection of the client: decodes its WebSocket frames, and hands each whole message to the socket. */
#include <stdlib.h>

#include "spoa/relay/mux_io/mux_parts.h"

#define IN_MOST ((size_t)64 << 10) /* largest input that is not decoded yet, in bytes */
/* bytes waiting for the client from which on its messages are not read, and down to which they must shrink before reading resumes */
#define OUT_HIGH ((size_t)256 << 10)
#define OUT_LOW  ((size_t)64 << 10)

enum { FRAMES = 64 }; /* frames, or pieces of them, per event: other clients of the thread come next */

size_t mux_leg_held(const struct mux_leg *leg)
{
    return leg ? stream_held(&leg->stream) + leg->message.size + mux_text_held(&leg->reading) : 0;
}

uint64_t mux_leg_announced(const struct mux_leg *leg)
{
    uint64_t rest = ws_untold(&leg->decoder);
    return rest > leg->undecoded ? rest - leg->undecoded : 0;
}

/* ---- messages ---- */

static void on_message(struct mux_leg *leg)
{
    struct mux_io *io = leg->io;
    struct buffer message =
        leg->message; /* detached, because handling it may end the socket, which frees leg->message */
    struct mux_text reading = leg->reading;
    leg->message = buffer_with_limit(io->most);
    leg->reading = mux_text_begin();
    leg->come = 0;
    if (!io->v1)
        mux_take_text(io, &reading, &message);
    else if (leg->text && io->again)
        mux_resume_heard(io, buffer_slice(&message));
    else if (io->again)
        mux_resume_message(io, buffer_slice(&message));
    else
        mux_take_message(io, buffer_slice(&message));
    buffer_free(&message);
}

/* Appends an unmasked piece to the message. The rest of a message that is already known to be invalid is not kept. Returns false if
 * memory is short. */
static bool keep_piece(struct mux_leg *leg, const struct ws_piece *piece)
{
    size_t room;
    uint8_t *to = buffer_room(&leg->message, piece->bytes.len, &room);
    if (!to)
        return false;
    ws_mask(to, piece->bytes.at, piece->bytes.len, leg->decoder.frame.mask, piece->offset);
    buffer_commit(&leg->message, piece->bytes.len);
    if (!leg->io->v1 && !mux_text_feed(&leg->reading, buffer_slice(&leg->message)))
        buffer_free(&leg->message);
    return true;
}

static void take_piece(struct mux_leg *leg, const struct ws_piece *piece)
{
    const struct ws_frame *frame = &leg->decoder.frame;
    leg->come += piece->bytes.len;
    if (piece->bytes.len && !leg->reading.wrong && !keep_piece(leg, piece)) {
        mux_end_for_memory(leg->io);
        return;
    }
    if (piece->last && frame->fin)
        on_message(leg);
    else if (!leg->io->v1 && !mux_limits_fits(leg->io, &leg->message))
        mux_end_socket(leg->io, MUX_END_LARGE, 1009, "message too large");
}

static void take_head(struct mux_leg *leg)
{
    struct mux_io *io = leg->io;
    const struct ws_frame *frame = &leg->decoder.frame;
    if (frame->opcode != WS_CONTINUATION)
        leg->text = frame->opcode == WS_TEXT;
    if (frame->length > io->most - leg->come)
        mux_end_socket(io, MUX_END_LARGE, 1009, "message too large");
    else if (leg->text && io->v1 && !io->again)
        mux_end_socket(io, MUX_END_PROTOCOL, 1003, "a text message");
}

static void take_control(struct mux_leg *leg)
{
    struct mux_io *io = leg->io;
    struct ws_decoder *d = &leg->decoder;
    uint8_t frame[WS_CONTROL_FRAME_MAX];
    if (d->frame.opcode == WS_CLOSE && io->again && !mux_resume_is_end(io, d->close_code)) {
        mux_resume_lost(io, d->close_code);
    } else if (d->frame.opcode == WS_CLOSE) {
        mux_end_socket(io, MUX_END_CLIENT, d->close_code, "");
    } else if (d->frame.opcode == WS_PING) {
        struct slice pong = slice_of(frame, ws_encode_control(frame, WS_PONG, ws_control_payload(d), NULL));
        if (!buffer_put(&leg->stream.out, pong))
            mux_end_for_memory(io);
    }
}

static void take_event(struct mux_leg *leg, enum ws_event event, const struct ws_piece *piece)
{
    struct ws_decoder *d = &leg->decoder;
    if (event == WS_HEAD)
        take_head(leg);
    else if (event == WS_PIECE)
        take_piece(leg, piece);
    else if (event == WS_CONTROL)
        take_control(leg);
    else if (event == WS_BAD)
        mux_end_socket(leg->io, MUX_END_PROTOCOL, d->close_code, d->why);
}

/* ---- the stream ---- */

/* Returns true while this connection is its socket's current one, and the socket is open. */
static bool is_current(const struct mux_leg *leg)
{
    return leg->io && !leg->io->over;
}

/* Returns true if the client's input must not be read. A resumable socket must read acknowledgements however much output waits, because
 * only they release it. The other messages that arrive then are bounded by mux_numbers, and the Pongs by `full`. */
static bool rests(const struct mux_leg *leg)
{
    return leg->io->again ? leg->full : leg->io->stopped;
}

static void set_full(struct mux_leg *leg)
{
    size_t waits = buffer_len(&leg->stream.out);
    bool full = leg->full ? waits > OUT_LOW : waits >= OUT_HIGH;
    if (leg->io->again && full != leg->full)
        stream_pause(&leg->stream, full);
    leg->full = full;
}

void mux_leg_read(struct mux_leg *leg)
{
    struct mux_io *io = leg->io;
    struct slice all = buffer_slice(&leg->stream.in), rest = all;
    enum ws_event event = WS_PIECE;
    unsigned events = 0;
    if (io->again)
        io->again->handed = 0;
    while (is_current(leg) && !rests(leg) &&
           event != WS_MORE && /* not `rest.len`: the decoder reports an empty frame after its last byte */
           events++ < FRAMES) {
        struct ws_piece piece;
        event = ws_decode(&leg->decoder, &rest, &piece);
        leg->undecoded = rest.len;
        take_event(leg, event, &piece);
        if (!is_current(leg))
            return;
        set_full(leg);
        mux_set_flow(io);
    }
    stream_consume(&leg->stream, all.len - rest.len);
    leg->undecoded = buffer_len(&leg->stream.in);
    if (event != WS_MORE && !rests(leg))
        stream_offer_again(&leg->stream);
    if (io->again)
        mux_resume_settle(io);
    mux_settle(io);
}

/* Runs before the stream reads, and pauses the stream if the limits have no room for the input. */
static void on_reading(void *owner)
{
    struct mux_leg *leg = owner;
    if (!is_current(leg))
        return;
    leg->asks = true;
    mux_set_flow(leg->io);
    leg->asks = leg->io->stopped;
}

static void on_input(void *owner)
{
    struct mux_leg *leg = owner;
    if (!is_current(leg))
        return;
    leg->io->heard = loop_clock();
    leg->io->pinged = 0;
    mux_leg_read(leg);
}

static void on_sent(void *owner)
{
    struct mux_leg *leg = owner;
    struct mux_io *io = leg->io;
    if (io && io->over && io->leg == leg)
        mux_account(io);
    if (!is_current(leg))
        return;
    io->moved = loop_clock();
    if (io->again)
        mux_resume_pump(io);
    if (!is_current(leg))
        return;
    mux_finish_whole(io);
    set_full(leg);
    mux_set_flow(io);
    if (!rests(leg))
        mux_leg_read(leg);
}

static void on_ended(void *owner, int error)
{
    struct mux_leg *leg = owner;
    (void)error;
    if (!is_current(leg))
        return;
    if (leg->io->again)
        mux_resume_lost(leg->io, 0);
    else
        mux_end_socket(leg->io, MUX_END_BROKEN, 0, NULL);
}

static void on_gone(void *owner)
{
    struct mux_leg *leg = owner;
    struct mux_io *io = leg->io;
    buffer_free(&leg->message);
    mux_text_free(&leg->reading);
    free(leg);
    if (!io)
        return;
    io->leg = NULL;
    mux_free(io);
}

static const struct stream_user user = {.reading = on_reading,
                                        .input = on_input,
                                        .sent = on_sent,
                                        .ended = on_ended,
                                        .gone = on_gone,
                                        .read_size = 16 << 10};

struct mux_leg *mux_leg_open(struct mux_io *io, int fd, struct slice head, struct slice early)
{
    struct mux_leg *leg = calloc(1, sizeof *leg);
    if (!leg)
        return NULL;
    leg->io = io;
    leg->message = buffer_with_limit(io->most);
    leg->reading = mux_text_begin();
    leg->decoder = ws_decoder_of(WS_CLIENT, 0);
    leg->stream = (struct stream){.user = &user,
                                  .owner = leg,
                                  .in = buffer_with_limit(IN_MOST + LEG_FRAME_WHOLE),
                                  .out = buffer_with_limit(SIZE_MAX)};
    if (!buffer_put(&leg->stream.out, head) || (early.len && !buffer_put(&leg->stream.in, early))) {
        stream_close(&leg->stream);
        free(leg);
        return NULL;
    }
    io->leg = leg;
    io->heard = io->moved = loop_clock();
    io->pinged = 0;
    stream_open(&leg->stream, io->thread->loop, fd);
    stream_join(&leg->stream, io->share);
    return leg;
}

void mux_leg_leave(struct mux_leg *leg, unsigned code, const char *reason)
{
    struct mux_io *io = leg->io;
    uint8_t memory[WS_CONTROL_FRAME_MAX];
    struct buffer rest = buffer_with_limit(sizeof memory);
    bool speaks =
        code && !buffer_len(&leg->stream.out) &&
        buffer_put(&rest, slice_of(memory, ws_encode_close(memory, code, slice_text(reason), NULL)));
    io->leg = NULL;
    leg->io = NULL;
    if (speaks)
        lingering_close_begin(&io->thread->lingering, stream_release(&leg->stream), &rest,
                              mux_leg_announced(leg), 0);
    stream_close(&leg->stream);
}
