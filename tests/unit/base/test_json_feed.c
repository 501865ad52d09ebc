/* SPDX-License-Identifier: MIT */
/* json_feed judges a document that arrives in pieces as json_check judges the whole one, wherever the pieces are cut. */
#include "tests/unit/support.h"

#include <stdio.h>

#include "spoa/base/bytes/writer.h"
#include "spoa/base/json/json.h"
#include "spoa/base/json/json_feed.h"

enum { DEPTH = 5, LENGTH_MAX = 400 };

static bool feed_in_steps(struct slice text, size_t step)
{
    struct json_feed f = json_feed_of(DEPTH);
    bool good = true;
    for (; text.len && good; text = slice_from(text, step)) {
        struct slice copy = guarded(slice_sub(text, 0, step)), rest = copy;
        while (good && rest.len)
            good = json_feed(&f, &rest) != JSON_FEED_BAD;
        guarded_free(copy);
    }
    return good && json_feed_is_whole(&f);
}

static void expect_like_check(struct slice text, size_t step)
{
    struct fail why;
    bool good = json_check(text, "n", 0, (struct json_limits){LENGTH_MAX * 2, DEPTH}, &why);
    if (!good && strstr(why.text, "duplicate key"))
        /* json_feed does not see duplicate keys, and json_check reports no other error of such a text */
        return;
    if (feed_in_steps(text, step) != good)
        fail_msg("%s: %.*s", good ? "good" : why.text, (int)text.len, (const char *)text.at);
}

/* ---- documents at random ---- */
static uint64_t seed = 1;

static unsigned chance(unsigned most)
{
    seed = seed * UINT64_C(6364136223846793005) + 1442695040888963407;
    return (unsigned)(seed >> 33) % most;
}

static const char *one_of(const char *const *texts, unsigned count)
{
    return texts[chance(count)];
}

static void put_string(struct writer *w)
{
    static const char *const parts[] = {"a",
                                        "xyz",
                                        "\\n",
                                        "\\\\",
                                        "\\\"",
                                        "\\u00e9",
                                        "\\uD83D\\uDE00",
                                        "\\u0020",
                                        "\\/",
                                        "\xc3\xa9",
                                        "\xe2\x82\xac",
                                        "\xed\x9f\xbf",
                                        "\xf0\x9f\x98\x80",
                                        "\xf4\x8f\xbf\xbf",
                                        "a long run of plain text",
                                        "\x7f",
                                        "\xe0\xa0\x80"};
    writer_text(w, "\"");
    for (unsigned n = chance(4); n > 0; n--)
        writer_text(w, one_of(parts, sizeof parts / sizeof *parts));
    writer_text(w, "\"");
}

static void put_space(struct writer *w)
{
    static const char *const spaces[] = {"", "", "", "", " ", "\n", "\t\r "};
    writer_text(w, one_of(spaces, 7));
}

/* Recurses once for each level of the document. */
static void put_value(struct writer *w, unsigned depth)
{
    static const char *const scalars[] = {"0",    "-0",   "12",   "-1.5e+10", "1E400",
                                          "0.25", "1e-2", "true", "false",    "null"};
    unsigned kind = chance(4), count = chance(4);
    put_space(w);
    if (depth == 0 || kind == 0) {
        writer_text(w, one_of(scalars, 10));
    } else if (kind == 1) {
        put_string(w);
    } else {
        writer_text(w, kind == 2 ? "{" : "[");
        for (unsigned i = 0; i < count; i++) {
            writer_text(w, i ? "," : "");
            put_space(w);
            if (kind == 2) {
                put_string(w);
                put_space(w);
                writer_text(w, ":");
            }
            put_value(w, depth - 1);
        }
        put_space(w);
        writer_text(w, kind == 2 ? "}" : "]");
    }
    put_space(w);
}

static void a_document_is_judged_as_one_that_is_whole(void **state)
{
    static const uint8_t hits[] = "{}[]\",:\\0-+.eEu \n\0\x80\xc0\xed\xf5t";
    uint8_t text[LENGTH_MAX];
    (void)state;
    for (unsigned run = 0; run < 3000; run++) {
        struct writer w = writer_of(text, sizeof text);
        put_value(&w, chance(DEPTH + 2));
        if (w.full)
            continue;
        expect_like_check(writer_slice(&w), 1 + chance(9));
        if (w.len == 0)
            continue;
        for (unsigned n = 0; n < 4; n++) {
            size_t at = chance((unsigned)w.len);
            uint8_t was = text[at];
            text[at] = hits[chance(sizeof hits - 1)];
            expect_like_check(writer_slice(&w), 1 + chance(9));
            text[at] = was;
            expect_like_check(slice_sub(writer_slice(&w), 0, at), 1 + chance(9));
        }
    }
}

/* ---- members ---- */
static void the_members_of_the_outermost_object_are_told(void **state)
{
    static const char text[] =
        " { \"a\" : [1,{\"x\":2}] , \"b\\u0061\":{\"c\":{\"d\":{}}},\"n\":-12 ,\"s\":\"}\\\"\",\"t\":true}";
    static const char *const wanted[][2] = {{"a", "[1,{\"x\":2}]"},
                                            {"b\\u0061", "{\"c\":{\"d\":{}}}"},
                                            {"n", "-12"},
                                            {"s", "\"}\\\"\""},
                                            {"t", "true"}};
    struct slice all = slice_of(text, sizeof text - 1);
    (void)state;
    for (size_t step = 1; step <= all.len; step++) {
        struct json_feed f = json_feed_of(DEPTH);
        unsigned keys = 0, values = 0;
        for (size_t at = 0; at < all.len; at += step) {
            struct slice rest = slice_sub(all, at, step);
            enum json_feed_event event;
            while ((event = json_feed(&f, &rest)) != JSON_FEED_MORE) {
                assert_true(event != JSON_FEED_BAD && keys < 6 && values < 5);
                if (event == JSON_FEED_KEY)
                    assert_true(slice_is(slice_sub(all, f.key, f.key_len), wanted[keys++][0]));
                else
                    assert_true(slice_is(slice_sub(all, f.value, f.value_len), wanted[values++][1]));
            }
        }
        assert_true(keys == 5 && values == 5 && f.object && json_feed_is_whole(&f));
    }
}

static void depth_has_a_bound(void **state)
{
    char text[2 * JSON_FEED_DEPTH_MAX + 2];
    (void)state;
    for (unsigned most = 1; most <= JSON_FEED_DEPTH_MAX; most++) {
        struct json_feed f = json_feed_of(most), deeper = f;
        memset(text, '[', most + 1);
        memset(text + most + 1, ']', most + 1);
        struct slice fits = slice_of(text + 1, (size_t)2 * most), none = slice_of(text, (size_t)2 * most + 2);
        assert_int_equal(json_feed(&f, &fits), JSON_FEED_MORE);
        assert_true(json_feed_is_whole(&f));
        assert_int_equal(json_feed(&deeper, &none), JSON_FEED_BAD);
        assert_int_equal(json_feed(&deeper, &none), JSON_FEED_BAD); /* for good */
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_document_is_judged_as_one_that_is_whole),
        cmocka_unit_test(the_members_of_the_outermost_object_are_told),
        cmocka_unit_test(depth_has_a_bound),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
