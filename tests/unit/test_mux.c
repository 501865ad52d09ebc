/* SPDX-License-Identifier: MIT */
#include "tests/unit/support.h"

#include "spoa/proto/ws.h"
#include "spoa/relay/mux/answer.h"
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

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_request_is_written_with_what_the_upgrade_had),
                                       cmocka_unit_test(what_is_no_message_is_none),
                                       cmocka_unit_test(answers_make_the_same_messages_wherever_they_are_cut),
                                       cmocka_unit_test(answers_that_are_broken_are_errors)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
