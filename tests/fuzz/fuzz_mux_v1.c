/* SPDX-License-Identifier: MIT */
/* cellgate.mux.v1: a client's REQUEST makes one request with the body that it says, and its trailers are ones; and however a
 * worker's answer arrives, and whatever credit there is, its messages say the same and are whole. First byte: which, and how
 * the rest is cut; second: the credit. */

#include "spoa/proto/handover.h"
#include "spoa/proto/ws.h"
#include "spoa/relay/mux/frame.h"
#include "spoa/relay/mux/message.h"
#include "spoa/relay/mux/response.h"
#include "tests/fuzz/fuzz.h"

enum { OUT_MOST = 1 << 26, HELD_MOST = 4 * MUX_HEAD_MOST + 4096 };

/* ---- what a client says ---- */

static size_t lines_of(const struct http_head *head, const char *name)
{
    size_t lines = 0;
    for (size_t i = 0; i < head->count; i++)
        lines += http_same_name(head->fields[i].name, slice_text(name));
    return lines;
}

/* What no client may say behind HAProxy's back. */
static void check_fields(const struct http_head *head)
{
    static const char *const none[] = {"upgrade",         "expect",    "proxy",   "x-cell-handover",
                                       "x-forwarded-for", "forwarded", "trailer", NULL};
    for (size_t i = 0; none[i]; i++)
        CHECK(lines_of(head, none[i]) == 0);
    for (size_t i = 0; i < head->count; i++) {
        CHECK(head->fields[i].name.len > 0);
        for (size_t at = 0; at < head->fields[i].value.len; at++)
            CHECK(head->fields[i].value.at[at] >= ' ' || head->fields[i].value.at[at] == '\t');
    }
}

static void read_request(struct slice text)
{
    static uint8_t memory[1 << 17];
    static const char fields[] = "\0\x0d"
                                 "authorization\0\x08"
                                 "Bearer x";
    const struct mux_client client = {.host = SLICE_LITERAL("cell.test"),
                                      .target = SLICE_LITERAL("/mux"),
                                      .protocols = SLICE_LITERAL(MUX_PROTOCOL),
                                      .fields = slice_of(fields, sizeof fields - 1)};
    struct mux_message m = mux_message_read_v1(text);
    struct writer w = writer_of(memory, sizeof memory);
    if (m.kind == MUX_REQUEST) {
        struct http_reader reader;
        struct http_head head;
        CHECK(m.v1 && !m.body.len && m.window <= MUX_FRAME_CREDIT_MOST);
        mux_message_head(&m, &client, &w);
        reader = http_reader_of(HTTP_REQUEST, w.len);
        enum http_result result = w.full ? HTTP_TOO_LARGE : http_read(&reader, writer_slice(&w), &head);
        CHECK(result == HTTP_DONE || result == HTTP_TOO_LARGE); /* more fields than are read */
        if (result == HTTP_DONE) {
            check_fields(&head);
            CHECK(head.len == w.len && slice_equal(head.method, m.method) &&
                  slice_equal(head.target, m.path));
            CHECK(lines_of(&head, "host") == 1 && lines_of(&head, "authorization") == 1);
            CHECK(slice_is(http_get(&head, "authorization"), "Bearer x") &&
                  lines_of(&head, "connection") == 1);
            CHECK(head.chunked == (m.follows && m.length < 0));
            CHECK(lines_of(&head, "content-length") + lines_of(&head, "transfer-encoding") <= 1);
            CHECK(!m.follows || m.length < 0 || head.length == (uint64_t)m.length);
        }
    }
    mux_message_free(&m);
}

static void read_trailers(struct slice text)
{
    static const char *const none[] = {"content-length", "transfer-encoding", "host", "authorization",
                                       "cookie",         "connection",        "te",   NULL};
    static uint8_t memory[16384];
    struct writer w = writer_of(memory, sizeof memory - 2);
    struct http_head head;
    if (!mux_trailers_read(text, &w))
        return;
    struct buffer whole = buffer_with_limit(32768);
    CHECK(buffer_put(&whole, SLICE_LITERAL("HTTP/1.1 200 OK\r\n")) && buffer_put(&whole, writer_slice(&w)) &&
          buffer_put(&whole, SLICE_LITERAL("\r\n")));
    struct http_reader reader = http_reader_of(HTTP_RESPONSE, buffer_len(&whole));
    enum http_result result = http_read(&reader, buffer_slice(&whole), &head);
    CHECK(result == HTTP_DONE || result == HTTP_TOO_LARGE);
    if (result == HTTP_DONE) {
        CHECK(head.len == buffer_len(&whole));
        check_fields(&head);
        for (size_t i = 0; none[i]; i++)
            CHECK(lines_of(&head, none[i]) == 0);
    }
    buffer_free(&whole);
}

/* ---- what a worker says ---- */

enum ending { GOES_ON, ENDED, BROKEN };

struct told {
    struct buffer body, words; /* DATA joined; the payloads of RESPONSE and END */
    struct buffer handover;
    enum ending ending;
};

static void check_json(struct slice text)
{
    struct fail why;
    char *copy = slice_dup(text);
    CHECK(copy);
    for (char *at = copy; (at = strstr(at, "\\u0000"));) /* which our reader does not take, and others do */
        at[5] = '1';
    struct json *doc =
        json_parse(slice_of(copy, text.len), "frame", 0, (struct json_limits){OUT_MOST, 4}, &why);
    CHECK(doc && json_is_object(json_root(doc)));
    json_free(doc);
    free(copy);
}

/* The messages, as a client reads them: one RESPONSE first, END once and last. */
static void read_messages(struct slice out, struct told *t)
{
    struct ws_decoder decoder = ws_decoder_of(WS_SERVER, SIZE_MAX);
    bool responded = false, over = false;
    while (out.len) {
        struct ws_piece piece;
        struct mux_frame frame;
        CHECK(ws_decode(&decoder, &out, &piece) == WS_HEAD && decoder.frame.opcode == WS_BINARY);
        CHECK(ws_decode(&decoder, &out, &piece) == WS_PIECE && piece.last && decoder.frame.fin);
        CHECK(!over && mux_frame_read(piece.bytes, &frame) && frame.number == 7);
        if (frame.type == MUX_FRAME_DATA) {
            CHECK(responded && frame.payload.len && frame.payload.len <= MUX_FRAME_MOST);
            CHECK(buffer_put(&t->body, frame.payload));
            continue;
        }
        CHECK(frame.type == MUX_FRAME_RESPONSE ? !responded : frame.type == MUX_FRAME_END && responded);
        if (frame.payload.len)
            check_json(frame.payload);
        CHECK(frame.payload.len || frame.type == MUX_FRAME_END);
        CHECK(buffer_put(&t->words, frame.payload));
        responded = true;
        over = frame.type == MUX_FRAME_END;
    }
    CHECK(over == (t->ending == ENDED));
}

static enum ending put_part(struct mux_response *r, enum mux_part part, struct slice piece,
                            struct buffer *out)
{
    struct http_head head;
    bool some;
    switch (part) {
    case MUX_PART_HEAD:
        CHECK(mux_response_head(r, &head) && head.status >= 200 && mux_frame_put_response(out, 7, &head));
        mux_response_forget_head(r);
        return GOES_ON;
    case MUX_PART_BODY:
        CHECK(mux_frame_put(out, MUX_FRAME_DATA, 7, piece));
        return GOES_ON;
    case MUX_PART_END:
        some = mux_response_trailers(r, &head);
        CHECK(mux_frame_put_end(out, 7, some ? &head : NULL));
        return ENDED;
    case MUX_PART_BAD:
        return BROKEN;
    case MUX_PART_NO_MEMORY:
        CHECK(false); /* there is memory */
        return BROKEN;
    default:
        return GOES_ON;
    }
}

/* It comes in pieces of `step` bytes, in memory that ends with them; of its body `credit` bytes are asked for at a time. */
static void tell(struct slice all, size_t step, size_t credit, bool to_head, struct told *t)
{
    struct mux_response r = mux_response_of(to_head);
    struct buffer out = buffer_with_limit(OUT_MOST);
    size_t taken = 0, given = 0;
    *t = (struct told){.body = buffer_with_limit(OUT_MOST),
                       .words = buffer_with_limit(OUT_MOST),
                       .handover = buffer_with_limit(OUT_MOST)};
    while (t->ending == GOES_ON) {
        bool more = given < all.len;
        given += step < all.len - given ? step : all.len - given;
        uint8_t *copy = malloc(given - taken + 1);
        CHECK(copy);
        if (given > taken)
            memcpy(copy, all.at + taken, given - taken);
        struct slice in = slice_of(copy, given - taken), piece;
        enum mux_part part = MUX_PART_HEAD;
        while (t->ending == GOES_ON && part != MUX_PART_MORE) {
            size_t before = in.len;
            part = mux_response_next(&r, &in, credit, &piece);
            CHECK(in.len <= before && piece.len <= credit && (piece.len > 0) == (part == MUX_PART_BODY));
            t->ending = put_part(&r, part, piece, &out);
        }
        CHECK(mux_response_held(&r) <= HELD_MOST);
        if (t->ending == GOES_ON && !more) {
            CHECK(in.len == 0); /* there is credit */
            t->ending = put_part(&r, mux_response_cut(&r), slice_of("", 0), &out);
        }
        taken = given - in.len;
        free(copy);
    }
    CHECK(buffer_put(&t->handover, mux_response_handover(&r)));
    read_messages(buffer_slice(&out), t);
    mux_response_free(&r);
    buffer_free(&out);
}

static void free_told(struct told *t)
{
    buffer_free(&t->body);
    buffer_free(&t->words);
    buffer_free(&t->handover);
}

static void answer(struct slice all, uint8_t cut, uint8_t credit, bool to_head)
{
    struct told whole, other;
    size_t step = 1 + fuzz_length(cut & 31), most = 1 + fuzz_length(credit & 31);
    if (all.len > 65536) { /* else it takes seconds */
        step = step < 1000 ? 1000 : step;
        most = most < 1000 ? 1000 : most;
    }
    tell(all, all.len + 1, MUX_FRAME_MOST, to_head, &whole);
    tell(all, step, most < MUX_FRAME_MOST ? most : MUX_FRAME_MOST, to_head, &other);
    CHECK(whole.ending == other.ending);
    CHECK(slice_equal(buffer_slice(&whole.body), buffer_slice(&other.body)));
    CHECK(slice_equal(buffer_slice(&whole.words), buffer_slice(&other.words)));
    CHECK(slice_equal(buffer_slice(&whole.handover), buffer_slice(&other.handover)));
    free_told(&whole);
    free_told(&other);
}

static int read_input(const uint8_t *data, size_t size)
{
    struct mux_frame frame;
    if (size < 2)
        return 0;
    struct slice rest = slice_of(data + 2, size - 2);
    if (mux_frame_read(rest, &frame))
        CHECK(frame.number && frame.payload.len + MUX_FRAME_HEAD == rest.len);
    CHECK(rest.len == 4 || !mux_frame_credit(rest));
    if (rest.len && rest.at[0] == '{') {
        read_request(rest);
        read_trailers(rest);
    } else {
        answer(rest, data[0], data[1], data[1] & 128);
    }
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    return fuzz_grown(read_input, data, size);
}
