/* SPDX-License-Identifier: MIT */
/* What operators look for: questions, ends and the sandboxes with most tunnels. The rows are tested with real tunnels, in
 * tests/e2e/operate/test_top.py. */
#include "tests/unit/support.h"

#include <stdio.h>

#include "spoa/relay/serve/top.h"

static const struct slice none = {NULL, 0};

static void a_question_has_defaults_and_is_bounded(void **state)
{
    (void)state;
    struct top_question q;
    struct fail why;
    assert_true(top_question(&q, none, none, none, &why));
    assert_int_equal(q.order, TOP_held);
    assert_int_equal(q.rows, TOP_ROWS);
    assert_int_equal(q.filter_len, 0);
    assert_true(top_question(&q, SLICE_LITERAL("gap"), SLICE_LITERAL("200"), SLICE_LITERAL("SB-1"), &why));
    assert_int_equal(q.order, TOP_gap);
    assert_int_equal(q.rows, TOP_ROWS_MOST);
    assert_memory_equal(q.filter, "sb-1", 4);
    assert_true(top_question(&q, none, SLICE_LITERAL("0"), none, &why));
    assert_false(top_question(&q, SLICE_LITERAL("name"), none, none, &why));
    assert_false(top_question(&q, none, SLICE_LITERAL("201"), none, &why));
    assert_false(top_question(&q, none, SLICE_LITERAL(""), none, &why));
    assert_false(top_question(&q, none, SLICE_LITERAL("-1"), none, &why));
    char longer[TOP_FILTER + 1] = "";
    assert_true(top_question(&q, none, none, slice_of(longer, TOP_FILTER), &why));
    assert_false(top_question(&q, none, none, slice_of(longer, TOP_FILTER + 1), &why));
}

static void a_query_is_unescaped(void **state)
{
    (void)state;
    struct top_question q;
    struct fail why;
    assert_true(top_question_query(&q, none, &why));
    assert_true(top_question_query(&q, SLICE_LITERAL("what=ever&rows=7&sort=age&filter=a%42+%2"), &why));
    assert_int_equal(q.order, TOP_age);
    assert_int_equal(q.rows, 7);
    assert_int_equal(q.filter_len, 5);
    assert_memory_equal(q.filter, "ab %2", 5);
    assert_true(top_question_query(&q, SLICE_LITERAL("filter=a&&=&filter="), &why));
    assert_int_equal(q.filter_len, 0);
    assert_false(top_question_query(&q, SLICE_LITERAL("rows"), &why));
    char longer[8 + TOP_FILTER + 1];
    memset(longer, 'x', sizeof longer);
    memcpy(longer, "filter=", 7);
    assert_true(top_question_query(&q, slice_of(longer, 7 + TOP_FILTER), &why));
    assert_false(top_question_query(&q, slice_of(longer, 7 + TOP_FILTER + 1), &why));
}

static void the_last_ends_are_kept(void **state)
{
    (void)state;
    static struct top_ends ends;
    assert_null(top_ends_newest(&ends, 0));
    for (unsigned i = 1; i <= TOP_ENDS + 3; i++)
        top_ends_note(&ends)->redials = i;
    assert_int_equal(top_ends_newest(&ends, 0)->redials, TOP_ENDS + 3);
    assert_int_equal(top_ends_newest(&ends, TOP_ENDS - 1)->redials, 4);
    assert_null(top_ends_newest(&ends, TOP_ENDS));
    uint8_t name[TOP_END_NAME], longer[TOP_END_NAME + 9] = "name";
    assert_int_equal(top_end_name(name, none), 0);
    assert_int_equal(top_end_name(name, slice_of(longer, sizeof longer)), TOP_END_NAME);
    assert_memory_equal(name, longer, TOP_END_NAME);
}

static void enter(struct limits *l, struct slice space, const char *sandbox, unsigned times)
{
    const struct limits_owner owner = {
        .space = space, .sandbox = slice_text(sandbox), .org = SLICE_LITERAL("o")};
    while (times--)
        assert_int_equal(limits_enter(l, &owner), LIMIT_NONE);
}

static bool is(const struct limits_busy *busy, uint64_t tunnels, const char *name)
{
    return busy->tunnels == tunnels && slice_is(slice_of(busy->name, busy->len), name);
}

static void sandboxes_with_most_tunnels_come_first(void **state)
{
    (void)state;
    const struct limits_settings no_limit = {.tunnels = 0};
    struct limits *l = limits_new(&no_limit);
    struct limits_busy busy[3];
    char name[16], longer[300];
    assert_int_equal(limits_busiest(l, busy, 3), 0);
    enter(l, none, "two", 2);
    enter(l, SLICE_LITERAL("default"), "five", 5);
    assert_int_equal(limits_busiest(l, busy, 3), 2);
    assert_true(is(&busy[0], 5, "five") && is(&busy[1], 2, "two"));
    for (unsigned i = 0; i < 400; i++) {
        snprintf(name, sizeof name, "one-%u", i);
        enter(l, none, name, 1);
    }
    enter(l, SLICE_LITERAL("team"), "three", 3);
    assert_int_equal(limits_busiest(l, busy, 0), 0);
    assert_int_equal(limits_busiest(l, busy, 3), 3);
    assert_true(is(&busy[0], 5, "five") && is(&busy[1], 3, "team/three") && is(&busy[2], 2, "two"));
    memset(longer, 'x', sizeof longer - 1);
    longer[sizeof longer - 1] = '\0';
    enter(l, none, longer, 9);
    assert_int_equal(limits_busiest(l, busy, 1), 1);
    assert_int_equal(busy[0].len, LIMITS_NAME_SHOWN);
    limits_free(l);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_question_has_defaults_and_is_bounded),
        cmocka_unit_test(a_query_is_unescaped),
        cmocka_unit_test(the_last_ends_are_kept),
        cmocka_unit_test(sandboxes_with_most_tunnels_come_first),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
