/* SPDX-License-Identifier: MIT */
#include "tests/unit/support.h"

#include <stdio.h>

#include "spoa/proto/http.h"

#define GET  "GET / HTTP/1.1\r\n"
#define HOST "Host: a\r\n"
#define POST "POST / HTTP/1.1\r\nHost: a\r\n"
#define OK   "HTTP/1.1 200 OK\r\n"

/* A text that may contain NUL. */
#define T(text) SLICE_STATIC(text)

/* Gives a reader ever longer prefixes of `all`, `step` bytes more each time, until it decides. Each prefix has another address and ends
 * at a guard page. */
static enum http_result read_stepwise(enum http_side side, struct slice all, size_t step, struct slice *given,
                                      struct http_head *head)
{
    struct http_reader r = http_reader_of(side, HTTP_HEAD_MAX);

    for (size_t len = 0;; len = len + step < all.len ? len + step : all.len) {
        *given = guarded(slice_sub(all, 0, len));
        enum http_result result = http_read(&r, *given, head);
        assert_true((result == HTTP_BAD || result == HTTP_TOO_LARGE) == (r.why != NULL));
        if (result != HTTP_MORE || len == all.len)
            return result;
        guarded_free(*given);
    }
}

static enum http_result read_all(enum http_side side, struct slice all, struct http_head *head)
{
    struct http_reader r = http_reader_of(side, HTTP_HEAD_MAX);
    return http_read(&r, all, head);
}

/* ---- heads that are accepted ---- */

static void check_upgrade(const struct http_head *head)
{
    assert_true(slice_is(head->method, "GET"));
    assert_true(slice_is(head->target, "/a?b=c"));
    assert_int_equal(head->minor, 1);
    assert_int_equal(head->count, 5);
    assert_true(slice_is(head->fields[1].name, "Upgrade"));
    assert_true(slice_is(http_get(head, "UPGRADE"), "websocket"));
    assert_true(slice_is(http_get(head, "x-blank"), ""));
    assert_true(slice_present(http_get(head, "X-Blank")));
    assert_false(slice_present(http_get(head, "X-Blan")));
    assert_true(http_has_token(head, "connection", "upgrade"));
    assert_true(http_has_token(head, "connection", "KEEP-ALIVE"));
    assert_false(http_has_token(head, "connection", "keep"));
}

static void an_upgrade_is_read_however_its_bytes_arrive(void **state)
{
    static const char text[] =
        "GET /a?b=c HTTP/1.1\r\nHost: h:8080\r\nUpgrade:websocket\r\n"
        "Connection: \t keep-alive ,Upgrade \t\r\nX-Blank:\r\nX-High: \xc3\xa4 b\r\n\r\n";
    const size_t len = sizeof(text) - 1;
    (void)state;

    for (size_t step = 1; step <= len; step++) {
        struct slice given;
        struct http_head head;
        assert_int_equal(read_stepwise(HTTP_REQUEST, slice_of(text, len), step, &given, &head), HTTP_DONE);
        assert_int_equal(head.len, len);
        check_upgrade(&head);
        guarded_free(given);
    }
}

static void a_status_line_is_read_with_and_without_a_reason(void **state)
{
    static const struct {
        const char *text, *reason;
        unsigned status, minor;
    } rows[] = {
        {"HTTP/1.1 101 Switching Protocols\r\n\r\n", "Switching Protocols", 101, 1},
        {"HTTP/1.0 599  x\r\n\r\n", " x", 599, 0},
        {"HTTP/1.1 200 \r\n\r\n", "", 200, 1},
        {"HTTP/1.1 200\r\n\r\n", "", 200, 1},
        {"HTTP/1.1 204 \xe4\r\nA: b\r\n\r\n", "\xe4", 204, 1},
    };
    (void)state;

    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        struct http_head head;
        struct slice given;
        assert_int_equal(read_stepwise(HTTP_RESPONSE, slice_text(rows[i].text), 1, &given, &head), HTTP_DONE);
        assert_int_equal(head.status, rows[i].status);
        assert_int_equal(head.minor, rows[i].minor);
        assert_true(slice_is(head.reason, rows[i].reason));
        guarded_free(given);
    }
}

static void targets_of_every_form_are_accepted(void **state)
{
    static const char *const rows[] = {
        "GET /%2e%2e/x?y=/? HTTP/1.1\r\nHost: a\r\n\r\n",
        "OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET http://A:1/x HTTP/1.1\r\nHost: a:1\r\n\r\n",
        "GET HTTPS://[::1]?q HTTP/1.1\r\nHost: [::1]\r\n\r\n",
        "CONNECT a:443 HTTP/1.1\r\nHost: a:443\r\n\r\n",
        "GET / HTTP/1.0\r\n\r\n",
        "M-SEARCH / HTTP/1.0\r\nHost: a\r\n\r\n",
    };
    (void)state;

    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        struct http_head head;
        if (read_all(HTTP_REQUEST, slice_text(rows[i]), &head) != HTTP_DONE)
            fail_msg("refused: %s", rows[i]);
    }
}

static void bytes_behind_the_head_stay(void **state)
{
    static const char text[] = GET HOST "\r\n\x81\x80\0\0";
    struct http_head head;
    (void)state;

    assert_int_equal(read_all(HTTP_REQUEST, slice_of(text, sizeof(text) - 1), &head), HTTP_DONE);
    assert_int_equal(head.len, strlen(GET HOST "\r\n"));
}

static void names_are_counted_in_any_case(void **state)
{
    struct http_head head;
    (void)state;

    assert_int_equal(read_all(HTTP_REQUEST, slice_text(GET HOST "x: 1\r\nX: 2\r\nX-: 3\r\n\r\n"), &head),
                     HTTP_DONE);
    assert_int_equal(http_count(&head, "X"), 2);
    assert_true(slice_is(http_get(&head, "X"), "1"));
    assert_int_equal(http_count(&head, "Y"), 0);
}

/* ---- heads that are refused ---- */

static const struct slice bad_requests[] = {
    /* line ends and control bytes */
    T("\r\n" GET HOST "\r\n"),
    T("\n" GET HOST "\r\n"),
    T("GET / HTTP/1.1\nHost: a\r\n\r\n"),
    T(GET "Host: a\n\r\n"),
    T(GET HOST "\n"),
    T(GET HOST "A: b\rC: d\r\n\r\n"),
    T(GET HOST "A: b\r\r\n\r\n"),
    T(GET HOST "\r\r\n"),
    T("GET /\0 HTTP/1.1\r\n" HOST "\r\n"),
    T(GET HOST "A: \0\r\n\r\n"),
    T(GET HOST "A\0: b\r\n\r\n"),
    T(GET HOST "A: \x01\r\n\r\n"),
    T(GET HOST "A: \x0b\r\n\r\n"),
    T(GET HOST "A: \x0c\r\n\r\n"),
    T(GET HOST "A: \x1f\r\n\r\n"),
    T(GET HOST "A: \x7f\r\n\r\n"),
    T("\x16\x03\x01\x02\x00\x01"),
    /* request lines */
    T(" " GET HOST "\r\n"),
    T("GET  / HTTP/1.1\r\n" HOST "\r\n"),
    T("GET\t/ HTTP/1.1\r\n" HOST "\r\n"),
    T("GET /  HTTP/1.1\r\n" HOST "\r\n"),
    T("GET / HTTP/1.1 \r\n" HOST "\r\n"),
    T("GET / HTTP/1.1 x\r\n" HOST "\r\n"),
    T("GET /a b HTTP/1.1\r\n" HOST "\r\n"),
    T("GET /\r\n" HOST "\r\n"),
    T("GET\r\n" HOST "\r\n"),
    T("GET / \r\n" HOST "\r\n"),
    T("GET  HTTP/1.1\r\n" HOST "\r\n"),
    T("G@T / HTTP/1.1\r\n" HOST "\r\n"),
    T("GET\xc3 / HTTP/1.1\r\n" HOST "\r\n"),
    T("GET / HTTP/1.2\r\n" HOST "\r\n"),
    T("GET / HTTP/0.9\r\n" HOST "\r\n"),
    T("GET / HTTP/2.0\r\n" HOST "\r\n"),
    T("GET / HTTP/1.10\r\n" HOST "\r\n"),
    T("GET / HTTP/1.\r\n" HOST "\r\n"),
    T("GET / http/1.1\r\n" HOST "\r\n"),
    T("GET / HTTP/01.1\r\n" HOST "\r\n"),
    T("GET / ICY/1.1\r\n" HOST "\r\n"),
    T("GET /#f HTTP/1.1\r\n" HOST "\r\n"),
    T("GET /\xc3\xa4 HTTP/1.1\r\n" HOST "\r\n"),
    T("GET a HTTP/1.1\r\n" HOST "\r\n"),
    T("GET * HTTP/1.1\r\n" HOST "\r\n"),
    T("GET ftp://a/ HTTP/1.1\r\n" HOST "\r\n"),
    T("PRI * HTTP/2.0\r\n\r\n"),
    T(OK "\r\n"),
    /* field lines */
    T(GET HOST "A : b\r\n\r\n"),
    T(GET HOST "A\t: b\r\n\r\n"),
    T(GET HOST " A: b\r\n\r\n"),
    T(GET HOST "A: b\r\n c\r\n\r\n"),
    T(GET HOST "A: b\r\n\tc\r\n\r\n"),
    T(GET HOST ": b\r\n\r\n"),
    T(GET HOST "A\r\n\r\n"),
    T(GET HOST "A b: c\r\n\r\n"),
    T(GET HOST "A(: c\r\n\r\n"),
    T(GET HOST "\xc3\xa4: c\r\n\r\n"),
    /* Host */
    T(GET "\r\n"),
    T(GET HOST HOST "\r\n"),
    T(GET HOST "hOST: b\r\n\r\n"),
    T(GET "Host:\r\n\r\n"),
    T(GET "Host: a@b\r\n\r\n"),
    T(GET "Host: a b\r\n\r\n"),
    T(GET "Host: a,b\r\n\r\n"),
    T(GET "Host: a/b\r\n\r\n"),
    T(GET "Host: \xc3\xa4\r\n\r\n"),
    T("GET / HTTP/1.0\r\n" HOST HOST "\r\n"),
    T("GET http://b/ HTTP/1.1\r\n" HOST "\r\n"),
    T("GET http:// HTTP/1.1\r\n" HOST "\r\n"),
    T("GET http://u@a/ HTTP/1.1\r\n" HOST "\r\n"),
    T("CONNECT a:443 HTTP/1.1\r\nHost: a:80\r\n\r\n"),
    T("CONNECT / HTTP/1.1\r\n" HOST "\r\n"),
    /* lengths */
    T(POST "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n"),
    T(POST "Transfer-Encoding: chunked\r\nContent-Length: 0\r\n\r\n"),
    T(POST "Content-Length: 5\r\nContent-Length: 6\r\n\r\n"),
    T(POST "Content-Length: 5, 5\r\n\r\n"),
    T(POST "Content-Length: +5\r\n\r\n"),
    T(POST "Content-Length: -5\r\n\r\n"),
    T(POST "Content-Length: 5 5\r\n\r\n"),
    T(POST "Content-Length: 0x5\r\n\r\n"),
    T(POST "Content-Length: 5.\r\n\r\n"),
    T(POST "Content-Length:\r\n\r\n"),
    T(POST "Content-Length: 9223372036854775808\r\n\r\n"),
    T(POST "Content-Length: 18446744073709551616\r\n\r\n"),
    T(POST "Transfer-Encoding: gzip\r\n\r\n"),
    T(POST "Transfer-Encoding: gzip, chunked\r\n\r\n"),
    T(POST "Transfer-Encoding: chunked, chunked\r\n\r\n"),
    T(POST "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n"),
    T(POST "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n"),
    T(POST "Transfer-Encoding: xchunked\r\n\r\n"),
    T(POST "Transfer-Encoding: chunked;q=1\r\n\r\n"),
    T(POST "Transfer-Encoding: \"chunked\"\r\n\r\n"),
    T(POST "Transfer-Encoding:\r\n\r\n"),
    T("POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n"),
    T(GET HOST "Connection: Host\r\n\r\n"),
    T(GET HOST "Connection: close, content-length\r\n\r\n"),
    T(GET HOST "Connection: close\r\nConnection: TRANSFER-ENCODING\r\n\r\n"),
};

static const struct slice bad_responses[] = {
    T("HTTP/1.1\r\n\r\n"),
    T("HTTP/1.1 \r\n\r\n"),
    T("HTTP/1.1  200 OK\r\n\r\n"),
    T("HTTP/1.1\t200 OK\r\n\r\n"),
    T("HTTP/1.1 20 OK\r\n\r\n"),
    T("HTTP/1.1 2000 OK\r\n\r\n"),
    T("HTTP/1.1 099 OK\r\n\r\n"),
    T("HTTP/1.1 600 OK\r\n\r\n"),
    T("HTTP/1.1 2x0 OK\r\n\r\n"),
    T("HTTP/1.1 +20 OK\r\n\r\n"),
    T("HTTP/1.1 200OK\r\n\r\n"),
    T("HTTP/2.0 200 OK\r\n\r\n"),
    T("HTTP/2 200 OK\r\n\r\n"),
    T("http/1.1 200 OK\r\n\r\n"),
    T("ICY 200 OK\r\n\r\n"),
    T(" " OK "\r\n"),
    T("\r\n" OK "\r\n"),
    T("HTTP/1.1 200 O\0K\r\n\r\n"),
    T("HTTP/1.1 200 OK\nA: b\r\n\r\n"),
    T(OK "A: b\n\n"),
    T(OK "A : b\r\n\r\n"),
    T(OK "A: b\r\n c\r\n\r\n"),
    T(OK "Content-Length: 5\r\nContent-Length: 6\r\n\r\n"),
    T(OK "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n"),
    T(OK "Transfer-Encoding: gzip, chunked\r\n\r\n"),
    T(OK "Transfer-Encoding: identity\r\n\r\n"),
    T("HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"),
    T(GET HOST "\r\n"),
};

static void check_refused(enum http_side side, const struct slice *rows, size_t count)
{
    struct http_head head;

    for (size_t i = 0; i < count; i++) {
        struct slice given;
        enum http_result stepwise = read_stepwise(side, rows[i], 1, &given, &head);
        if (stepwise != HTTP_BAD || read_all(side, rows[i], &head) != HTTP_BAD)
            fail_msg("row %zu was not refused: %.*s", i, SLICE_PRINTF(rows[i]));
        guarded_free(given);
    }
}

static void bad_requests_are_refused_however_they_arrive(void **state)
{
    (void)state;
    check_refused(HTTP_REQUEST, bad_requests, sizeof(bad_requests) / sizeof(*bad_requests));
}

static void bad_responses_are_refused_however_they_arrive(void **state)
{
    (void)state;
    check_refused(HTTP_RESPONSE, bad_responses, sizeof(bad_responses) / sizeof(*bad_responses));
}

static void no_byte_but_a_tchar_stands_in_a_name(void **state)
{
    (void)state;
    for (unsigned c = 0; c < 256; c++) {
        char text[] = GET HOST "A?A: b\r\n\r\n";
        struct http_head head;
        text[strlen(GET HOST) + 1] = (char)c;
        bool good = strchr("!#$%&'*+-.^_`|~:", (int)c) || (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') ||
                    (c >= 'a' && c <= 'z');
        enum http_result result = read_all(HTTP_REQUEST, slice_of(text, sizeof(text) - 1), &head);
        assert_int_equal(result, good && c ? HTTP_DONE : HTTP_BAD);
    }
}

static void a_refusal_is_final(void **state)
{
    struct http_reader r = http_reader_of(HTTP_REQUEST, HTTP_HEAD_MAX);
    struct http_head head;
    (void)state;

    assert_int_equal(http_read(&r, slice_text("\n"), &head), HTTP_BAD);
    assert_int_equal(http_read(&r, slice_text(GET HOST "\r\n"), &head), HTTP_BAD);
}

/* ---- limits ---- */

static void a_head_of_the_limit_passes_and_one_byte_more_does_not(void **state)
{
    const char *text = GET HOST "\r\n";
    struct http_head head;
    (void)state;

    for (size_t step = 1; step < 40; step++) {
        struct http_reader exact = http_reader_of(HTTP_REQUEST, strlen(text));
        struct http_reader short_by_one = http_reader_of(HTTP_REQUEST, strlen(text) - 1);
        enum http_result a = HTTP_MORE, b = HTTP_MORE;
        for (size_t len = 0; len < strlen(text) && a == HTTP_MORE && b == HTTP_MORE; len += step)
            a = http_read(&exact, slice_sub(slice_text(text), 0, len + step), &head),
            b = http_read(&short_by_one, slice_sub(slice_text(text), 0, len + step), &head);
        if (a == HTTP_MORE)
            a = http_read(&exact, slice_text(text), &head);
        assert_int_equal(a, HTTP_DONE);
        assert_int_equal(b, HTTP_TOO_LARGE);
    }
}

static void a_head_may_have_all_fields_that_fit_and_not_one_more(void **state)
{
    (void)state;
    for (size_t extra = 0; extra < 2; extra++) {
        char text[4096];
        struct http_head head;
        size_t len = (size_t)snprintf(text, sizeof(text), "%s%s", GET, HOST);
        for (size_t i = 1; i < HTTP_FIELDS_MAX + extra; i++)
            len += (size_t)snprintf(text + len, sizeof(text) - len, "A: %zu\r\n", i);
        len += (size_t)snprintf(text + len, sizeof(text) - len, "\r\n");
        assert_int_equal(read_all(HTTP_REQUEST, slice_of(text, len), &head),
                         extra ? HTTP_TOO_LARGE : HTTP_DONE);
    }
}

/* ---- bodies ---- */

static void the_framing_of_a_body_follows_the_head(void **state)
{
    static const struct {
        const char *text;
        enum http_side side;
        bool to_head;
        enum http_framing framing;
    } rows[] = {
        {GET HOST "\r\n", HTTP_REQUEST, false, HTTP_NO_BODY},
        {POST "Content-Length: 0\r\n\r\n", HTTP_REQUEST, false, HTTP_NO_BODY},
        {POST "Content-Length: 7\r\nContent-Length: 07\r\n\r\n", HTTP_REQUEST, false, HTTP_LENGTH},
        {POST "Transfer-Encoding: Chunked\r\n\r\n", HTTP_REQUEST, false, HTTP_CHUNKED},
        {OK "\r\n", HTTP_RESPONSE, false, HTTP_UNTIL_CLOSE},
        {OK "\r\n", HTTP_RESPONSE, true, HTTP_NO_BODY},
        {OK "Content-Length: 7\r\n\r\n", HTTP_RESPONSE, false, HTTP_LENGTH},
        {OK "Content-Length: 7\r\n\r\n", HTTP_RESPONSE, true, HTTP_NO_BODY},
        {OK "Content-Length: 0\r\n\r\n", HTTP_RESPONSE, false, HTTP_NO_BODY},
        {OK "Transfer-Encoding: chunked\r\n\r\n", HTTP_RESPONSE, false, HTTP_CHUNKED},
        {"HTTP/1.1 101 x\r\n\r\n", HTTP_RESPONSE, false, HTTP_NO_BODY},
        {"HTTP/1.1 103 x\r\nContent-Length: 7\r\n\r\n", HTTP_RESPONSE, false, HTTP_NO_BODY},
        {"HTTP/1.1 204 x\r\nContent-Length: 7\r\n\r\n", HTTP_RESPONSE, false, HTTP_NO_BODY},
        {"HTTP/1.1 304 x\r\nTransfer-Encoding: chunked\r\n\r\n", HTTP_RESPONSE, false, HTTP_NO_BODY},
    };
    (void)state;

    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        struct http_head head;
        assert_int_equal(read_all(rows[i].side, slice_text(rows[i].text), &head), HTTP_DONE);
        assert_int_equal(http_framing(&head, rows[i].to_head), rows[i].framing);
        if (rows[i].framing == HTTP_LENGTH)
            assert_int_equal(head.length, 7);
    }
}

/* Decodes `all`, given in parts of `step` bytes; returns the last result, the body in `body` and what was
 * left. */
static enum http_result dechunk(struct slice all, size_t step, char *body, size_t *body_len, size_t *left)
{
    struct http_chunked c = {0};
    enum http_result result = HTTP_MORE;

    *body_len = 0;
    for (size_t at = 0; at < all.len && result == HTTP_MORE; at += step) {
        struct slice part = guarded(slice_sub(all, at, step)), in = part, data;
        do {
            result = http_chunked_read(&c, &in, &data);
            if (data.len)
                memcpy(body + *body_len, data.at, data.len);
            *body_len += data.len;
        } while (result == HTTP_MORE && in.len > 0);
        *left = in.len + (at + part.len < all.len ? all.len - at - part.len : 0);
        guarded_free(part);
    }
    return result;
}

static void chunks_are_joined_however_they_arrive(void **state)
{
    static const char text[] =
        "5\r\nhello\r\n001;a=\"b\";c\r\n \r\nA\r\n0123456789\r\n0;last\r\nTrailer: x\r\nB:\r\n\r\nnext";
    char body[64];
    size_t len, left;
    (void)state;

    for (size_t step = 1; step < sizeof(text); step++) {
        assert_int_equal(dechunk(slice_of(text, sizeof(text) - 1), step, body, &len, &left), HTTP_DONE);
        assert_int_equal(len, 16);
        assert_memory_equal(body, "hello 0123456789", 16);
        assert_int_equal(left, 4);
    }
}

static void an_empty_chunked_body_ends_at_once(void **state)
{
    char body[1];
    size_t len, left;
    (void)state;

    assert_int_equal(dechunk(slice_text("0\r\n\r\n"), 1, body, &len, &left), HTTP_DONE);
    assert_int_equal(len, 0);
    assert_int_equal(dechunk(slice_text("0\r\n\r"), 1, body, &len, &left), HTTP_MORE);
}

static void bad_chunks_are_refused_however_they_arrive(void **state)
{
    static const struct slice rows[] = {
        T("\r\n"),
        T("\n"),
        T(";\r\n"),
        T("g\r\n"),
        T("+5\r\nhello\r\n"),
        T("-1\r\n"),
        T("0x5\r\n"),
        T(" 5\r\n"),
        T("5 \r\n"),
        T("5\t;a\r\n"),
        T("5\n"),
        T("5\rh"),
        T("5;a\n"),
        T("5;a\0\r\n"),
        T("5;\x7f\r\n"),
        T("5\r\nhello0"),
        T("5\r\nhello\n"),
        T("5\r\nhello\rx"),
        T("5\r\nhell\r\n0\r\n\r\n"),
        T("8000000000000000\r\n"),
        T("ffffffffffffffff\r\n"),
        T("00000000000000005\r\n"),
        T("0\r\n\n"),
        T("0\r\n\rx"),
        T("0\r\n a: b\r\n"),
        T("0\r\n: b\r\n"),
        T("0\r\na b: c\r\n"),
        T("0\r\na\r\n"),
        T("0\r\na: \0\r\n"),
        T("0\r\na: b\n"),
        T("0\r\na: b\rc"),
    };
    char body[64];
    size_t len, left;
    (void)state;

    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++)
        for (size_t step = 1; step <= rows[i].len; step++)
            if (dechunk(rows[i], step, body, &len, &left) != HTTP_BAD)
                fail_msg("row %zu was not refused: %.*s", i, SLICE_PRINTF(rows[i]));
}

static void extensions_and_trailers_of_a_chunked_body_are_bounded(void **state)
{
    static const struct {
        const char *begin, *again, *end;
        size_t most; /* bytes of `again` that are taken */
    } rows[] = {
        {"5;", "x", "\r\nhello\r\n0\r\n\r\n", 256},
        {"0\r\n", "A:\r\n", "\r\n", 8192 / 2 * 4},
    };
    (void)state;

    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++)
        for (size_t over = 0; over < 2; over++) {
            static char text[20000];
            char body[8];
            size_t len = 0, body_len, left, repeat = rows[i].most / strlen(rows[i].again) + over;
            len += (size_t)sprintf(text, "%s", rows[i].begin);
            for (size_t k = 0; k < repeat; k++)
                len += (size_t)sprintf(text + len, "%s", rows[i].again);
            len += (size_t)sprintf(text + len, "%s", rows[i].end);
            assert_int_equal(dechunk(slice_of(text, len), len, body, &body_len, &left),
                             over ? HTTP_BAD : HTTP_DONE);
        }
}

static void the_largest_chunk_is_taken_as_it_comes(void **state)
{
    struct http_chunked c = {0};
    struct slice in = slice_text("fffffffffffffff\r\nabc"), data;
    (void)state;

    assert_int_equal(http_chunked_read(&c, &in, &data), HTTP_MORE);
    assert_true(slice_is(data, "abc"));
    assert_int_equal(c.left, 0xfffffffffffffff - 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_upgrade_is_read_however_its_bytes_arrive),
        cmocka_unit_test(a_status_line_is_read_with_and_without_a_reason),
        cmocka_unit_test(targets_of_every_form_are_accepted),
        cmocka_unit_test(bytes_behind_the_head_stay),
        cmocka_unit_test(names_are_counted_in_any_case),
        cmocka_unit_test(bad_requests_are_refused_however_they_arrive),
        cmocka_unit_test(bad_responses_are_refused_however_they_arrive),
        cmocka_unit_test(no_byte_but_a_tchar_stands_in_a_name),
        cmocka_unit_test(a_refusal_is_final),
        cmocka_unit_test(a_head_of_the_limit_passes_and_one_byte_more_does_not),
        cmocka_unit_test(a_head_may_have_all_fields_that_fit_and_not_one_more),
        cmocka_unit_test(the_framing_of_a_body_follows_the_head),
        cmocka_unit_test(chunks_are_joined_however_they_arrive),
        cmocka_unit_test(an_empty_chunked_body_ends_at_once),
        cmocka_unit_test(bad_chunks_are_refused_however_they_arrive),
        cmocka_unit_test(extensions_and_trailers_of_a_chunked_body_are_bounded),
        cmocka_unit_test(the_largest_chunk_is_taken_as_it_comes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
