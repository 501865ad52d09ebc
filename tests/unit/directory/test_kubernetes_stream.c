/* SPDX-License-Identifier: MIT */
#include "tests/unit/support.h"

#include <stdio.h>
#include <stdlib.h>

#include "spoa/agent/directory/kubernetes/stream.h"

struct seen {
    char text[4096];
    size_t len;
    size_t objects, too_large, longest;
};

static void put(struct seen *seen, const char *what, struct slice text)
{
    if (text.len < 200 && seen->len + text.len + 16 < sizeof seen->text)
        seen->len += (size_t)snprintf(seen->text + seen->len, sizeof seen->text - seen->len, "%s%.*s;", what,
                                      SLICE_PRINTF(text));
}

static void on_object(void *context, struct slice text, bool too_large)
{
    struct seen *seen = context;
    assert_true(slice_present(text) || too_large);
    seen->objects++;
    seen->too_large += too_large;
    if (text.len > seen->longest)
        seen->longest = text.len;
    put(seen, too_large ? "!" : "", text);
}

static void on_member(void *context, struct slice key, struct slice value)
{
    struct seen *seen = context;
    char name[64];
    snprintf(name, sizeof name, "%.*s=", SLICE_PRINTF(key));
    put(seen, name, value);
}

/* In pieces of `step` bytes. */
static bool feed(enum kubernetes_form form, struct slice text, size_t step, struct seen *seen, bool *whole)
{
    struct kubernetes_stream s = {.object = on_object, .member = on_member, .label = "l", .context = seen};
    struct fail why;
    bool good = true;
    *seen = (struct seen){.len = 0};
    kubernetes_stream_begin(&s, form);
    for (struct slice rest = text; good && rest.len; rest = slice_from(rest, step)) {
        struct slice piece = guarded(slice_sub(rest, 0, step));
        good = kubernetes_stream_feed(&s, piece, &why);
        guarded_free(piece);
    }
    *whole = good && kubernetes_stream_whole(&s);
    kubernetes_stream_free(&s);
    return good;
}

static void reads(enum kubernetes_form form, const char *text, const char *expected)
{
    struct seen seen;
    bool whole;
    for (size_t step = 1; step <= strlen(text); step++) {
        assert_true(feed(form, slice_text(text), step, &seen, &whole));
        assert_string_equal(seen.text, expected);
        assert_true(whole);
    }
}

static void a_list_is_cut_into_its_items_wherever_it_is_cut(void **state)
{
    (void)state;
    reads(KUBERNETES_LIST,
          "{\"items\":[{\"a\":[1,{}]},{\"b\":\"]}\\\"{\"}],\"kind\":\"List\",\"n\":12,\"metadata\":{\"x\":1}}"
          "\n",
          "{\"a\":[1,{}]};{\"b\":\"]}\\\"{\"};kind=\"List\";n=12;metadata={\"x\":1};");
    reads(KUBERNETES_LIST, " { \"metadata\" : {} , \"items\" : [ { } , {} ] } ", "metadata={};{ };{};");
    reads(KUBERNETES_LIST, "{\"items\":null,\"metadata\":{}}", "items=null;metadata={};");
    reads(KUBERNETES_LIST, "{\"items\":[]}", "");
    reads(KUBERNETES_LIST, "{\"other\":[{\"not\":\"an item\"}],\"t\":true,\"n\":-1}",
          "other=[{\"not\":\"an item\"}];t=true;n=-1;");
    reads(KUBERNETES_LIST, "{}", "");
    /* a long key is cut to one that nobody wants */
    reads(KUBERNETES_LIST, "{\"itemsitemsitemsitemsitemsitemsitemsitems\":[1]}",
          "itemsitemsitemsitemsitemsitemsi=[1];");
}

static void a_watch_is_cut_into_its_events(void **state)
{
    (void)state;
    reads(KUBERNETES_WATCH, "{\"type\":\"ADDED\",\"object\":{}}\n{\"b\":\"\\\\\"}\n",
          "{\"type\":\"ADDED\",\"object\":{}};{\"b\":\"\\\\\"};");
    reads(KUBERNETES_WATCH, "\n\n", "");
    reads(KUBERNETES_WATCH, "{}{}", "{};{};");
}

static void a_document_that_is_cut_is_not_whole(void **state)
{
    (void)state;
    static const char list[] = "{\"items\":[{\"a\":1}],\"metadata\":{\"x\":1}}", event[] = "{\"a\":\"b\"}\n";
    struct seen seen;
    bool whole;
    for (size_t len = 0; len < sizeof list - 1; len++) {
        assert_true(feed(KUBERNETES_LIST, slice_of(list, len), 7, &seen, &whole));
        assert_false(whole);
    }
    for (size_t len = 1; len < sizeof event - 2; len++) {
        assert_true(feed(KUBERNETES_WATCH, slice_of(event, len), 3, &seen, &whole));
        assert_false(whole);
    }
}

static void what_is_no_document_is_refused(void **state)
{
    static const char *const lists[] = {"[",
                                        "x",
                                        "{1",
                                        "{\"a\" 1}",
                                        "{\"a\":1,}",
                                        "{\"a\":1]",
                                        "{\"items\":[1]}",
                                        "{\"items\":[{},]}",
                                        "{\"items\":[{} {}]}",
                                        "{\"items\":[\"x\"]}",
                                        "{}}",
                                        "{} x",
                                        "{\"a\":}",
                                        "{,",
                                        "{\"items\":[,{}]}"};
    static const char *const watches[] = {"[]", "x", "\"ADDED\"", "{}x", "1", "null"};
    struct seen seen;
    bool whole;
    (void)state;
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++)
        for (size_t step = 1; step < 20; step++)
            if (feed(KUBERNETES_LIST, slice_text(lists[i]), step, &seen, &whole))
                fail_msg("taken: %s", lists[i]);
    for (size_t i = 0; i < sizeof watches / sizeof *watches; i++)
        if (feed(KUBERNETES_WATCH, slice_text(watches[i]), 1, &seen, &whole))
            fail_msg("taken: %s", watches[i]);
}

/* {"items":[{"a":"xxx"},{"b":1}],"kind":"L"} with a first object of so many bytes. */
static struct slice list_with(size_t object)
{
    static const char head[] = "{\"items\":[", begin[] = "{\"a\":\"", end[] = "\"}",
                      tail[] = ",{\"b\":1}],\"kind\":\"L\"}";
    char *text = malloc(object + 64), *at = text;
    assert_non_null(text);
    at = stpcpy(stpcpy(at, head), begin);
    memset(at, 'x', object - strlen(begin) - strlen(end));
    at = stpcpy(at + object - strlen(begin) - strlen(end), end);
    at = stpcpy(at, tail);
    return slice_of(text, (size_t)(at - text));
}

static void objects_of_every_size_up_to_two_mebibytes_are_held(void **state)
{
    static const size_t sizes[] = {125,     126,           127,     16383,         16384,
                                   16385,   65534,         65535,   65536,         65537,
                                   1 << 20, (2 << 20) - 1, 2 << 20, (2 << 20) + 1, 5 << 20};
    static const size_t steps[] = {1000, 4096, 16384, 65536, 8 << 20};
    struct seen seen;
    bool whole;
    (void)state;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        struct slice text = list_with(sizes[i]);
        bool fits = sizes[i] <= KUBERNETES_OBJECT_MAX;
        for (size_t k = 0; k < sizeof steps / sizeof *steps; k++) {
            assert_true(feed(KUBERNETES_LIST, text, steps[k], &seen, &whole));
            assert_true(whole);
            assert_int_equal(seen.objects, 2);
            assert_int_equal(seen.too_large, !fits);
            assert_int_equal(seen.longest, fits ? sizes[i] : strlen("{\"b\":1}"));
            assert_non_null(strstr(seen.text, "{\"b\":1};kind=\"L\";"));
        }
        free((void *)text.at);
    }
}

/* What the buffer holds, as memory of its own, in which a sanitizer sees the end; it is the caller's to free. */
static struct slice taken_out(struct buffer *text)
{
    uint8_t *copy = malloc(buffer_len(text));
    assert_non_null(copy);
    struct slice all = slice_of(copy, buffer_len(text));
    memcpy(copy, buffer_slice(text).at, all.len);
    buffer_free(text);
    return all;
}

/* An API server spells `<` in six bytes: what it has taken as 1.5 MiB it may serve as nine. */
static struct slice escaped(const char *head, const char *tail)
{
    struct buffer text = buffer_with_limit((size_t)16 << 20);
    assert_true(buffer_put(&text, slice_text(head)));
    for (size_t i = 0; i < 1500000; i++)
        assert_true(buffer_put(&text, SLICE_LITERAL("\\u003c")));
    assert_true(buffer_put(&text, slice_text(tail)));
    return taken_out(&text);
}

static void of_an_object_over_two_mebibytes_its_name_is_kept(void **state)
{
    static const struct {
        enum kubernetes_form form;
        const char *head, *tail, *expected;
    } all[] = {
        {KUBERNETES_LIST,
         "{\"items\":[{\"metadata\":{\"name\":\"a\",\"labels\":{\"l\":\"b\"},\"annotations\":{\"x\":\"",
         "\"}}},{\"b\":1}],\"n\":1}",
         "!{\"metadata\":{\"name\":\"a\",\"labels\":{\"l\":\"b\"}}};{\"b\":1};n=1;"},
        {KUBERNETES_LIST, "{\"items\":[{\"metadata\":{\"annotations\":{\"x\":\"",
         "\"},\"name\":\"a\"}},{\"b\":1}]}", "!{\"metadata\":{\"name\":\"a\"}};{\"b\":1};"},
        {KUBERNETES_LIST, "{\"items\":[{\"metadata\":{\"name\":\"", "\"}},{\"b\":1}]}", "!;{\"b\":1};"},
        {KUBERNETES_WATCH, "{\"type\":\"ADDED\",\"object\":{\"metadata\":{\"name\":\"a\",\"x\":\"",
         "\"}}}\n{\"b\":1}\n", "!{\"type\":\"ADDED\",\"object\":{\"metadata\":{\"name\":\"a\"}}};{\"b\":1};"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        struct slice text = escaped(all[i].head, all[i].tail);
        static const size_t steps[] = {4096, 16384, 100003, 16 << 20};
        for (size_t k = 0; k < sizeof steps / sizeof *steps; k++) {
            struct seen seen;
            bool whole;
            assert_true(feed(all[i].form, text, steps[k], &seen, &whole));
            assert_true(whole);
            assert_string_equal(seen.text, all[i].expected);
            assert_int_equal(seen.too_large, 1);
        }
        free((void *)text.at);
    }
}

static void a_member_over_its_size_is_left_out(void **state)
{
    static char text[KUBERNETES_MEMBER_MAX + 64];
    struct seen seen;
    bool whole;
    (void)state;
    for (size_t over = 0; over < 2; over++) {
        size_t len = KUBERNETES_MEMBER_MAX - 2 + over;
        char *at = stpcpy(text, "{\"a\":\"");
        memset(at, 'x', len);
        strcpy(at + len, "\",\"b\":1}");
        assert_true(feed(KUBERNETES_LIST, slice_text(text), 4096, &seen, &whole));
        assert_true(whole);
        assert_string_equal(seen.text, "b=1;");
    }
    memset(text, '[', sizeof text - 1);
    memcpy(text, "{\"a\":", 5);
    assert_true(feed(KUBERNETES_LIST, slice_of(text, sizeof text - 1), 4096, &seen, &whole));
    assert_false(whole);
    assert_string_equal(seen.text, "");
}

/* {"a":{"a":...}}, then one that is flat */
static struct slice nested(enum kubernetes_form form, size_t levels)
{
    bool list = form == KUBERNETES_LIST;
    struct buffer text = buffer_with_limit((size_t)8 << 20);
    assert_true(buffer_put(&text, slice_text(list ? "{\"items\":[" : "")));
    for (size_t i = 0; i < levels; i++)
        assert_true(buffer_put(&text, SLICE_LITERAL("{\"a\":")));
    assert_true(buffer_put(&text, SLICE_LITERAL("{}")));
    for (size_t i = 0; i < levels; i++)
        assert_true(buffer_put(&text, SLICE_LITERAL("}")));
    assert_true(buffer_put(&text, slice_text(list ? ",{\"b\":1}]}" : "\n{\"b\":1}\n")));
    return taken_out(&text);
}

/* Whoever may create an object can nest its managedFields as deep as the API server reads, which is 10,000. */
static void how_deep_an_object_is_nested_is_of_no_consequence_for_others(void **state)
{
    static const size_t levels[] = {999, 1000, 1001, 10000, 100000, 400000};
    (void)state;
    for (size_t i = 0; i < 2 * sizeof levels / sizeof *levels; i++) {
        enum kubernetes_form form = i % 2 ? KUBERNETES_WATCH : KUBERNETES_LIST;
        struct slice text = nested(form, levels[i / 2]);
        struct seen seen;
        bool whole, fits = levels[i / 2] * 6 + 2 <= KUBERNETES_OBJECT_MAX;
        assert_true(feed(form, text, 16384, &seen, &whole));
        assert_true(whole);
        assert_int_equal(seen.longest, fits ? levels[i / 2] * 6 + 2 : strlen("{\"b\":1}"));
        assert_non_null(strstr(seen.text, "{\"b\":1};"));
        free((void *)text.at);
    }
}

static void without_memory_it_says_so(void **state)
{
    struct kubernetes_stream s = {
        .object = on_object, .member = on_member, .context = &(struct seen){.len = 0}};
    struct fail why;
    (void)state;
    kubernetes_stream_begin(&s, KUBERNETES_WATCH);
    alloc_fail_at(1);
    bool good = kubernetes_stream_feed(&s, SLICE_LITERAL("{\"a\":1}"), &why);
    alloc_fail_at(0);
    assert_false(good);
    kubernetes_stream_free(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_list_is_cut_into_its_items_wherever_it_is_cut),
        cmocka_unit_test(a_watch_is_cut_into_its_events),
        cmocka_unit_test(a_document_that_is_cut_is_not_whole),
        cmocka_unit_test(what_is_no_document_is_refused),
        cmocka_unit_test(objects_of_every_size_up_to_two_mebibytes_are_held),
        cmocka_unit_test(of_an_object_over_two_mebibytes_its_name_is_kept),
        cmocka_unit_test(a_member_over_its_size_is_left_out),
        cmocka_unit_test(how_deep_an_object_is_nested_is_of_no_consequence_for_others),
        cmocka_unit_test(without_memory_it_says_so),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
