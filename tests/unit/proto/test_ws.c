/* SPDX-License-Identifier: MIT */
#include "tests/unit/support.h"

#include <stdio.h>
#include <stdlib.h>

#include "spoa/proto/ws.h"

#define T(text) SLICE_STATIC(text)

static const uint8_t mask[4] = {0x11, 0x22, 0x44, 0x88};

/* ---- the events of a decoder as text ---- */

struct story {
    char text[4096];
    size_t len;
    enum ws_event last;
    struct ws_decoder decoder;
    size_t left; /* bytes that the decoder did not take */
};

static void tell(struct story *s, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void tell(struct story *s, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    s->len += (size_t)vsnprintf(s->text + s->len, sizeof(s->text) - s->len, format, args);
    va_end(args);
    assert_true(s->len < sizeof(s->text));
}

static void tell_piece(struct story *s, const struct ws_piece *piece)
{
    uint8_t *plain = malloc(piece->bytes.len + 1);
    assert_non_null(plain);
    ws_mask(plain, piece->bytes.at, piece->bytes.len, s->decoder.frame.mask, piece->offset);
    tell(s, "%.*s%s", (int)piece->bytes.len, (char *)plain, piece->last ? "]" : "");
    free(plain);
}

static void tell_event(struct story *s, enum ws_event event, const struct ws_piece *piece)
{
    const struct ws_frame *f = &s->decoder.frame;
    if (event == WS_HEAD)
        tell(s, "%u%s%llu[", f->opcode, f->fin ? "." : "+", (unsigned long long)f->length);
    else if (event == WS_PIECE)
        tell_piece(s, piece);
    else if (event == WS_CONTROL && f->opcode == WS_CLOSE)
        tell(s, "close(%u,%.*s)", s->decoder.close_code, SLICE_PRINTF(ws_close_reason(&s->decoder)));
    else if (event == WS_CONTROL)
        tell(s, "%s(%.*s)", f->opcode == WS_PING ? "ping" : "pong",
             SLICE_PRINTF(ws_control_payload(&s->decoder)));
    else if (event == WS_BAD)
        tell(s, "bad(%u)", s->decoder.close_code);
}

/* Gives a decoder `all` in steps, like a caller that keeps the bytes that the decoder left. Each input ends at a guard page. */
static void decode(struct story *s, enum ws_sender sender, size_t whole, struct slice all, size_t step)
{
    size_t begin = 0, end = 0;

    *s = (struct story){.decoder = ws_decoder_of(sender, whole), .last = WS_MORE};
    while (end < all.len && s->last != WS_BAD) {
        end = all.len - end < step ? all.len : end + step;
        struct slice given = guarded(slice_sub(all, begin, end - begin)), in = given;
        struct ws_piece piece;
        do {
            s->last = ws_decode(&s->decoder, &in, &piece);
            tell_event(s, s->last, &piece);
        } while (s->last != WS_MORE && s->last != WS_BAD);
        begin = end - in.len;
        guarded_free(given);
    }
    s->left = all.len - begin;
}

static void check_story(enum ws_sender sender, struct slice all, const char *expected)
{
    struct story s;
    for (size_t step = 1; step <= all.len; step++)
        for (size_t whole = 0; whole <= 16384; whole += 16384) {
            decode(&s, sender, whole, all, step);
            assert_string_equal(s.text, expected);
            assert_int_equal(s.left, 0);
        }
}

static void assert_frames_equal(const struct ws_frame *a, const struct ws_frame *b)
{
    assert_int_equal(a->opcode, b->opcode);
    assert_int_equal(a->fin, b->fin);
    assert_int_equal(a->masked, b->masked);
    assert_memory_equal(a->mask, b->mask, 4);
    assert_int_equal(a->length, b->length);
}

/* ---- frames that are accepted ---- */

static void frames_of_a_client_are_told_however_they_arrive(void **state)
{
    (void)state;
    /* "Hello" masked is the example of RFC 6455 section 5.7 */
    check_story(WS_CLIENT, (struct slice)T("\x81\x85\x37\xfa\x21\x3d\x7f\x9f\x4d\x51\x58"), "1.5[Hello]");
    check_story(WS_CLIENT, (struct slice)T("\x82\x80\1\2\3\4\x82\x81\1\2\3\4\x42"), "2.0[]2.1[C]");
    check_story(WS_CLIENT, (struct slice)T("\x89\x85\x37\xfa\x21\x3d\x7f\x9f\x4d\x51\x58\x8a\x80\0\0\0\0"),
                "ping(Hello)pong()");
}

static void frames_of_a_server_are_told_however_they_arrive(void **state)
{
    (void)state;
    check_story(WS_SERVER, (struct slice)T("\x81\5Hello\x02\0\x80\0"), "1.5[Hello]2+0[]0.0[]");
    check_story(WS_SERVER, (struct slice)T("\x01\3Hel\x89\2hi\x00\1l\x8a\0\x80\1o\x82\1x"),
                "1+3[Hel]ping(hi)0+1[l]pong()0.1[o]2.1[x]");
}

static void a_close_is_told_and_what_follows_it_is_dropped(void **state)
{
    (void)state;
    check_story(WS_SERVER, (struct slice)T("\x88\0"), "close(1005,)");
    check_story(WS_SERVER, (struct slice)T("\x88\2\x03\xe8"), "close(1000,)");
    check_story(WS_SERVER,
                (struct slice)T("\x88\6\x0f\xa1"
                                "gone\x81\1x\xff\xff\xff"),
                "close(4001,gone)");
    check_story(WS_SERVER, (struct slice)T("\x01\1a\x88\2\x03\xf4\x80\1b"), "1+1[a]close(1012,)");
    check_story(WS_CLIENT, (struct slice)T("\x88\x83\0\0\0\0\x03\xe8!"), "close(1000,!)");
}

static void every_length_survives_encoder_and_decoder(void **state)
{
    static const uint64_t lengths[] = {0, 1, 125, 126, 127, 65535, 65536, 100000, INT64_MAX};
    (void)state;

    for (unsigned masked = 0; masked < 2; masked++)
        for (size_t i = 0; i < sizeof(lengths) / sizeof(*lengths); i++) {
            struct ws_frame frame = {
                .opcode = WS_BINARY, .fin = true, .masked = masked, .length = lengths[i]};
            uint8_t bytes[WS_HEAD_MAX];
            memcpy(frame.mask, mask, masked ? 4 : 0);
            struct slice in = slice_of(bytes, ws_encode_head(bytes, &frame));
            size_t wide = lengths[i] < 126 ? 0 : lengths[i] < 65536 ? 2 : 8;
            assert_int_equal(in.len, 2 + wide + (masked ? 4 : 0));
            struct ws_decoder d = ws_decoder_of(masked ? WS_CLIENT : WS_SERVER, 0);
            struct ws_piece piece;
            assert_int_equal(ws_decode(&d, &in, &piece), WS_HEAD);
            assert_int_equal(in.len, 0);
            assert_frames_equal(&d.frame, &frame);
        }
}

/* ---- pieces ---- */

static void payload_is_told_in_place_and_as_it_comes(void **state)
{
    static const uint8_t bytes[] = "\x82\5Hello";
    struct ws_decoder d = ws_decoder_of(WS_SERVER, 0);
    struct slice in = slice_of(bytes, 5);
    struct ws_piece piece;
    (void)state;

    assert_int_equal(ws_decode(&d, &in, &piece), WS_HEAD);
    assert_int_equal(ws_decode(&d, &in, &piece), WS_PIECE);
    assert_ptr_equal(piece.bytes.at, bytes + 2);
    assert_int_equal(piece.bytes.len, 3);
    assert_int_equal(piece.offset, 0);
    assert_false(piece.last);
    assert_int_equal(ws_decode(&d, &in, &piece), WS_MORE);
    in = slice_of(bytes + 5, 2);
    assert_int_equal(ws_decode(&d, &in, &piece), WS_PIECE);
    assert_ptr_equal(piece.bytes.at, bytes + 5);
    assert_int_equal(piece.offset, 3);
    assert_true(piece.last);
}

static void a_short_frame_is_held_back_until_it_is_whole(void **state)
{
    static const uint8_t bytes[] = "\x82\5Hello\x82\6";
    struct ws_decoder d = ws_decoder_of(WS_SERVER, 5);
    struct slice in = slice_of(bytes, 6);
    struct ws_piece piece;
    (void)state;

    assert_int_equal(ws_decode(&d, &in, &piece), WS_HEAD);
    assert_int_equal(ws_decode(&d, &in, &piece), WS_MORE);
    assert_int_equal(in.len, 4);
    in = slice_of(bytes + 2, 5);
    assert_int_equal(ws_decode(&d, &in, &piece), WS_PIECE);
    assert_true(piece.last);
    assert_true(slice_is(piece.bytes, "Hello"));
    /* one byte more than `whole`, so pieces are reported as they arrive */
    in = slice_text("\x82\6Hell");
    assert_int_equal(ws_decode(&d, &in, &piece), WS_HEAD);
    assert_int_equal(ws_decode(&d, &in, &piece), WS_PIECE);
    assert_true(slice_is(piece.bytes, "Hell"));
}

/* ---- frames that are refused ---- */

struct bad {
    enum ws_sender sender;
    struct slice bytes;
};

static const struct bad bad_frames[] = {
    /* roles */
    {WS_CLIENT, T("\x81\0")},
    {WS_CLIENT, T("\x81\5Hello")},
    {WS_CLIENT, T("\x89\0")},
    {WS_CLIENT, T("\x88\2\x03\xe8")},
    {WS_CLIENT, T("\x82\x7e\x01\x00")},
    {WS_SERVER, T("\x81\x80\1\2\3\4")},
    {WS_SERVER, T("\x81\x80\0\0\0\0")},
    {WS_SERVER, T("\x8a\x80\1\2\3\4")},
    {WS_SERVER, T("\x88\x82\0\0\0\0\x03\xe8")},
    /* reserved bits */
    {WS_SERVER, T("\xc1\0")},
    {WS_SERVER, T("\xa1\0")},
    {WS_SERVER, T("\x91\0")},
    {WS_SERVER, T("\xf1\0")},
    {WS_SERVER, T("\xc9\0")},
    {WS_CLIENT, T("\xc1\x80\1\2\3\4")},
    {WS_SERVER, T("\x01\1a\xc0\1b")},
    /* reserved opcodes */
    {WS_SERVER, T("\x83\0")},
    {WS_SERVER, T("\x84\0")},
    {WS_SERVER, T("\x85\0")},
    {WS_SERVER, T("\x86\0")},
    {WS_SERVER, T("\x87\0")},
    {WS_SERVER, T("\x8b\0")},
    {WS_SERVER, T("\x8c\0")},
    {WS_SERVER, T("\x8d\0")},
    {WS_SERVER, T("\x8e\0")},
    {WS_SERVER, T("\x8f\0")},
    {WS_CLIENT, T("\x83\x80\0\0\0\0")},
    {WS_SERVER, T("\x03\0")},
    /* lengths */
    {WS_SERVER, T("\x82\x7e\0\0")},
    {WS_SERVER, T("\x82\x7e\0\x7d")},
    {WS_SERVER, T("\x82\x7f\0\0\0\0\0\0\0\0")},
    {WS_SERVER, T("\x82\x7f\0\0\0\0\0\0\0\x7d")},
    {WS_SERVER, T("\x82\x7f\0\0\0\0\0\0\0\x7e")},
    {WS_SERVER, T("\x82\x7f\0\0\0\0\0\0\xff\xff")},
    {WS_SERVER, T("\x82\x7f\x80\0\0\0\0\0\0\0")},
    {WS_SERVER, T("\x82\x7f\xff\xff\xff\xff\xff\xff\xff\xff")},
    {WS_CLIENT, T("\x82\xfe\0\x7d\1\2\3\4")},
    {WS_CLIENT, T("\x82\xff\0\0\0\0\0\0\xff\xff\1\2\3\4")},
    /* control frames */
    {WS_SERVER, T("\x09\0")},
    {WS_SERVER, T("\x0a\0")},
    {WS_SERVER, T("\x08\0")},
    {WS_SERVER, T("\x89\x7e\0\x7e")},
    {WS_SERVER, T("\x8a\x7e\0\x7e")},
    {WS_SERVER, T("\x88\x7e\0\x7e")},
    {WS_SERVER, T("\x89\x7f\0\0\0\0\0\1\0\0")},
    {WS_SERVER, T("\x89\x7e\0\1")},
    {WS_CLIENT, T("\x09\x80\1\2\3\4")},
    {WS_CLIENT, T("\x89\xfe\0\x7e\1\2\3\4")},
    /* continuation */
    {WS_SERVER, T("\x80\0")},
    {WS_SERVER, T("\x00\0")},
    {WS_SERVER, T("\x81\1a\x80\1b")},
    {WS_SERVER, T("\x01\1a\x81\1b")},
    {WS_SERVER, T("\x01\1a\x02\1b")},
    {WS_SERVER, T("\x01\1a\x80\1b\x80\1c")},
    {WS_SERVER, T("\x01\1a\x89\0\x82\1b")},
    {WS_CLIENT, T("\x80\x80\1\2\3\4")},
    /* Close */
    {WS_SERVER, T("\x88\1\x03")},
    {WS_CLIENT, T("\x88\x81\0\0\0\0\x03")},
    {WS_SERVER, T("\x88\2\0\0")},
    {WS_SERVER, T("\x88\2\x03\xe7")}, /* 999 */
    {WS_SERVER, T("\x88\2\x03\xec")}, /* 1004 */
    {WS_SERVER, T("\x88\2\x03\xed")}, /* 1005 */
    {WS_SERVER, T("\x88\2\x03\xee")}, /* 1006 */
    {WS_SERVER, T("\x88\2\x03\xf7")}, /* 1015 */
    {WS_SERVER, T("\x88\2\x03\xf8")}, /* 1016 */
    {WS_SERVER, T("\x88\2\x07\xd0")}, /* 2000 */
    {WS_SERVER, T("\x88\2\x0b\xb7")}, /* 2999 */
    {WS_SERVER, T("\x88\2\x13\x88")}, /* 5000 */
    {WS_SERVER, T("\x88\2\xff\xff")},
    {WS_SERVER, T("\x88\4\x03\xedhi")},
    {WS_CLIENT, T("\x88\x82\0\0\0\0\x03\xee")},
};

static void bad_frames_are_refused_with_1002_however_they_arrive(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(bad_frames) / sizeof(*bad_frames); i++)
        for (size_t step = 1; step <= bad_frames[i].bytes.len; step++) {
            struct story s;
            decode(&s, bad_frames[i].sender, 0, bad_frames[i].bytes, step);
            if (s.last != WS_BAD || s.decoder.close_code != 1002 || !s.decoder.why)
                fail_msg("row %zu, step %zu: %s", i, step, s.text);
        }
}

static void every_first_byte_is_judged(void **state)
{
    (void)state;
    for (unsigned byte = 0; byte < 256; byte++) {
        uint8_t bytes[] = {(uint8_t)byte, 0};
        struct slice in = slice_of(bytes, 2);
        struct ws_decoder d = ws_decoder_of(WS_SERVER, 0);
        struct ws_piece piece;
        bool good =
            byte == 0x01 || byte == 0x02 || byte == 0x81 || byte == 0x82 || (byte >= 0x88 && byte <= 0x8a);
        assert_int_equal(ws_decode(&d, &in, &piece) != WS_BAD, good);
    }
}

/* However the head of a refused frame arrives: what ws_decode did not take of that frame is told, or that nobody knows it. */
static void a_refused_frame_says_how_long_it_is(void **state)
{
    static const uint8_t starts[] = {0xc2, 0x83, 0x80, 0x89, 0x08};
    (void)state;
    for (size_t i = 0; i < sizeof starts; i++)
        for (size_t cut = 2; cut <= 20; cut++) {
            uint8_t bytes[20] = {starts[i], 0xff, 0, 0, 0, 0, 4, 0x60, 0, 0};
            struct ws_decoder d = ws_decoder_of(WS_CLIENT, 0);
            struct slice in = slice_of(bytes, cut);
            struct ws_piece piece;
            assert_int_equal(ws_decode(&d, &in, &piece), WS_BAD);
            assert_true(ws_untold(&d) == (cut < 14 ? INT64_MAX : 0x4600000));
            assert_int_equal(in.len, cut < 14 ? 0 : cut - 14);
        }
}

/* One that is whole has no rest. */
static void a_refused_close_has_no_rest(void **state)
{
    struct ws_decoder d = ws_decoder_of(WS_SERVER, 0);
    struct slice in = slice_of("\x88\2\x03\xe7", 4);
    struct ws_piece piece;
    (void)state;

    assert_int_equal(ws_decode(&d, &in, &piece), WS_BAD);
    assert_true(ws_untold(&d) == 0);
}

static void a_refusal_is_final(void **state)
{
    struct ws_decoder d = ws_decoder_of(WS_SERVER, 0);
    struct slice in = slice_of("\x80\0", 2), more = slice_of("\x81\0", 2);
    struct ws_piece piece;
    (void)state;

    assert_int_equal(ws_decode(&d, &in, &piece), WS_BAD);
    assert_int_equal(ws_decode(&d, &more, &piece), WS_BAD);
}

static void close_codes_are_legal_as_the_registry_says(void **state)
{
    (void)state;
    for (unsigned code = 0; code < 66000; code++) {
        bool legal = (code >= 1000 && code <= 1003) || (code >= 1007 && code <= 1014) ||
                     (code >= 3000 && code <= 4999);
        assert_int_equal(ws_close_code_legal(code), legal);
    }
}

static void a_close_says_utf_8(void **state)
{
    static const char *const legal[] = {
        "", "a", "\x7f", "\xce\xba", "\xe2\x82\xac.", "\xf0\xa4\xad\xa2", "\xef\xbf\xbf"};
    static const char *const illegal[] = {
        "\x80", "a\xff", "\xce", "\xc0\xaf", "\xed\xa0\x80", "\xf4\x90\x80\x80", "\xe2\x82"};

    (void)state;
    for (size_t i = 0; i < sizeof legal / sizeof *legal; i++)
        assert_true(ws_close_reason_legal(slice_text(legal[i])));
    for (size_t i = 0; i < sizeof illegal / sizeof *illegal; i++)
        assert_false(ws_close_reason_legal(slice_text(illegal[i])));
}

/* ---- masking ---- */

static void masking_is_the_same_at_every_length_offset_and_alignment(void **state)
{
    uint8_t from[140], to[140], expected[140];
    (void)state;

    for (size_t i = 0; i < sizeof(from); i++)
        from[i] = (uint8_t)(i * 7 + 3);
    for (size_t start = 0; start < 9; start++)
        for (size_t len = 0; len < 130; len++)
            for (uint64_t offset = 0; offset < 5; offset++) {
                for (size_t i = 0; i < len; i++)
                    expected[i] = from[start + i] ^ mask[(offset + i) % 4];
                struct slice in = guarded(slice_of(from + start, len)), out = guarded(slice_of(to, len));
                ws_mask((uint8_t *)(uintptr_t)out.at, in.at, len, mask, offset);
                assert_memory_equal(out.at, expected, len);
                ws_mask((uint8_t *)(uintptr_t)out.at, out.at, len, mask, offset);
                assert_memory_equal(out.at, in.at, len);
                guarded_free(in);
                guarded_free(out);
            }
}

static void masking_far_into_a_frame_turns_the_mask(void **state)
{
    uint8_t byte = 0;
    (void)state;

    ws_mask(&byte, &byte, 1, mask, (uint64_t)1 << 40 | 3);
    assert_int_equal(byte, mask[3]);
}

/* ---- fragments ---- */

/* A relay sends each piece of a long frame on as a fragment, with its bytes unchanged. */
static size_t recut(uint8_t *to, struct slice frame_bytes, size_t step)
{
    struct ws_decoder d = ws_decoder_of(WS_CLIENT, 0);
    size_t len = 0;

    for (size_t at = 0; at < frame_bytes.len; at += step) {
        struct slice in = slice_sub(frame_bytes, at, step);
        struct ws_piece piece;
        for (enum ws_event event; (event = ws_decode(&d, &in, &piece)) != WS_MORE;) {
            assert_int_not_equal(event, WS_BAD);
            if (event != WS_PIECE)
                continue;
            struct ws_frame part = ws_fragment(&d.frame, piece.offset, piece.bytes.len);
            len += ws_encode_head(to + len, &part);
            memcpy(to + len, piece.bytes.at, piece.bytes.len);
            len += piece.bytes.len;
        }
    }
    return len;
}

static void a_frame_cut_anywhere_is_the_same_message(void **state)
{
    (void)state;
    for (unsigned fin = 0; fin < 2; fin++)
        for (size_t step = 1; step < 40; step++) {
            uint8_t frame_bytes[64], cut[1024];
            struct ws_frame frame = {.opcode = WS_TEXT, .fin = fin, .masked = true, .length = 26};
            memcpy(frame.mask, mask, 4);
            size_t head = ws_encode_head(frame_bytes, &frame);
            ws_mask(frame_bytes + head, (const uint8_t *)"abcdefghijklmnopqrstuvwxyz", 26, mask, 0);

            struct story s;
            decode(&s, WS_CLIENT, 0, slice_of(cut, recut(cut, slice_of(frame_bytes, head + 26), step)), 4096);
            /* only the first fragment has the opcode, only the last one FIN */
            char plain[64] = "";
            size_t fragments = 0;
            for (const char *at = s.text; *at; at++) {
                if (*at == '+' || *at == '.')
                    assert_int_equal(at[-1], fragments++ == 0 ? '1' : '0');
                if (*at >= 'a' && *at <= 'z')
                    plain[strlen(plain)] = *at;
            }
            assert_string_equal(plain, "abcdefghijklmnopqrstuvwxyz");
            assert_int_equal(s.decoder.in_message, !fin);
            assert_int_equal(strchr(s.text, '.') != NULL, fin);
        }
}

static void an_uncut_frame_is_its_own_fragment(void **state)
{
    struct ws_frame frame = {
        .opcode = WS_TEXT, .fin = true, .masked = true, .mask = {1, 2, 3, 4}, .length = 9};
    struct ws_frame same = ws_fragment(&frame, 0, 9), middle = ws_fragment(&frame, 3, 5),
                    end = ws_fragment(&frame, 8, 1);
    (void)state;

    assert_frames_equal(&same, &frame);
    assert_int_equal(middle.opcode, WS_CONTINUATION);
    assert_false(middle.fin);
    assert_memory_equal(middle.mask, "\4\1\2\3", 4);
    assert_true(end.fin);
    assert_memory_equal(end.mask, "\1\2\3\4", 4);
}

/* ---- control frames ---- */

static void a_head_is_put_in_front_of_its_payload_where_there_is_room(void **state)
{
    static const size_t sizes[] = {0, 1, 124, 125, 126, 127, 65535, 65536, 131072, 1 << 20};
    (void)state;

    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (unsigned masked = 0; masked < 2; masked++) {
            struct ws_frame frame = {.opcode = WS_BINARY, .fin = true, .masked = masked, .length = sizes[i]};
            uint8_t head[WS_HEAD_MAX], *memory = calloc(1, WS_HEAD_MAX + sizes[i]);
            size_t len = ws_encode_head(head, &frame);
            struct slice payload = slice_of(memory + WS_HEAD_MAX, sizes[i]);
            assert_non_null(memory);
            for (size_t room = 0; room <= WS_HEAD_MAX; room++) {
                memset(memory, 0xee, WS_HEAD_MAX);
                struct slice whole = ws_put_head(payload, room, &frame);
                size_t changed = room < len ? 0 : len;
                assert_int_equal(slice_present(whole), room >= len);
                for (size_t k = 0; k < WS_HEAD_MAX - changed; k++)
                    assert_int_equal(memory[k], 0xee);
                if (!changed)
                    continue;
                assert_ptr_equal(whole.at, payload.at - len);
                assert_int_equal(whole.len, len + sizes[i]);
                assert_memory_equal(whole.at, head, len);
            }
            free(memory);
        }
}

static void control_frames_are_built_for_both_roles(void **state)
{
    uint8_t bytes[WS_CONTROL_FRAME_MAX];
    struct story s;
    (void)state;

    size_t len = ws_encode_control(bytes, WS_PING, slice_text("hello"), NULL);
    assert_int_equal(len, 7);
    assert_memory_equal(bytes, "\x89\5hello", 7);
    len = ws_encode_control(bytes, WS_PONG, slice_text("hello"), mask);
    decode(&s, WS_CLIENT, 0, slice_of(bytes, len), len);
    assert_string_equal(s.text, "pong(hello)");
    assert_int_equal(ws_encode_control(bytes, WS_PONG, (struct slice){NULL, 0}, NULL), 2);
}

static void a_close_is_built_with_and_without_a_code(void **state)
{
    uint8_t bytes[WS_CONTROL_FRAME_MAX];
    struct story s;
    (void)state;

    assert_int_equal(ws_encode_close(bytes, WS_NO_CODE, slice_text("dropped"), NULL), 2);
    assert_memory_equal(bytes, "\x88\0", 2);
    size_t len = ws_encode_close(bytes, 4404, slice_text("sandbox_not_found"), mask);
    decode(&s, WS_CLIENT, 0, slice_of(bytes, len), len);
    assert_string_equal(s.text, "close(4404,sandbox_not_found)");
}

static void a_long_reason_is_cut_between_characters(void **state)
{
    uint8_t bytes[WS_CONTROL_FRAME_MAX];
    char reason[200];
    (void)state;

    memset(reason, 'x', sizeof(reason));
    assert_int_equal(ws_encode_close(bytes, 1000, slice_of(reason, 123), NULL), 127);
    assert_int_equal(ws_encode_close(bytes, 1000, slice_of(reason, 124), NULL), 127);
    memcpy(reason + 121, "\xe2\x82\xac", 3); /* the cut would otherwise be at 124 */
    assert_int_equal(ws_encode_close(bytes, 1000, slice_of(reason, 200), NULL), 4 + 121);
    assert_int_equal(bytes[1], 2 + 121);
    memset(reason, 0x80, sizeof(reason)); /* no byte begins a character */
    assert_int_equal(ws_encode_close(bytes, 1000, slice_of(reason, 200), NULL), 4);
}

/* ---- control frames of callers that keep no input ---- */
static void a_control_frame_stays_in_the_input_until_it_is_whole(void **state)
{
    static const uint8_t bytes[] = "\x89\5Hello";
    struct ws_decoder d = ws_decoder_of(WS_SERVER, 0);
    struct ws_piece piece;
    (void)state;
    assert_true(sizeof d <= 88);
    struct slice in = slice_of(bytes, 4);
    assert_int_equal(ws_decode(&d, &in, &piece), WS_MORE);
    assert_int_equal(in.len, 2);
    in = slice_of(bytes + 2, 5);
    assert_int_equal(ws_decode(&d, &in, &piece), WS_CONTROL);
    assert_true(slice_is(ws_control_payload(&d), "Hello") && in.len == 0);
}

static void a_decoder_with_memory_leaves_nothing(void **state)
{
    static const uint8_t bytes[] = "\x89\5Hello";
    uint8_t memory[WS_CONTROL_MAX];
    struct ws_decoder d = ws_decoder_with(WS_SERVER, memory);
    struct ws_piece piece;
    (void)state;
    for (size_t i = 0; i < 7; i++) {
        struct slice in = slice_of(bytes + i, 1);
        assert_int_equal(ws_decode(&d, &in, &piece), i < 6 ? WS_MORE : WS_CONTROL);
        assert_int_equal(in.len, 0);
    }
    assert_true(slice_is(ws_control_payload(&d), "Hello") && d.control == memory);
}

/* ---- image ---- */
static bool loads(struct ws_decoder *saved, struct ws_decoder *to)
{
    struct buffer bytes = buffer_with_limit(4096);
    struct image write = image_to(&bytes, 1, 0);
    image_part(&write, &ws_decoder_table, saved);
    *to = ws_decoder_of(saved->sender, saved->whole);
    struct image read = image_from(buffer_slice(&bytes), 1, 0);
    image_part(&read, &ws_decoder_table, to);
    buffer_free(&bytes);
    return image_done(&write) && image_done(&read);
}

static void an_image_says_no_head_that_was_refused(void **state)
{
    static const struct {
        struct slice head;
        bool loads;
    } heads[] = {{SLICE_LITERAL(""), true},
                 {SLICE_LITERAL("\x89"), true},
                 {SLICE_LITERAL("\x82\x7e"), true},
                 {SLICE_LITERAL("\x82\x7e\x01"), true},
                 {SLICE_LITERAL("\x82\x7f\0\0\0\0\0\1\0"), true},
                 /* a Ping that is longer than a control frame may be */
                 {SLICE_LITERAL("\x89\x7e\x01"), false},
                 {SLICE_LITERAL("\x88\x7f\0\0\0\0\0\0\xff"), false},
                 {SLICE_LITERAL("\x83\x7e\x01"), false},
                 {SLICE_LITERAL("\x80\x7e\x01"), false},
                 {SLICE_LITERAL("\x82\xfe\x01"), false}};
    (void)state;
    for (size_t i = 0; i < sizeof heads / sizeof *heads; i++) {
        struct ws_decoder d = ws_decoder_of(WS_SERVER, 16384), back;
        memcpy(d.head, heads[i].head.at, heads[i].head.len);
        d.head_len = (uint8_t)heads[i].head.len;
        assert_int_equal(loads(&d, &back), heads[i].loads);
    }
}

/* However the input is split, a part ends between two frames, has at most the given number of frames, and is the whole input if there are
 * fewer. */
static void some_frames_are_cut_off_between_two(void **state)
{
    (void)state;
    uint8_t all[8192], *at = all;
    static const size_t sizes[] = {0, 1, 125, 126, 300, 0, 7, 2, 1000, 0, 0, 70};
    size_t ends[sizeof sizes / sizeof *sizes], count = 0;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        bool control = sizes[i] < 100 && i % 3 == 1;
        struct ws_frame frame = {
            .opcode = control ? WS_PING : WS_BINARY, .fin = true, .masked = true, .length = sizes[i]};
        at += ws_encode_head(at, &frame);
        memset(at, 'x', sizes[i]);
        at += sizes[i];
        ends[count++] = (size_t)(at - all);
    }
    size_t len = (size_t)(at - all);
    for (unsigned frames = 1; frames < 6; frames++) {
        /* the decoder has taken `cut` bytes, or those of them that end a frame or a head */
        for (size_t cut = 0; cut < len; cut++) {
            struct ws_decoder d = ws_decoder_of(WS_CLIENT, 200);
            struct slice before = slice_of(all, cut);
            struct ws_piece piece;
            while (ws_decode(&d, &before, &piece) != WS_MORE)
                ;
            size_t from = cut - before.len, next = 0;
            while (ends[next] <= from)
                next++;
            /* the rest of a payload does not count as a frame; a frame whose head has begun does */
            size_t some = from + ws_some(&d, slice_of(all + from, len - from), frames), whole = next;
            while (ends[whole] < some)
                whole++;
            assert_int_equal(ends[whole], some);
            assert_true(whole + 1 - next <= frames + 1 && (some == len || whole + 1 - next >= frames));
            /* an input that ends within a frame is not cut before that frame */
            for (size_t there = from + 1; there < some; there++)
                assert_int_equal(ws_some(&d, slice_of(all + from, there - from), frames), there - from);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(frames_of_a_client_are_told_however_they_arrive),
        cmocka_unit_test(frames_of_a_server_are_told_however_they_arrive),
        cmocka_unit_test(a_close_is_told_and_what_follows_it_is_dropped),
        cmocka_unit_test(every_length_survives_encoder_and_decoder),
        cmocka_unit_test(payload_is_told_in_place_and_as_it_comes),
        cmocka_unit_test(a_short_frame_is_held_back_until_it_is_whole),
        cmocka_unit_test(bad_frames_are_refused_with_1002_however_they_arrive),
        cmocka_unit_test(every_first_byte_is_judged),
        cmocka_unit_test(a_refused_frame_says_how_long_it_is),
        cmocka_unit_test(a_refused_close_has_no_rest),
        cmocka_unit_test(a_refusal_is_final),
        cmocka_unit_test(close_codes_are_legal_as_the_registry_says),
        cmocka_unit_test(a_close_says_utf_8),
        cmocka_unit_test(masking_is_the_same_at_every_length_offset_and_alignment),
        cmocka_unit_test(masking_far_into_a_frame_turns_the_mask),
        cmocka_unit_test(a_frame_cut_anywhere_is_the_same_message),
        cmocka_unit_test(an_uncut_frame_is_its_own_fragment),
        cmocka_unit_test(a_head_is_put_in_front_of_its_payload_where_there_is_room),
        cmocka_unit_test(an_image_says_no_head_that_was_refused),
        cmocka_unit_test(control_frames_are_built_for_both_roles),
        cmocka_unit_test(a_close_is_built_with_and_without_a_code),
        cmocka_unit_test(a_long_reason_is_cut_between_characters),
        cmocka_unit_test(a_control_frame_stays_in_the_input_until_it_is_whole),
        cmocka_unit_test(a_decoder_with_memory_leaves_nothing),
        cmocka_unit_test(some_frames_are_cut_off_between_two),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
