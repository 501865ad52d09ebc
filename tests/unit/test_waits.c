/* SPDX-License-Identifier: MIT */
#include "tests/unit/support.h"

#include <stdio.h>
#include <stdlib.h>

#include "spoa/agent/key_inbox.h"
#include "spoa/agent/waits.h"

struct world {
    struct loop *loop;
    struct waits *waits;
    unsigned due, gone, looked;
    uint64_t last;   /* stream of the question seen last */
    uint64_t answer; /* stream of the one that there is news for; UINT64_MAX: for all */
};

static void on_due(void *context, const struct wait *wait)
{
    struct world *w = context;
    w->due++;
    w->last = wait->ticket.stream_id;
    if (waits_count(w->waits) == 1)
        loop_stop(w->loop);
}

static void on_gone(void *context, const struct wait *wait)
{
    (void)wait;
    ((struct world *)context)->gone++;
}

static bool on_look(void *context, struct wait *wait)
{
    struct world *w = context;
    struct spop_value value;
    struct slice name;
    struct spop_args args = wait->args;
    w->looked++;
    w->last = wait->ticket.stream_id;
    assert_true(spop_arg_next(&args, &name, &value)); /* a copy: the frame is gone */
    assert_true(slice_is(name, "sandbox"));
    assert_true(slice_equal(value.bytes, wait->key));
    assert_false(spop_arg_next(&args, &name, &value));
    return w->answer == UINT64_MAX || w->answer == wait->ticket.stream_id;
}

static void start(struct world *w, double seconds, size_t most, size_t most_bytes)
{
    const struct waits_options options = {.loop = w->loop,
                                          .seconds = seconds,
                                          .most = most,
                                          .most_bytes = most_bytes,
                                          .due = on_due,
                                          .gone = on_gone,
                                          .context = w};
    waits_free(w->waits);
    w->waits = waits_new(&options);
    assert_non_null(w->waits);
}

static int setup(void **state)
{
    struct world *w = calloc(1, sizeof *w);
    struct fail why;
    w->loop = loop_new(&why);
    assert_non_null(w->loop);
    start(w, 60, 10000, (size_t)1 << 22);
    *state = w;
    return 0;
}

static int teardown(void **state)
{
    struct world *w = *state;
    waits_free(w->waits);
    loop_free(w->loop);
    free(w);
    return 0;
}

static bool add(struct world *w, uint64_t stream, const char *key)
{
    uint8_t memory[512];
    struct writer out = writer_of(memory, sizeof memory);
    size_t frame = spop_frame_begin(&out, SPOP_TYPE_NOTIFY, stream, 1);
    size_t begin = spop_message_begin(&out, SLICE_LITERAL("cell-watch"));
    spop_arg_write(&out, begin, SLICE_LITERAL("sandbox"), spop_text(slice_text(key)));
    assert_true(spop_frame_end(&out, frame, sizeof memory));
    struct spop_frame in;
    size_t size;
    assert_int_equal(spop_frame_read(writer_slice(&out), sizeof memory, &in, &size), SPOP_STEP_FRAME);
    struct reader payload = reader_of(in.payload);
    struct spop_message message;
    assert_true(spop_message_next(&payload, &message));
    char text[300];
    snprintf(text, sizeof text, "%s", key);
    const struct wait wait = {.ticket = {.stream_id = stream},
                              .key = slice_text(text),
                              .args = message.args,
                              .begun = loop_clock()};
    bool kept = waits_add(w->waits, &wait);
    memset(memory, 0, sizeof memory);
    memset(text, 0, sizeof text);
    return kept;
}

static void news_of_a_key_reach_its_questions_alone(void **state)
{
    struct world *w = *state;
    char key[16];
    for (uint64_t i = 0; i < 500; i++) {
        snprintf(key, sizeof key, "sb-%u", (unsigned)i % 100);
        assert_true(add(w, i, key));
    }
    waits_look_at(w->waits, SLICE_LITERAL("sb-7"), on_look);
    assert_int_equal(w->looked, 5);
    w->answer = 107;
    waits_look_at(w->waits, SLICE_LITERAL("sb-7"), on_look);
    assert_int_equal(waits_count(w->waits), 499);
    assert_int_equal(w->gone, 1);
    w->looked = 0;
    waits_look_at(w->waits, SLICE_LITERAL("sb-7"), on_look);
    assert_int_equal(w->looked, 4);
    waits_look_at(w->waits, SLICE_LITERAL("sb"), on_look);
    assert_int_equal(w->looked, 4);
    w->answer = UINT64_MAX;
    waits_look(w->waits, on_look);
    assert_int_equal(waits_count(w->waits), 0);
    assert_int_equal(w->gone, 500);
    waits_look_at(w->waits, SLICE_LITERAL("sb-7"), on_look);
    assert_int_equal(w->looked, 4 + 499);
}

static void the_time_of_each_is_over_in_order(void **state)
{
    struct world *w = *state;
    start(w, 0.02, 10, 100000);
    uint64_t begun = loop_clock();
    assert_true(add(w, 1, "a"));
    assert_true(add(w, 2, "b"));
    assert_true(add(w, 3, "a"));
    loop_run(w->loop);
    assert_true(loop_clock() - begun >= 20000);
    assert_int_equal(w->due, 3);
    assert_int_equal(w->last, 3);
    assert_int_equal(w->gone, 3);
    assert_int_equal(waits_count(w->waits), 0);
    assert_true(add(w, 4, "a")); /* and again */
    loop_run(w->loop);
    assert_int_equal(w->due, 4);
}

static void one_ends_by_its_ticket(void **state)
{
    struct world *w = *state;
    struct server_ticket ticket = {.stream_id = 4097};
    for (uint64_t i = 0; i < 9000; i++) /* more than buckets, all of one key */
        assert_true(add(w, i, "a"));
    assert_true(waits_end(w->waits, &ticket));
    assert_int_equal(w->last, 4097);
    assert_false(waits_end(w->waits, &ticket));
    ticket.stream_id = 9000; /* whose bucket has others */
    assert_false(waits_end(w->waits, &ticket));
    ticket = (struct server_ticket){.stream_id = 1, .generation = 1}; /* another connection's */
    assert_false(waits_end(w->waits, &ticket));
    ticket = (struct server_ticket){.slot = 1, .stream_id = 1};
    assert_false(waits_end(w->waits, &ticket));
    assert_int_equal(w->due, 1);
    assert_int_equal(w->gone, 1);
    for (uint64_t i = 0; i < 9000; i++) {
        ticket = (struct server_ticket){.stream_id = i * 7 % 9000};
        assert_int_equal(waits_end(w->waits, &ticket), ticket.stream_id != 4097);
    }
    assert_int_equal(waits_count(w->waits), 0);
    waits_look_at(w->waits, SLICE_LITERAL("a"), on_look);
    assert_int_equal(w->looked, 0);
}

static void they_are_bounded(void **state)
{
    struct world *w = *state;
    start(w, 60, 3, 100000);
    assert_true(add(w, 1, "a") && add(w, 2, "b") && add(w, 3, "c"));
    assert_false(add(w, 4, "d"));
    w->answer = 2;
    waits_look(w->waits, on_look);
    assert_true(add(w, 4, "d"));
    start(w, 60, 1000, 4000);
    uint64_t kept = 0;
    while (kept < 1000 && add(w, kept, "a"))
        kept++;
    assert_in_range(kept, 5, 40);
    w->answer = 0;
    waits_look(w->waits, on_look);
    assert_true(add(w, 0, "a"));
    alloc_fail_at(1);
    w->answer = 0;
    waits_look(w->waits, on_look);
    assert_false(add(w, 0, "a"));
    alloc_fail_at(0);
}

/* ---- key_inbox ---- */

struct taken {
    unsigned count;
    char last[16];
};

static void on_key(void *context, struct slice key)
{
    struct taken *taken = context;
    taken->count++;
    snprintf(taken->last, sizeof taken->last, "%.*s", SLICE_PRINTF(key));
}

static void an_inbox_says_when_its_thread_has_to_be_woken(void **state)
{
    (void)state;
    struct key_inbox *inbox = key_inbox_new();
    struct taken taken = {0};
    assert_true(key_inbox_put(inbox, SLICE_LITERAL("a")));
    assert_false(key_inbox_put(inbox, SLICE_LITERAL("b")));
    assert_true(key_inbox_take(inbox, on_key, &taken));
    assert_int_equal(taken.count, 2);
    assert_string_equal(taken.last, "b");
    assert_true(key_inbox_take(inbox, on_key, &taken));
    assert_int_equal(taken.count, 2);
    assert_true(key_inbox_put(inbox, SLICE_LITERAL("c")));
    key_inbox_free(inbox);
}

static void what_does_not_fit_into_an_inbox_means_all(void **state)
{
    (void)state;
    struct key_inbox *inbox = key_inbox_new();
    struct taken taken = {0};
    for (int i = 0; i < 20000; i++)
        assert_int_equal(key_inbox_put(inbox, SLICE_LITERAL("a")), i == 0);
    assert_false(key_inbox_take(inbox, on_key, &taken));
    assert_in_range(taken.count, 1000, 19999);
    alloc_fail_at(1);
    assert_true(key_inbox_put(inbox, SLICE_LITERAL("a")));
    assert_false(key_inbox_put(inbox, SLICE_LITERAL("a")));
    alloc_fail_at(0);
    assert_false(key_inbox_take(inbox, on_key, &taken));
    assert_true(key_inbox_take(inbox, on_key, &taken));
    key_inbox_free(inbox);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(news_of_a_key_reach_its_questions_alone),
        TEST(the_time_of_each_is_over_in_order),
        TEST(one_ends_by_its_ticket),
        TEST(they_are_bounded),
        cmocka_unit_test(an_inbox_says_when_its_thread_has_to_be_woken),
        cmocka_unit_test(what_does_not_fit_into_an_inbox_means_all),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
