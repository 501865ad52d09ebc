/* SPDX-License-Identifier: MIT */
#include "tests/unit/support.h"

#include "spoa/proto/ws.h"
#include "spoa/relay/mux/answer.h"
#include "spoa/relay/mux/frame.h"
#include "spoa/relay/mux/message.h"

/* ---- messages ---- */

static const char fields[] = "\0\x06"
                             "cookie\0\x03"
                             "c=d\0\x0f"
                             "x-forwarded-for\0\x09"
                             "127.0.0.1";

static struct mux_client client_of(const char *target, const char *protocols)
{
    return (struct mux_client){.host = SLICE_LITERAL("cell.test"),
                               .target = slice_text(target),
                               .protocols = slice_text(protocols),
                               .fields = slice_of(fields, sizeof fields - 1)};
}

static void expect_head(const char *message, const struct mux_client *client, const char *wanted)
{
    char text[4096];
    struct writer w = writer_of(text, sizeof text - 1);
    struct slice copy = guarded(slice_text(message));
    struct mux_message m = mux_message_read(copy);
    assert_int_equal(m.kind, MUX_REQUEST);
    mux_message_head(&m, client, &w);
    text[w.len] = '\0';
    assert_string_equal(text, wanted);
    mux_message_free(&m);
    guarded_free(copy);
}

static void a_request_is_written_with_what_the_upgrade_had(void **state)
{
    struct mux_client client = client_of("/mux?a=b&cellgate_token=t", "x");
    (void)state;
    expect_head(
        "{\"type\":\"request\",\"id\":\"1\",\"method\":\"GET\",\"path\":\"/p?q\",\"headers\":{\"X-A\":\" b "
        "\",\"Cookie\":\"no\",\"authorization\":\"no\",\"host\":\"no\"}}",
        &client,
        "GET /p?q HTTP/1.1\r\nHost: cell.test\r\ncookie: c=d\r\nAuthorization: Bearer t\r\nX-A: b\r\n"
        "Content-Type: application/json\r\nConnection: close\r\n\r\n");
    client = client_of("/mux", "cellgate, cellgate.bearer.u");
    client.below = SLICE_LITERAL("/below/");
    expect_head("{\"type\":\"request\",\"id\":\"1\",\"method\":\"POST\",\"path\":\"/"
                "p\",\"headers\":{\"content-type\":\"text/x\"},\"body\": [1, 2] }",
                &client,
                "POST /below/p HTTP/1.1\r\nHost: cell.test\r\ncookie: c=d\r\nAuthorization: Bearer "
                "u\r\ncontent-type: text/x\r\n"
                "Content-Length: 6\r\nConnection: close\r\n\r\n");
}

static bool is_same_with(const char *name, const char *one, const char *other)
{
    const char *const values[] = {one, other};
    uint8_t memory[2][128];
    struct mux_client clients[2];
    for (int i = 0; i < 2; i++) {
        struct writer w = writer_of(memory[i], sizeof memory[i]);
        writer_be(&w, strlen(name), 2);
        writer_text(&w, name);
        writer_be(&w, strlen(values[i]), 2);
        writer_text(&w, values[i]);
        clients[i] = client_of("/mux", "x");
        clients[i].fields = writer_slice(&w);
    }
    return mux_client_is(&clients[0], &clients[1]);
}

static void who_asks_is_the_same_by_all_but_the_way(void **state)
{
    static const char *const who[] = {"authorization",           "cookie",
                                      "cf-access-jwt-assertion", "Cf-Access-Client-Id",
                                      "x-auth-request-user",     NULL};
    static const char *const way[] = {"cf-ray", "CF-Connecting-IP", "cf-ipcountry", "cf-visitor",
                                      "via",    "traceparent",      "x-real-ip",    "x-forwarded-for",
                                      NULL};
    (void)state;
    for (const char *const *name = who; *name; name++) {
        assert_true(is_same_with(*name, "x", "x"));
        assert_false(is_same_with(*name, "x", "y"));
    }
    for (const char *const *name = way; *name; name++)
        assert_true(is_same_with(*name, "x", "y"));
}

static void what_is_no_message_is_none(void **state)
{
    static const struct {
        const char *text;
        enum mux_kind kind;
    } cases[] = {
        {"", MUX_NO_JSON},
        {"{", MUX_NO_JSON},
        {"[]", MUX_NO_MESSAGE},
        {"{\"type\":\"cancel\"}", MUX_NO_MESSAGE},
        {"{\"type\":\"cancel\",\"id\":\"\"}", MUX_NO_MESSAGE},
        {"{\"type\":\"cancel\",\"id\":\"x\"}", MUX_CANCEL},
        {"{\"type\":\"request\",\"id\":\"x\",\"method\":\"get\",\"path\":\"/\"}", MUX_NO_MESSAGE},
        {"{\"type\":\"request\",\"id\":\"x\",\"method\":\"GET\",\"path\":\"\"}", MUX_NO_MESSAGE},
        {"{\"type\":\"request\",\"id\":\"x\",\"method\":\"GET\",\"path\":\"/a b\"}", MUX_NO_MESSAGE},
        {"{\"type\":\"request\",\"id\":\"x\",\"method\":\"GET\",\"path\":\"/\",\"headers\":[]}",
         MUX_NO_MESSAGE},
        {"{\"type\":\"request\",\"id\":\"x\",\"method\":\"GET\",\"path\":\"/\",\"headers\":{\"a:\":\"b\"}}",
         MUX_NO_MESSAGE},
        {"{\"type\":\"request\",\"id\":\"x\",\"method\":\"GET\",\"path\":\"/\",\"headers\":null}",
         MUX_REQUEST}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct mux_message m = mux_message_read(slice_text(cases[i].text));
        assert_int_equal(m.kind, cases[i].kind);
        mux_message_free(&m);
    }
}

/* ---- answers ---- */

enum { MOST = 64 };

/* The texts of all frames, a line each; cut into pieces of `step`. */
static enum mux_step answer(struct slice all, size_t step, char *to, size_t size)
{
    struct mux_answer a;
    struct buffer out = buffer_with_limit(1 << 20);
    struct writer w = writer_of(to, size - 1);
    enum mux_step result = MUX_MORE;
    bool fits = true;
    mux_answer_init(&a, SLICE_LITERAL("i"), MOST);
    for (; all.len && result == MUX_MORE; all = slice_from(all, step)) {
        struct slice copy = guarded(slice_sub(all, 0, step));
        result = mux_answer_feed(&a, copy, &out, &fits);
        guarded_free(copy);
    }
    if (result == MUX_MORE)
        result = mux_answer_end(&a, &out, &fits);
    assert_true(fits);
    struct ws_decoder decoder = ws_decoder_of(WS_SERVER, SIZE_MAX);
    struct slice rest = buffer_slice(&out);
    while (rest.len) {
        struct ws_piece piece;
        if (ws_decode(&decoder, &rest, &piece) == WS_PIECE) {
            writer_put(&w, piece.bytes);
            writer_text(&w, "\n");
        }
    }
    to[w.len] = '\0';
    mux_answer_free(&a);
    buffer_free(&out);
    return result;
}

static void expect_answer(const char *text, enum mux_step step, const char *wanted)
{
    char said[4096];
    size_t len = strlen(text);
    for (size_t cut = 1; cut <= len; cut++) {
        assert_int_equal(answer(slice_of(text, len), cut, said, sizeof said), step);
        assert_string_equal(said, wanted);
    }
}

static void answers_make_the_same_messages_wherever_they_are_cut(void **state)
{
    (void)state;
    expect_answer("HTTP/1.1 103 Early\r\nLink: x\r\n\r\nHTTP/1.1 201 Created\r\nX-A: b\r\nx-a: "
                  "c\r\nContent-Length: 7\r\n\r\n{\"a\":1}",
                  MUX_DONE,
                  "{\"type\":\"response\",\"id\":\"i\",\"status\":201,\"headers\":{\"x-a\":\"b\"},\"body\":{"
                  "\"a\":1},\"done\":true}\n");
    expect_answer(
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1;x=y\r\n[\r\n2\r\n1]\r\n0\r\nX: y\r\n\r\n",
        MUX_DONE,
        "{\"type\":\"response\",\"id\":\"i\",\"status\":200,\"headers\":{},\"body\":[1],\"done\":true}\n");
    expect_answer("HTTP/1.1 200 OK\r\n\r\nno json", MUX_DONE,
                  "{\"type\":\"response\",\"id\":\"i\",\"status\":200,\"headers\":{},\"done\":true}\n");
    expect_answer("HTTP/1.1 204 No Content\r\n\r\n", MUX_DONE,
                  "{\"type\":\"response\",\"id\":\"i\",\"status\":204,\"headers\":{},\"done\":true}\n");
    expect_answer("HTTP/1.1 200 OK\r\nContent-Type: Text/Event-Stream ;x\r\n\r\nevent: e\r\ndata: a\rdata:  "
                  "b\n\r\n:c\n\ndata: last",
                  MUX_DONE,
                  "{\"type\":\"stream\",\"id\":\"i\",\"event\":\"e\",\"data\":\"a\\u000a b\"}\n"
                  "{\"type\":\"stream\",\"id\":\"i\",\"data\":\"last\"}\n"
                  "{\"type\":\"response\",\"id\":\"i\",\"status\":200,\"headers\":{\"content-type\":\"Text/"
                  "Event-Stream ;x\"},\"done\":true}\n");
}

/* One event copies little, however long the answer is. */
static void a_large_answer_waits_for_an_empty_buffer_and_is_not_copied(void **state)
{
    enum { BODY = 1 << 20 };
    struct mux_answer a;
    struct buffer out = buffer_with_limit(1 << 22), text = buffer_with_limit(1 << 22);
    bool fits = false;
    size_t room;
    (void)state;
    assert_true(buffer_put(&text, SLICE_LITERAL("HTTP/1.1 200 OK\r\nContent-Length: 1048576\r\n\r\n")));
    uint8_t *body = buffer_room(&text, BODY, &room);
    assert_non_null(body);
    memset(body, 'a', BODY);
    body[0] = body[BODY - 1] = '"';
    buffer_commit(&text, BODY);
    assert_true(buffer_put(&out, SLICE_LITERAL("x")));
    mux_answer_init(&a, SLICE_LITERAL("i"), 2 * BODY);
    assert_int_equal(mux_answer_feed(&a, buffer_slice(&text), &out, &fits), MUX_WHOLE);
    assert_true(fits && mux_answer_is_whole(&a));
    assert_int_equal(buffer_len(&out), 1);
    buffer_consume(&out, 1);
    const uint8_t *made = a.text.memory;
    mux_answer_finish(&a, &out);
    assert_ptr_equal(out.memory, made);
    assert_in_range(buffer_len(&out), BODY, BODY + 256);
    assert_false(mux_answer_is_whole(&a));
    mux_answer_free(&a);
    buffer_free(&out);
    buffer_free(&text);
}

static void answers_that_are_broken_are_errors(void **state)
{
    char large[256] = "HTTP/1.1 200 OK\r\nContent-Length: 65\r\n\r\n";
    size_t head = strlen(large);
    (void)state;
    expect_answer("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n[1", MUX_BROKEN,
                  "{\"type\":\"error\",\"id\":\"i\",\"code\":\"STREAM_ERROR\",\"message\":\"The answer was "
                  "cut.\",\"status\":502}\n");
    expect_answer("HTTP/1.1 200", MUX_BROKEN,
                  "{\"type\":\"error\",\"id\":\"i\",\"code\":\"INTERNAL_ERROR\",\"message\":\"There was no "
                  "answer.\",\"status\":502}\n");
    expect_answer("HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n", MUX_BROKEN,
                  "{\"type\":\"error\",\"id\":\"i\",\"code\":\"INTERNAL_ERROR\",\"message\":\"The answer is "
                  "no HTTP.\",\"status\":502}\n");
    memset(large + head, 'x', MOST + 1);
    large[head + MOST + 1] = '\0';
    expect_answer(large, MUX_BROKEN,
                  "{\"type\":\"error\",\"id\":\"i\",\"code\":\"INTERNAL_ERROR\",\"message\":\"The answer is "
                  "too large for a message.\",\"status\":502}\n");
}

/* ---- cellgate.mux.v1 ---- */

enum { FRAMES_MOST = 1 << 18 };

/* What mux_response gives: head as {status}, pieces joined, END with trailers; asked for `most` bytes of the body at a time. */
static void take_apart(struct slice all, size_t step, size_t most, char *to, size_t size)
{
    struct mux_response r = mux_response_of(false);
    struct writer w = writer_of(to, size - 1);
    struct http_head head;
    enum mux_part part = MUX_PART_HEAD;
    struct slice rest = slice_of("", 0), piece;
    for (size_t at = 0; part != MUX_PART_END && part != MUX_PART_BAD;) {
        struct slice copy = guarded(rest);
        struct slice in = copy;
        part = mux_response_next(&r, &in, most, &piece);
        assert_true(piece.len <= most);
        if (part == MUX_PART_HEAD) {
            assert_true(mux_response_head(&r, &head));
            writer_printf(&w, "{%u}", head.status);
            mux_response_forget_head(&r);
        }
        writer_put(&w, piece);
        rest = slice_from(rest, rest.len - in.len);
        guarded_free(copy);
        if (part != MUX_PART_MORE)
            continue;
        if (at == all.len) {
            part = mux_response_cut(&r);
        } else { /* what was not taken, and more */
            rest = slice_sub(all, at - rest.len, rest.len + step);
            at += step < all.len - at ? step : all.len - at;
        }
    }
    writer_text(&w, part == MUX_PART_END ? "END" : "BAD");
    if (mux_response_trailers(&r, &head))
        for (size_t i = 0; i < head.count; i++)
            writer_put(&w, head.fields[i].value);
    writer_put(&w, mux_response_handover(&r));
    mux_response_free(&r);
    to[w.len] = '\0';
}

static void an_answer_is_taken_apart_wherever_it_is_cut(void **state)
{
    static const struct {
        const char *text, *wanted;
    } cases[] = {
        {"HTTP/1.1 103 x\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nabcde", "{200}abcdeEND"},
        {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2;x=y\r\nde\r\n0\r\nX-A: "
         "1\r\nX-B: 2\r\n\r\n",
         "{200}abcdeEND12"},
        {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", "{200}END"},
        {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nab", "{200}abBAD"},
        {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabcd", "{200}abcBAD"},
        {"HTTP/1.1 200 OK\r\n\r\nabc", "{200}abcEND"},
        {"HTTP/1.1 204 No\r\n\r\n", "{204}END"},
        {"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", "{200}END"},
        {"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nabc", "{200}abcBAD"},
        {"HTTP/1.1 101 x\r\n\r\n", "BAD"},
        /* the handover is that of the first interim answer */
        {"HTTP/1.1 103 x\r\nx-cell-handover: a=1\r\n\r\nHTTP/1.1 103 x\r\nX-Cell-Handover: "
         "b=2\r\n\r\nHTTP/1.1 200 OK\r\nX-Cell-Handover: c=3\r\n\r\nabc",
         "{200}abcENDa=1"},
        {"HTTP/1.1 103 x\r\n\r\nHTTP/1.1 100 x\r\nX-Cell-Handover: b=2\r\n\r\nHTTP/1.1 204 No\r\n\r\n",
         "{204}END"},
        {"HTTP/1.1 103 x\r\nX-Cell-Handover: \r\n\r\nHTTP/1.1 103 x\r\nX-Cell-Handover: "
         "b=2\r\n\r\nHTTP/1.1 200 OK\r\nX-Cell-Handover: c=3\r\n\r\n",
         "{200}END"},
        {"HTTP/1.1 200 OK\r\nConte", "BAD"},
        {"nothing\r\n\r\n", "BAD"}};
    char said[4096];
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (size_t step = 1; step <= strlen(cases[i].text); step++)
            for (size_t most = 1; most <= 8; most++) {
                take_apart(slice_text(cases[i].text), step, most, said, sizeof said);
                assert_string_equal(said, cases[i].wanted);
            }
}

static void no_more_of_a_body_is_taken_than_is_asked_for(void **state)
{
    struct slice all = SLICE_LITERAL(
                     "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"),
                 piece;
    struct mux_response r = mux_response_of(false);
    (void)state;
    assert_int_equal(mux_response_next(&r, &all, 0, &piece), MUX_PART_HEAD);
    assert_int_equal(mux_response_next(&r, &all, 0, &piece), MUX_PART_MORE);
    assert_true(slice_starts(all, "abc"));
    assert_int_equal(mux_response_next(&r, &all, 2, &piece), MUX_PART_BODY);
    assert_true(slice_is(piece, "ab"));
    assert_int_equal(mux_response_next(&r, &all, 2, &piece), MUX_PART_BODY);
    assert_int_equal(mux_response_next(&r, &all, 0, &piece), MUX_PART_END); /* which needs no credit */
    mux_response_free(&r);
    all = SLICE_LITERAL("HTTP/1.1 200 OK\r\nContent-Length: 12\r\n\r\n");
    r = mux_response_of(true);
    assert_int_equal(mux_response_next(&r, &all, 9, &piece), MUX_PART_HEAD);
    assert_int_equal(mux_response_next(&r, &all, 9, &piece),
                     MUX_PART_END); /* the answer to a HEAD has no body */
    mux_response_free(&r);
}

/* The one message in `out`. */
static struct mux_frame frame_in(const struct buffer *out)
{
    struct ws_decoder decoder = ws_decoder_of(WS_SERVER, SIZE_MAX);
    struct slice rest = buffer_slice(out);
    struct ws_piece piece;
    struct mux_frame frame;
    assert_int_equal(ws_decode(&decoder, &rest, &piece), WS_HEAD);
    assert_int_equal(decoder.frame.opcode, WS_BINARY);
    assert_int_equal(ws_decode(&decoder, &rest, &piece), WS_PIECE);
    assert_true(piece.last && rest.len == 0 && mux_frame_read(piece.bytes, &frame));
    return frame;
}

static void frames_are_read_as_they_were_written(void **state)
{
    static const size_t sizes[] = {0, 1, 120, 121, 125, 126, 16384, 65530, 65531, 65535, 65536};
    static uint8_t bytes[65536];
    struct mux_frame frame;
    (void)state;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        struct buffer out = buffer_with_limit(FRAMES_MOST);
        assert_true(mux_frame_put(&out, MUX_FRAME_DATA, 0xfffffffe, slice_of(bytes, sizes[i])));
        frame = frame_in(&out);
        assert_true(frame.type == MUX_FRAME_DATA && frame.number == 0xfffffffe &&
                    frame.payload.len == sizes[i]);
        buffer_free(&out);
    }
    struct buffer out = buffer_with_limit(FRAMES_MOST);
    assert_true(mux_frame_put_credit(&out, 7, 65536));
    assert_int_equal(mux_frame_credit(frame_in(&out).payload), 65536);
    buffer_free(&out);
    assert_int_equal(mux_frame_credit(SLICE_LITERAL("\1\1\1")), 0);
    assert_int_equal(mux_frame_credit(SLICE_LITERAL("\1\1\1\1\1")), 0);
    assert_false(mux_frame_read(SLICE_LITERAL("\1\0\0\0"), &frame));
    assert_false(mux_frame_read(SLICE_LITERAL("\1\0\0\0\0"), &frame));
    struct buffer small = buffer_with_limit(8);
    assert_false(mux_frame_put(&small, MUX_FRAME_DATA, 1, SLICE_LITERAL("abc")));
    assert_int_equal(buffer_len(&small), 0);
    buffer_free(&small);
}

static void a_request_of_v1_has_the_body_that_it_says(void **state)
{
    static const struct {
        const char *text, *tail;
    } cases[] = {
        {"{\"method\":\"POST\",\"path\":\"/p\",\"body\":true}",
         "TE: trailers\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n"},
        {"{\"method\":\"POST\",\"path\":\"/p\",\"body\":true,\"length\":7}",
         "TE: trailers\r\nContent-Length: 7\r\nConnection: close\r\n\r\n"},
        {"{\"method\":\"POST\",\"path\":\"/p\"}",
         "TE: trailers\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"},
        {"{\"method\":\"HEAD\",\"path\":\"/p\",\"headers\":{\"te\":\"x\",\"transfer-encoding\":\"chunked\"}}",
         "TE: trailers\r\nConnection: close\r\n\r\n"}};
    const struct mux_client client = client_of("/v1/mux", "cellgate.mux.v1");
    char text[4096];
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct writer w = writer_of(text, sizeof text - 1);
        struct mux_message m = mux_message_read_v1(slice_text(cases[i].text));
        assert_int_equal(m.kind, MUX_REQUEST);
        mux_message_head(&m, &client, &w);
        text[w.len] = '\0';
        assert_string_equal(text + strlen(text) - strlen(cases[i].tail), cases[i].tail);
        mux_message_free(&m);
    }
    struct writer w = writer_of(text, sizeof text - 1);
    assert_true(mux_trailers_read(
        SLICE_LITERAL("{\"trailers\":{\"X-A\":\" b "
                      "\",\"Host\":\"c\",\"Content_Length\":\"d\",\"X-Cell-Sandbox\":\"e\"}}"),
        &w));
    text[w.len] = '\0';
    assert_string_equal(text, "X-A: b\r\n");
    assert_true(mux_trailers_read(slice_of("", 0), &w) && mux_trailers_read(SLICE_LITERAL("{}"), &w));
    assert_false(mux_trailers_read(SLICE_LITERAL("[]"), &w));
    assert_false(mux_trailers_read(SLICE_LITERAL("{\"trailers\":{\"a\":\"b\\r\\nc: d\"}}"), &w));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_request_is_written_with_what_the_upgrade_had),
        cmocka_unit_test(who_asks_is_the_same_by_all_but_the_way),
        cmocka_unit_test(what_is_no_message_is_none),
        cmocka_unit_test(answers_make_the_same_messages_wherever_they_are_cut),
        cmocka_unit_test(a_large_answer_waits_for_an_empty_buffer_and_is_not_copied),
        cmocka_unit_test(answers_that_are_broken_are_errors),
        cmocka_unit_test(an_answer_is_taken_apart_wherever_it_is_cut),
        cmocka_unit_test(no_more_of_a_body_is_taken_than_is_asked_for),
        cmocka_unit_test(frames_are_read_as_they_were_written),
        cmocka_unit_test(a_request_of_v1_has_the_body_that_it_says)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
