/* SPDX-License-Identifier: MIT */
#include "tests/unit/support.h"

#include <stdio.h>
#include <stdlib.h>

#include "spoa/proto/resp.h"

static enum resp_result read_one(const char *text, struct resp *value, size_t *left)
{
    struct slice whole = guarded(slice_text(text)), in = whole;
    enum resp_result result = resp_next(&in, value);
    *left = in.len;
    if (result == RESP_VALUE)
        assert_ptr_equal(in.at + in.len, whole.at + whole.len);
    guarded_free(whole);
    return result;
}

static const struct {
    const char *text;
    enum resp_kind kind;
    size_t count;
    const char *last; /* part */
} good[] = {
    {"+OK\r\n", RESP_STATUS, 1, "OK"},
    {"+\r\n", RESP_STATUS, 1, ""},
    {"-ERR no\r\n", RESP_ERROR, 1, "ERR no"},
    {":-12\r\n", RESP_INTEGER, 1, "-12"},
    {"$0\r\n\r\n", RESP_STRING, 1, ""},
    {"$5\r\na\r\nbc\r\n", RESP_STRING, 1, "a\r\nbc"},
    {"$-1\r\n", RESP_NIL, 1, NULL},
    {"*-1\r\n", RESP_NIL, 0, NULL},
    {"*0\r\n", RESP_ARRAY, 0, NULL},
    {"*3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$4\r\nsb-1\r\n", RESP_ARRAY, 3, "sb-1"},
    {"*3\r\n$9\r\nsubscribe\r\n$1\r\nc\r\n:1\r\n", RESP_ARRAY, 3, "1"},
    {"*4\r\n+a\r\n-b\r\n$-1\r\n:0\r\n", RESP_ARRAY, 4, "0"},
};

static void every_kind_of_value_is_read(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        struct slice in = slice_text(good[i].text);
        struct resp value;
        assert_int_equal(resp_next(&in, &value), RESP_VALUE);
        assert_int_equal(in.len, 0);
        assert_int_equal(value.kind, good[i].kind);
        assert_int_equal(value.count, good[i].count);
        if (good[i].last)
            assert_true(slice_is(value.parts[value.count - 1].text, good[i].last));
    }
}

static void a_value_is_read_when_it_is_whole_and_not_before(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        for (size_t len = 0; len < strlen(good[i].text); len++) {
            char part[128];
            struct resp value;
            size_t left;
            snprintf(part, len + 1, "%s", good[i].text);
            assert_int_equal(read_one(part, &value, &left), RESP_MORE);
            assert_int_equal(left, len);
        }
    }
}

static void bytes_after_a_value_stay_in_the_input(void **state)
{
    struct slice in = SLICE_LITERAL("+PONG\r\n$3\r\nabc\r\n:1");
    struct resp value;
    (void)state;
    assert_int_equal(resp_next(&in, &value), RESP_VALUE);
    assert_int_equal(resp_next(&in, &value), RESP_VALUE);
    assert_true(slice_is(value.parts[0].text, "abc"));
    assert_int_equal(resp_next(&in, &value), RESP_MORE);
    assert_true(slice_is(in, ":1"));
}

static void bytes_that_violate_the_protocol_are_broken(void **state)
{
    static const char *const bad[] = {
        "HTTP/1.1 400 Bad Request\r\n\r\n",
        "\r\n",
        "+OK\rx",
        "$x\r\n",
        "$\r\n",
        "$-2\r\n",
        "$+1\r\na\r\n",
        "$65538\r\n",
        "$99999999999999999999\r\n",
        "$1\r\nab\r\n",
        "$1\r\na\n\n",
        "*5\r\n",
        "*2147483647\r\n",
        "*-2\r\n",
        "*1\r\n*1\r\n:1\r\n",
        "%1\r\n+a\r\n+b\r\n",
    };
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct resp value;
        size_t left;
        if (read_one(bad[i], &value, &left) != RESP_BROKEN)
            fail_msg("%s", bad[i]);
    }
}

static void a_line_without_an_end_is_not_awaited_for_ever(void **state)
{
    static char line[RESP_LINE + 2];
    struct resp value;
    size_t left;
    (void)state;
    memset(line, 'x', sizeof line - 1);
    line[0] = '-';
    line[RESP_LINE] = '\0';
    assert_int_equal(read_one(line, &value, &left), RESP_MORE);
    line[RESP_LINE] = 'x';
    assert_int_equal(read_one(line, &value, &left), RESP_BROKEN);
}

static void a_text_may_be_as_long_as_the_limit(void **state)
{
    size_t size = RESP_TEXT + 64;
    char *text = malloc(size);
    struct resp value;
    size_t left;
    (void)state;
    assert_non_null(text);
    int head = snprintf(text, size, "$%d\r\n", RESP_TEXT);
    memset(text + head, 'x', RESP_TEXT);
    memcpy(text + head + RESP_TEXT, "\r\n", 3);
    assert_int_equal(read_one(text, &value, &left), RESP_VALUE);
    assert_int_equal(left, 0);
    free(text);
}

static void a_command_is_an_array_of_words(void **state)
{
    struct buffer to = buffer_with_limit(256);
    const struct slice words[] = {SLICE_LITERAL("GETRANGE"), SLICE_LITERAL("a\r\nb"), SLICE_LITERAL("")};
    (void)state;
    assert_true(resp_command(&to, words, 3));
    assert_true(slice_is(buffer_slice(&to), "*3\r\n$8\r\nGETRANGE\r\n$4\r\na\r\nb\r\n$0\r\n\r\n"));
    buffer_free(&to);
}

static void a_command_that_does_not_fit_leaves_nothing(void **state)
{
    const struct slice words[] = {SLICE_LITERAL("PING"), SLICE_LITERAL("0123456789")};
    const size_t whole = strlen("*2\r\n$4\r\nPING\r\n$10\r\n0123456789\r\n");
    (void)state;
    for (size_t limit = 4; limit <= whole + 4; limit++) {
        struct buffer to = buffer_with_limit(limit);
        assert_true(buffer_put(&to, SLICE_LITERAL("abcd")));
        bool good_ = resp_command(&to, words, 2);
        assert_int_equal(good_, limit == whole + 4);
        assert_int_equal(buffer_len(&to), good_ ? whole + 4 : 4);
        buffer_free(&to);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_kind_of_value_is_read),
        cmocka_unit_test(a_value_is_read_when_it_is_whole_and_not_before),
        cmocka_unit_test(bytes_after_a_value_stay_in_the_input),
        cmocka_unit_test(bytes_that_violate_the_protocol_are_broken),
        cmocka_unit_test(a_line_without_an_end_is_not_awaited_for_ever),
        cmocka_unit_test(a_text_may_be_as_long_as_the_limit),
        cmocka_unit_test(a_command_is_an_array_of_words),
        cmocka_unit_test(a_command_that_does_not_fit_leaves_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
