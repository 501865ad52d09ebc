/* SPDX-License-Identifier: MIT */
#include "tests/unit/support.h"

#include <cjson/cJSON.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "spoa/base/json/json.h"
#include "spoa/base/json/json_string.h"

static const struct json_limits limits = {4096, 8};
static struct fail why;

/* ---- accepted and refused documents (the cases follow the rules that JSONTestSuite tests) ---- */

static const char *const good[] = {
    "0",
    "-0",
    "1",
    "-1",
    "10",
    "1.0",
    "-1.5e+10",
    "1E400",
    "0e0",
    "1e-2",
    "123456789012345678901234567890",
    "true",
    "false",
    "null",
    "\"\"",
    "[]",
    "{}",
    "[[]]",
    "{\"\":{}}",
    " \t\r\n1 \t\r\n",
    "[1,2,3]",
    "[ 1 , 2 ]",
    "{\"a\":1,\"b\":[true,null],\"c\":{\"a\":1}}",
    "{ \"a\" : 1 , \"b\" : 2 }",
    "\"\\\"\\\\\\/\\b\\f\\n\\r\\t\"",
    "\"\\u00e9\\uABCD\"",
    "\"\\ud83d\\ude00\"",
    "\"\\uDBFF\\uDFFF\"",
    "\"\x7f\"",
    "\"\xc3\xa9\"",
    "\"\xe2\x82\xac\"",
    "\"\xf0\x9f\x98\x80\"",
    "\"\xf4\x8f\xbf\xbf\"",
    "\"\xed\x9f\xbf\xee\x80\x80\"",
    "\"\xef\xbf\xbf\"",
    "\"\xc2\x80\xdf\xbf\xe0\xa0\x80\xf0\x90\x80\x80\"",
    "\"/* no comment */ // none\"",
    "{\"a\":1,\"A\":2,\"aa\":3}",
    "{\"\\u0061b\":1,\"a\":2}",
    "[[[[[[[[]]]]]]]]",
    "\"\\\\u0000\"",
    "{\"a\":{\"a\":{\"a\":1}},\"b\":[{\"a\":1},{\"a\":1}]}",
    "123456789012345678901234567890123456789012345678901234567890123", /* 63 digits */
    "\"12345678\\n12345678 a rather long text, in which the fast path of the scan runs over whole words\"",
};

static const struct {
    const char *text, *why;
} bad[] = {
    {"", "n:1:1: the document ends too early"},
    {"  ", "n:1:3: the document ends too early"},
    {"\xef\xbb\xbf{}", "n:1:1: a byte-order mark"},
    {"\x0b"
     "1",
     "n:1:1: a value is expected"},
    {"\x0c"
     "1",
     "n:1:1: a value is expected"},
    {"\xc2\xa0"
     "1",
     "n:1:1: a value is expected"},
    {"1 2", "n:1:3: text after the document"},
    {"{}\n}", "n:2:1: text after the document"},
    {"{}{}", "n:1:3: text after the document"},
    {"{} //", "n:1:4: text after the document"},
    {"/* */1", "n:1:1: a value is expected"},
    {"[1,]", "n:1:4: a value is expected"},
    {"[,1]", "n:1:2: a value is expected"},
    {"[1 2]", "n:1:4: ',' or ']' is expected"},
    {"[1", "n:1:3: the document ends too early"},
    {"[", "n:1:2: the document ends too early"},
    {"[1}", "n:1:3: ',' or ']' is expected"},
    {"]", "n:1:1: a value is expected"},
    {"{\"a\":1,}", "n:1:8: a key in double quotes is expected"},
    {"{,}", "n:1:2: a key in double quotes is expected"},
    {"{a:1}", "n:1:2: a key in double quotes is expected"},
    {"{'a':1}", "n:1:2: a key in double quotes is expected"},
    {"{1:1}", "n:1:2: a key in double quotes is expected"},
    {"{\"a\" 1}", "n:1:6: ':' is expected"},
    {"{\"a\":}", "n:1:6: a value is expected"},
    {"{\"a\"}", "n:1:5: ':' is expected"},
    {"{\"a\":1 \"b\":2}", "n:1:8: ',' or '}' is expected"},
    {"{\"a\":1]", "n:1:7: ',' or '}' is expected"},
    {"{\"a\":1", "n:1:7: the document ends too early"},
    {"{\"a", "n:1:4: the document ends inside a string"},
    {"tru", "n:1:4: the document ends too early"},
    {"truE", "n:1:1: a value is expected"},
    {"truee", "n:1:5: text after the document"},
    {"nul", "n:1:4: the document ends too early"},
    {"NaN", "n:1:1: a value is expected"},
    {"Infinity", "n:1:1: a value is expected"},
    {"-Infinity", "n:1:2: a digit is expected"},
    {"+1", "n:1:1: a value is expected"},
    {".5", "n:1:1: a value is expected"},
    {"01", "n:1:2: a number begins with 0"},
    {"-01", "n:1:3: a number begins with 0"},
    {"00", "n:1:2: a number begins with 0"},
    {"1.", "n:1:3: the document ends too early"},
    {"[1.]", "n:1:4: a digit is expected"},
    {"1.e1", "n:1:3: a digit is expected"},
    {"[1e]", "n:1:4: a digit is expected"},
    {"[1e+]", "n:1:5: a digit is expected"},
    {"1e1.5", "n:1:4: text after the document"},
    {"[-]", "n:1:3: a digit is expected"},
    {"--1", "n:1:2: a digit is expected"},
    {"0x10", "n:1:2: text after the document"},
    {"1_000", "n:1:2: text after the document"},
    {"1\xef\xbc\x91", "n:1:2: text after the document"},
    {"1234567890123456789012345678901234567890123456789012345678901234", "n:1:1: a number is too long"},
    {"'a'", "n:1:1: a value is expected"},
    {"\"a", "n:1:3: the document ends inside a string"},
    {"\"a\tb\"", "n:1:3: a control character in a string"},
    {"\"a\nb\"", "n:1:3: a control character in a string"},
    {"\"12345678\x1f\"", "n:1:10: a control character in a string"},
    {"\"\\x41\"", "n:1:2: unknown escape in a string"},
    {"\"\\'\"", "n:1:2: unknown escape in a string"},
    {"\"\\U0041\"", "n:1:2: unknown escape in a string"},
    {"\"\\\xc3\xa9\"", "n:1:2: unknown escape in a string"},
    {"\"\\u12\"", "n:1:2: an escape is not of the form \\uXXXX"},
    {"\"\\u12g4\"", "n:1:2: an escape is not of the form \\uXXXX"},
    {"\"\\u+123\"", "n:1:2: an escape is not of the form \\uXXXX"},
    {"\"a\\u0000b\"", "n:1:3: NUL in a string"},
    {"\"\\ud800\"", "n:1:2: a surrogate without its other half"},
    {"\"\\udc00\"", "n:1:2: a surrogate without its other half"},
    {"\"\\ud800x\"", "n:1:2: a surrogate without its other half"},
    {"\"\\ud800\\n12345\"", "n:1:2: a surrogate without its other half"},
    {"\"\\ud800\\u0041\"", "n:1:2: a surrogate without its other half"},
    {"\"\\ud800\\ud800\"", "n:1:2: a surrogate without its other half"},
    {"\"\\ude00\\ud83d\"", "n:1:2: a surrogate without its other half"},
    {"\"\\", "n:1:2: unknown escape in a string"},
    {"\"\x80\"", "n:1:2: invalid UTF-8"},
    {"\"\xff\"", "n:1:2: invalid UTF-8"},
    {"\"\xc0\x80\"", "n:1:2: invalid UTF-8"},
    {"\"\xc1\xbf\"", "n:1:2: invalid UTF-8"},
    {"\"\xc3\"", "n:1:2: invalid UTF-8"},
    {"\"\xc3(\"", "n:1:2: invalid UTF-8"},
    {"\"\xe0\x9f\xbf\"", "n:1:2: invalid UTF-8"},
    {"\"\xe2\x82\"", "n:1:2: invalid UTF-8"},
    {"\"\xed\xa0\x80\"", "n:1:2: invalid UTF-8"},
    {"\"\xf0\x8f\xbf\xbf\"", "n:1:2: invalid UTF-8"},
    {"\"\xf0\x9f\x98\"", "n:1:2: invalid UTF-8"},
    {"\"\xf4\x90\x80\x80\"", "n:1:2: invalid UTF-8"},
    {"\"\xf5\x80\x80\x80\"", "n:1:2: invalid UTF-8"},
    {"\"\xc3\xa9\xc3\xa9\x80\"", "n:1:4: invalid UTF-8"},
    {"{\"\xff\":1}", "n:1:3: invalid UTF-8"},
    {"{\"a\":1,\"a\":2}", "n:1:8: duplicate key"},
    {"{\"a\":1,\n\"\\u0061\":2}", "n:2:1: duplicate key"},
    {"{\"\xc3\xa9\":1,\"\\u00e9\":2}", "n:1:8: duplicate key"},
    {"{\"\\ud83d\\ude00\":1,\"\xf0\x9f\x98\x80\":2}", "n:1:19: duplicate key"},
    {"{\"\\/\":1,\"/\":2}", "n:1:9: duplicate key"},
    {"{\"\":1,\"\":2}", "n:1:7: duplicate key"},
    {"[{\"x\":{\"b\":1,\"a\":2,\"b\":3}}]", "n:1:20: duplicate key"},
    {"{\"a\":1,\"b\":1,\"c\":1,\"d\":1,\"e\":1,\"f\":1,\"g\":1,\"h\":1,\"i\":1,\"c\":1}",
     "n:1:56: duplicate key"},
    {"[[[[[[[[[]]]]]]]]]", "n:1:9: nested too deeply"},
    {"{\"a\":[{\"a\":[{\"a\":[{\"a\":[{\"a\":1}]}]}]}]}", "n:1:25: nested too deeply"},
};

static void good_documents_are_accepted(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        struct slice text = guarded(slice_text(good[i]));
        if (!json_check(text, "n", 0, limits, &why))
            fail_msg("%s: %s", good[i], why.text);
        struct json *doc = json_parse(text, "n", 0, limits, &why);
        assert_non_null(doc);
        json_free(doc);
        guarded_free(text);
    }
}

static void bad_documents_are_refused_with_reason_and_position(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct slice text = guarded(slice_text(bad[i].text));
        assert_false(json_check(text, "n", 0, limits, &why));
        assert_string_equal(why.text, bad[i].why);
        why.text[0] = '\0';
        assert_null(json_parse(text, "n", 0, limits, &why));
        assert_string_equal(why.text, bad[i].why);
        guarded_free(text);
    }
}

static void a_nul_byte_is_never_space(void **state)
{
    (void)state;
    assert_false(json_check(slice_of("{}\0", 3), "n", 0, limits, &why));
    assert_string_equal(why.text, "n:1:3: text after the document");
    assert_false(json_check(slice_of("\"a\0b\"", 5), "n", 0, limits, &why));
    assert_string_equal(why.text, "n:1:3: a control character in a string");
}

/* No proper prefix of a container is a document, and the scan never reads beyond a prefix. */
static void every_truncation_is_refused(void **state)
{
    (void)state;
    const char *text =
        "{\"key\":[true,false,null,-1.5e+10,\"\\ud83d\\ude00\\n\xe2\x82\xac\"],\"\\u0061\":{}}";
    for (size_t len = 0; len < strlen(text); len++) {
        struct slice part = guarded(slice_of(text, len));
        assert_false(json_check(part, "n", 0, limits, &why));
        guarded_free(part);
    }
    assert_true(json_check(slice_text(text), "n", 0, limits, &why));
}

/* One byte of a document is replaced by each other byte: cJSON can read every text that the scan accepts. */
static void cjson_reads_whatever_the_scan_accepts(void **state)
{
    (void)state;
    char text[] = "{\"a\":[1.5e1,\"\\u00e9\",{}],\"b\":null}";
    size_t accepted = 0;
    for (size_t at = 0; at < sizeof text - 1; at++) {
        char before = text[at];
        for (int byte = 0; byte < 256; byte++) {
            text[at] = (char)byte;
            struct slice changed = guarded(slice_of(text, sizeof text - 1));
            bool ok = json_check(changed, "n", 0, limits, &why);
            struct json *doc = json_parse(changed, "n", 0, limits, &why);
            assert_int_equal(ok, doc != NULL);
            accepted += ok;
            json_free(doc);
            guarded_free(changed);
        }
        text[at] = before;
    }
    assert_true(accepted > 300);
}

static void limits_are_kept(void **state)
{
    (void)state;
    assert_true(json_check(SLICE_LITERAL("[[1]]"), "n", 0, (struct json_limits){5, 2}, &why));
    assert_false(json_check(SLICE_LITERAL("[[1]]"), "n", 0, (struct json_limits){5, 1}, &why));
    assert_string_equal(why.text, "n:1:2: nested too deeply");
    assert_false(json_check(SLICE_LITERAL("[[1]]"), "n", 0, (struct json_limits){4, 2}, &why));
    assert_string_equal(why.text, "n:1:1: the document is longer than 4 bytes");
    assert_true(json_check(SLICE_LITERAL("1"), "n", 0, (struct json_limits){1, 0}, &why));
    assert_false(json_check(SLICE_LITERAL("[]"), "n", 0, (struct json_limits){9, 0}, &why));
}

static void no_limit_lets_depth_exhaust_the_stack(void **state)
{
    (void)state;
    enum { DEPTH = 100000 };
    char *text = malloc(2 * DEPTH);
    memset(text, '[', DEPTH);
    memset(text + DEPTH, ']', DEPTH);
    assert_false(json_check(slice_of(text, (size_t)2 * DEPTH), "n", 0,
                            (struct json_limits){SIZE_MAX, 1u << 30}, &why));
    struct slice deep = slice_of(text + DEPTH - 500, 1000);
    struct json *doc = json_parse(deep, "n", 0, (struct json_limits){SIZE_MAX, 1u << 30}, &why);
    assert_non_null(doc);
    json_free(doc);
    free(text);
}

static void a_thousand_keys_are_compared(void **state)
{
    (void)state;
    char text[16384];
    size_t len = 1;
    text[0] = '{';
    for (int i = 0; i < 1000; i++)
        len += (size_t)snprintf(text + len, sizeof text - len, "\"%d\":0,", i * 7919 % 1000);
    size_t at = len;
    len += (size_t)snprintf(text + len, sizeof text - len, "\"x\":0}");
    assert_true(json_check(slice_of(text, len), "n", 0, (struct json_limits){16384, 1}, &why));
    snprintf(text + at, sizeof text - at, "\"7\":0}");
    assert_false(json_check(slice_of(text, len), "n", 0, (struct json_limits){16384, 1}, &why));
    char expected[64];
    snprintf(expected, sizeof expected, "n:1:%zu: duplicate key", at + 1);
    assert_string_equal(why.text, expected);
}

/* ---- comments ---- */

static void comments_are_space_where_allowed(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "// a\n1",           "1 // a",
        "/**/1/* / * */",    "{/* a\n */\"a\"/* \" */:// {\n1/**/,/***/\"b\"://\n2}",
        "[/* \xff \x01 */]", "\"//\"",
        "[1,//]\n2]",        "/*/ */1",
    };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        struct slice text = guarded(slice_text(texts[i]));
        struct json *doc = json_parse(text, "n", JSON_COMMENTS, limits, &why);
        assert_non_null(doc);
        assert_false(json_is_null(json_root(doc)));
        json_free(doc);
        guarded_free(text);
    }
}

static void malformed_comments_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *text, *why;
    } cases[] = {
        {"1 /", "n:1:3: not a comment, or one that does not end"},
        {"/* 1", "n:1:1: not a comment, or one that does not end"},
        {"/*/1", "n:1:1: not a comment, or one that does not end"},
        {"/ 1", "n:1:1: not a comment, or one that does not end"},
        {"# 1", "n:1:1: a value is expected"},
        {"// 1", "n:1:5: the document ends too early"},
        {"1/* */2", "n:1:7: text after the document"},
        {"[1,/* */]", "n:1:9: a value is expected"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct slice text = guarded(slice_text(cases[i].text));
        assert_null(json_parse(text, "n", JSON_COMMENTS, limits, &why));
        assert_string_equal(why.text, cases[i].why);
        guarded_free(text);
    }
}

static void positions_are_those_of_the_file(void **state)
{
    (void)state;
    const char *text =
        "// \xc3\xa9\n/* \n */ {\"\xc3\xa9\" : // x\n\t[1, /* , */ \"b\"], \"c\":{ \"d\": null}}";
    struct json *doc = json_parse(slice_text(text), "a/b.json", JSON_COMMENTS, limits, &why);
    assert_non_null(doc);
    const json_node *list = json_first(json_root(doc)), *c = json_next(list);
    assert_false(json_fail(doc, json_root(doc), &why, "x"));
    assert_string_equal(why.text, "a/b.json:3:5: x");
    json_fail(doc, list, &why, "%d", 17);
    assert_string_equal(why.text, "a/b.json:4:2: 17");
    json_fail_key(doc, list, &why, "x");
    assert_string_equal(why.text, "a/b.json:3:6: x");
    json_fail(doc, json_next(json_first(list)), &why, "x");
    assert_string_equal(why.text, "a/b.json:4:14: x");
    json_fail_key(doc, json_first(list), &why, "x");
    assert_string_equal(why.text, "a/b.json:4:3: x");
    json_fail(doc, json_first(c), &why, "x");
    assert_string_equal(why.text, "a/b.json:4:31: x");
    json_fail_key(doc, c, &why, "x");
    assert_string_equal(why.text, "a/b.json:4:20: x");
    json_fail(doc, NULL, &why, "x");
    assert_string_equal(why.text, "a/b.json: x");
    json_free(doc);
}

/* ---- reading ---- */

static void a_tree_is_read(void **state)
{
    (void)state;
    struct json *doc = json_parse(
        SLICE_LITERAL("{\"exp\":1,\"EXP\":2,\"t\":\"a\\u00e9\\n\",\"l\":[true,false,null],\"o\":{}}"), "n", 0,
        limits, &why);
    const json_node *root = json_root(doc);
    int64_t v;
    bool b;
    struct slice t = {NULL, 0};
    assert_true(json_is_object(root));
    assert_int_equal(json_count(root), 5);
    assert_true(json_int(doc, json_member(root, "EXP"), 0, 9, &v));
    assert_int_equal(v, 2);
    assert_null(json_member(root, "Exp"));
    assert_null(json_member(json_member(root, "l"), "x"));
    assert_null(json_member(NULL, "x"));
    assert_true(json_text(json_member(root, "t"), &t));
    assert_true(slice_is(t, "a\xc3\xa9\n"));
    assert_false(json_text(json_member(root, "exp"), &t));
    assert_false(json_text(NULL, &t));
    const json_node *list = json_member(root, "l"), *first = json_first(list);
    assert_string_equal(json_key(list), "l");
    assert_true(json_is_array(list));
    assert_true(json_bool(first, &b) && b);
    assert_true(json_bool(json_next(first), &b) && !b);
    assert_false(json_bool(list, &b));
    assert_true(json_is_null(json_next(json_next(first))));
    assert_null(json_next(json_next(json_next(first))));
    assert_null(json_first(json_member(root, "o")));
    assert_int_equal(json_count(NULL), 0);
    assert_true(json_is_bool(first) && json_is_number(json_first(root)) &&
                json_is_string(json_member(root, "t")));
    assert_false(json_is_bool(NULL) || json_is_number(NULL) || json_is_string(NULL) || json_is_null(NULL));
    json_free(doc);
    json_free(NULL);
}

static void integers_are_exact(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        bool good;
        int64_t value;
    } cases[] = {
        {"0", true, 0},
        {"7", true, 7},
        {"-7", true, -7},
        {"9007199254740993", true, 9007199254740993},
        {"2147483648", true, 2147483648},
        {"9223372036854775807", true, INT64_MAX},
        {"-9223372036854775808", true, INT64_MIN},
        {"9223372036854775808", false, 0},
        {"-9223372036854775809", false, 0},
        {"99999999999999999999999999", false, 0},
        {"-0", false, 0},
        {"1.0", false, 0},
        {"1e3", false, 0},
        {"1E3", false, 0},
        {"0e0", false, 0},
        {"\"1\"", false, 0},
        {"true", false, 0},
        {"null", false, 0},
        {"[1]", false, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int64_t v = 0;
        struct json *doc = json_parse(slice_text(cases[i].text), "n", 0, limits, &why);
        assert_int_equal(json_int(doc, json_root(doc), INT64_MIN, INT64_MAX, &v), cases[i].good);
        assert_int_equal(v, cases[i].value);
        json_free(doc);
    }
}

static void seconds_are_read_from_any_number_and_rounded_down(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int64_t value; /* -1: refused */
    } cases[] = {
        {"0", 0},
        {"7", 7},
        {"7.999", 7},
        {"0.9", 0},
        {"1.0", 1},
        {"1e3", 1000},
        {"1E+3", 1000},
        {"1234.5e2", 123450},
        {"1.2345e2", 123},
        {"12345e-2", 123},
        {"1e-2", 0},
        {"0.00012345e5", 12},
        {"0e99999999", 0},
        {"0.0e-99999999", 0},
        {"1e-99999999999999999999", 0},
        {"1500000000.999999999999999999999", 1500000000},
        {"9007199254740992", 9007199254740992},
        {"9007199254740992.9", 9007199254740992},
        {"9007199254740993", -1},
        {"9.007199254740993e15", -1},
        {"1e16", -1},
        {"1e99999999999999999999", -1},
        {"18446744073709551617", -1},
        {"-0", -1},
        {"-0.5", -1},
        {"-1", -1},
        {"-1e-9", -1},
        {"\"1\"", -1},
        {"true", -1},
        {"[1]", -1},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int64_t v = -1;
        struct json *doc = json_parse(slice_text(cases[i].text), "n", 0, limits, &why);
        bool read = json_seconds(doc, json_root(doc), (int64_t)1 << 53, &v);
        if (read != (cases[i].value >= 0) || v != cases[i].value)
            fail_msg("%s: %lld", cases[i].text, (long long)v);
        json_free(doc);
    }
}

static void integers_are_kept_in_range(void **state)
{
    (void)state;
    struct json *doc = json_parse(SLICE_LITERAL("[5,-5]"), "n", 0, limits, &why);
    const json_node *node = json_first(json_root(doc));
    int64_t v;
    assert_true(json_int(doc, node, 5, 5, &v));
    assert_false(json_int(doc, node, 6, 9, &v));
    assert_false(json_int(doc, node, 0, 4, &v));
    assert_true(json_int(doc, json_next(node), -5, -5, &v));
    assert_false(json_int(doc, NULL, 0, 4, &v));
    json_free(doc);
}

static void escaped_keys_are_ordered_by_what_they_mean(void **state)
{
    (void)state;
    static const char *const rising[] = {"",        "\\t",      "\\u0041", "A\\u0041", "AB",
                                         "\\u0061", "\\u0061b", "b",       "\\u00e9",  "\xe2\x82\xac"};
    for (size_t i = 0; i < sizeof rising / sizeof *rising; i++)
        for (size_t j = 0; j < sizeof rising / sizeof *rising; j++) {
            int order = json_string_compare(slice_text(rising[i]), slice_text(rising[j]));
            assert_int_equal((order > 0) - (order < 0), (i > j) - (i < j));
        }
}

/* ---- memory and files ---- */

static void running_out_of_memory_is_an_error(void **state)
{
    (void)state;
    cJSON_InitHooks(&(cJSON_Hooks){malloc, free}); /* the wrapped malloc of tests/unit/support.h */
    unsigned n = 1;
    for (struct json *doc = NULL; !doc; n++) {
        alloc_fail_at(n);
        doc = json_parse(SLICE_LITERAL("{\"a\":[1,2,\"x\"],/**/\"b\":{}}"), "n", JSON_COMMENTS, limits, &why);
        alloc_fail_at(0);
        if (!doc)
            assert_non_null(strstr(why.text, "out of memory"));
        json_free(doc);
        assert_true(n < 100);
        if (doc)
            break;
    }
    assert_true(n > 10);
    cJSON_InitHooks(NULL);
}

static void a_file_is_read_and_named(void **state)
{
    (void)state;
    char path[] = "/tmp/cellgate-json-XXXXXX", expected[128];
    int fd = mkstemp(path);
    assert_int_equal(write(fd, "{\n\"a\":x}", 8), 8);
    assert_null(json_parse_file(path, 0, limits, &why));
    snprintf(expected, sizeof expected, "%s:2:5: a value is expected", path);
    assert_string_equal(why.text, expected);
    assert_int_equal(pwrite(fd, "1", 1, 6), 1);
    struct json *doc = json_parse_file(path, 0, limits, &why);
    assert_true(json_is_object(json_root(doc)));
    json_free(doc);
    assert_null(json_parse_file(path, 0, (struct json_limits){7, 9}, &why));
    snprintf(expected, sizeof expected, "%s: longer than 7 bytes", path);
    assert_string_equal(why.text, expected);
    close(fd);
    unlink(path);
    assert_null(json_parse_file(path, 0, limits, &why));
    snprintf(expected, sizeof expected, "%s: No such file or directory", path);
    assert_string_equal(why.text, expected);
    assert_null(json_parse_file("/tmp", 0, limits, &why));
    assert_string_equal(why.text, "/tmp: Is a directory");
}

/* ---- streaming ---- */

struct seen {
    char text[256];
    const char *refuse;
};

static bool note(void *context, struct slice key, struct slice value, struct fail *reason)
{
    struct seen *seen = context;
    size_t len = strlen(seen->text);
    snprintf(seen->text + len, sizeof seen->text - len, "%.*s=%.*s;", SLICE_PRINTF(key), SLICE_PRINTF(value));
    return !seen->refuse || !slice_is(key, seen->refuse) || fail(reason, "not this one");
}

static bool stream(const char *text, int flags, struct seen *seen, bool other)
{
    struct slice copy = guarded(slice_text(text));
    struct json_stream callbacks = {note, other ? note : NULL, seen};
    bool ok = json_stream_object(copy, "n", "s", flags, 4, &callbacks, &why);
    guarded_free(copy);
    return ok;
}

static void a_stream_gives_each_member_in_order(void **state)
{
    (void)state;
    struct seen seen = {.text = ""};
    assert_true(stream("{\"v\":1,\"s\":{\"b\":{\"x\":[1]},\"\\u0061\\n\":2, \"b\" : null},\"w\":[]}", 0,
                       &seen, true));
    assert_string_equal(seen.text, "v=1;b={\"x\":[1]};a\n=2;b=null;w=[];");
    seen.text[0] = '\0';
    assert_true(stream("/**/{\"\\u0073\":{}}//", JSON_COMMENTS, &seen, false));
    assert_string_equal(seen.text, "");
}

static void a_bad_stream_is_refused_with_its_position(void **state)
{
    (void)state;
    static const struct {
        const char *text, *why;
    } cases[] = {
        {"{\"s\":{\"a\":1,\"b\":}}", "n:1:17: a value is expected"},
        {"{\"s\":{\"a\":{\"x\":1,\"x\":2}}}", "n:1:18: duplicate key"},
        {"{\"s\":[]}", "n:1:6: an object is expected"},
        {"[]", "n:1:1: an object is expected"},
        {"{\"s\":{},\"s\":{}}", "n:1:9: duplicate key"},
        {"{\"s\":{},\"t\":{}}", "n:1:9: unknown key"},
        {"{\"s\":{}}x", "n:1:9: text after the document"},
        {"{}", "n:1:1: the expected member is missing"},
        {"{\"s\":{\"a\":[[[1]]]}}", "n:1:13: nested too deeply"},
        {"{\"s\":{\"a\":1}", "n:1:13: the document ends too early"},
        {"\xef\xbb\xbf{}", "n:1:1: a byte-order mark"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct seen seen = {.text = ""};
        assert_false(stream(cases[i].text, 0, &seen, false));
        assert_string_equal(why.text, cases[i].why);
    }
}

static void a_callback_stops_the_stream(void **state)
{
    (void)state;
    struct seen seen = {.text = "", .refuse = "b"};
    assert_false(stream("{\"s\":{\"a\":1,\n \"b\": 2,\"c\":3}}", 0, &seen, false));
    assert_string_equal(seen.text, "a=1;b=2;");
    assert_string_equal(why.text, "not this one");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(good_documents_are_accepted),
        cmocka_unit_test(bad_documents_are_refused_with_reason_and_position),
        cmocka_unit_test(a_nul_byte_is_never_space),
        cmocka_unit_test(every_truncation_is_refused),
        cmocka_unit_test(cjson_reads_whatever_the_scan_accepts),
        cmocka_unit_test(limits_are_kept),
        cmocka_unit_test(no_limit_lets_depth_exhaust_the_stack),
        cmocka_unit_test(a_thousand_keys_are_compared),
        cmocka_unit_test(comments_are_space_where_allowed),
        cmocka_unit_test(malformed_comments_are_refused),
        cmocka_unit_test(positions_are_those_of_the_file),
        cmocka_unit_test(a_tree_is_read),
        cmocka_unit_test(integers_are_exact),
        cmocka_unit_test(seconds_are_read_from_any_number_and_rounded_down),
        cmocka_unit_test(integers_are_kept_in_range),
        cmocka_unit_test(escaped_keys_are_ordered_by_what_they_mean),
        cmocka_unit_test(running_out_of_memory_is_an_error),
        cmocka_unit_test(a_file_is_read_and_named),
        cmocka_unit_test(a_stream_gives_each_member_in_order),
        cmocka_unit_test(a_bad_stream_is_refused_with_its_position),
        cmocka_unit_test(a_callback_stops_the_stream),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
