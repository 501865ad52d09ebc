/* SPDX-License-Identifier: MIT */
#include "tests/unit/support.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "examples/worker/http/guard.h"

static enum guard_verdict judge(const struct guard *guard, const char *request)
{
    struct http_reader reader = http_reader_of(HTTP_REQUEST, 16384);
    struct http_head head;
    struct slice bytes = guarded(slice_text(request));
    /* some Hosts are refused as the head is read */
    bool read = http_read(&reader, bytes, &head) == HTTP_DONE;
    enum guard_verdict verdict = read ? guard_judge(guard, &head) : GUARD_HOST;
    guarded_free(bytes);
    return verdict;
}

static void only_who_brings_the_secret_passes(void **state)
{
    (void)state;
    const struct guard guard = {.secret = "s3cret"};
    static const struct {
        const char *lines;
        enum guard_verdict verdict;
    } cases[] = {
        {"Authorization: Bearer s3cret\r\n", GUARD_PASS},
        {"authorization: bearer s3cret\r\n", GUARD_PASS},
        {"Authorization: Bearer s3cret\r\nHost: evil.example\r\nOrigin: http://evil.example\r\n", GUARD_PASS},
        {"", GUARD_NO_SECRET},
        {"Authorization: Bearer s3cre\r\n", GUARD_NO_SECRET},
        {"Authorization: Bearer s3cret5\r\n", GUARD_NO_SECRET},
        {"Authorization: Bearer S3CRET\r\n", GUARD_NO_SECRET},
        {"Authorization: Bearer\r\n", GUARD_NO_SECRET},
        {"Authorization: Bearer \r\n", GUARD_NO_SECRET},
        {"Authorization: Basic s3cret\r\n", GUARD_NO_SECRET},
        {"Authorization: s3cret\r\n", GUARD_NO_SECRET},
        {"Authorization:\r\n", GUARD_NO_SECRET},
        {"Authorization: Bearer s3cret\r\nAuthorization: Bearer s3cret\r\n", GUARD_NO_SECRET},
        {"Cookie: s3cret\r\n", GUARD_NO_SECRET},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char request[512];
        snprintf(request, sizeof request, "GET /terminal HTTP/1.1\r\n%s%s\r\n",
                 strstr(cases[i].lines, "Host") ? "" : "Host: 127.0.0.1\r\n", cases[i].lines);
        assert_int_equal(judge(&guard, request), cases[i].verdict);
    }
}

static void an_open_one_is_called_by_no_foreign_name(void **state)
{
    (void)state;
    const struct guard guard = {.hosts = {"worker.example", "other"}, .host_count = 2};
    static const struct {
        const char *host;
        enum guard_verdict verdict;
    } cases[] = {
        {"127.0.0.1", GUARD_PASS},
        {"127.0.0.1:9001", GUARD_PASS},
        {"127.8.9.1", GUARD_PASS},
        {"[::1]:80", GUARD_PASS},
        {"[::ffff:127.0.0.1]", GUARD_PASS},
        {"localhost", GUARD_PASS},
        {"LocalHost:1", GUARD_PASS},
        {"Worker.Example:9001", GUARD_PASS},
        {"other", GUARD_PASS},
        {"evil.example", GUARD_HOST},
        {"evil.worker.example", GUARD_HOST},
        {"worker.example.evil", GUARD_HOST},
        {"127.0.0.1.evil.example", GUARD_HOST},
        {"localhost.evil.example", GUARD_HOST},
        {"127.0.0.1/8", GUARD_HOST},
        {"127.0.0.0/8", GUARD_HOST},
        {"127.1", GUARD_HOST},
        {"2130706433", GUARD_HOST},
        {"10.0.0.1", GUARD_HOST},
        {"192.0.2.1", GUARD_HOST},
        {"0.0.0.0", GUARD_HOST},
        {"[::]", GUARD_HOST},
        {"[::1].evil.example", GUARD_HOST},
        {"[::1", GUARD_HOST},
        {"[127.0.0.1].evil.example:80", GUARD_HOST},
        {"[]", GUARD_HOST},
        {":80", GUARD_HOST},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char request[512];
        snprintf(request, sizeof request, "GET /echo HTTP/1.1\r\nHost: %s\r\n\r\n", cases[i].host);
        assert_int_equal(judge(&guard, request), cases[i].verdict);
    }
    assert_int_equal(judge(&guard, "GET /echo HTTP/1.0\r\n\r\n"), GUARD_PASS);
    assert_int_equal(judge(&guard, "GET /echo HTTP/1.1\r\nHost:\r\n\r\n"), GUARD_HOST);
}

static void an_open_one_takes_no_request_of_a_foreign_page(void **state)
{
    (void)state;
    const struct guard guard = {0};
    static const struct {
        const char *lines;
        enum guard_verdict verdict;
    } cases[] = {
        {"", GUARD_PASS},
        {"Origin: http://127.0.0.1:9001\r\n", GUARD_PASS},
        {"Origin: https://127.0.0.1:9001\r\n", GUARD_PASS},
        {"Origin: http://127.0.0.1:9002\r\n", GUARD_ORIGIN},
        {"Origin: http://127.0.0.1\r\n", GUARD_ORIGIN},
        {"Origin: http://localhost:9001\r\n", GUARD_ORIGIN},
        {"Origin: http://evil.example\r\n", GUARD_ORIGIN},
        {"Origin: http://127.0.0.1:9001.evil.example\r\n", GUARD_ORIGIN},
        {"Origin: null\r\n", GUARD_ORIGIN},
        {"Origin:\r\n", GUARD_ORIGIN},
        {"Origin: ftp://127.0.0.1:9001\r\n", GUARD_ORIGIN},
        {"Origin: 127.0.0.1:9001\r\n", GUARD_ORIGIN},
        {"Origin: http://127.0.0.1:9001\r\nOrigin: http://evil.example\r\n", GUARD_ORIGIN},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char request[512];
        snprintf(request, sizeof request, "GET /terminal HTTP/1.1\r\nHost: 127.0.0.1:9001\r\n%s\r\n",
                 cases[i].lines);
        assert_int_equal(judge(&guard, request), cases[i].verdict);
    }
    assert_int_equal(judge(&guard, "GET / HTTP/1.0\r\nOrigin: http://127.0.0.1\r\n\r\n"), GUARD_ORIGIN);
}

static void an_open_one_takes_no_body_that_any_page_may_send(void **state)
{
    (void)state;
    const struct guard guard = {0};
    static const struct {
        const char *lines;
        enum guard_verdict verdict;
    } cases[] = {
        {"Content-Type: application/json\r\nContent-Length: 2\r\n", GUARD_PASS},
        {"Content-Type: application/json; charset=utf-8\r\nTransfer-Encoding: chunked\r\n", GUARD_PASS},
        {"Content-Type: application/octet-stream\r\nContent-Length: 2\r\n", GUARD_PASS},
        {"Content-Length: 0\r\n", GUARD_PASS},
        {"", GUARD_PASS},
        {"Content-Length: 2\r\n", GUARD_TYPE},
        {"Transfer-Encoding: chunked\r\n", GUARD_TYPE},
        {"Content-Type:\r\nContent-Length: 2\r\n", GUARD_TYPE},
        {"Content-Type: text/plain\r\nContent-Length: 2\r\n", GUARD_TYPE},
        {"Content-Type: Text/Plain ; charset=utf-8\r\nContent-Length: 2\r\n", GUARD_TYPE},
        {"Content-Type: application/x-www-form-urlencoded\r\nContent-Length: 2\r\n", GUARD_TYPE},
        {"Content-Type: multipart/form-data; boundary=x\r\nContent-Length: 2\r\n", GUARD_TYPE},
        {"Content-Type: application/json\r\nContent-Type: text/plain\r\nContent-Length: 2\r\n", GUARD_TYPE},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char request[512];
        snprintf(request, sizeof request, "POST /pty HTTP/1.1\r\nHost: localhost\r\n%s\r\n", cases[i].lines);
        assert_int_equal(judge(&guard, request), cases[i].verdict);
    }
}

static void what_is_said_on_a_command_line_is_checked(void **state)
{
    (void)state;
    struct guard_options options = {0};
    assert_non_null(guard_check(&options));
    options.open = true;
    assert_null(guard_check(&options));
    assert_true(guard_add_host(&options, "a.example"));
    assert_null(guard_check(&options));
    static const char *const bad[] = {"", "a:80", "http://a", "a b", "[::1]", "u@a"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_false(guard_add_host(&options, bad[i]));
    for (int i = 1; i < GUARD_HOSTS_MAX; i++)
        assert_true(guard_add_host(&options, "b"));
    assert_false(guard_add_host(&options, "c"));
    options.secret_file = "f";
    assert_non_null(guard_check(&options));
    options.open = false;
    assert_non_null(guard_check(&options));
    options.guard.host_count = 0;
    assert_null(guard_check(&options));
}

static void a_secret_that_no_header_could_hold_is_refused(void **state)
{
    (void)state;
    static const struct {
        const char *content, *secret;
    } cases[] = {{"abc\n", "abc"}, {"abc", "abc"},    {" abc \r\nmore\n", "abc"}, {"a b\n", NULL},
                 {"a\tb\n", NULL}, {"a\x01\n", NULL}, {"caf\xc3\xa9\n", NULL},    {"\n", NULL}};
    char path[] = "/tmp/test_guard-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct guard_options options = {.secret_file = path};
        struct fail why = {""};
        char *secret = NULL;
        assert_int_equal(ftruncate(fd, 0), 0);
        assert_int_equal(pwrite(fd, cases[i].content, strlen(cases[i].content), 0), strlen(cases[i].content));
        assert_int_equal(guard_open(&options, &secret, &why), cases[i].secret != NULL);
        if (cases[i].secret)
            assert_string_equal(options.guard.secret, cases[i].secret);
        else
            assert_non_null(strstr(why.text, path));
        free(secret);
    }
    close(fd);
    unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_who_brings_the_secret_passes),
        cmocka_unit_test(an_open_one_is_called_by_no_foreign_name),
        cmocka_unit_test(an_open_one_takes_no_request_of_a_foreign_page),
        cmocka_unit_test(an_open_one_takes_no_body_that_any_page_may_send),
        cmocka_unit_test(what_is_said_on_a_command_line_is_checked),
        cmocka_unit_test(a_secret_that_no_header_could_hold_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
