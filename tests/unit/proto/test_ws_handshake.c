/* SPDX-License-Identifier: MIT */
#include "tests/unit/support.h"

#include <stdio.h>

#include "spoa/proto/ws_handshake.h"

#define KEY    "dGhlIHNhbXBsZSBub25jZQ==" /* the example of RFC 6455 section 1.3 */
#define ACCEPT "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="

static void read_head(enum http_side side, const char *text, struct http_head *head)
{
    struct http_reader r = http_reader_of(side, HTTP_HEAD_MAX);
    if (http_read(&r, slice_text(text), head) != HTTP_DONE)
        fail_msg("head is bad: %s: %s", r.why, text);
}

/* ---- keys ---- */

static void the_accept_of_the_rfc_is_computed(void **state)
{
    char accept[WS_ACCEPT_SIZE];
    (void)state;

    assert_true(ws_handshake_accept(accept, slice_text(KEY)));
    assert_string_equal(accept, ACCEPT);
    assert_false(ws_handshake_accept(accept, slice_text(KEY "x")));
}

static void a_made_key_is_valid(void **state)
{
    char key[WS_KEY_SIZE];
    uint8_t nonce[16];
    (void)state;

    ws_handshake_key(key, (const uint8_t *)"the sample nonce");
    assert_string_equal(key, KEY);
    for (unsigned c = 0; c < 256; c++) {
        memset(nonce, (int)c, sizeof(nonce));
        ws_handshake_key(key, nonce);
        assert_true(ws_handshake_key_valid(slice_text(key)));
    }
}

static void keys_that_are_not_16_bytes_in_base64_are_invalid(void **state)
{
    static const char *const rows[] = {
        "",
        "x",
        "dGhlIHNhbXBsZSBub25jZQ=",
        "dGhlIHNhbXBsZSBub25jZQ===",
        "dGhlIHNhbXBsZSBub25jZQ",
        "dGhlIHNhbXBsZSBub25jZR==", /* bits beyond the last byte */
        "dGhlIHNhbXBsZSBub25jZQQ=",
        "dGhlIHNhbXBsZSBub25jZQQQ",
        "dGhlIHNhbXBsZSBub25jZ===",
        " dGhlIHNhbXBsZSBub25jZQ=",
        "dGhlIHNhbXBsZSBub25j=Q==",
        "dGhlIHNhbXBsZSBub25jZ-==",
        "dGhlIHNhbXBsZSBub25jZ_==",
        "dGhl HNhbXBsZSBub25jZQ==",
        "=Q==ZQ==ZQ==ZQ==ZQ==ZQ==",
        "ZQ==ZQ==ZQ==ZQ==ZQ==ZQ==",
    };
    (void)state;

    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        struct slice key = guarded(slice_text(rows[i]));
        if (ws_handshake_key_valid(key))
            fail_msg("taken for a key: %s", rows[i]);
        guarded_free(key);
    }
}

static void no_other_character_stands_in_a_key(void **state)
{
    (void)state;
    for (unsigned c = 0; c < 256; c++) {
        char key[] = KEY;
        key[3] = (char)c;
        bool good = c == '+' || c == '/' || (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') ||
                    (c >= 'a' && c <= 'z');
        assert_int_equal(ws_handshake_key_valid(slice_of(key, 24)), good);
    }
}

/* ---- requests ---- */

#define START "GET /x HTTP/1.1\r\nHost: a\r\n"
#define UP    "Upgrade: websocket\r\nConnection: Upgrade\r\n"
#define V13   "Sec-WebSocket-Version: 13\r\n"
#define WITH  "Sec-WebSocket-Key: " KEY "\r\n"

static void requests_are_judged(void **state)
{
    static const struct {
        unsigned status;
        const char *text;
    } rows[] = {
        {0, START UP V13 WITH "\r\n"},
        {0, START "upgrade: h2c, WebSocket\r\nconnection: keep-alive\r\nConnection: x, upgrade\r\n" V13 WITH
                  "\r\n"},
        {405, "POST /x HTTP/1.1\r\nHost: a\r\n" UP V13 WITH "\r\n"},
        {405, "get /x HTTP/1.1\r\nHost: a\r\n" UP V13 WITH "\r\n"},
        {405, "HEAD /x HTTP/1.1\r\nHost: a\r\n" UP V13 WITH "\r\n"},
        {400, "GET /x HTTP/1.0\r\nHost: a\r\n" UP V13 WITH "\r\n"},
        {400, START UP V13 WITH "Content-Length: 1\r\n\r\n"},
        {400, START UP V13 WITH "Transfer-Encoding: chunked\r\n\r\n"},
        {426, START V13 WITH "\r\n"},
        {426, START "Upgrade: websocket\r\n" V13 WITH "\r\n"},
        {426, START "Connection: Upgrade\r\n" V13 WITH "\r\n"},
        {426, START "Upgrade: websocket/13\r\nConnection: Upgrade\r\n" V13 WITH "\r\n"},
        {426, START "Upgrade: websocket\r\nConnection: close\r\n" V13 WITH "\r\n"},
        {426, START UP WITH "\r\n"},
        {426, START UP WITH "Sec-WebSocket-Version: 8\r\n\r\n"},
        {426, START UP WITH "Sec-WebSocket-Version: 13, 8\r\n\r\n"},
        {426, START UP WITH "Sec-WebSocket-Version: 013\r\n\r\n"},
        {426, START UP WITH "Sec-WebSocket-Version: 0xd\r\n\r\n"},
        {426, START UP V13 V13 WITH "\r\n"},
        {400, START UP V13 "\r\n"},
        {400, START UP V13 WITH WITH "\r\n"},
        {400, START UP V13 "Sec-WebSocket-Key: short\r\n\r\n"},
        {400, START UP V13 "Sec-WebSocket-Key:\r\n\r\n"},
    };
    (void)state;

    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        struct http_head head;
        struct slice key;
        struct fail why = {.text = ""};
        read_head(HTTP_REQUEST, rows[i].text, &head);
        if (ws_handshake_check_request(&head, &key, &why) != rows[i].status)
            fail_msg("row %zu: %s", i, why.text);
        assert_int_equal(why.text[0] != '\0', rows[i].status != 0);
        assert_true(rows[i].status != 0 || slice_is(key, KEY));
    }
}

/* ---- answers ---- */

#define SWITCH "HTTP/1.1 101 Switching Protocols\r\n"
#define GOOD   "Sec-WebSocket-Accept: " ACCEPT "\r\n"

static bool check_answer(const char *text, const char *offered, struct slice *protocol)
{
    static struct http_head head;
    struct fail why = {.text = ""};

    read_head(HTTP_RESPONSE, text, &head);
    bool good = ws_handshake_check_answer(&head, slice_text(KEY), slice_text(offered), protocol, &why);
    assert_int_equal(why.text[0] == '\0', good);
    return good;
}

static void correct_answers_are_taken(void **state)
{
    struct slice protocol;
    (void)state;

    assert_true(check_answer(SWITCH UP GOOD "\r\n", NULL, &protocol));
    assert_false(slice_present(protocol));
    assert_true(check_answer(SWITCH UP GOOD "Content-Length: 0\r\n\r\n", NULL, &protocol));
    assert_true(
        check_answer(SWITCH UP GOOD "Content-Length: 0\r\nContent-Length: 0\r\n\r\n", NULL, &protocol));
    assert_true(check_answer(SWITCH UP GOOD "\r\n", "a, b", &protocol));
    assert_false(slice_present(protocol));
    assert_true(check_answer(SWITCH UP GOOD "Sec-WebSocket-Protocol: b\r\n\r\n", "a, b", &protocol));
    assert_true(slice_is(protocol, "b"));
    assert_true(
        check_answer(SWITCH "upgrade: WebSocket\r\nconnection: UPGRADE\r\n" GOOD "\r\n", NULL, &protocol));
}

static void wrong_answers_are_refused(void **state)
{
    static const char *const rows[] = {
        "HTTP/1.1 200 OK\r\n" UP GOOD "\r\n",
        "HTTP/1.1 302 Found\r\nLocation: /\r\n" UP GOOD "\r\n",
        "HTTP/1.1 100 Continue\r\n" UP GOOD "\r\n",
        "HTTP/1.0 101 Switching Protocols\r\n" UP GOOD "\r\n",
        SWITCH "Connection: Upgrade\r\n" GOOD "\r\n",
        SWITCH "Upgrade: websocket\r\n" GOOD "\r\n",
        SWITCH "Upgrade: h2c\r\nConnection: Upgrade\r\n" GOOD "\r\n",
        SWITCH "Upgrade: websocket, h2c\r\nConnection: Upgrade\r\n" GOOD "\r\n",
        SWITCH UP "Upgrade: websocket\r\n" GOOD "\r\n",
        SWITCH UP "\r\n",
        SWITCH UP "Sec-WebSocket-Accept:\r\n\r\n",
        SWITCH UP "Sec-WebSocket-Accept: " KEY "\r\n\r\n",
        SWITCH UP "Sec-WebSocket-Accept: S3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n",
        SWITCH UP GOOD GOOD "\r\n",
        SWITCH UP GOOD "Content-Length: 1\r\n\r\n",
        SWITCH UP GOOD "Content-Length: 10\r\n\r\n",
        SWITCH UP GOOD "Transfer-Encoding: chunked\r\n\r\n",
        SWITCH UP GOOD "Sec-WebSocket-Extensions: permessage-deflate\r\n\r\n",
        SWITCH UP GOOD "Sec-WebSocket-Protocol: c\r\n\r\n",
        SWITCH UP GOOD "Sec-WebSocket-Protocol: A\r\n\r\n",
        SWITCH UP GOOD "Sec-WebSocket-Protocol: a, b\r\n\r\n",
        SWITCH UP GOOD "Sec-WebSocket-Protocol:\r\n\r\n",
        SWITCH UP GOOD "Sec-WebSocket-Protocol: a\r\nSec-WebSocket-Protocol: b\r\n\r\n",
    };
    struct slice protocol;
    (void)state;

    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++)
        if (check_answer(rows[i], "a, b", &protocol))
            fail_msg("taken: %s", rows[i]);
    assert_false(check_answer(SWITCH UP GOOD "Sec-WebSocket-Protocol: a\r\n\r\n", NULL, &protocol));
}

/* ---- heads that are written are accepted ---- */

static void built_requests_and_answers_pass_the_checks(void **state)
{
    static const char *const protocols[] = {NULL, "cellgate, cellgate.bearer.x"};
    (void)state;

    for (unsigned i = 0; i < 2; i++) {
        char text[1024];
        struct writer w = writer_of(text, sizeof(text) - 1);
        struct http_head head;
        struct slice key, protocol;
        struct fail why;

        ws_handshake_put_request(&w, slice_text("/t?a=b"), slice_text("h:1"), slice_text(KEY),
                                 slice_text(protocols[i]));
        writer_text(&w, "\r\n");
        text[w.len] = '\0';
        read_head(HTTP_REQUEST, text, &head);
        assert_int_equal(ws_handshake_check_request(&head, &key, &why), 0);
        assert_true(slice_is(head.target, "/t?a=b"));
        assert_true(slice_equal(http_get(&head, "Sec-WebSocket-Protocol"), slice_text(protocols[i])));

        w = writer_of(text, sizeof(text) - 1);
        assert_true(ws_handshake_put_answer(&w, slice_text(KEY), slice_text(i ? "cellgate" : NULL)));
        writer_text(&w, "\r\n");
        text[w.len] = '\0';
        assert_true(check_answer(text, protocols[i], &protocol));
        assert_int_equal(slice_present(protocol), i);
    }
}

static void a_head_that_does_not_fit_fills_the_writer(void **state)
{
    char text[120];
    struct writer w = writer_of(text, sizeof(text));
    (void)state;

    ws_handshake_put_request(&w, slice_text("/"), slice_text("h"), slice_text(KEY), slice_text("a"));
    assert_true(w.full);
    w = writer_of(text, 100);
    assert_true(ws_handshake_put_answer(&w, slice_text(KEY), slice_text("a")));
    assert_true(w.full);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_accept_of_the_rfc_is_computed),
        cmocka_unit_test(a_made_key_is_valid),
        cmocka_unit_test(keys_that_are_not_16_bytes_in_base64_are_invalid),
        cmocka_unit_test(no_other_character_stands_in_a_key),
        cmocka_unit_test(requests_are_judged),
        cmocka_unit_test(correct_answers_are_taken),
        cmocka_unit_test(wrong_answers_are_refused),
        cmocka_unit_test(built_requests_and_answers_pass_the_checks),
        cmocka_unit_test(a_head_that_does_not_fit_fills_the_writer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
