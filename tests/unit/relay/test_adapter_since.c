/* SPDX-License-Identifier: MIT */
#include "tests/unit/support.h"

#include "tests/unit/relay/adapter_talk.h"

#define CONNECTED            SLICE_LITERAL("{\"type\":\"connected\",\"mode\":\"pty\"}")
#define REPLAY(offset, text) SLICE_LITERAL("\3\0\0\0\0\0\0\0" offset text)

static struct talk t;

static void begin(const char *target)
{
    talk_begin(&t, &adapter_since, target);
    assert_string_equal(talk_request(&t), "|");
    talk_join(&t);
}

static void assert_said(const char *said)
{
    assert_string_equal(t.said, said);
    t.said[0] = '\0';
}

static void the_next_worker_is_asked_for_what_was_not_delivered(void **state)
{
    (void)state;
    begin("/pty/x/ws");
    talk_says(&t, 0x82, REPLAY("\x12", "abc"));
    talk_says(&t, 0x81, CONNECTED);
    talk_says(&t, 0x82, SLICE_LITERAL("\1de"));
    assert_string_equal(talk_request(&t), "since=23&takeover=1|");
    talk_end(&t);
}

static void what_the_client_asked_for_counts_as_delivered(void **state)
{
    (void)state;
    begin("/pty/x/ws?takeover=1&since=77&pty=1");
    talk_says(&t, 0x81, CONNECTED);
    talk_says(&t, 0x82, SLICE_LITERAL("\1ab"));
    assert_string_equal(talk_request(&t), "since=79&takeover=1|");
    talk_end(&t);
}

static void a_viewer_takes_nobodys_place(void **state)
{
    (void)state;
    begin("/pty/x/ws?mode=viewer&since=5");
    talk_says(&t, 0x82, SLICE_LITERAL("\1ab"));
    assert_string_equal(talk_request(&t), "since=7|");
    talk_end(&t);
}

static void a_first_worker_is_passed_unchanged(void **state)
{
    (void)state;
    for (size_t step = 1; step < 60; step++) {
        begin("/pty/x/ws");
        uint8_t memory[100];
        talk_bytes(&t, talk_frame(memory, 0x82, REPLAY("\5", "abc")), step);
        talk_bytes(&t, talk_frame(memory, 0x81, CONNECTED), step);
        talk_bytes(&t, talk_frame(memory, 0x82, SLICE_LITERAL("\1live")), step);
        talk_bytes(&t, talk_frame(memory, 0x81, SLICE_LITERAL("{\"type\":\"pong\"}")), step);
        assert_said("B<03><00><00><00><00><00><00><00><05>abc T{\"type\":\"connected\",\"mode\":\"pty\"} "
                    "B<01>live T{\"type\":\"pong\"}");
        assert_int_equal(t.exact + t.gaps, 0);
        talk_end(&t);
    }
}

static void an_overlapping_replay_is_trimmed_however_it_is_split(void **state)
{
    uint8_t memory[200];
    (void)state;
    for (size_t step = 1; step < 60; step++) {
        begin("/pty/x/ws");
        talk_says(&t, 0x81, CONNECTED);
        talk_says(&t, 0x82, SLICE_LITERAL("\1abcdef"));
        t.said[0] = '\0';
        talk_join(&t);
        talk_bytes(&t, talk_frame(memory, 0x82, REPLAY("\2", "cdefgh")), step);
        talk_says(&t, 0x81, CONNECTED);
        talk_says(&t, 0x82, SLICE_LITERAL("\1ij"));
        assert_said("B<03><00><00><00><00><00><00><00><06>gh B<01>ij");
        assert_int_equal(t.exact, 1);
        assert_string_equal(talk_request(&t), "since=10&takeover=1|");
        talk_end(&t);
    }
}

/* The old worker serves until the new one is there, which took its replay before that. */
static void what_the_old_worker_said_meanwhile_is_not_repeated(void **state)
{
    uint8_t memory[200];
    (void)state;
    for (size_t step = 1; step < 60; step++) {
        for (unsigned replays = 0; replays < 2; replays++) {
            begin("/pty/x/ws");
            talk_says(&t, 0x81, CONNECTED);
            talk_says(&t, 0x82, SLICE_LITERAL("\1ab"));
            assert_string_equal(talk_request(&t), "since=2&takeover=1|");
            talk_says(&t, 0x82, SLICE_LITERAL("\1cdef"));
            t.said[0] = '\0';
            talk_join(&t);
            if (replays)
                talk_bytes(&t, talk_frame(memory, 0x82, REPLAY("\2", "c")), step);
            talk_says(&t, 0x81, CONNECTED);
            if (!replays)
                talk_bytes(&t, talk_frame(memory, 0x82, SLICE_LITERAL("\1c")), step);
            talk_bytes(&t, talk_frame(memory, 0x02, SLICE_LITERAL("\1de")), step);
            talk_bytes(&t, talk_frame(memory, 0x80, SLICE_LITERAL("fg")), step);
            talk_bytes(&t, talk_frame(memory, 0x82, SLICE_LITERAL("\1h")), step);
            assert_said("B<01>g B<01>h");
            assert_int_equal(t.exact, 1);
            assert_string_equal(talk_request(&t), "since=8&takeover=1|");
            talk_end(&t);
        }
    }
}

/* It need not be one message: what follows the first one goes on where that ended. */
static void a_replay_in_several_messages_is_not_repeated(void **state)
{
    uint8_t memory[200];
    (void)state;
    for (size_t step = 1; step < 60; step++) {
        begin("/pty/x/ws");
        talk_says(&t, 0x81, CONNECTED);
        talk_says(&t, 0x82, SLICE_LITERAL("\1ab"));
        assert_string_equal(talk_request(&t), "since=2&takeover=1|");
        talk_says(&t, 0x82, SLICE_LITERAL("\1cdef"));
        t.said[0] = '\0';
        talk_join(&t);
        talk_bytes(&t, talk_frame(memory, 0x82, REPLAY("\2", "c")), step);
        talk_bytes(&t, talk_frame(memory, 0x82, REPLAY("\3", "d")), step);
        talk_bytes(&t, talk_frame(memory, 0x82, REPLAY("\5", "fgh")), step);
        talk_bytes(&t, talk_frame(memory, 0x82, REPLAY("\10", "i")), step);
        talk_says(&t, 0x81, CONNECTED);
        talk_bytes(&t, talk_frame(memory, 0x82, SLICE_LITERAL("\1j")), step);
        assert_said("B<03><00><00><00><00><00><00><00><06>gh B<03><00><00><00><00><00><00><00><08>i B<01>j");
        assert_int_equal(t.exact, 1);
        assert_string_equal(talk_request(&t), "since=10&takeover=1|");
        talk_end(&t);
    }
}

static void a_replay_of_nothing_new_is_not_passed(void **state)
{
    uint8_t memory[200];
    (void)state;
    for (size_t step = 1; step < 40; step++) {
        begin("/pty/x/ws");
        talk_says(&t, 0x82, SLICE_LITERAL("\1abc"));
        t.said[0] = '\0';
        talk_join(&t);
        talk_bytes(&t, talk_frame(memory, 0x02, REPLAY("\0", "ab")), step);
        talk_bytes(&t, talk_frame(memory, 0x80, SLICE_LITERAL("c")), step);
        talk_says(&t, 0x82, SLICE_LITERAL("\1d"));
        assert_said("B<01>d");
        assert_int_equal(t.exact, 1);
        talk_end(&t);
    }
}

static void a_clamped_offset_is_a_gap_of_its_size(void **state)
{
    (void)state;
    begin("/pty/x/ws");
    talk_says(&t, 0x82, SLICE_LITERAL("\1abc"));
    talk_join(&t);
    talk_says(&t, 0x82, REPLAY("\x08", "xyz"));
    assert_said("B<01>abc B<03><00><00><00><00><00><00><00><08>xyz");
    assert_int_equal(t.gaps, 1);
    assert_int_equal(t.gap, 5);
    assert_string_equal(talk_request(&t), "since=11&takeover=1|");
    talk_end(&t);
}

#define FAR_REPLAY(offset, text) SLICE_LITERAL("\3" offset text)

/* Whatever offset a worker says: what is missing is a number that can be, or unknown, and the client, and the next worker,
 * are told offsets that can be. */
static void an_offset_that_cannot_be_is_a_gap_of_unknown_size(void **state)
{
    static const struct slice replays[] = {
        FAR_REPLAY("\0\x20\0\0\0\0\0\0", "xyz"),               /* 2^53 */
        FAR_REPLAY("\x7f\xff\xff\xff\xff\xff\xff\xff", "xyz"), /* 2^63 - 1 */
        FAR_REPLAY("\x80\0\0\0\0\0\0\0", "xyz"),
        FAR_REPLAY("\xff\xff\xff\xff\xff\xff\xff\xfd", "xyz"), /* goes round */
        FAR_REPLAY("\xff\xff\xff\xff\xff\xff\xff\xff", "xyz"),
    };
    uint8_t memory[64];
    (void)state;
    for (unsigned i = 0; i < sizeof replays / sizeof *replays; i++)
        for (size_t step = 1; step < 20; step++) {
            begin("/pty/x/ws");
            talk_says(&t, 0x82, SLICE_LITERAL("\1abc"));
            talk_join(&t);
            talk_bytes(&t, talk_frame(memory, 0x82, replays[i]), step);
            talk_says(&t, 0x82, SLICE_LITERAL("\1de"));
            assert_said("B<01>abc B<03><00><00><00><00><00><00><00><03>xyz B<01>de");
            assert_int_equal(t.gaps, 1);
            assert_true(t.gap == ADAPTER_UNKNOWN);
            assert_string_equal(talk_request(&t), "since=8&takeover=1|");
            talk_join(&t);
            talk_says(&t, 0x82, REPLAY("\x08", "fg"));
            assert_said("B<03><00><00><00><00><00><00><00><08>fg");
            assert_int_equal(t.exact, 1);
            talk_end(&t);
        }
}

static void the_largest_offset_that_can_be_is_believed(void **state)
{
    (void)state;
    begin("/pty/x/ws");
    talk_says(&t, 0x82, SLICE_LITERAL("\1abc"));
    talk_join(&t);
    talk_says(&t, 0x82, FAR_REPLAY("\0\x1f\xff\xff\xff\xff\xff\xff", "xyz"));
    assert_int_equal(t.gaps, 1);
    assert_true(t.gap == (UINT64_C(1) << 53) - 4);
    assert_string_equal(talk_request(&t), "since=9007199254740994&takeover=1|");
    talk_end(&t);
}

/* A worker that serves may go back: what it says is passed as it is, and the next one is asked for what follows. */
static void an_offset_that_jumps_back_is_followed(void **state)
{
    (void)state;
    begin("/pty/x/ws");
    talk_says(&t, 0x82, REPLAY("\x50", "abc"));
    talk_says(&t, 0x82, REPLAY("\x10", "xyz"));
    assert_said("B<03><00><00><00><00><00><00><00>Pabc B<03><00><00><00><00><00><00><00><10>xyz");
    assert_string_equal(talk_request(&t), "since=19&takeover=1|");
    talk_end(&t);
}

static void output_that_was_cut_is_ended_and_goes_on_in_the_replay(void **state)
{
    (void)state;
    begin("/pty/x/ws");
    talk_says(&t, 0x02, SLICE_LITERAL("\1ab"));
    talk_join(&t);
    talk_says(&t, 0x82, REPLAY("\2", "cd"));
    assert_said("B<01>ab B<03><00><00><00><00><00><00><00><02>cd");
    assert_int_equal(t.exact, 1);
    talk_end(&t);
}

static void a_connected_that_the_client_lacks_is_passed(void **state)
{
    (void)state;
    begin("/pty/x/ws");
    talk_says(&t, 0x82, SLICE_LITERAL("\1ab"));
    talk_join(&t);
    talk_says(&t, 0x81, CONNECTED);
    talk_join(&t);
    talk_says(&t, 0x81, CONNECTED);
    talk_says(&t, 0x81, CONNECTED); /* only the first of a leg is swallowed */
    assert_said(
        "B<01>ab T{\"type\":\"connected\",\"mode\":\"pty\"} T{\"type\":\"connected\",\"mode\":\"pty\"}");
    assert_int_equal(t.exact, 2);
    talk_end(&t);
}

static void pipes_are_never_exact(void **state)
{
    static const char *const targets[] = {"/pty/x/ws?pty=0", "/pty/x/ws"};
    (void)state;
    for (unsigned i = 0; i < 2; i++) {
        begin(targets[i]);
        talk_says(&t, 0x82, i == 0 ? SLICE_LITERAL("\1ab") : SLICE_LITERAL("\2ab"));
        talk_join(&t);
        talk_says(&t, 0x82, REPLAY("\2", "cd"));
        assert_int_equal(t.gaps, 1);
        assert_true(t.gap == ADAPTER_UNKNOWN);
        talk_end(&t);
    }
}

static void a_text_that_was_cut_is_a_gap(void **state)
{
    (void)state;
    begin("/pty/x/ws");
    talk_says(&t, 0x01, slice_text("{\"type\""));
    assert_false(t.adapter->may_end(t.state));
    talk_join(&t);
    talk_says(&t, 0x81, CONNECTED);
    assert_true(t.gaps == 1 && t.gap == ADAPTER_UNKNOWN);
    talk_join(&t);
    talk_says(&t, 0x81, CONNECTED);
    assert_int_equal(t.exact, 1);
    talk_end(&t);
}

static enum adapter_found found(unsigned status, const char *text, uint64_t *missing)
{
    struct slice body = guarded(slice_text(text));
    enum adapter_found found = t.adapter->probed(t.state, status, body, missing);
    guarded_free(body);
    return found;
}

static void a_session_is_asked_for_before_it_is_dialled_again(void **state)
{
    uint8_t memory[64];
    uint64_t missing;
    struct writer w = writer_of(memory, sizeof memory);
    (void)state;
    talk_begin(&t, &adapter_since, "/pty/x/ws");
    assert_false(t.adapter->probe(t.state, slice_text("/p/x/ws"), &w));
    talk_join(&t);
    assert_false(t.adapter->probe(t.state, slice_text("/other?a=/ws"), &w));
    assert_true(t.adapter->probe(t.state, slice_text("/pty/x/ws?since=1"), &w));
    assert_true(slice_is(writer_slice(&w), "/pty/x"));
    assert_int_equal(found(200, "{\"running\":true,\"output_offset\":9}", &missing), ADAPTER_ALIVE);
    assert_int_equal(found(200, "{\"running\":false,\"output_offset\":9}", &missing), ADAPTER_ENDED);
    assert_int_equal(missing, 9);
    static const char *const absurd[] = {"-1", "9007199254740992", "9223372036854775807", "1e99", "\"9\"",
                                         "1.5"};
    for (unsigned i = 0; i < sizeof absurd / sizeof *absurd; i++) {
        char text[80];
        snprintf(text, sizeof text, "{\"running\":false,\"output_offset\":%s}", absurd[i]);
        assert_int_equal(found(200, text, &missing), ADAPTER_ENDED);
        assert_true(missing == ADAPTER_UNKNOWN);
    }
    assert_int_equal(found(200, "{\"running\":false}", &missing), ADAPTER_ENDED);
    assert_int_equal(missing, 0);
    assert_int_equal(found(200, "{\"running\":1}", &missing), ADAPTER_UNCLEAR);
    assert_int_equal(found(200, "", &missing), ADAPTER_UNCLEAR);
    assert_int_equal(found(404, "{\"running\":true}", &missing), ADAPTER_UNCLEAR);
    talk_end(&t);
}

static void what_the_old_worker_says_while_a_session_is_asked_for_is_not_missing(void **state)
{
    uint8_t memory[64];
    uint64_t missing;
    struct writer w = writer_of(memory, sizeof memory);
    (void)state;
    begin("/pty/x/ws");
    talk_says(&t, 0x82, SLICE_LITERAL("\1abcdef"));
    assert_true(t.adapter->probe(t.state, slice_text("/pty/x/ws"), &w));
    talk_says(&t, 0x82, SLICE_LITERAL("\1ghi"));
    assert_int_equal(found(200, "{\"running\":false,\"output_offset\":9}", &missing), ADAPTER_ENDED);
    assert_int_equal(missing, 0);
    assert_int_equal(found(200, "{\"running\":false,\"output_offset\":12}", &missing), ADAPTER_ENDED);
    assert_int_equal(missing, 3);
    /* an answer that the output has overtaken */
    assert_int_equal(found(200, "{\"running\":true,\"output_offset\":8}", &missing), ADAPTER_ALIVE);
    assert_string_equal(talk_request(&t), "since=9&takeover=1|");
    talk_end(&t);
}

static void a_session_that_has_begun_anew_is_a_gap_of_unknown_size(void **state)
{
    uint8_t memory[64];
    uint64_t missing;
    struct writer w = writer_of(memory, sizeof memory);
    (void)state;
    begin("/pty/x/ws");
    talk_says(&t, 0x82, SLICE_LITERAL("\1abcdef"));
    assert_true(t.adapter->probe(t.state, slice_text("/pty/x/ws"), &w));
    assert_int_equal(found(200, "{\"running\":true,\"output_offset\":3}", &missing), ADAPTER_ALIVE);
    assert_string_equal(talk_request(&t), "since=0&takeover=1|");
    talk_join(&t);
    talk_says(&t, 0x82, REPLAY("\0", "xyz"));
    assert_said("B<01>abcdef B<03><00><00><00><00><00><00><00><00>xyz");
    assert_true(t.gaps == 1 && t.gap == ADAPTER_UNKNOWN);
    assert_string_equal(talk_request(&t), "since=3&takeover=1|");
    talk_end(&t);
}

static void a_replay_without_an_offset_is_wrong(void **state)
{
    (void)state;
    begin("/pty/x/ws");
    assert_false(talk_says(&t, 0x82, SLICE_LITERAL("\3\0\0")));
    assert_int_equal(t.verdict, ADAPTER_WRONG);
    talk_end(&t);
}

static void memory_that_is_short_is_said(void **state)
{
    uint8_t memory[64];
    (void)state;
    begin("/pty/x/ws");
    talk_says(&t, 0x82, SLICE_LITERAL("\1abc"));
    talk_join(&t);
    struct adapter_edit edit = {.insert = buffer_with_limit(64)};
    struct adapter_piece piece = {WS_BINARY, true, true, REPLAY("\1", "bcd"), 1};
    (void)memory;
    alloc_fail_at(1);
    assert_int_equal(t.adapter->from_worker(t.state, &piece, &edit), ADAPTER_NO_MEMORY);
    alloc_fail_at(0);
    buffer_free(&edit.insert);
    talk_end(&t);
}

/* A worker may begin at the last offset that can be, and go on. */
static void wherever_its_output_is_another_process_goes_on_with_it(void **state)
{
    (void)state;
    begin("/pty/x/ws");
    assert_true(talk_state_moves(&t));
    talk_says(&t, 0x82,
              SLICE_LITERAL("\3\0\x1f\xff\xff\xff\xff\xff\xfe"
                            "a"));
    assert_true(talk_state_moves(&t));
    talk_says(&t, 0x82, SLICE_LITERAL("\1bc"));
    assert_true(talk_state_moves(&t));
    assert_string_equal(talk_request(&t), "since=9007199254740993&takeover=1|");
    talk_join(&t);
    assert_true(talk_state_moves(&t));
    talk_end(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(wherever_its_output_is_another_process_goes_on_with_it),
        cmocka_unit_test(the_next_worker_is_asked_for_what_was_not_delivered),
        cmocka_unit_test(what_the_client_asked_for_counts_as_delivered),
        cmocka_unit_test(a_viewer_takes_nobodys_place),
        cmocka_unit_test(a_first_worker_is_passed_unchanged),
        cmocka_unit_test(an_overlapping_replay_is_trimmed_however_it_is_split),
        cmocka_unit_test(what_the_old_worker_said_meanwhile_is_not_repeated),
        cmocka_unit_test(a_replay_in_several_messages_is_not_repeated),
        cmocka_unit_test(a_replay_of_nothing_new_is_not_passed),
        cmocka_unit_test(a_clamped_offset_is_a_gap_of_its_size),
        cmocka_unit_test(an_offset_that_cannot_be_is_a_gap_of_unknown_size),
        cmocka_unit_test(the_largest_offset_that_can_be_is_believed),
        cmocka_unit_test(an_offset_that_jumps_back_is_followed),
        cmocka_unit_test(output_that_was_cut_is_ended_and_goes_on_in_the_replay),
        cmocka_unit_test(a_connected_that_the_client_lacks_is_passed),
        cmocka_unit_test(pipes_are_never_exact),
        cmocka_unit_test(a_text_that_was_cut_is_a_gap),
        cmocka_unit_test(a_session_is_asked_for_before_it_is_dialled_again),
        cmocka_unit_test(what_the_old_worker_says_while_a_session_is_asked_for_is_not_missing),
        cmocka_unit_test(a_session_that_has_begun_anew_is_a_gap_of_unknown_size),
        cmocka_unit_test(a_replay_without_an_offset_is_wrong),
        cmocka_unit_test(memory_that_is_short_is_said),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
