/* SPDX-License-Identifier: MIT */
#include "tests/unit/support.h"

#include "tests/unit/relay/adapter_talk.h"

#define READY            SLICE_LITERAL("{\"type\":\"ready\"}")
#define CHUNK(name, len) SLICE_LITERAL("{\"type\":\"chunk\",\"cursor\":\"" name "\",\"byteLength\":" #len "}")
#define TRUNCATED        SLICE_LITERAL("{\"type\":\"truncated\"}")
#define EXIT             SLICE_LITERAL("{\"type\":\"exit\",\"cursor\":\"z\",\"exit\":{\"code\":0}}")
#define ERROR            SLICE_LITERAL("{\"type\":\"error\",\"message\":\"no\"}")

/* What the client gets of an announcement: talk.said has its first 40 bytes and its length. */
#define TOLD_A "T{\"type\":\"chunk\",\"cursor\":\"a\",\"byteLength(44)"
#define TOLD_B "T{\"type\":\"chunk\",\"cursor\":\"b\",\"byteLength(44)"

static struct talk t;

static void begin(void)
{
    talk_begin(&t, &adapter_cursor, "/ws/terminal?terminalId=x&cols=80&rows=24");
    assert_string_equal(talk_request(&t), "|");
    talk_join(&t);
    talk_says(&t, 0x81, READY);
    t.said[0] = '\0';
}

static void assert_said(const char *said)
{
    assert_string_equal(t.said, said);
    t.said[0] = '\0';
}

static void the_next_worker_is_asked_for_what_follows_the_last_whole_chunk(void **state)
{
    (void)state;
    begin();
    assert_string_equal(talk_request(&t), "cols=&rows=|"); /* the client's own cursor, if it had one, still holds */
    talk_says(&t, 0x81, CHUNK("a", 3));
    assert_string_equal(talk_request(&t), "cols=&rows=|");
    talk_says(&t, 0x82, SLICE_LITERAL("abc"));
    assert_string_equal(talk_request(&t), "cursor=a&cols=&rows=|");
    talk_says(&t, 0x81, CHUNK("b", 3));
    talk_says(&t, 0x02, SLICE_LITERAL("de"));
    assert_string_equal(talk_request(&t), "cursor=a&cols=&rows=|");
    talk_end(&t);
}

static void a_first_worker_is_passed_unchanged(void **state)
{
    (void)state;
    begin();
    talk_says(&t, 0x81, CHUNK("a", 3));
    talk_says(&t, 0x02, SLICE_LITERAL("ab"));
    talk_says(&t, 0x80, SLICE_LITERAL("c"));
    talk_says(&t, 0x81, TRUNCATED);
    talk_says(&t, 0x81, CHUNK("b", 0));
    talk_says(&t, 0x82, SLICE_LITERAL(""));
    talk_says(&t, 0x81, ERROR);
    talk_says(&t, 0x81, SLICE_LITERAL("no JSON"));
    assert_said(TOLD_A " Babc T{\"type\":\"truncated\"} " TOLD_B " B T{\"type\":\"error\",\"message\":\"no\"} Tno<20>JSON");
    assert_int_equal(t.exact + t.gaps, 0);
    talk_end(&t);
}

/* Wherever the chunk was cut, and wherever the next worker's frames end, the client gets one message. */
static void a_cut_chunk_is_continued(void **state)
{
    uint8_t memory[100];
    (void)state;
    for (size_t cut = 0; cut <= 5; cut++)
        for (size_t step = 1; step <= 7; step++) {
            begin();
            talk_says(&t, 0x81, CHUNK("a", 5));
            if (cut)
                talk_says(&t, 0x02, slice_sub(SLICE_LITERAL("abcde"), 0, cut));
            talk_join(&t);
            talk_says(&t, 0x81, READY);
            talk_says(&t, 0x81, CHUNK("a", 5));
            talk_bytes(&t, talk_frame(memory, 0x02, SLICE_LITERAL("abc")), step);
            talk_bytes(&t, talk_frame(memory, 0x80, SLICE_LITERAL("de")), step);
            assert_said(TOLD_A " Babcde");
            assert_int_equal(t.exact, 1);
            assert_int_equal(t.gaps, 0);
            assert_string_equal(talk_request(&t), "cursor=a&cols=&rows=|");
            talk_end(&t);
        }
}

static void a_ready_is_passed_once(void **state)
{
    (void)state;
    begin();
    talk_join(&t);
    talk_says(&t, 0x81, READY);
    assert_int_equal(t.exact + t.gaps, 0); /* `truncated` may follow */
    talk_says(&t, 0x81, CHUNK("a", 1));
    assert_int_equal(t.exact, 1);
    assert_said(TOLD_A);
    talk_end(&t);
}

static void a_ready_that_the_first_worker_did_not_send_is_passed(void **state)
{
    (void)state;
    talk_begin(&t, &adapter_cursor, "/ws/terminal?terminalId=x");
    talk_join(&t);
    talk_join(&t);
    talk_says(&t, 0x81, READY);
    assert_said("T{\"type\":\"ready\"}");
    talk_end(&t);
}

static void output_that_the_next_worker_lacks_is_a_gap(void **state)
{
    (void)state;
    begin();
    talk_join(&t);
    talk_says(&t, 0x81, READY);
    talk_says(&t, 0x81, TRUNCATED);
    assert_said("T{\"type\":\"truncated\"}");
    assert_int_equal(t.gaps, 1);
    assert_true(t.gap == ADAPTER_UNKNOWN);
    assert_int_equal(t.exact, 0);
    talk_end(&t);
}

static void an_exit_is_passed_once_and_resolves_a_resume(void **state)
{
    (void)state;
    begin();
    talk_join(&t);
    talk_says(&t, 0x81, EXIT);
    assert_int_equal(t.exact, 1);
    t.said[0] = '\0';
    talk_join(&t);
    talk_says(&t, 0x81, EXIT);
    assert_said(""); /* the client has it */
    assert_int_equal(t.exact, 2);
    talk_end(&t);
}

/* The client waits for the rest of a chunk, and anything else would be taken for it. */
static void a_chunk_that_nobody_can_complete_ends_the_tunnel(void **state)
{
    const struct slice others[] = {TRUNCATED, CHUNK("b", 5), CHUNK("a", 6), EXIT};
    (void)state;
    for (unsigned i = 0; i < sizeof others / sizeof *others; i++)
        for (unsigned begun = 0; begun < 2; begun++) {
            begin();
            talk_says(&t, 0x81, CHUNK("a", 5));
            if (begun)
                talk_says(&t, 0x02, SLICE_LITERAL("ab"));
            talk_join(&t);
            talk_says(&t, 0x81, READY);
            talk_says(&t, 0x81, ERROR); /* not passed: it would stand in the middle of the chunk */
            assert_int_equal(t.verdict, ADAPTER_DROP);
            talk_says(&t, 0x81, others[i]);
            assert_int_equal(t.verdict, ADAPTER_CUT);
            assert_said(TOLD_A);
            talk_end(&t);
        }
}

static void what_breaks_the_protocol_is_refused(void **state)
{
    static const struct {
        unsigned start;
        struct slice announced, bytes;
    } rows[] = {
        {0x82, {NULL, 0}, SLICE_LITERAL("no chunk")},
        {0x82, CHUNK("a", 3), SLICE_LITERAL("abcd")},
        {0x82, CHUNK("a", 3), SLICE_LITERAL("ab")},
        {0x02, CHUNK("a", 3), SLICE_LITERAL("abcd")},
        {0x81, CHUNK("a", 3), READY},
        {0x01, {NULL, 0}, READY},
        {0x81, {NULL, 0}, CHUNK("", 3)},
        {0x81, {NULL, 0}, CHUNK("a&b=c", 3)},
        {0x81, {NULL, 0}, CHUNK("a", -1)},
        {0x81, {NULL, 0}, CHUNK("a", 9007199254740992)},
        {0x81, {NULL, 0}, SLICE_LITERAL("{\"type\":\"chunk\",\"byteLength\":3}")},
    };
    char name[400];
    (void)state;
    for (unsigned i = 0; i < sizeof rows / sizeof *rows; i++) {
        begin();
        if (slice_present(rows[i].announced))
            talk_says(&t, 0x81, rows[i].announced);
        talk_says(&t, rows[i].start, rows[i].bytes);
        assert_int_equal(t.verdict, ADAPTER_WRONG);
        talk_end(&t);
    }
    for (int len = 160; len <= 161; len++) {
        begin();
        sprintf(name, "{\"type\":\"chunk\",\"cursor\":\"%0*d\",\"byteLength\":1}", len, 0);
        talk_says(&t, 0x81, slice_text(name));
        assert_int_equal(t.verdict, len == 160 ? ADAPTER_PASS : ADAPTER_WRONG);
        talk_end(&t);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_next_worker_is_asked_for_what_follows_the_last_whole_chunk),
        cmocka_unit_test(a_first_worker_is_passed_unchanged),
        cmocka_unit_test(a_cut_chunk_is_continued),
        cmocka_unit_test(a_ready_is_passed_once),
        cmocka_unit_test(a_ready_that_the_first_worker_did_not_send_is_passed),
        cmocka_unit_test(output_that_the_next_worker_lacks_is_a_gap),
        cmocka_unit_test(an_exit_is_passed_once_and_resolves_a_resume),
        cmocka_unit_test(a_chunk_that_nobody_can_complete_ends_the_tunnel),
        cmocka_unit_test(what_breaks_the_protocol_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
