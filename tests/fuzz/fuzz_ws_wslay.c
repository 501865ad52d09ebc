/* SPDX-License-Identifier: MIT */
/*
 * The frame codec against libwslay. Whatever our decoder tells, wslay reads as the same frames; what wslay
 * refuses, ours does; what only ours refuses breaks a rule that wslay leaves to its upper layer. Heads that we
 * write are those that wslay writes. First byte: the sender's role and how the input is cut.
 */
#include <stdlib.h>
#include <wslay/wslay.h>

#include "spoa/base/bytes/reader.h"
#include "spoa/base/bytes/writer.h"
#include "spoa/proto/ws.h"
#include "tests/fuzz/fuzz.h"

struct side {
    struct slice in;
    struct writer out;
};

static ssize_t give(uint8_t *to, size_t len, int flags, void *context)
{
    struct side *s = context;
    size_t n = s->in.len < len ? s->in.len : len;
    (void)flags;
    if (n == 0)
        return -1;
    memcpy(to, s->in.at, n);
    s->in = slice_from(s->in, n);
    return (ssize_t)n;
}

static ssize_t take(const uint8_t *bytes, size_t len, int flags, void *context)
{
    struct side *s = context;
    (void)flags;
    writer_put(&s->out, slice_of(bytes, len));
    CHECK(!s->out.full);
    return (ssize_t)len;
}

static int mask_with(uint8_t *to, size_t len, void *context)
{
    (void)context;
    memset(to, 0x5a, len);
    return 0;
}

static wslay_frame_context_ptr wslay_of(struct side *side)
{
    static const struct wslay_frame_callbacks callbacks = {take, give, mask_with};
    wslay_frame_context_ptr context;
    CHECK(wslay_frame_context_init(&context, &callbacks, side) == 0);
    return context;
}

/* One frame in both forms: its head and its plain payload as far as it is there. */
static void put_frame(struct writer *w, unsigned opcode, bool fin, uint64_t length)
{
    writer_printf(w, "<%u %d %llu>", opcode, fin, (unsigned long long)length);
}

/* ---- reading ---- */

/* The head of the frame that ours refused breaks a rule of RFC 6455 that is above wslay's framing. */
static bool above_framing(const struct wslay_frame_iocb *f, const struct ws_decoder *d, struct slice payload)
{
    bool control = f->opcode & 8;
    if (f->rsv || (f->opcode & 7) > 2 || f->mask != (d->sender == WS_CLIENT))
        return true;
    if (!control)
        return (f->opcode == WS_CONTINUATION) != d->in_message;
    return f->opcode == WS_CLOSE &&
           (payload.len == 1 ||
            (payload.len >= 2 && !ws_close_code_legal((unsigned)(payload.at[0] << 8 | payload.at[1]))));
}

struct told {
    struct writer ours, theirs;
    struct ws_decoder d;
    bool bad, closed;
};

static void read_ours(struct told *t, struct slice all, size_t step)
{
    for (size_t end = 0, begin = 0; end < all.len && !t->bad && !t->closed;) {
        struct ws_piece piece;
        enum ws_event event;
        end = all.len - end < step ? all.len : end + step;
        struct slice in = slice_sub(all, begin, end - begin);
        while ((event = ws_decode(&t->d, &in, &piece)) != WS_MORE && !t->closed) {
            const struct ws_frame *f = &t->d.frame;
            if ((t->bad = event == WS_BAD))
                return;
            if (event == WS_HEAD || event == WS_CONTROL)
                put_frame(&t->ours, f->opcode, f->fin, f->length);
            for (size_t i = 0; event == WS_PIECE && i < piece.bytes.len; i++)
                writer_u8(&t->ours, piece.bytes.at[i] ^ (f->masked ? f->mask[(piece.offset + i) % 4] : 0));
            if (event == WS_CONTROL)
                writer_put(&t->ours, ws_control_payload(&t->d));
            t->closed = event == WS_CONTROL && f->opcode == WS_CLOSE;
        }
        begin = end - in.len;
    }
}

/* Reads as many frames as ours told, and the one behind them. */
static void compare(struct told *t, struct slice all)
{
    struct side side = {.in = all};
    wslay_frame_context_ptr wslay = wslay_of(&side);
    struct wslay_frame_iocb f = {0};
    ssize_t n = 0;
    size_t begun = 0; /* of the frame at hand, in the story */
    bool same = true;
    uint64_t left = 0;

    while (same && (n = wslay_frame_recv(wslay, &f)) >= 0) {
        if (left == 0) {
            begun = t->theirs.len;
            put_frame(&t->theirs, f.opcode, f.fin, f.payload_length);
            left = f.payload_length;
        }
        writer_put(&t->theirs, slice_of(f.data, f.data_length));
        left -= f.data_length;
        same = t->theirs.len <= t->ours.len;
    }
    CHECK(!t->theirs.full && !t->ours.full);
    size_t common = same ? t->theirs.len : begun;
    CHECK(common <= t->ours.len && (common == 0 || memcmp(t->ours.at, t->theirs.at, common) == 0));
    if (same && n == WSLAY_ERR_PROTO) { /* ours may wait for the mask */
        struct slice in = slice_of("\0\0\0", 4);
        struct ws_piece piece;
        CHECK(t->bad || t->closed || ws_decode(&t->d, &in, &piece) == WS_BAD);
    }
    if (!same && t->bad)
        CHECK(above_framing(&f, &t->d, slice_from(writer_slice(&t->theirs), t->theirs.len - f.data_length)));
    wslay_frame_context_free(wslay);
}

/* frames: at most so many are in it. */
static void read_both(struct slice all, size_t frames, enum ws_sender sender, size_t step)
{
    size_t size = all.len + frames * 40 + 256;
    uint8_t *ours = malloc(size), *theirs = malloc(size);
    CHECK(ours && theirs);
    struct told t = {writer_of(ours, size), writer_of(theirs, size), ws_decoder_of(sender, 0), false, false};
    read_ours(&t, all, step);
    compare(&t, all);
    free(ours);
    free(theirs);
}

/* Each two bytes of the plan are a frame of a real size; reads cut it anywhere. */
static void read_long(struct slice plan, enum ws_sender sender)
{
    static const uint8_t starts[] = {0x81, 0x82, 0x02, 0x00, 0x80, 0x89, 0x8a, 0xc2};
    static const size_t steps[] = {65536, 65535, 16384, 16385, 4096, 1460, 1 << 20, 30011};
    static uint8_t memory[4 << 20], payload[1 << 20];
    struct writer w = writer_of(memory, sizeof memory);
    struct reader r = reader_of(plan);
    size_t step = steps[reader_u8(&r) % 8], frames = 0;

    for (; r.rest.len >= 2 && w.len < 2 << 20; frames++) {
        uint8_t kind = reader_u8(&r), head[WS_HEAD_MAX];
        struct ws_frame frame = {starts[kind & 7] & 0x0f,
                                 starts[kind & 7] & 0x80,
                                 sender == WS_CLIENT,
                                 {1, 2, 3, 4},
                                 fuzz_length(reader_u8(&r))};
        size_t len = ws_encode_head(head, &frame);
        head[0] = starts[kind & 7]; /* with its reserved bit */
        if (kind & 0x80)
            len = (size_t)kind % len; /* the rest of the head is what comes next */
        writer_put(&w, slice_of(head, len));
        fuzz_fill(payload, (size_t)frame.length, kind);
        writer_put(&w, slice_of(payload, (size_t)(kind & 0x40 ? frame.length / 2 : frame.length)));
    }
    if (!w.full)
        read_both(writer_slice(&w), 100000, sender, step);
}

/* ---- writing ---- */

static void write_both(struct slice plan, enum ws_sender sender)
{
    static const uint8_t opcodes[] = {0, 1, 2, 8, 9, 10}, mask[4] = {0x5a, 0x5a, 0x5a, 0x5a};
    static uint8_t payload[70000], theirs[70100], head[WS_CONTROL_FRAME_MAX];
    struct reader r = reader_of(plan);
    uint8_t kind = reader_u8(&r);
    struct ws_frame frame = {opcodes[kind % 6], true, sender == WS_CLIENT, {0}, reader_be(&r, 2)};
    if (kind & 0x80)
        frame.length += 4000;
    if (ws_is_control(frame.opcode))
        frame.length %= WS_CONTROL_MAX + 1;
    else
        frame.fin = kind & 0x40;
    memcpy(frame.mask, mask, sizeof mask);
    struct side side = {.out = writer_of(theirs, sizeof theirs)};
    wslay_frame_context_ptr wslay = wslay_of(&side);
    struct wslay_frame_iocb f = {.fin = frame.fin,
                                 .opcode = (uint8_t)frame.opcode,
                                 .payload_length = frame.length,
                                 .mask = frame.masked,
                                 .data = payload,
                                 .data_length = (size_t)frame.length};
    CHECK(wslay_frame_send(wslay, &f) == (ssize_t)frame.length);
    size_t len = ws_is_control(frame.opcode)
                     ? ws_encode_control(head, frame.opcode, slice_of(payload, (size_t)frame.length),
                                         frame.masked ? mask : NULL)
                     : ws_encode_head(head, &frame);
    CHECK(side.out.len == len + (ws_is_control(frame.opcode) ? 0 : frame.length));
    CHECK(memcmp(head, theirs, len) == 0);
    wslay_frame_context_free(wslay);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 2)
        return 0;
    struct slice rest = slice_of(data + 1, size - 1);
    enum ws_sender sender = data[0] & 2 ? WS_CLIENT : WS_SERVER;
    if (data[0] >> 2 == 0x3f)
        read_long(rest, sender);
    else if (data[0] & 1)
        write_both(rest, sender);
    else
        read_both(rest, rest.len / 2 + 1, sender, 1 + (data[0] >> 2));
    return 0;
}
