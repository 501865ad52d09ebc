/* SPDX-License-Identifier: MIT */
#include "spoa/proto/cell_resume.h"

#include <stdio.h>

#include "tests/unit/support.h"

#define ID "7b0e51d2a94f4f3c8c1d0a6f5e2b77c4"

static enum cell_resume_found header(const char *text, struct cell_resume_terms *terms)
{
    struct slice s = guarded(slice_text(text));
    enum cell_resume_found found = cell_resume_read_value(s, CELL_RESUME_REQUEST, terms);
    guarded_free(s);
    return found;
}

static enum cell_resume_found answer(const char *text, struct cell_resume_terms *terms)
{
    struct slice s = guarded(slice_text(text));
    enum cell_resume_found found = cell_resume_read_value(s, CELL_RESUME_ANSWER, terms);
    guarded_free(s);
    return found;
}

static enum cell_resume_found query(const char *text, struct cell_resume_terms *terms)
{
    struct slice s = guarded(slice_text(text));
    enum cell_resume_found found = cell_resume_read_query(s, terms);
    guarded_free(s);
    return found;
}

static void reads_what_the_page_shows(void **state)
{
    struct cell_resume_terms t;
    (void)state;
    assert_int_equal(header("1; tunnel=" ID "; attempt=2; recv=1; buffer=262144", &t), CELL_RESUME_FOUND);
    assert_int_equal(t.tunnel.len, CELL_RESUME_ID_LEN);
    assert_int_equal(t.attempt, 2);
    assert_true(t.has_recv);
    assert_int_equal(t.recv, 1);
    assert_int_equal(t.buffer, 262144);
    assert_int_equal(header("1;buffer=4096 ;\tattempt=9007199254740991;tunnel=" ID, &t), CELL_RESUME_FOUND);
    assert_int_equal(t.attempt, CELL_RESUME_NUMBER_MAX);
    assert_false(t.has_recv);
    assert_int_equal(header("1; tunnel=" ID "; attempt=1; recv=0; next=x; new; later=y", &t),
                     CELL_RESUME_FOUND);
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
    struct cell_resume_terms t;
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        if (header(bad[i], &t) != CELL_RESUME_MALFORMED)
            fail_msg("taken: '%s'", bad[i]);
}

static void ignores_other_versions(void **state)
{
    struct cell_resume_terms t;
    (void)state;
    assert_int_equal(header("2", &t), CELL_RESUME_ABSENT);
    assert_int_equal(header("11; tunnel=" ID "; attempt=1", &t), CELL_RESUME_ABSENT);
}

static void answers_have_parameters_of_their_own(void **state)
{
    static const char *const bad[] = {
        "1",
        "1; recv=0",
        "1; next=1",
        "1; recv=0; next=0",
        "1; recv=0; next=1; next=1",
        "1; recv=0; next=1; buffer=4095",
        "1; recv=0; next=1;",
        "1; recv=0; next=1; tunnel=",
        "",
        ";",
    };
    struct cell_resume_terms t;
    (void)state;
    assert_int_equal(answer("1; recv=3; next=9007199254740991; buffer=4096", &t), CELL_RESUME_FOUND);
    assert_true(t.has_recv && t.recv == 3 && t.next == CELL_RESUME_NUMBER_MAX && t.buffer == 4096);
    assert_int_equal(answer("1;Next=7;RECV=0;attempt=0;tunnel=x;y", &t), CELL_RESUME_FOUND);
    assert_true(t.has_recv && t.recv == 0 && t.next == 7 && t.buffer == 0 && t.attempt == 0);
    assert_false(slice_present(t.tunnel));
    assert_int_equal(answer("2; recv=0; next=1", &t), CELL_RESUME_ABSENT);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        if (answer(bad[i], &t) != CELL_RESUME_MALFORMED)
            fail_msg("taken: '%s'", bad[i]);
}

static void a_head_has_one_line_or_none(void **state)
{
    static const struct {
        const char *fields;
        enum cell_resume_found found;
    } rows[] = {
        {"", CELL_RESUME_ABSENT},
        {"X: 1; recv=0; next=1\r\n", CELL_RESUME_ABSENT},
        {"Cell-Resume: 2\r\n", CELL_RESUME_ABSENT},
        {"cell-RESUME: 1; recv=0; next=1\r\n", CELL_RESUME_FOUND},
        {"Cell-Resume: 1; recv=0; next=1\r\nCell-Resume: 1; recv=0; next=1\r\n", CELL_RESUME_MALFORMED},
        {"Cell-Resume: 2\r\nCell-Resume: 1; recv=0; next=1\r\n", CELL_RESUME_MALFORMED},
        {"Cell-Resume:\r\n", CELL_RESUME_MALFORMED},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char text[256];
        struct http_head head;
        struct cell_resume_terms t;
        struct http_reader r = http_reader_of(HTTP_RESPONSE, HTTP_HEAD_MAX);
        snprintf(text, sizeof text, "HTTP/1.1 101 S\r\n%s\r\n", rows[i].fields);
        assert_int_equal(http_read(&r, slice_text(text), &head), HTTP_DONE);
        assert_int_equal(cell_resume_read_head(&head, CELL_RESUME_ANSWER, &t), rows[i].found);
    }
}

static void what_is_put_is_what_the_page_shows(void **state)
{
    const struct {
        struct cell_resume_terms terms;
        const char *line;
    } rows[] = {
        {{.tunnel = slice_text(ID), .attempt = 1, .buffer = 262144},
         "Cell-Resume: 1; tunnel=" ID "; attempt=1; buffer=262144\r\n"},
        {{.tunnel = slice_text(ID), .attempt = 2, .has_recv = true, .recv = 1, .buffer = 262144},
         "Cell-Resume: 1; tunnel=" ID "; attempt=2; recv=1; buffer=262144\r\n"},
        {{.has_recv = true, .next = 1, .buffer = 1048576},
         "Cell-Resume: 1; recv=0; next=1; buffer=1048576\r\n"},
        {{.has_recv = true, .recv = 9}, "Cell-Resume: 1; recv=9\r\n"},
    };
    const struct cell_resume_terms most = {slice_text(ID), UINT64_MAX, UINT64_MAX,
                                           UINT64_MAX,     UINT64_MAX, true};
    uint8_t memory[CELL_RESUME_TEXT_MAX];
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct writer w = writer_of(memory, sizeof memory);
        cell_resume_put_field(&w, &rows[i].terms);
        assert_true(slice_is(writer_slice(&w), rows[i].line));
    }
    struct writer w = writer_of(memory, sizeof memory - 1);
    cell_resume_put_field(&w, &most);
    assert_false(w.full);
}

static void closes_have_the_reasons_of_the_page(void **state)
{
    (void)state;
    assert_string_equal(cell_resume_reason(1002), "protocol error");
    assert_string_equal(cell_resume_reason(1009), "message too big");
    assert_string_equal(cell_resume_reason(4001), "taken over");
    assert_string_equal(cell_resume_reason(4000), "");
}

static void reads_a_pages_query(void **state)
{
    struct cell_resume_terms t;
    (void)state;
    assert_int_equal(query("cols=80&cr_attempt=3&cr_tunnel=" ID "&cr_recv=0&rows=24", &t), CELL_RESUME_FOUND);
    assert_int_equal(t.attempt, 3);
    assert_true(t.has_recv && t.recv == 0);
    assert_int_equal(query("cols=80&tunnel=" ID, &t), CELL_RESUME_ABSENT);
    assert_int_equal(query("", &t), CELL_RESUME_ABSENT);
    assert_int_equal(query("cr_attempt=1", &t), CELL_RESUME_ABSENT);
    assert_int_equal(query("cr_tunnel=" ID, &t), CELL_RESUME_MALFORMED);
    assert_int_equal(query("cr_tunnel&cr_attempt=1", &t), CELL_RESUME_MALFORMED);
    assert_int_equal(query("cr_tunnel=" ID "&cr_attempt=1&cr_attempt=1", &t), CELL_RESUME_MALFORMED);
    assert_int_equal(query("cr_tunnel=" ID "&cr_attempt=%31", &t), CELL_RESUME_MALFORMED);
    assert_int_equal(query("cr_tunnel=" ID "&cr_attempt=1&cr_later=1", &t), CELL_RESUME_FOUND);
}

static void every_cut_of_a_header_is_harmless(void **state)
{
    static const char text[] = "1; tunnel=" ID "; attempt=2; recv=1; buffer=262144";
    struct cell_resume_terms t;
    (void)state;
    for (size_t len = 0; len < sizeof text; len++) {
        struct slice s = guarded(slice_of(text, len));
        enum cell_resume_found found = cell_resume_read_value(s, CELL_RESUME_REQUEST, &t);
        assert_true(found == CELL_RESUME_MALFORMED || (found == CELL_RESUME_FOUND && t.attempt == 2));
        guarded_free(s);
    }
}

static void pongs_are_told_apart(void **state)
{
    uint8_t memory[16];
    uint64_t number = 0;
    (void)state;
    for (int say = CELL_RESUME_RECV; say <= CELL_RESUME_END; say++) {
        struct writer w = writer_of(memory, sizeof memory);
        cell_resume_put_pong(&w, (enum cell_resume_say)say, 0x1122334455667788);
        assert_int_equal(w.len, say == CELL_RESUME_END ? 13 : 10);
        assert_int_equal(cell_resume_read_pong(writer_slice(&w), &number), say);
        assert_true(number == 0x1122334455667788);
        for (size_t len = 0; len < w.len; len++) {
            struct slice s = guarded(slice_of(memory, len));
            assert_int_equal(cell_resume_read_pong(s, &number),
                             len == 10 ? CELL_RESUME_RECV : CELL_RESUME_NOTHING);
            guarded_free(s);
        }
    }
    assert_int_equal(cell_resume_read_pong(SLICE_LITERAL("CR12345678"), &number), CELL_RESUME_NOTHING);
    assert_int_equal(cell_resume_read_pong(SLICE_LITERAL("cr12345678END"), &number), CELL_RESUME_NOTHING);
    assert_int_equal(cell_resume_read_pong(SLICE_LITERAL("cr12345678endx"), &number), CELL_RESUME_NOTHING);
}

static enum cell_resume_say message(const char *text, uint64_t *number)
{
    struct slice s = guarded(slice_text(text));
    enum cell_resume_say say = cell_resume_read_message(s, number);
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
    uint8_t memory[CELL_RESUME_TEXT_MAX];
    (void)state;
    assert_int_equal(message("{\"cell-resume\":{\"recv\":0}}", &number), CELL_RESUME_RECV);
    assert_int_equal(number, 0);
    assert_int_equal(message("{\"cell-resume\":{\"end\":12}}", &number), CELL_RESUME_END);
    assert_int_equal(number, 12);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        if (message(bad[i], &number) != CELL_RESUME_NOTHING)
            fail_msg("taken: '%s'", bad[i]);
    struct writer w = writer_of(memory, sizeof memory);
    cell_resume_put_message(&w, CELL_RESUME_END, 7);
    assert_true(slice_is(writer_slice(&w), "{\"cell-resume\":{\"end\":7}}"));
    w = writer_of(memory, sizeof memory);
    struct cell_resume_terms most = {.recv = UINT64_MAX, .next = UINT64_MAX, .buffer = UINT64_MAX};
    cell_resume_put_greeting(&w, &most);
    assert_false(w.full);
    assert_true(cell_resume_is_message(writer_slice(&w)));
    assert_false(cell_resume_is_message(SLICE_LITERAL("{\"type\":\"resize\"}")));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_what_the_page_shows),
        cmocka_unit_test(refuses_what_is_malformed),
        cmocka_unit_test(ignores_other_versions),
        cmocka_unit_test(answers_have_parameters_of_their_own),
        cmocka_unit_test(a_head_has_one_line_or_none),
        cmocka_unit_test(what_is_put_is_what_the_page_shows),
        cmocka_unit_test(closes_have_the_reasons_of_the_page),
        cmocka_unit_test(reads_a_pages_query),
        cmocka_unit_test(every_cut_of_a_header_is_harmless),
        cmocka_unit_test(pongs_are_told_apart),
        cmocka_unit_test(messages_have_one_spelling),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
