/* SPDX-License-Identifier: MIT */
#include "tests/unit/support.h"

#include <stdio.h>
#include <stdlib.h>

#include "spoa/base/bytes/writer.h"
#include "spoa/proto/event_stream.h"

/* Appends each event as "name|data;". */
struct seen {
    struct event_stream stream;
    char text[8192];
    struct writer w;
};

static void on_event(void *context, struct slice name, struct slice data)
{
    struct seen *seen = context;
    writer_put(&seen->w, name);
    writer_text(&seen->w, "|");
    writer_put(&seen->w, data);
    writer_text(&seen->w, ";");
}

static void begin(struct seen *seen, size_t limit)
{
    *seen = (struct seen){.stream = {.event = on_event, .context = seen}};
    seen->w = writer_of(seen->text, sizeof seen->text - 1);
    event_stream_init(&seen->stream, limit);
}

static bool feed(struct seen *seen, struct slice bytes)
{
    struct fail why;
    struct slice copy = guarded(bytes);
    bool good = event_stream_feed(&seen->stream, copy, &why);
    guarded_free(copy);
    return good;
}

/* Expects the same events for the whole text, for each cut into two, and byte by byte. */
static void expect(const char *input, const char *events, const char *last_id)
{
    struct slice all = slice_text(input);
    for (size_t cut = 0; cut <= all.len + 1; cut++) {
        struct seen seen;
        begin(&seen, 4096);
        if (cut <= all.len) {
            assert_true(feed(&seen, slice_sub(all, 0, cut)));
            assert_true(feed(&seen, slice_from(all, cut)));
        } else {
            for (size_t i = 0; i < all.len; i++)
                assert_true(feed(&seen, slice_sub(all, i, 1)));
        }
        assert_string_equal(seen.text, events);
        assert_string_equal(event_stream_last_id(&seen.stream), last_id);
        event_stream_free(&seen.stream);
    }
}

static void events_are_read_with_every_line_ending(void **state)
{
    (void)state;
    expect("event: update\ndata: {}\nid: 7\n\n", "update|{};", "7");
    expect("event: update\r\ndata: {}\r\nid: 7\r\n\r\n", "update|{};", "7");
    expect("event: update\rdata: {}\rid: 7\r\r", "update|{};", "7");
    expect("event: a\r\ndata: 1\n\revent: b\ndata: 2\r\r\n\n", "a|1;b|2;", "");
}

static void fields_are_read_as_the_standard_says(void **state)
{
    (void)state;
    expect("data: a\ndata: b\n\n", "|a\nb;", "");
    expect("data\n\n", "|;", "");
    expect("data\ndata\n\n", "|\n;", "");
    expect("data:a\n\ndata:  a\n\n", "|a;| a;", "");
    expect(": a comment\n:\ndata: a: b\n\n", "|a: b;", "");
    expect("unknown: x\nDATA: y\ndata: z\n\n", "|z;", "");
    expect("event: only a name\n\ndata: a\n\n", "|a;", "");
    expect("\xEF\xBB\xBF"
           "data: a\n\n\xEF\xBB\xBF"
           "data: b\n\n",
           "|a;", "");
    expect("\n\n\n", "", "");
}

static void ids_stay_until_there_is_another(void **state)
{
    (void)state;
    expect("id: 1\ndata: a\n\ndata: b\n\n", "|a;|b;", "1");
    expect("id: 1\n\n", "", "1");
    expect("id: 1\ndata: a\n\nid\ndata: b\n\n", "|a;|b;", "");
    expect("id: 1\n\nid: \x01\n\n", "", "");
}

static void an_event_cut_by_the_end_is_dropped_with_its_id(void **state)
{
    (void)state;
    expect("id: 1\ndata: a\n\nid: 2\ndata: b\n", "|a;", "1");
    expect("id: 1\ndata: a\n\nid: 2\ndata: b", "|a;", "1");
}

static void an_id_with_nul_is_ignored_and_a_long_one_is_none(void **state)
{
    struct seen seen;
    char text[EVENT_STREAM_ID_MAX + 16];
    (void)state;
    begin(&seen, 4096);
    assert_true(feed(&seen, slice_of("id: 1\n\nid: a\0b\n\n", 16)));
    assert_string_equal(event_stream_last_id(&seen.stream), "1");
    for (size_t len = EVENT_STREAM_ID_MAX; len <= EVENT_STREAM_ID_MAX + 1; len++) {
        memset(text, 'x', sizeof text);
        memcpy(text, "id: ", 4);
        memcpy(text + 4 + len, "\n\n", 2);
        assert_true(feed(&seen, slice_of(text, 6 + len)));
        assert_int_equal(strlen(event_stream_last_id(&seen.stream)), len <= EVENT_STREAM_ID_MAX ? len : 0);
    }
    event_stream_free(&seen.stream);
}

static void a_restart_forgets_what_was_not_whole_but_not_the_id(void **state)
{
    struct seen seen;
    (void)state;
    begin(&seen, 4096);
    assert_true(feed(&seen, SLICE_LITERAL("retry: 250\nid: 1\ndata: a\n\nevent: cut\nid: 2\ndata: b\r")));
    event_stream_restart(&seen.stream);
    assert_true(feed(&seen, SLICE_LITERAL("\ndata: c\n\n")));
    assert_string_equal(seen.text, "|a;|c;");
    assert_string_equal(event_stream_last_id(&seen.stream), "1");
    assert_int_equal(event_stream_retry(&seen.stream), 250);
    event_stream_free(&seen.stream);
}

static void a_line_or_an_event_over_the_limit_is_an_error(void **state)
{
    struct seen seen;
    (void)state;
    begin(&seen, 64);
    for (int i = 0; i < 64; i++)
        assert_true(feed(&seen, SLICE_LITERAL(":")));
    assert_false(feed(&seen, SLICE_LITERAL(":")));
    event_stream_restart(&seen.stream);
    for (int i = 0; i < 5; i++) /* 11 bytes each, with the LF between them */
        assert_true(feed(&seen, SLICE_LITERAL("data: 1234567890\n")));
    assert_true(feed(&seen, SLICE_LITERAL("data: 12345678\n")));
    assert_false(feed(&seen, SLICE_LITERAL("data: 1\n")));
    event_stream_free(&seen.stream);
    assert_string_equal(seen.text, "");
}

static void out_of_memory_is_an_error(void **state)
{
    (void)state;
    for (unsigned n = 1;; n++) {
        struct seen seen;
        begin(&seen, 4096);
        alloc_fail_at(n);
        bool good = event_stream_feed(&seen.stream, SLICE_LITERAL("data: a\nda"), &(struct fail){""}) &&
                    event_stream_feed(&seen.stream, SLICE_LITERAL("ta: b\n\n"), &(struct fail){""});
        alloc_fail_at(0);
        assert_string_equal(seen.text, good ? "|a\nb;" : "");
        event_stream_free(&seen.stream);
        if (good)
            break;
        assert_true(n < 100);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(events_are_read_with_every_line_ending),
        cmocka_unit_test(fields_are_read_as_the_standard_says),
        cmocka_unit_test(ids_stay_until_there_is_another),
        cmocka_unit_test(an_event_cut_by_the_end_is_dropped_with_its_id),
        cmocka_unit_test(an_id_with_nul_is_ignored_and_a_long_one_is_none),
        cmocka_unit_test(a_restart_forgets_what_was_not_whole_but_not_the_id),
        cmocka_unit_test(a_line_or_an_event_over_the_limit_is_an_error),
        cmocka_unit_test(out_of_memory_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
