/* SPDX-License-Identifier: MIT */
#include "tests/unit/support.h"

#include <string.h>

#include "tests/unit/adapter_talk.h"

/* What the adapter compares by itself, if it does, is counted. */
static size_t compared;

static int __attribute__((unused)) counted_memcmp(const void *a, const void *b, size_t len)
{
    const uint8_t *x = a, *y = b;
    for (size_t i = 0; i < len; i++, compared++)
        if (x[i] != y[i])
            return x[i] - y[i];
    return 0;
}

#define memcmp counted_memcmp
#include "spoa/relay/adapter_scrollback.c"
#undef memcmp

#define RING      1048576
#define LIVE      SLICE_LITERAL("\4")
#define OUT(text) SLICE_LITERAL("\1" text)
#define ERR(text) SLICE_LITERAL("\2" text)

static struct talk t;

static void begin(void)
{
    talk_begin(&t, &adapter_scrollback, "/exec/x");
    talk_join(&t);
}

static void again(void)
{
    t.said[0] = '\0';
    talk_join(&t);
}

static void assert_exact(const char *said)
{
    assert_string_equal(t.said, said);
    assert_int_equal(t.exact, 1);
    assert_int_equal(t.gaps, 0);
    talk_end(&t);
}

static void a_first_worker_is_passed_unchanged(void **state)
{
    uint8_t memory[100];
    (void)state;
    for (size_t step = 1; step < 20; step++) {
        begin();
        talk_bytes(&t, talk_frame(memory, 0x82, OUT("one")), step);
        talk_bytes(&t, talk_frame(memory, 0x82, ERR("two")), step);
        talk_bytes(&t, talk_frame(memory, 0x82, LIVE), step);
        talk_bytes(&t, talk_frame(memory, 0x82, SLICE_LITERAL("\3\0\0\0\5")), step);
        assert_string_equal(t.said, "B<01>one B<02>two B<04> B<03><00><00><00><05>");
        assert_int_equal(t.exact + t.gaps, 0);
        talk_end(&t);
    }
}

static void only_what_is_new_in_a_replay_is_passed(void **state)
{
    uint8_t memory[100];
    (void)state;
    for (size_t step = 1; step < 20; step++) {
        begin();
        talk_says(&t, 0x82, LIVE);
        talk_says(&t, 0x82, OUT("one"));
        talk_says(&t, 0x82, ERR("error"));
        again();
        talk_bytes(&t, talk_frame(memory, 0x82, OUT("onetwo")), step);
        talk_bytes(&t, talk_frame(memory, 0x82, ERR("errorx")), step);
        talk_bytes(&t, talk_frame(memory, 0x82, OUT("three")), step);
        assert_string_equal(t.said, "");
        talk_bytes(&t, talk_frame(memory, 0x82, LIVE), step);
        talk_bytes(&t, talk_frame(memory, 0x82, OUT("four")), step);
        assert_exact("B<01>two B<02>x B<01>three B<01>four");
    }
}

static void a_replay_that_was_cut_itself_is_taken_from_the_next_worker(void **state)
{
    (void)state;
    begin();
    talk_says(&t, 0x82, OUT("one"));
    talk_says(&t, 0x82, LIVE);
    again();
    talk_says(&t, 0x82, OUT("onet"));
    again();
    talk_says(&t, 0x82, OUT("onetwo"));
    talk_says(&t, 0x82, LIVE);
    assert_exact("B<01>two");
}

static void a_first_replay_that_was_cut_goes_on_and_its_end_is_told(void **state)
{
    (void)state;
    begin();
    talk_says(&t, 0x82, OUT("one"));
    talk_says(&t, 0x02, OUT("t"));
    again();
    talk_says(&t, 0x82, OUT("one"));
    talk_says(&t, 0x82, OUT("two"));
    talk_says(&t, 0x82, LIVE);
    assert_exact("B<01>t B<01>wo B<04>");
}

static void an_exit_is_told_once(void **state)
{
    (void)state;
    begin();
    talk_says(&t, 0x82, LIVE);
    talk_says(&t, 0x82, SLICE_LITERAL("\3\0\0\0\0"));
    again();
    talk_says(&t, 0x82, LIVE);
    talk_says(&t, 0x82, SLICE_LITERAL("\3\0\0\0\0"));
    assert_exact("");
}

static void an_unknown_message_that_was_cut_is_a_gap(void **state)
{
    (void)state;
    begin();
    talk_says(&t, 0x82, LIVE);
    talk_says(&t, 0x02, SLICE_LITERAL("\5un"));
    assert_false(t.adapter->may_end(t.state));
    again();
    talk_says(&t, 0x82, LIVE);
    assert_int_equal(t.gaps, 1);
    talk_end(&t);
}

/* Output like that of seq(1), no two parts of which are alike. */
static size_t numbers(uint8_t *to, size_t len)
{
    size_t at = 0;
    for (unsigned i = 0; at + 9 <= len; i++)
        at += (size_t)sprintf((char *)to + at, "%06u.", i);
    return at;
}

static void says_all(uint8_t tag, struct slice bytes)
{
    uint8_t chunk[4097] = {tag};
    for (; bytes.len; bytes = slice_from(bytes, 4096)) {
        struct slice part = slice_sub(bytes, 0, 4096);
        memcpy(chunk + 1, part.at, part.len);
        assert_true(talk_says(&t, 0x82, slice_of(chunk, part.len + 1)));
    }
}

static void the_tail_tells_where_a_full_ring_goes_on(void **state)
{
    static uint8_t output[3 * RING];
    struct slice all = slice_of(output, numbers(output, sizeof output));
    (void)state;
    begin();
    talk_says(&t, 0x82, LIVE);
    says_all(1, slice_sub(all, 0, RING + 5000));
    again();
    says_all(1, slice_sub(all, 8192 * 2, RING));
    talk_says(&t, 0x82, LIVE);
    assert_int_equal(t.exact, 1);
    /* the first new byte, and all of them: 16384 + RING - (RING + 5000) */
    assert_non_null(strstr(t.said, "B<01>"));
    assert_memory_equal(t.said + 5, (const char *)all.at + RING + 5000, 3);
    size_t sum = 0;
    for (const char *at = t.said; (at = strchr(at, '(')); at++)
        sum += strtoul(at + 1, NULL, 10) - 1;
    assert_int_equal(sum, 16384 - 5000);
    talk_end(&t);
}

static void a_tail_that_was_dropped_is_a_gap_of_unknown_size(void **state)
{
    static uint8_t output[3 * RING];
    struct slice all = slice_of(output, numbers(output, sizeof output));
    (void)state;
    begin();
    says_all(1, slice_sub(all, 0, 10000));
    talk_says(&t, 0x82, LIVE);
    again();
    says_all(1, slice_sub(all, 40960, RING));
    talk_says(&t, 0x82, LIVE);
    assert_int_equal(t.gaps, 1);
    assert_true(t.gap == ADAPTER_UNKNOWN);
    assert_memory_equal(t.said + 5, (const char *)all.at + 40960, 3);
    talk_end(&t);
}

static void a_tail_that_occurs_twice_is_a_gap_and_nothing_is_repeated(void **state)
{
    static uint8_t same[RING];
    (void)state;
    memset(same, 'y', sizeof same);
    begin();
    says_all(1, slice_of(same, 5000));
    talk_says(&t, 0x82, LIVE);
    again();
    says_all(1, slice_of(same, RING));
    talk_says(&t, 0x82, LIVE);
    assert_int_equal(t.gaps, 1);
    assert_string_equal(t.said, "");
    talk_end(&t);
}

/* However alike what the session says is, as it likes. */
static void the_last_of_several_places_is_found_in_one_pass(void **state)
{
    static uint8_t output[RING];
    (void)state;
    memset(output, 'a', sizeof output);
    output[4999] = output[9999] = 'b';
    begin();
    says_all(1, slice_of(output, 5000));
    talk_says(&t, 0x82, LIVE);
    again();
    says_all(1, slice_of(output, RING));
    compared = 0;
    talk_says(&t, 0x82, LIVE);
    assert_int_equal(t.gaps, 1);
    size_t sum = 0;
    for (const char *at = t.said; (at = strchr(at, '(')); at++)
        sum += strtoul(at + 1, NULL, 10) - 1;
    assert_int_equal(sum, RING - 10000);
    assert_in_range(compared, 0, 4 * RING);
    talk_end(&t);
}

static void a_short_ring_of_the_same_is_exact_by_count(void **state)
{
    static uint8_t same[RING];
    (void)state;
    memset(same, 'y', sizeof same);
    begin();
    says_all(1, slice_of(same, 5000));
    talk_says(&t, 0x82, LIVE);
    again();
    says_all(1, slice_of(same, 5003));
    talk_says(&t, 0x82, LIVE);
    assert_exact("B<01>yyy");
}

static void a_count_that_does_not_agree_with_the_bytes_is_not_believed(void **state)
{
    (void)state;
    begin();
    talk_says(&t, 0x82, OUT("first session"));
    talk_says(&t, 0x82, LIVE);
    again();
    talk_says(&t, 0x82, OUT("another session"));
    talk_says(&t, 0x82, LIVE);
    assert_int_equal(t.gaps, 1);
    assert_string_equal(t.said, "B<01>another<20>session");
    talk_end(&t);
}

static void a_stream_without_a_place_goes_on_where_the_other_does(void **state)
{
    static uint8_t output[3 * RING];
    struct slice all = slice_of(output, numbers(output, sizeof output));
    (void)state;
    for (unsigned known = 0; known < 2; known++) {
        begin();
        talk_says(&t, 0x82, LIVE);
        if (known)
            talk_says(&t, 0x82, ERR("old"));
        says_all(1, slice_sub(all, 0, RING + 4096));
        again();
        says_all(1, slice_sub(all, 8192, RING - 4096));
        talk_says(&t, 0x82, ERR("new"));
        talk_says(&t, 0x82, LIVE);
        /* what of the other stream is in a ring is known only if nothing of it came before */
        assert_int_equal(t.exact, known ? 0 : 1);
        assert_string_equal(t.said, "B<02>new");
        talk_end(&t);
    }
}

/* The old worker serves until the new one is there, which took its replay before that. */
static void what_the_old_worker_said_meanwhile_is_not_repeated(void **state)
{
    uint8_t memory[100];
    (void)state;
    for (size_t step = 1; step < 20; step++) {
        begin();
        talk_says(&t, 0x82, LIVE);
        talk_says(&t, 0x82, OUT("one"));
        talk_request(&t);
        talk_says(&t, 0x82, OUT("two"));
        talk_says(&t, 0x82, OUT("three"));
        talk_says(&t, 0x82, ERR("bad"));
        again();
        talk_bytes(&t, talk_frame(memory, 0x82, OUT("onet")), step);
        talk_bytes(&t, talk_frame(memory, 0x82, LIVE), step);
        talk_bytes(&t, talk_frame(memory, 0x82, OUT("wo")), step);
        talk_bytes(&t, talk_frame(memory, 0x02, OUT("thre")), step);
        talk_bytes(&t, talk_frame(memory, 0x80, SLICE_LITERAL("e4")), step);
        talk_bytes(&t, talk_frame(memory, 0x82, ERR("bad!")), step);
        talk_bytes(&t, talk_frame(memory, 0x82, OUT("5")), step);
        assert_exact("B<01>4 B<02>! B<01>5");
    }
}

static void the_next_worker_may_be_asked_before_the_replay_of_the_last_one_has_ended(void **state)
{
    (void)state;
    begin();
    talk_says(&t, 0x82, LIVE);
    talk_says(&t, 0x82, OUT("one"));
    talk_request(&t);
    talk_says(&t, 0x82, OUT("two"));
    again();
    talk_says(&t, 0x82, OUT("one"));
    talk_request(&t);
    talk_says(&t, 0x82, LIVE); /* of the one that has joined */
    talk_says(&t, 0x82, OUT("two3"));
    assert_string_equal(t.said, "B<01>3");
    assert_int_equal(t.exact, 1);
    t.exact = 0;
    again();
    talk_says(&t, 0x82, OUT("onetwo34"));
    talk_says(&t, 0x82, LIVE);
    assert_exact("B<01>4");
}

static void a_client_that_had_nothing_lacks_what_a_full_ring_has_dropped(void **state)
{
    static uint8_t output[RING];
    struct slice all = slice_of(output, numbers(output, sizeof output));
    (void)state;
    begin();
    talk_says(&t, 0x82, LIVE);
    again();
    says_all(1, all);
    talk_says(&t, 0x82, LIVE);
    assert_int_equal(t.gaps, 1);
    talk_end(&t);
}

static void memory_that_is_short_is_said(void **state)
{
    bool failed = true;
    (void)state;
    for (unsigned i = 1; failed; i++) {
        assert_true(i < 40);
        begin();
        talk_says(&t, 0x82, OUT("one"));
        talk_says(&t, 0x82, LIVE);
        talk_join(&t);
        static const struct slice said[] = {OUT("onetwo"), ERR("error"), LIVE};
        failed = false;
        alloc_fail_at(i);
        for (unsigned k = 0; k < 3 && !failed; k++) {
            struct adapter_edit edit = {.insert = buffer_with_limit(1 << 20)};
            struct adapter_piece piece = {WS_BINARY, true, true, said[k]};
            failed = t.adapter->from_worker(t.state, &piece, &edit) == ADAPTER_NO_MEMORY;
            buffer_free(&edit.insert);
        }
        alloc_fail_at(0);
        talk_end(&t);
    }
}

static void says_at_once(uint8_t tag, struct slice bytes)
{
    uint8_t *message = malloc(bytes.len + 1);
    assert_non_null(message);
    message[0] = tag;
    memcpy(message + 1, bytes.at, bytes.len);
    assert_true(talk_says(&t, 0x82, slice_of(message, bytes.len + 1)));
    free(message);
}

static void assert_output(struct slice wanted)
{
    struct slice got = buffer_slice(&t.output);
    assert_int_equal(got.len, wanted.len);
    assert_true(slice_equal(got, wanted));
}

/* Sizes around those at which a frame's head gets longer, and longer than a read. */
static const size_t sizes[] = {1,     124,    125,    126,   127,    4095,   4096,   4097,       16384, 65533,
                               65534, 65535,  65536,  65537, 131071, 131072, 600000, RING - 65540 - 5000};

static void a_replay_of_messages_of_any_size_is_exact(void **state)
{
    static uint8_t output[2 * RING];
    struct slice all = slice_of(output, numbers(output, sizeof output));
    (void)state;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (unsigned had = 0; had < 3; had++) {
            struct slice before = slice_sub(all, 0, had == 2 ? sizes[i] / 2 : had);
            struct slice first = slice_sub(all, 0, sizes[i]), second = slice_sub(all, sizes[i], 65540);
            begin();
            talk_says(&t, 0x82, LIVE);
            says_all(1, before);
            again();
            says_at_once(1, first);
            says_at_once(1, second);
            talk_says(&t, 0x82, LIVE);
            assert_int_equal(t.exact, 1);
            assert_output(slice_sub(all, 0, first.len + second.len));
            talk_end(&t);
        }
}

static void streams_that_take_turns_in_a_replay_are_exact(void **state)
{
    static uint8_t output[RING];
    struct slice all = slice_of(output, numbers(output, sizeof output));
    size_t errors = 0;
    (void)state;
    begin();
    talk_says(&t, 0x82, LIVE);
    again();
    for (unsigned i = 0; i < 7; i++, errors += 65536) {
        says_at_once(1, slice_sub(all, 2 * errors, 65536));
        says_at_once(2, slice_sub(all, 2 * errors + 65536, 65536));
    }
    talk_says(&t, 0x82, LIVE);
    assert_int_equal(t.exact, 1);
    assert_output(slice_sub(all, 0, 2 * errors));
    talk_end(&t);
}

/* A worker with a longer ring than it should have, or one that never says `04`: what was collected is compared with what
 * was delivered, the rest passes, and that it may not follow is declared. */
static void a_replay_that_is_too_long_is_a_gap_and_goes_on(void **state)
{
    static uint8_t output[9 * RING];
    struct slice all = slice_of(output, numbers(output, sizeof output));
    (void)state;
    for (unsigned way = 0; way < 3; way++) {
        size_t step = way == 0 ? 4096 : way == 1 ? RING : all.len;
        begin();
        talk_says(&t, 0x82, LIVE);
        says_all(1, slice_sub(all, 0, 10000));
        again();
        for (size_t at = 0; at < all.len; at += step) {
            says_at_once(1, slice_sub(all, at, step));
            assert_true(t.adapter->held(t.state) < (5 << 20));
        }
        assert_int_equal(t.gaps, 1);
        assert_true(t.gap == ADAPTER_UNKNOWN);
        assert_false(t.adapter->collects(t.state));
        talk_says(&t, 0x82, LIVE);
        talk_says(&t, 0x82, OUT("on"));
        assert_int_equal(t.gaps + t.exact, 1);
        size_t len = buffer_len(&t.output);
        assert_memory_equal(buffer_slice(&t.output).at + len - 2, "on", 2);
        if (way < 2) /* of a single message nothing was collected */
            assert_int_equal(len, all.len + 2);
        assert_null(strstr(t.said, "B<04>"));
        talk_end(&t);
    }
}

/* Each byte of a stream may stand behind one of the other: that needs a record. */
static void a_replay_of_single_bytes_is_bounded_and_goes_on(void **state)
{
    static uint8_t frames[4 * RING];
    (void)state;
    begin();
    talk_says(&t, 0x82, OUT("y")); /* odd: not in its replay */
    talk_says(&t, 0x82, LIVE);
    again();
    for (unsigned i = 0; i < RING; i++)
        memcpy(frames + (size_t)4 * i, (uint8_t[]){0x82, 2, (uint8_t)(1 + i % 2), (uint8_t)i}, 4);
    assert_true(talk_bytes(&t, slice_of(frames, sizeof frames), 65536));
    assert_true(t.adapter->held(t.state) < (5 << 20));
    talk_says(&t, 0x82, LIVE);
    assert_int_equal(t.gaps, 1);
    assert_int_equal(buffer_len(&t.output), 1 + RING);
    talk_end(&t);
}

static void the_end_of_a_replay_may_come_in_fragments(void **state)
{
    (void)state;
    begin();
    talk_says(&t, 0x02, LIVE);
    talk_says(&t, 0x80, slice_text(""));
    assert_string_equal(t.said, "B<04>");
    talk_end(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_first_worker_is_passed_unchanged),
        cmocka_unit_test(only_what_is_new_in_a_replay_is_passed),
        cmocka_unit_test(a_replay_that_was_cut_itself_is_taken_from_the_next_worker),
        cmocka_unit_test(a_first_replay_that_was_cut_goes_on_and_its_end_is_told),
        cmocka_unit_test(an_exit_is_told_once),
        cmocka_unit_test(an_unknown_message_that_was_cut_is_a_gap),
        cmocka_unit_test(the_tail_tells_where_a_full_ring_goes_on),
        cmocka_unit_test(a_tail_that_was_dropped_is_a_gap_of_unknown_size),
        cmocka_unit_test(a_tail_that_occurs_twice_is_a_gap_and_nothing_is_repeated),
        cmocka_unit_test(the_last_of_several_places_is_found_in_one_pass),
        cmocka_unit_test(a_short_ring_of_the_same_is_exact_by_count),
        cmocka_unit_test(a_count_that_does_not_agree_with_the_bytes_is_not_believed),
        cmocka_unit_test(a_stream_without_a_place_goes_on_where_the_other_does),
        cmocka_unit_test(what_the_old_worker_said_meanwhile_is_not_repeated),
        cmocka_unit_test(the_next_worker_may_be_asked_before_the_replay_of_the_last_one_has_ended),
        cmocka_unit_test(a_client_that_had_nothing_lacks_what_a_full_ring_has_dropped),
        cmocka_unit_test(memory_that_is_short_is_said),
        cmocka_unit_test(a_replay_of_messages_of_any_size_is_exact),
        cmocka_unit_test(streams_that_take_turns_in_a_replay_are_exact),
        cmocka_unit_test(a_replay_that_is_too_long_is_a_gap_and_goes_on),
        cmocka_unit_test(a_replay_of_single_bytes_is_bounded_and_goes_on),
        cmocka_unit_test(the_end_of_a_replay_may_come_in_fragments),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
