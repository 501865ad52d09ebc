/* SPDX-License-Identifier: MIT */
#include "tests/unit/support.h"

#include <string.h>
#include <time.h>

#include "tests/unit/relay/adapter_talk.h"

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
#include "spoa/relay/scrollback/delivered.c"
#include "spoa/relay/scrollback/state.h"
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
    assert_string_equal(t.said,
                        ""); /* the rest of a ring that holds what was delivered may come behind its `04` */
    talk_pass(&t, 2 * SECOND);
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
            struct adapter_piece piece = {WS_BINARY, true, true, said[k], 1};
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
static const size_t sizes[] = {1,     124,   125,    126,    127,    4095,
                               4096,  4097,  16384,  65533,  65534,  65535,
                               65536, 65537, 131071, 131072, 600000, RING - 65540 - 5000};

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

/* ---- replays that come behind their `04` ---- */

/* A session's output, and how much of it its client has. */
struct history {
    struct slice all;
    size_t had;
};

static void has(const struct history *h)
{
    begin();
    talk_says(&t, 0x82, LIVE);
    says_all(1, slice_sub(h->all, 0, h->had));
    again();
}

/* The client has got each byte once, in order, but for those that a gap was declared for. */
static void assert_once(const struct history *h)
{
    struct slice got = buffer_slice(&t.output);
    assert_in_range(got.len, h->had, h->all.len);
    assert_true(slice_equal(slice_sub(got, 0, h->had), slice_sub(h->all, 0, h->had)));
    size_t lost = h->all.len - got.len;
    assert_true(slice_equal(slice_from(got, h->had), slice_from(h->all, h->had + lost)));
    assert_int_equal(t.exact + t.gaps, 1);
    assert_true(!lost || t.gaps);
}

static void fill(uint8_t *to, size_t len, unsigned kind, unsigned seed)
{
    static const char *const lines[] = {"y\n", "the same line again and again\n", "\0\0\0\0"};
    if (kind < 3) {
        size_t step = kind == 2 ? 4 : strlen(lines[kind]);
        for (size_t i = 0; i < len; i++)
            to[i] = (uint8_t)lines[kind][i % step];
    } else if (kind == 3) { /* a screen of 3000 bytes again and again */
        for (size_t i = 0; i < len; i++)
            to[i] = (uint8_t)((i % 3000) * 2654435761u >> 13);
    } else {
        for (size_t i = 0; i < len; i++)
            to[i] = (uint8_t)((seed = seed * 1664525 + 1013904223) >> 24);
    }
}

static const size_t delivered_sizes[] = {1,    2,    30,   511,  512,  513,   1023,   1024,
                                         1025, 4095, 4096, 5000, 9999, 65536, 600001, RING - 8192};

/* Whatever the session says, of a ring that never was full. */
static void a_late_replay_is_exact(void **state)
{
    static uint8_t output[RING];
    static const size_t more[] = {0, 1, 30, 4000};
    (void)state;
    for (unsigned kind = 0; kind < 5; kind++)
        for (size_t i = 0; i < sizeof delivered_sizes / sizeof *delivered_sizes; i++)
            for (size_t k = 0; k < sizeof more / sizeof *more; k++) {
                struct history h = {slice_of(output, delivered_sizes[i] + more[k]), delivered_sizes[i]};
                fill(output, h.all.len, kind, 7);
                has(&h);
                talk_says(&t, 0x82, LIVE);
                assert_int_equal(t.exact + t.gaps, 0);
                says_all(1, h.all);
                assert_output(h.all); /* new output does not wait */
                talk_pass(&t, SECOND);
                assert_once(&h);
                assert_int_equal(t.exact, 1);
                talk_end(&t);
            }
}

static void a_late_replay_line_by_line_is_exact(void **state)
{
    static uint8_t output[9000];
    struct history h = {slice_of(output, numbers(output, sizeof output)), 2100};
    (void)state;
    has(&h);
    talk_says(&t, 0x82, LIVE);
    for (size_t at = 0; at < h.all.len; at += 7) {
        says_all(1, slice_sub(h.all, at, 7));
        assert_int_equal(buffer_len(&t.output), at + 7 > h.had ? at + 7 : h.had);
    }
    talk_pass(&t, SECOND);
    assert_int_equal(t.exact, 1);
    assert_once(&h);
    talk_end(&t);
}

/* The old worker's `01` and `02` stand in the ring as they came. */
static void a_late_replay_of_both_streams_is_exact(void **state)
{
    (void)state;
    for (unsigned errors = 0; errors < 2; errors++) {
        begin();
        talk_says(&t, 0x82, LIVE);
        talk_says(&t, 0x82, OUT("one"));
        if (errors)
            talk_says(&t, 0x82, ERR("bad"));
        again();
        talk_says(&t, 0x82, LIVE);
        talk_says(&t, 0x82, OUT("one"));
        talk_says(&t, 0x82, ERR("bad"));
        talk_says(&t, 0x82, OUT("two"));
        talk_says(&t, 0x82, SLICE_LITERAL("\3\0\0\0\0"));
        assert_exact(errors ? "B<01>two B<03><00><00><00><00>" : "B<02>bad B<01>two B<03><00><00><00><00>");
    }
}

/* Its worker had fetched some of the ring when it said `04`. */
static void a_replay_that_is_late_in_part_is_exact(void **state)
{
    static uint8_t output[70000];
    static const size_t early[] = {1, 100, 4096, 29999};
    (void)state;
    for (unsigned kind = 0; kind < 5; kind++)
        for (size_t i = 0; i < sizeof early / sizeof *early; i++) {
            struct history h = {slice_of(output, sizeof output), 30000};
            fill(output, sizeof output, kind, 7);
            has(&h);
            says_all(1, slice_sub(h.all, 0, early[i]));
            talk_says(&t, 0x82, LIVE);
            says_all(1, slice_from(h.all, early[i]));
            assert_output(h.all);
            talk_pass(&t, SECOND);
            assert_int_equal(t.exact, 1);
            talk_end(&t);
        }
}

static void a_late_replay_of_a_full_ring_is_exact(void **state)
{
    static uint8_t output[2 * RING];
    static const size_t ends[] = {RING + 9000, RING + 9001, RING + 13000, 2 * RING - 9000};
    (void)state;
    fill(output, sizeof output, 4, 3);
    for (size_t i = 0; i < 4; i++) {
        struct history h = {slice_of(output, ends[i]), RING + 9000};
        size_t start = ends[i] - RING + 5; /* the ring drops whole chunks */
        has(&h);
        talk_says(&t, 0x82, LIVE);
        says_all(1, slice_from(h.all, start));
        assert_int_equal(t.exact, i == 3); /* at once, or when no more of it comes */
        talk_pass(&t, SECOND);
        says_all(1, SLICE_LITERAL("and on"));
        assert_int_equal(t.exact, 1);
        assert_int_equal(t.gaps, 0);
        assert_int_equal(buffer_len(&t.output), ends[i] + 6);
        talk_end(&t);
    }
}

static void a_late_replay_that_has_dropped_what_follows_is_a_gap(void **state)
{
    static uint8_t output[2 * RING];
    struct history h = {slice_of(output, sizeof output), 14};
    (void)state;
    fill(output, sizeof output, 4, 5);
    has(&h);
    talk_says(&t, 0x82, LIVE);
    says_all(1, slice_from(h.all, RING));
    assert_once(&h);
    assert_int_equal(t.gaps, 1);
    assert_int_equal(buffer_len(&t.output), 14 + RING);
    talk_end(&t);
}

/* The worker hands chunks on through a short queue, and drops those for which there is no room. */
static void a_late_replay_with_holes_is_not_repeated(void **state)
{
    static uint8_t output[200000];
    static const size_t holes[][2] = {{0, 4096},     {8192, 4096},  {98000, 500},
                                      {99000, 1000}, {98000, 2500}, {60000, 40000}};
    (void)state;
    fill(output, sizeof output, 4, 9);
    for (size_t i = 0; i < sizeof holes / sizeof *holes; i++) {
        struct history h = {slice_of(output, 100020), 100000};
        size_t at = holes[i][0], behind = at + holes[i][1];
        has(&h);
        talk_says(&t, 0x82, LIVE);
        says_all(1, slice_sub(h.all, 0, at));
        says_all(1, slice_from(h.all, behind));
        talk_pass(&t, 3 * SECOND);
        says_all(1, SLICE_LITERAL("and on"));
        struct slice got = buffer_slice(&t.output);
        assert_int_equal(t.exact + t.gaps, 1);
        assert_int_equal(t.exact, i < 3);
        /* what a hole has taken of the new output nobody can tell; of the old nothing comes again */
        assert_in_range(got.len, h.had, h.all.len + 6);
        if (t.exact)
            assert_int_equal(got.len, h.all.len + 6);
        assert_null(memmem(got.at + h.had, got.len - h.had, h.all.at + h.had - 600, 64));
        talk_end(&t);
    }
}

/* It stands still in the middle, for longer than is waited for. */
static void a_late_replay_that_pauses_is_not_repeated(void **state)
{
    static uint8_t output[200000];
    static const size_t pauses[] = {1, 400, 700, 50000};
    (void)state;
    for (unsigned kind = 3; kind < 5; kind++)
        for (size_t i = 0; i < 4; i++) {
            struct history h = {slice_of(output, i < 2 ? 1020 : 100020), i < 2 ? 1000 : 100000};
            fill(output, sizeof output, kind, 11);
            has(&h);
            talk_says(&t, 0x82, LIVE);
            talk_pass(&t, 20 * SECOND);
            says_all(1, slice_sub(h.all, 0, pauses[i]));
            talk_pass(&t, SECOND);
            says_all(1, slice_sub(h.all, pauses[i], 10));
            talk_pass(&t, 20 * SECOND);
            says_all(1, slice_from(h.all, pauses[i] + 10));
            talk_pass(&t, SECOND);
            if (kind == 4)
                assert_once(&h);
            assert_in_range(buffer_len(&t.output), h.had, h.all.len);
            talk_end(&t);
        }
}

static void a_late_replay_of_a_full_ring_of_the_same_is_a_gap(void **state)
{
    static uint8_t output[2 * RING];
    (void)state;
    for (unsigned kind = 0; kind < 4; kind++)
        for (size_t had = 2; had < RING; had = had * 30 + 1) {
            struct history h = {slice_of(output, RING + 20000), had};
            fill(output, h.all.len, kind, 1);
            has(&h);
            talk_says(&t, 0x82, LIVE);
            says_all(1, slice_from(h.all, 20000));
            talk_pass(&t, 3 * SECOND);
            assert_int_equal(t.gaps, 1);
            assert_in_range(buffer_len(&t.output), h.had, h.all.len);
            talk_end(&t);
        }
}

/* What it says is held no longer than that. */
static void another_session_is_not_waited_for_long(void **state)
{
    (void)state;
    begin();
    talk_says(&t, 0x82, LIVE);
    talk_says(&t, 0x82, OUT("one"));
    again();
    talk_says(&t, 0x82, LIVE);
    for (unsigned i = 0; i < 10; i++) {
        assert_string_equal(t.said, "");
        talk_says(&t, 0x82, OUT("2"));
        talk_pass(&t, SECOND);
    }
    assert_string_equal(t.said, "B<01>2222222222");
    assert_int_equal(t.gaps, 1);
    talk_says(&t, 0x82, OUT("3"));
    assert_string_equal(t.said, "B<01>2222222222 B<01>3");
    talk_end(&t);
}

static void a_late_replay_that_was_cut_is_taken_from_the_next_worker(void **state)
{
    (void)state;
    begin();
    talk_says(&t, 0x82, LIVE);
    talk_says(&t, 0x82, OUT("one"));
    again();
    talk_says(&t, 0x82, LIVE);
    talk_says(&t, 0x82, OUT("on"));
    again();
    talk_says(&t, 0x82, LIVE);
    talk_says(&t, 0x82, OUT("onetwo"));
    assert_string_equal(t.said, "B<01>two");
    again(); /* before it was certain */
    assert_int_equal(t.exact, 1);
    talk_says(&t, 0x82, LIVE);
    talk_says(&t, 0x82, OUT("onetwo3"));
    talk_tick(&t, ADAPTER_NO_MORE);
    assert_string_equal(t.said, "B<01>3");
    assert_int_equal(t.exact, 2);
    assert_int_equal(t.gaps, 0);
    talk_end(&t);
}

static void what_the_old_worker_said_meanwhile_is_not_repeated_late(void **state)
{
    (void)state;
    begin();
    talk_says(&t, 0x82, LIVE);
    talk_says(&t, 0x82, OUT("one"));
    talk_request(&t);
    talk_says(&t, 0x82, OUT("two"));
    again();
    talk_says(&t, 0x82, LIVE);
    talk_says(&t, 0x82, OUT("onet"));
    talk_says(&t, 0x82, OUT("wo3"));
    talk_pass(&t, SECOND);
    assert_exact("B<01>3");
}

static void what_is_held_of_a_session_that_ends_is_passed(void **state)
{
    (void)state;
    begin();
    talk_says(&t, 0x82, LIVE);
    talk_says(&t, 0x82, OUT("one"));
    again();
    talk_says(&t, 0x82, LIVE);
    talk_says(&t, 0x82, OUT("another"));
    talk_says(&t, 0x82, SLICE_LITERAL("\3\0\0\0\1"));
    assert_string_equal(t.said, "B<01>another B<03><00><00><00><01>");
    assert_int_equal(t.gaps, 1);
    talk_end(&t);
}

/* The first worker that said nothing may not have fetched the ring. */
static void a_client_that_had_nothing_may_lack_what_comes_late(void **state)
{
    static uint8_t output[RING];
    (void)state;
    fill(output, sizeof output, 4, 1);
    for (unsigned full = 0; full < 2; full++) {
        begin();
        talk_says(&t, 0x82, LIVE);
        again();
        talk_says(&t, 0x82, LIVE);
        says_all(1, slice_of(output, full ? RING : RING / 2));
        assert_output(slice_of(output, full ? RING : RING / 2));
        talk_pass(&t, SECOND);
        assert_int_equal(t.gaps, full);
        assert_int_equal(t.exact, !full);
        talk_end(&t);
    }
}

static void a_worker_that_has_nothing_of_a_session_is_known(void **state)
{
    bool lacks;
    (void)state;
    begin();
    assert_false(t.adapter->empty(t.state, &lacks));
    talk_says(&t, 0x82, LIVE);
    assert_true(t.adapter->empty(t.state, &lacks));
    assert_false(lacks); /* it may be a session that has said nothing */
    talk_says(&t, 0x82, OUT("one"));
    assert_false(t.adapter->empty(t.state, &lacks));
    again();
    assert_false(t.adapter->empty(t.state, &lacks));
    talk_says(&t, 0x82, LIVE);
    assert_true(t.adapter->empty(t.state, &lacks));
    assert_true(lacks);
    talk_says(&t, 0x82, OUT("o"));
    assert_false(t.adapter->empty(t.state, &lacks));
    talk_end(&t);
}

/* Marks are looked for in one pass, however the session chooses its output. */
static void a_late_replay_of_what_is_alike_is_looked_through_in_bounded_time(void **state)
{
    static uint8_t output[RING];
    (void)state;
    fill(output, sizeof output, 4, 1);
    begin();
    talk_says(&t, 0x82, LIVE);
    says_all(1, slice_of(output, sizeof output));
    again();
    memset(output, 'a', sizeof output);
    talk_says(&t, 0x82, LIVE);
    clock_t before = clock();
    says_all(1, slice_of(output, sizeof output));
    assert_int_equal(t.gaps, 1);
    assert_true(clock() - before < CLOCKS_PER_SEC);
    talk_end(&t);
}

/* A session of any size, looked at from any of its moments, through late workers and polite ones. */
static void nothing_is_repeated_whatever_comes(void **state)
{
    static uint8_t output[3 * RING];
    unsigned seed = 1;
    (void)state;
    for (unsigned i = 0; i < 300; i++) {
#define PICK(most) ((size_t)((seed = seed * 1664525 + 1013904223) >> 8) % (most))
        unsigned kind = (unsigned)PICK(5);
        size_t most = PICK(3) ? 20000 : sizeof output, step = 1 + PICK(5000), late = PICK(2);
        struct history h = {slice_of(output, 1 + PICK(most)), 0};
        h.had = PICK(h.all.len + 1);
        size_t asked = h.had + PICK(h.all.len - h.had + 1),
               start = asked > RING ? asked - RING + PICK(4096) : 0;
        size_t mark = start + (PICK(2) ? 0 : PICK(asked - start + 1)); /* where the `04` stands */
        fill(output, h.all.len, kind, seed);
        has(&h);
        if (!late)
            mark = asked;
        for (size_t at = start, len; at < h.all.len; at += len) {
            len = at < mark && at + step > mark ? mark - at : step;
            if (at == mark)
                talk_says(&t, 0x82, LIVE);
            says_all(1, slice_sub(h.all, at, len));
        }
        talk_pass(&t, 12 * SECOND);
        if (mark == h.all.len)
            talk_says(&t, 0x82, LIVE);
        talk_pass(&t, 12 * SECOND);
        talk_tick(&t, ADAPTER_NO_MORE);
        if (kind == 4)
            assert_once(&h);
        assert_in_range(buffer_len(&t.output), h.had, h.all.len);
        assert_true(buffer_len(&t.output) == h.all.len || t.gaps);
        talk_end(&t);
#undef PICK
    }
}

/* A worker without the session's ring (it was started anew), and a program that says the same once in a while: what no ring can
 * hold cannot come again. */
static void what_no_ring_can_hold_is_not_skipped(void **state)
{
    static uint8_t output[8 * RING];
    (void)state;
    for (size_t i = 0; i < sizeof output; i++)
        output[i] = (uint8_t) "tick\n"[i % 5];
    begin();
    talk_says(&t, 0x82, LIVE);
    says_all(1, slice_of(output, sizeof output));
    again();
    size_t had = buffer_len(&t.output);
    talk_says(&t, 0x82, LIVE);
    says_all(1, slice_of(output, 2000));
    talk_pass(&t, 12 * SECOND);
    assert_int_equal(t.gaps, 1);
    for (unsigned i = 0; i < 4; i++) /* more than any ring holds */
        says_all(1, slice_of(output, RING));
    says_all(2, SLICE_LITERAL("ERROR: it is broken\n"));
    says_all(1, SLICE_LITERAL("and this is new\n"));
    assert_in_range(buffer_len(&t.output), had + 2 * RING, had + 5 * RING);
    struct slice got = buffer_slice(&t.output);
    assert_non_null(memmem(got.at + had, got.len - had, "ERROR", 5));
    assert_non_null(memmem(got.at + had, got.len - had, "and this is new", 15));
    talk_end(&t);
}

/* The last KiB of what was delivered stands once in a full ring, but in another place: what is in front of it there was never
 * delivered. */
static void a_banner_that_comes_again_is_not_where_a_full_ring_goes_on(void **state)
{
    static uint8_t output[4 * RING];
    (void)state;
    for (unsigned late = 0; late < 2; late++) {
        struct history h = {slice_of(output, 2 * RING + 300000), RING + 100000};
        fill(output, sizeof output, 4, 21);
        memcpy(output + h.had + RING + 50000 - 1100, output + h.had - 1100, 1100); /* again, a ring later */
        has(&h);
        if (late)
            talk_says(&t, 0x82, LIVE);
        says_all(1, slice_from(h.all, h.all.len - RING + 5));
        if (!late)
            talk_says(&t, 0x82, LIVE);
        talk_pass(&t, 12 * SECOND);
        talk_tick(&t, ADAPTER_NO_MORE);
        assert_once(&h); /* all of it, or a gap */
        talk_end(&t);
    }
}

/* A program that says the same at its beginning, in the middle and at its end, and a late replay that pauses behind its first chunk. */
static void a_late_replay_that_pauses_where_the_same_was_said_before_is_not_repeated(void **state)
{
    static uint8_t output[110000];
    static const size_t texts[] = {1600, 2000, 2048, 4000};
    (void)state;
    for (size_t i = 0; i < 4; i++) {
        struct history h = {slice_of(output, 101000), 100000};
        fill(output, sizeof output, 4, 31);
        memcpy(output + 51200, output, texts[i]); /* by chance a whole number of blocks later */
        memcpy(output + h.had - texts[i], output, texts[i]);
        has(&h);
        talk_says(&t, 0x82, LIVE);
        says_all(1, slice_sub(h.all, 0, texts[i]));
        talk_pass(&t, 300000);
        says_all(1, slice_from(h.all, texts[i]));
        talk_pass(&t, 12 * SECOND);
        talk_tick(&t, ADAPTER_NO_MORE);
        assert_once(&h);
        talk_end(&t);
    }
}

/* ---- as an image ---- */

/* Whether the adapter's state is one that an image can say; what was read is freed. */
static bool state_loads(void)
{
    struct scrollback back = {0};
    struct buffer bytes = buffer_with_limit(8 << 20);
    struct image write = image_to(&bytes, 1, 0);
    image_part(&write, &scrollback_table, t.state);
    struct image read = image_from(buffer_slice(&bytes), 1, 0);
    image_part(&read, &scrollback_table, &back);
    buffer_free(&bytes);
    scrollback_free(&back);
    return image_done(&write) && image_done(&read);
}

/* A second worker replays: the first record is of output, the last one of errors. */
static struct scrollback *collecting(size_t delivered)
{
    static uint8_t said[3000], frame[3020];
    memset(said, 'x', sizeof said);
    said[0] = TAG_OUTPUT;
    begin();
    talk_bytes(&t, talk_frame(frame, 0x82, slice_of(said, delivered + 1)), SIZE_MAX);
    again();
    talk_says(&t, 0x82, OUT("one"));
    talk_says(&t, 0x82, ERR("two"));
    assert_true(state_loads());
    return t.state;
}

static void an_image_says_no_replay_that_cannot_be(void **state)
{
    static const struct {
        size_t at;
        uint8_t byte;
    } spoiled[] = {{0, 0}, {0, 3}, {0, 255}, {1, 1}, {3, 0x10}, {4, 2}, {8, 9}, {12, 4}};
    (void)state;
    for (size_t i = 0; i < sizeof spoiled / sizeof *spoiled; i++) {
        struct scrollback *s = collecting(10);
        s->replay.memory.memory[s->replay.memory.start + spoiled[i].at] = spoiled[i].byte;
        assert_false(state_loads());
        talk_end(&t);
    }
    for (size_t record = 0; record <= 16; record++) {
        struct scrollback *s = collecting(10);
        s->replay.last = record;
        assert_int_equal(state_loads(), record == 8);
        talk_end(&t);
    }
}

static void an_image_says_no_marks_and_lengths_that_cannot_be(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 6; i++) {
        struct scrollback *s = collecting(2000);
        struct output_stream *stream = &s->streams[0];
        uint64_t len = stream->delivered.end.len;
        if (i == 0)
            stream->delivered.marks[2] = UINT64_MAX; /* no block has it: where it is looked up is no place */
        if (i == 1)
            stream->delivered.marks[2] = PRIME;
        if (i == 2)
            stream->delivered.end.len = UINT64_MAX - 9; /* a few bytes more are no bytes */
        if (i == 3)
            stream->skip = len + 1;
        if (i == 4)
            s->streams[1].skip = 1; /* of a stream that has said nothing */
        if (i == 5)
            stream->skip = len;
        assert_int_equal(state_loads(), i == 5);
        if (i == 2)
            stream->delivered.end.len = len;
        talk_end(&t);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_image_says_no_replay_that_cannot_be),
        cmocka_unit_test(an_image_says_no_marks_and_lengths_that_cannot_be),
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
        cmocka_unit_test(a_late_replay_is_exact),
        cmocka_unit_test(a_late_replay_line_by_line_is_exact),
        cmocka_unit_test(a_late_replay_of_both_streams_is_exact),
        cmocka_unit_test(a_replay_that_is_late_in_part_is_exact),
        cmocka_unit_test(a_late_replay_of_a_full_ring_is_exact),
        cmocka_unit_test(a_late_replay_that_has_dropped_what_follows_is_a_gap),
        cmocka_unit_test(a_late_replay_with_holes_is_not_repeated),
        cmocka_unit_test(a_late_replay_that_pauses_is_not_repeated),
        cmocka_unit_test(a_late_replay_of_a_full_ring_of_the_same_is_a_gap),
        cmocka_unit_test(another_session_is_not_waited_for_long),
        cmocka_unit_test(a_late_replay_that_was_cut_is_taken_from_the_next_worker),
        cmocka_unit_test(what_the_old_worker_said_meanwhile_is_not_repeated_late),
        cmocka_unit_test(what_is_held_of_a_session_that_ends_is_passed),
        cmocka_unit_test(a_client_that_had_nothing_may_lack_what_comes_late),
        cmocka_unit_test(a_worker_that_has_nothing_of_a_session_is_known),
        cmocka_unit_test(a_late_replay_of_what_is_alike_is_looked_through_in_bounded_time),
        cmocka_unit_test(nothing_is_repeated_whatever_comes),
        cmocka_unit_test(what_no_ring_can_hold_is_not_skipped),
        cmocka_unit_test(a_late_replay_that_pauses_where_the_same_was_said_before_is_not_repeated),
        cmocka_unit_test(a_banner_that_comes_again_is_not_where_a_full_ring_goes_on),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
