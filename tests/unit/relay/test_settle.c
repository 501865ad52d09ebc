/* SPDX-License-Identifier: MIT */
/*
 * A worker of adapter `scrollback` that is still filling its ring when it is attached: its first answer does not decide how the
 * session goes on, a second connection to the same worker does (spoa/relay/scrollback/settle.h).
 */
#include "tests/unit/support.h"

#include <string.h>
#include <time.h>

#include "spoa/relay/scrollback/settle.h"
#include "tests/unit/relay/adapter_talk.h"

#define MS   UINT64_C(1000)
#define LIVE SLICE_LITERAL("\4")
#define EXIT SLICE_LITERAL("\3\0\0\0\6")

static struct talk t;

static void begin(void)
{
    talk_begin_with(&t, &adapter_scrollback, "/exec/x", true);
    talk_join(&t);
    talk_says(&t, 0x82, LIVE);
}

static void again(void)
{
    talk_join(&t);
}

static void says(const char *text)
{
    char message[256];
    int len = snprintf(message, sizeof message, "\1%s", text);
    talk_says(&t, 0x82, slice_of(message, (size_t)len));
}

/* Time goes on until the adapter asks for a second connection; false: it does not within five seconds. */
static bool asks(void)
{
    for (unsigned i = 0; i < 500; i++, t.now += 10 * MS)
        if (t.now >= t.adapter->recheck_at(t.state) && talk_recheck(&t))
            return true;
    return false;
}

static void snapshot_of(const char *text)
{
    char message[256];
    int len = snprintf(message, sizeof message, "\1%s", text);
    if (*text)
        assert_true(talk_second(&t, slice_of(message, (size_t)len)));
    talk_second(&t, LIVE);
}

/* What its snapshot means is decided. */
static void judged(void)
{
    t.now += SETTLE_CATCH_UP;
    assert_true(t.now >= t.adapter->recheck_at(t.state));
    assert_false(talk_recheck(&t));
}

static void assert_heard(const char *output)
{
    struct slice got = buffer_slice(&t.output);
    char text[4096];

    snprintf(text, sizeof text, "%.*s", SLICE_PRINTF(got));
    assert_string_equal(text, output);
}

static void assert_exact(const char *output, unsigned outcomes)
{
    assert_false(t.adapter->unsettled(t.state));
    assert_heard(output);
    assert_int_equal(t.exact, outcomes);
    assert_int_equal(t.gaps, 0);
    talk_end(&t);
}

static void a_replay_of_which_the_first_client_gets_a_part_is_taken_from_a_second_connection(void **state)
{
    (void)state;
    begin();
    says("one");
    again();
    talk_says(&t, 0x82, LIVE);
    says("one");
    says("three"); /* "two" was dropped */
    assert_true(asks());
    snapshot_of("onetwothree");
    judged();
    assert_heard("onetwothree");
    assert_int_equal(t.exact + t.gaps, 0); /* the worker may go on dropping */
    assert_true(asks());
    snapshot_of("onetwothree");
    judged();
    says("four");
    assert_exact("onetwothreefour", 1);
}

static void what_is_said_between_the_snapshot_and_the_subscription_is_not_lost(void **state)
{
    (void)state;
    begin();
    says("one");
    again();
    says("one");
    talk_says(&t, 0x82, LIVE);
    says("three"); /* "two" came in between */
    assert_heard("one");
    assert_true(asks());
    snapshot_of("onetwothree");
    judged();
    assert_true(asks());
    snapshot_of("onetwothree");
    judged();
    says("four");
    assert_exact("onetwothreefour", 1);
}

static void what_is_said_during_a_check_comes_once(void **state)
{
    (void)state;
    begin();
    says("one");
    again();
    says("one");
    talk_says(&t, 0x82, LIVE);
    says("two");
    assert_true(asks());
    says("three"); /* the snapshot has it */
    snapshot_of("onetwothree");
    says("four"); /* the snapshot does not have it */
    judged();
    says("five");
    assert_exact("onetwothreefourfive", 1);
}

static void the_same_again_and_again_comes_as_often_as_it_was_said(void **state)
{
    (void)state;
    begin();
    says("tick");
    again();
    says("tick");
    talk_says(&t, 0x82, LIVE);
    says("tick");
    assert_true(asks());
    says("tick");
    snapshot_of("tickticktick");
    says("tick");
    judged();
    assert_exact("ticktickticktick", 1);
}

static void a_session_that_is_quiet_is_settled_by_one_check(void **state)
{
    (void)state;
    begin();
    says("one");
    again();
    says("onetwo");
    talk_says(&t, 0x82, LIVE);
    assert_heard("onetwo"); /* before it */
    assert_true(asks());
    snapshot_of("onetwo");
    judged();
    assert_exact("onetwo", 1);
}

static void a_ring_that_is_still_short_is_waited_for(void **state)
{
    (void)state;
    begin();
    says("one");
    says("two");
    again();
    talk_says(&t, 0x82, LIVE);
    for (unsigned i = 0; i < 3; i++) {
        static const char *const filling[] = {"", "o", "onet"};
        assert_true(asks());
        snapshot_of(filling[i]);
        judged();
        assert_int_equal(t.gaps, 0);
    }
    assert_true(asks());
    snapshot_of("onetwothree");
    judged();
    assert_true(asks());
    snapshot_of("onetwothree");
    judged();
    assert_exact("onetwothree", 1);
}

static void a_ring_that_stays_short_is_a_gap_within_a_second(void **state)
{
    (void)state;
    begin();
    says("one");
    says("two");
    again();
    uint64_t began = t.now;
    talk_says(&t, 0x82, LIVE);
    says("other");
    for (unsigned i = 0; i < 2; i++) {
        assert_true(asks());
        snapshot_of("other");
        judged();
    }
    assert_true(t.now - began < 1000 * MS);
    talk_pass(&t, 3000 * MS);
    assert_int_equal(t.gaps, 1);
    assert_heard("onetwoother");
    talk_end(&t);
}

static void a_worker_that_never_replays_in_front_of_its_end_is_believed(void **state)
{
    (void)state;
    begin();
    says("one");
    again();
    talk_says(&t, 0x82, LIVE);
    says("onetwo");
    assert_true(asks());
    snapshot_of("");
    judged();
    says("three");
    talk_pass(&t, 3000 * MS);
    assert_exact("onetwothree", 1);
}

static void a_worker_that_refuses_a_second_connection_is_believed(void **state)
{
    (void)state;
    begin();
    says("one");
    again();
    says("one");
    talk_says(&t, 0x82, LIVE);
    says("two");
    for (unsigned i = 0; i < SETTLE_FAILED; i++) {
        assert_heard("one");
        assert_true(asks());
        t.adapter->recheck_ended(t.state, t.now);
    }
    assert_false(asks());
    assert_exact("onetwo", 1);
}

static void an_exit_waits_until_all_that_was_said_is_there(void **state)
{
    (void)state;
    begin();
    says("one");
    again();
    says("one");
    talk_says(&t, 0x82, LIVE);
    talk_says(&t, 0x82, EXIT); /* "two" came in between */
    assert_heard("one");
    assert_true(asks());
    snapshot_of("onetwo");
    assert_false(talk_recheck(&t));
    assert_memory_equal(buffer_slice(&t.output).at, "onetwo\0\0\0\6", 10);
    assert_int_equal(t.exact, 1);
    talk_end(&t);
}

/* The worker ends after its exit: another connection to it, made after that, has all, and says the exit again. */
static void an_exit_that_was_held_is_believed_of_the_next_connection(void **state)
{
    (void)state;
    begin();
    says("one");
    again();
    says("one");
    talk_says(&t, 0x82, LIVE);
    talk_says(&t, 0x82, EXIT);
    assert_true(t.adapter->unsettled(t.state));
    again();
    says("onetwo");
    talk_says(&t, 0x82, LIVE);
    talk_says(&t, 0x82, EXIT);
    assert_false(t.adapter->unsettled(t.state));
    assert_memory_equal(buffer_slice(&t.output).at, "onetwo\0\0\0\6", 10);
    assert_int_equal(buffer_len(&t.output), 10);
    assert_int_equal(t.exact, 1);
    talk_end(&t);
}

static void a_worker_that_is_lost_before_it_is_settled_loses_nothing(void **state)
{
    (void)state;
    begin();
    says("one");
    again();
    talk_says(&t, 0x82, LIVE);
    says("two");
    assert_true(asks());
    again(); /* another one */
    says("onetwothree");
    talk_says(&t, 0x82, LIVE);
    assert_true(asks());
    snapshot_of("onetwothree");
    judged();
    assert_exact("onetwothree", 1);
}

/* ---- a session that says numbers, through workers that lose what OpenComputer's lose ---- */
static uint64_t seed;

static unsigned pick(unsigned most)
{
    seed = seed * UINT64_C(6364136223846793005) + 1442695040888963407;
    return (unsigned)(seed >> 33) % most;
}

#define CHUNKS 4000
static struct {
    char text[CHUNKS][64];
    unsigned said, width, ring; /* chunks that the session has said, and that the worker's ring holds */
    bool drops;
} session;

static void session_says(unsigned count)
{
    for (; count && session.said < CHUNKS; count--, session.said++)
        snprintf(session.text[session.said], sizeof session.text[0], "\1L%0*u\n", (int)session.width,
                 session.said);
}

static struct slice chunk(unsigned i)
{
    return slice_text(session.text[i]);
}

/* The ring takes what the session has said, and the connection that serves gets it through a queue. */
static void fills(unsigned most)
{
    unsigned queue = 0, room = 20;
    for (; most && session.ring < session.said; most--, session.ring++)
        if (!session.drops || queue++ < room || !pick(3))
            talk_says(&t, 0x82, chunk(session.ring));
}

static void shows_ring(void)
{
    unsigned most = session.ring;
    for (unsigned i = 0; i < most; i++)
        talk_second(&t, chunk(i));
    talk_second(&t, LIVE);
}

static void attaches(bool rebinds)
{
    again();
    session.ring = rebinds ? 0 : session.ring;
    for (unsigned i = 0; i < session.ring; i++)
        talk_says(&t, 0x82, chunk(i));
    talk_says(&t, 0x82, LIVE);
    unsigned lost = pick(5); /* between the snapshot and the subscription */
    session_says(lost);
    if (!rebinds)
        session.ring = session.ring + lost < session.said ? session.ring + lost : session.said;
}

/* Until it is settled, time passes, the session talks, and the ring is filled. */
static void settles(void)
{
    for (unsigned i = 0; i < 2000 && t.adapter->unsettled(t.state); i++, t.now += 10 * MS) {
        session_says(pick(4) ? 0 : pick(6));
        session.drops = session.ring + 50 < session.said;
        fills(100);
        if (t.now < t.adapter->recheck_at(t.state) || !talk_recheck(&t))
            continue;
        session_says(pick(3));
        fills(100);
        shows_ring();
        session_says(pick(3));
        session.drops = false;
        fills(100);
    }
    assert_false(t.adapter->unsettled(t.state));
}

static void each_chunk_comes_once_over_many_workers(void **state)
{
    (void)state;
    for (uint64_t from = 1; from <= 40; from++) {
        seed = from;
        memset(&session, 0, sizeof session);
        session.width = 1 + pick(40);
        begin();
        for (unsigned worker = 0; worker < 10; worker++) {
            session_says(pick(100));
            session.drops = false;
            if (worker == 0)
                fills(CHUNKS);
            attaches(pick(3));
            settles();
            fills(CHUNKS);
        }
        struct buffer all = buffer_with_limit(1 << 20);
        for (unsigned i = 0; i < session.said; i++)
            assert_true(buffer_put(&all, slice_from(chunk(i), 1)));
        assert_true(slice_equal(buffer_slice(&t.output), buffer_slice(&all)));
        assert_int_equal(t.exact, 10);
        assert_int_equal(t.gaps, 0);
        buffer_free(&all);
        talk_end(&t);
    }
}

/* A chunk that a worker's own ring lacks is lost with it. The next worker has it: the gap is declared, once, and what follows comes
 * once. */
static void a_hole_in_a_ring_is_declared_once_by_the_next_worker(void **state)
{
    char texts[3][2048];
    (void)state;
    for (unsigned i = 0; i < 3; i++)
        for (unsigned k = 0; k + 6 < sizeof texts[0]; k += 6)
            snprintf(texts[i] + k, sizeof texts[0] - k, "%u%04u ", i, k);
    begin();
    for (unsigned worker = 0; worker < 3; worker++) {
        char ring[3 * sizeof texts[0] + 10];
        snprintf(ring, sizeof ring, "\1%s%s%s", texts[0], worker ? "lost " : "", worker ? texts[1] : "");
        if (!worker) {
            talk_says(&t, 0x82, slice_text(ring));
            ring[0] = 1;
            char first[sizeof texts[0] + 1];
            snprintf(first, sizeof first, "\1%s", texts[1]);
            talk_says(&t, 0x82, slice_text(first));
            continue;
        }
        again();
        talk_says(&t, 0x82, slice_text(ring));
        talk_says(&t, 0x82, LIVE);
        for (unsigned i = 0; i < 2 && t.adapter->unsettled(t.state); i++) {
            assert_true(asks());
            talk_second(&t, slice_text(ring));
            talk_second(&t, LIVE);
            judged();
        }
        assert_int_equal(t.gaps, 1);
        assert_int_equal(t.exact, worker - 1);
    }
    assert_int_equal(buffer_len(&t.output), strlen(texts[0]) + strlen(texts[1]));
    talk_end(&t);
}

/* Lines of a session, from one to the other: long enough for tails and blocks. */
static struct slice lines(unsigned from, unsigned to, unsigned lost_from, unsigned lost_to)
{
    static char text[100000];
    size_t len = 1;

    text[0] = 1;
    for (; from < to; from++)
        if (from < lost_from || from >= lost_to)
            len += (size_t)sprintf(text + len, "line %06u of the session\n", from);
    return slice_of(text, len);
}

static void settles_by(unsigned to, unsigned lost_from, unsigned lost_to)
{
    again();
    talk_says(&t, 0x82, lines(0, to, lost_from, lost_to));
    talk_says(&t, 0x82, LIVE);
    for (unsigned i = 0; t.adapter->unsettled(t.state); i++) {
        assert_true(i < SETTLE_SHORT + 1 && asks());
        talk_second(&t, lines(0, to, lost_from, lost_to));
        talk_second(&t, LIVE);
        judged();
    }
}

/* The client moves between two workers, of which one lacks some lines: that is one gap, and nothing is repeated. */
static void workers_of_which_one_has_a_hole_are_one_gap(void **state)
{
    (void)state;
    begin();
    talk_says(&t, 0x82, lines(0, 500, 0, 0));
    settles_by(700, 600, 610);
    assert_int_equal(t.exact, 1); /* nobody can know */
    settles_by(900, 0, 0);
    assert_int_equal(t.gaps, 1);
    settles_by(1100, 600, 610);
    settles_by(1300, 0, 0);
    assert_int_equal(t.gaps, 1);
    assert_int_equal(t.exact, 3);
    struct slice all = lines(0, 1300, 600, 610);
    assert_true(slice_equal(buffer_slice(&t.output), slice_from(all, 1)));
    talk_end(&t);
}

/* The next worker lacks the last lines that the client has. */
static void a_ring_without_what_the_client_had_last_is_not_repeated(void **state)
{
    (void)state;
    begin();
    talk_says(&t, 0x82, lines(0, 600, 0, 0));
    uint64_t began = t.now;
    settles_by(900, 580, 620);
    assert_true(t.now - began < 2000 * MS);
    assert_int_equal(t.gaps, 1);
    const uint8_t *got = buffer_slice(&t.output).at;
    size_t len = buffer_len(&t.output), line = strlen("line 000000 of the session\n");
    assert_true(len > 850 * line && len <= 880 * line);
    assert_null(memmem(got + 600 * line, len - 600 * line, "line 000579", 11));
    assert_non_null(memmem(got, len, "line 000899", 11));
    talk_end(&t);
}

static void a_comparison_is_bounded_whatever_the_session_says(void **state)
{
    size_t len = SETTLE_MOST / 2;
    uint8_t *memory = malloc(2 * len);
    uint64_t at;
    (void)state;
    assert_non_null(memory);
    memset(memory, 'a', 2 * len);
    memory[0] = 'b'; /* far in front of a tail that stands everywhere */
    const struct settle_view view = {.snapshot = slice_of(memory, len),
                                     .live = slice_of(memory + len, len),
                                     .before = 0,
                                     .expected = UINT64_MAX,
                                     .growth = len};
    assert_false(settle_align(&view, &at));
    free(memory);
}

/* So many comparisons of a MiB, in seconds of this thread. */
static double time_of_comparisons(const uint8_t *a, const uint8_t *b, unsigned count)
{
    clock_t began = clock();
    for (unsigned i = 0; i < count; i++)
        assert_true(slice_equal(slice_of(a, 1 << 20), slice_of(b, 1 << 20)));
    return (double)(clock() - began) / CLOCKS_PER_SEC;
}

/* What is compared at each place is as long as the snapshot has grown, and differs where the session likes. */
static void a_comparison_of_long_outputs_is_bounded_too(void **state)
{
    static uint8_t snapshot[1 << 20], live[SETTLE_MOST];
    uint64_t at;
    (void)state;
    memset(snapshot, 'a', sizeof snapshot);
    memset(live, 'a', sizeof live);
    double many = time_of_comparisons(snapshot, live, 100);
    for (size_t behind = SETTLE_TAIL + 1; behind < sizeof snapshot; behind *= 8) {
        struct settle_view view = {.snapshot = slice_of(snapshot, sizeof snapshot),
                                   .live = slice_of(live, sizeof live),
                                   .before = sizeof snapshot,
                                   .expected = UINT64_MAX,
                                   .growth = sizeof snapshot};
        snapshot[sizeof snapshot - behind] = 'b';
        clock_t began = clock();
        assert_false(settle_align(&view, &at));
        if ((double)(clock() - began) / CLOCKS_PER_SEC > many)
            fail_msg("longer than a hundred comparisons, %zu bytes from the end", behind);
        snapshot[sizeof snapshot - behind] = 'a';
    }
}

/* Nobody knows which of two places it is, also where the second one cannot be compared any more. */
static void a_place_is_certain_only_if_all_others_were_compared(void **state)
{
    static uint8_t snapshot[1 << 20], live[SETTLE_MOST];
    uint64_t at;
    (void)state;
    memset(snapshot, 'a', sizeof snapshot);
    memset(live, 'a', sizeof live);
    for (uint64_t growth = 1; growth <= sizeof snapshot; growth *= 2) {
        const struct settle_view view = {.snapshot = slice_of(snapshot, sizeof snapshot),
                                         .live = slice_of(live, sizeof live),
                                         .before = sizeof snapshot,
                                         .expected = UINT64_MAX,
                                         .growth = growth};
        assert_false(settle_align(&view, &at));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_comparison_of_long_outputs_is_bounded_too),
        cmocka_unit_test(a_place_is_certain_only_if_all_others_were_compared),
        cmocka_unit_test(a_replay_of_which_the_first_client_gets_a_part_is_taken_from_a_second_connection),
        cmocka_unit_test(what_is_said_between_the_snapshot_and_the_subscription_is_not_lost),
        cmocka_unit_test(what_is_said_during_a_check_comes_once),
        cmocka_unit_test(the_same_again_and_again_comes_as_often_as_it_was_said),
        cmocka_unit_test(a_session_that_is_quiet_is_settled_by_one_check),
        cmocka_unit_test(a_ring_that_is_still_short_is_waited_for),
        cmocka_unit_test(a_ring_that_stays_short_is_a_gap_within_a_second),
        cmocka_unit_test(a_worker_that_never_replays_in_front_of_its_end_is_believed),
        cmocka_unit_test(a_worker_that_refuses_a_second_connection_is_believed),
        cmocka_unit_test(an_exit_waits_until_all_that_was_said_is_there),
        cmocka_unit_test(an_exit_that_was_held_is_believed_of_the_next_connection),
        cmocka_unit_test(a_worker_that_is_lost_before_it_is_settled_loses_nothing),
        cmocka_unit_test(each_chunk_comes_once_over_many_workers),
        cmocka_unit_test(a_hole_in_a_ring_is_declared_once_by_the_next_worker),
        cmocka_unit_test(workers_of_which_one_has_a_hole_are_one_gap),
        cmocka_unit_test(a_ring_without_what_the_client_had_last_is_not_repeated),
        cmocka_unit_test(a_comparison_is_bounded_whatever_the_session_says),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
