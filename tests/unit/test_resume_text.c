/* SPDX-License-Identifier: MIT */
#include "examples/worker/resume_text.h"

#include "examples/worker/resume.h"
#include "tests/unit/support.h"

#define ID "7b0e51d2a94f4f3c8c1d0a6f5e2b77c4"

static enum resume_found header(const char *text, struct resume_terms *terms)
{
    struct slice s = guarded(slice_text(text));
    enum resume_found found = resume_read_header(s, terms);
    guarded_free(s);
    return found;
}

static enum resume_found query(const char *text, struct resume_terms *terms)
{
    struct slice s = guarded(slice_text(text));
    enum resume_found found = resume_read_query(s, terms);
    guarded_free(s);
    return found;
}

static void reads_what_the_page_shows(void **state)
{
    struct resume_terms t;
    (void)state;
    assert_int_equal(header("1; tunnel=" ID "; attempt=2; recv=1; buffer=262144", &t), RESUME_FOUND);
    assert_int_equal(t.tunnel.len, RESUME_ID_SIZE);
    assert_int_equal(t.attempt, 2);
    assert_true(t.has_recv);
    assert_int_equal(t.recv, 1);
    assert_int_equal(t.buffer, 262144);
    assert_int_equal(header("1;buffer=4096 ;\tattempt=9007199254740991;tunnel=" ID, &t), RESUME_FOUND);
    assert_int_equal(t.attempt, RESUME_NUMBER_MAX);
    assert_false(t.has_recv);
    assert_int_equal(header("1; tunnel=" ID "; attempt=1; recv=0; next=x; new; later=y", &t), RESUME_FOUND);
    assert_true(t.has_recv && t.recv == 0);
}

static void refuses_what_is_malformed(void **state)
{
    static const char *const bad[] = {
        "",
        ";",
        "1",
        "1;",
        " ",
        "1 1; tunnel=" ID "; attempt=1",
        "1; tunnel=" ID,
        "1; attempt=1",
        "1; tunnel=" ID "; attempt=1;",
        "1; tunnel=" ID "; ; attempt=1",
        "1; tunnel=" ID "0; attempt=1",
        "1; tunnel=7B0e51d2a94f4f3c8c1d0a6f5e2b77c4; attempt=1",
        "1; tunnel=7g0e51d2a94f4f3c8c1d0a6f5e2b77c4; attempt=1",
        "1; tunnel; attempt=1",
        "1; tunnel=" ID "; attempt=0",
        "1; tunnel=" ID "; attempt=01",
        "1; tunnel=" ID "; attempt=+1",
        "1; tunnel=" ID "; attempt=9007199254740992",
        "1; tunnel=" ID "; attempt=18446744073709551617",
        "1; tunnel=" ID "; attempt=1; attempt=1",
        "1; tunnel=" ID "; attempt=1; recv",
        "1; tunnel=" ID "; attempt=1; recv=",
        "1; tunnel=" ID "; attempt=1; recv=00",
        "1; tunnel=" ID "; attempt=1; buffer=4095",
        "1; tunnel=" ID "; attempt = 1",
        "1; tunnel=" ID "; attempt=1; x=\"y\"",
        "1; tunnel=" ID "; attempt=1, 1; tunnel=" ID "; attempt=2",
    };
    struct resume_terms t;
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        if (header(bad[i], &t) != RESUME_MALFORMED)
            fail_msg("taken: '%s'", bad[i]);
}

static void ignores_other_versions(void **state)
{
    struct resume_terms t;
    (void)state;
    assert_int_equal(header("2", &t), RESUME_ABSENT);
    assert_int_equal(header("11; tunnel=" ID "; attempt=1", &t), RESUME_ABSENT);
}

static void reads_a_pages_query(void **state)
{
    struct resume_terms t;
    (void)state;
    assert_int_equal(query("cols=80&cr_attempt=3&cr_tunnel=" ID "&cr_recv=0&rows=24", &t), RESUME_FOUND);
    assert_int_equal(t.attempt, 3);
    assert_true(t.has_recv && t.recv == 0);
    assert_int_equal(query("cols=80&tunnel=" ID, &t), RESUME_ABSENT);
    assert_int_equal(query("", &t), RESUME_ABSENT);
    assert_int_equal(query("cr_attempt=1", &t), RESUME_ABSENT);
    assert_int_equal(query("cr_tunnel=" ID, &t), RESUME_MALFORMED);
    assert_int_equal(query("cr_tunnel&cr_attempt=1", &t), RESUME_MALFORMED);
    assert_int_equal(query("cr_tunnel=" ID "&cr_attempt=1&cr_attempt=1", &t), RESUME_MALFORMED);
    assert_int_equal(query("cr_tunnel=" ID "&cr_attempt=%31", &t), RESUME_MALFORMED);
    assert_int_equal(query("cr_tunnel=" ID "&cr_attempt=1&cr_later=1", &t), RESUME_FOUND);
}

static void every_cut_of_a_header_is_harmless(void **state)
{
    static const char text[] = "1; tunnel=" ID "; attempt=2; recv=1; buffer=262144";
    struct resume_terms t;
    (void)state;
    for (size_t len = 0; len < sizeof text; len++) {
        struct slice s = guarded(slice_of(text, len));
        enum resume_found found = resume_read_header(s, &t);
        assert_true(found == RESUME_MALFORMED || (found == RESUME_FOUND && t.attempt == 2));
        guarded_free(s);
    }
}

static void pongs_are_told_apart(void **state)
{
    uint8_t memory[16];
    uint64_t number = 0;
    (void)state;
    for (int say = RESUME_SAYS_RECV; say <= RESUME_SAYS_END; say++) {
        struct writer w = writer_of(memory, sizeof memory);
        resume_put_pong(&w, (enum resume_say)say, 0x1122334455667788);
        assert_int_equal(w.len, say == RESUME_SAYS_END ? 13 : 10);
        assert_int_equal(resume_read_pong(writer_slice(&w), &number), say);
        assert_true(number == 0x1122334455667788);
        for (size_t len = 0; len < w.len; len++) {
            struct slice s = guarded(slice_of(memory, len));
            assert_int_equal(resume_read_pong(s, &number),
                             len == 10 ? RESUME_SAYS_RECV : RESUME_SAYS_NOTHING);
            guarded_free(s);
        }
    }
    assert_int_equal(resume_read_pong(SLICE_LITERAL("CR12345678"), &number), RESUME_SAYS_NOTHING);
    assert_int_equal(resume_read_pong(SLICE_LITERAL("cr12345678END"), &number), RESUME_SAYS_NOTHING);
    assert_int_equal(resume_read_pong(SLICE_LITERAL("cr12345678endx"), &number), RESUME_SAYS_NOTHING);
}

static enum resume_say message(const char *text, uint64_t *number)
{
    struct slice s = guarded(slice_text(text));
    enum resume_say say = resume_read_message(s, number);
    guarded_free(s);
    return say;
}

static void messages_have_one_spelling(void **state)
{
    static const char *const bad[] = {
        "{\"cell-resume\":{\"recv\":}}",    "{\"cell-resume\":{\"recv\":1}",
        "{\"cell-resume\":{\"recv\":1}}}",  "{\"cell-resume\":{\"recv\":01}}",
        "{\"cell-resume\":{\"recv\": 1}}",  "{\"cell-resume\":{\"end\":0}}",
        "{\"cell-resume\":{\"recv\":-1}}",  "{\"cell-resume\":{\"next\":1}}",
        "{\"cell-resume\":{\"recv\":",      "{\"cell-resume\":{\"recv\":}",
        "{\"cell-resume\":{\"recv\":1e3}}", "",
    };
    uint64_t number = 0;
    uint8_t memory[RESUME_TEXT_MAX];
    (void)state;
    assert_int_equal(message("{\"cell-resume\":{\"recv\":0}}", &number), RESUME_SAYS_RECV);
    assert_int_equal(number, 0);
    assert_int_equal(message("{\"cell-resume\":{\"end\":12}}", &number), RESUME_SAYS_END);
    assert_int_equal(number, 12);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        if (message(bad[i], &number) != RESUME_SAYS_NOTHING)
            fail_msg("taken: '%s'", bad[i]);
    struct writer w = writer_of(memory, sizeof memory);
    resume_put_message(&w, RESUME_SAYS_END, 7);
    assert_true(slice_is(writer_slice(&w), "{\"cell-resume\":{\"end\":7}}"));
    w = writer_of(memory, sizeof memory);
    resume_put_greeting(&w, RESUME_NUMBER_MAX, RESUME_NUMBER_MAX, RESUME_NUMBER_MAX);
    assert_false(w.full);
    assert_true(resume_is_message(writer_slice(&w)));
    assert_false(resume_is_message(SLICE_LITERAL("{\"type\":\"resize\"}")));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_what_the_page_shows),
        cmocka_unit_test(refuses_what_is_malformed),
        cmocka_unit_test(ignores_other_versions),
        cmocka_unit_test(reads_a_pages_query),
        cmocka_unit_test(every_cut_of_a_header_is_harmless),
        cmocka_unit_test(pongs_are_told_apart),
        cmocka_unit_test(messages_have_one_spelling),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
