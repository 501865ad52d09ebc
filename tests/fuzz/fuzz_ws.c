/* SPDX-License-Identifier: MIT */
/* Two properties of the frame codec. Any bytes: a decoder tells the same, however they arrive, and whether or not whole
 * messages are taken at once (ws_decode_whole). Any frames: what the encoder writes, whole or re-cut as a relay does, the decoder reads as the same messages. First
 * byte: which property, the role, and how the rest is cut. A frame may have made bytes behind its own. */
#include <stdlib.h>

#include "spoa/base/bytes/reader.h"
#include "spoa/base/bytes/writer.h"
#include "spoa/proto/ws.h"
#include "tests/fuzz/fuzz.h"

/* What was told, in a form that does not depend on the pieces: bytes of payload and marks between frames. */
struct log {
    struct writer w;
    struct ws_decoder decoder;
    enum ws_event last;
    bool messages_only; /* leave out where a message's frames begin and end */
    bool quick;         /* whole messages are asked for first */
};

static void log_event(struct log *log, enum ws_event event, const struct ws_piece *piece)
{
    const struct ws_frame *f = &log->decoder.frame;
    if (event == WS_HEAD && !log->messages_only)
        writer_printf(&log->w, "<%u%u %llu>", f->opcode, f->fin, (unsigned long long)f->length);
    if (event == WS_HEAD && log->messages_only && f->opcode != WS_CONTINUATION)
        writer_printf(&log->w, "<%u>", f->opcode);
    for (size_t i = 0; event == WS_PIECE && i < piece->bytes.len; i++)
        writer_u8(&log->w, piece->bytes.at[i] ^ f->mask[(piece->offset + i) % 4]);
    if (event == WS_PIECE && piece->last && f->fin)
        writer_text(&log->w, "|");
    if (event == WS_CONTROL) {
        writer_printf(&log->w, "{%u}", f->opcode);
        writer_put(&log->w, ws_control_payload(&log->decoder));
    }
    if (event == WS_BAD)
        writer_printf(&log->w, "bad %u %s", log->decoder.close_code, log->decoder.why);
}

static void take_whole(struct log *log, struct slice *in, uint64_t most)
{
    struct ws_piece piece;

    while (log->quick && ws_between_messages(&log->decoder)) {
        struct slice before = *in;
        if (!ws_decode_whole(&log->decoder, in, most, &piece)) {
            CHECK(slice_equal(before, *in));
            return;
        }
        CHECK(piece.bytes.len <= most && piece.bytes.len <= UINT16_MAX && piece.offset == 0);
        CHECK(piece.bytes.at + piece.bytes.len == in->at && ws_between_messages(&log->decoder));
        log_event(log, WS_HEAD, &piece);
        log_event(log, WS_PIECE, &piece);
    }
}

static void decode(struct log *log, struct slice all, size_t step)
{
    size_t begin = 0, end = 0;

    while (end < all.len && log->last != WS_BAD) {
        struct ws_piece piece;
        end = all.len - end < step ? all.len : end + step;
        struct slice in = slice_sub(all, begin, end - begin);
        take_whole(log, &in, UINT64_MAX);
        while ((log->last = ws_decode(&log->decoder, &in, &piece)) != WS_MORE && log->last != WS_BAD) {
            log_event(log, log->last, &piece);
            take_whole(log, &in, step);
        }
        begin = end - in.len;
    }
    log_event(log, log->last, NULL);
}

static struct slice story(struct slice all, enum ws_sender sender, size_t whole, size_t step,
                          bool messages_only, bool quick, uint8_t *memory, size_t size)
{
    struct log log = {writer_of(memory, size), ws_decoder_of(sender, whole), WS_MORE, messages_only, quick};
    decode(&log, all, step);
    CHECK(!log.w.full);
    return writer_slice(&log.w);
}

static void any_bytes(struct slice all, enum ws_sender sender, size_t step)
{
    size_t size = all.len * 40 + 256; /* of a story: at most a head of 30 characters for every two bytes */
    uint8_t *a = malloc(size), *b = malloc(size);
    CHECK(a && b);
    struct slice first = story(all, sender, 0, step, false, false, a, size);
    CHECK(slice_equal(first, story(all, sender, 0, all.len, false, false, b, size)));
    CHECK(slice_equal(first, story(all, sender, 0, step, false, true, b, size)));
    free(a);
    free(b);
}

/* Reads frames to write off the input and writes them, each re-cut into fragments of at most `cut` bytes. */
static struct slice write_frames(struct slice plan, enum ws_sender sender, uint64_t cut, size_t most_made,
                                 struct writer *w)
{
    size_t *most = &most_made;
    struct reader r = reader_of(plan);
    bool in_message = false;

    while (r.rest.len > 6) {
        uint8_t kind = reader_u8(&r), head[WS_CONTROL_FRAME_MAX];
        struct slice mask = reader_take(&r, 4), payload = reader_take(&r, reader_u8(&r) % (r.rest.len + 1));
        bool masked = sender == WS_CLIENT;
        size_t made = kind & 8 && !(kind & 1) && r.rest.len ? fuzz_length(reader_u8(&r)) : 0;
        made = made < *most ? made : *most;
        *most -= made;
        if (kind & 1) {
            writer_put(w, slice_of(head, ws_encode_control(head, kind & 2 ? WS_PING : WS_PONG, payload,
                                                           masked ? mask.at : NULL)));
            continue;
        }
        size_t len_all = payload.len + made;
        struct ws_frame frame = {.fin = kind & 2, .masked = masked, .length = len_all};
        frame.opcode = in_message ? WS_CONTINUATION : kind & 4 ? WS_TEXT : WS_BINARY;
        in_message = !frame.fin;
        if (masked)
            memcpy(frame.mask, mask.at, 4);
        uint8_t *masked_bytes = malloc(len_all + 1);
        CHECK(masked_bytes);
        if (payload.len)
            memcpy(masked_bytes, payload.at, payload.len);
        fuzz_fill(masked_bytes + payload.len, made, kind);
        ws_mask(masked_bytes, masked_bytes, len_all, frame.mask, 0);
        for (uint64_t at = 0; at == 0 || at < frame.length; at += cut) {
            uint64_t len = frame.length - at < cut ? frame.length - at : cut;
            struct ws_frame part = ws_fragment(&frame, at, len);
            writer_put(w, slice_of(head, ws_encode_head(head, &part)));
            writer_put(w, slice_of(masked_bytes + at, (size_t)len));
        }
        free(masked_bytes);
    }
    CHECK(!w->full);
    return writer_slice(w);
}

static void any_frames(struct slice plan, enum ws_sender sender, size_t step)
{
    static uint8_t memory[4][1 << 20]; /* the writers are bounded */
    size_t made = step < 64 ? 5000 : 140000, size = sizeof *memory;
    struct writer whole = writer_of(memory[0], size), cut = writer_of(memory[1], size);
    struct slice a = story(write_frames(plan, sender, UINT64_MAX / 2, made, &whole), sender, 16384, step,
                           true, true, memory[2], size);
    struct slice b = story(write_frames(plan, sender, step, made, &cut), sender, 0, step + 1, true, false,
                           memory[3], size);
    CHECK(slice_equal(a, b));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 2 || size > 8000)
        return 0;
    struct slice rest = slice_of(data + 1, size - 1);
    enum ws_sender sender = data[0] & 2 ? WS_CLIENT : WS_SERVER;
    size_t step = data[0] < 128 ? 1 + (data[0] >> 2) : 1 + fuzz_length(data[0] >> 2 & 0x1f);
    if (data[0] & 1)
        any_frames(rest, sender, step);
    else
        any_bytes(rest, sender, step);
    return 0;
}
