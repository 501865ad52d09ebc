/* SPDX-License-Identifier: MIT */
#include "tests/unit/support.h"

#include <stdio.h>

#include "spoa/agent/token/revoked.h"

#define NOW 1000000

static bool read_list(const char *text, struct revoked **list, int64_t *not_before)
{
    struct fail why = {""};
    struct slice guard = guarded(slice_text(text));
    bool good = revoked_read(guard, "list", NOW, list, not_before, NULL, &why);
    guarded_free(guard);
    assert_true(good || why.text[0]);
    return good;
}

static void what_a_list_names_is_revoked_and_nothing_else(void **state)
{
    struct revoked *list = NULL;
    (void)state;
    assert_false(revoked_has(NULL, SLICE_LITERAL("a")));
    assert_true(read_list("{\"revoked\":{\"a\":1000001, \"b\\u0063\" : 2000000 }}", &list, NULL));
    assert_int_equal(revoked_count(list), 2);
    assert_true(revoked_has(list, SLICE_LITERAL("a")) && revoked_has(list, SLICE_LITERAL("bc")));
    assert_false(revoked_has(list, SLICE_LITERAL("b")) || revoked_has(list, SLICE_LITERAL("")));
    assert_false(revoked_has(list, slice_text(NULL)));
    revoked_release(list);
}

static void lists_that_are_not_in_order_are_refused(void **state)
{
    static const char *const texts[] = {
        "",
        "{}",
        "[]",
        "{\"revoked\":[]}",
        "{\"revoked\":{\"a\":\"x\"}}",
        "{\"revoked\":{\"a\":-1}}",
        "{\"revoked\":{\"a\":1.5}}",
        "{\"revoked\":{\"a\":true}}",
        "{\"revoked\":{\"a\":{}}}",
        "{\"revoked\":{\"\":1000000}}",
        "{\"revoked\":{\"a\":1000000}",
        "{\"revoked\":{\"a\":1000000}}x",
        "{\"revoked\":{\"a\":99999999999999999999}}",
        "{\"revoked\":{\"a\":1000000},\"other\":1}",
        "{\"revoked\":{},\"revoked\":{}}",
    };
    (void)state;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        struct revoked *list = NULL;
        assert_false(read_list(texts[i], &list, NULL));
        revoked_release(list);
    }
}

/* No token has a longer one: see GRANT_JTI_MOST. */
static void a_jti_that_no_token_can_have_is_refused_and_told(void **state)
{
    char text[400], jti[258];
    struct revoked *list = NULL;
    struct fail why = {""};
    (void)state;
    memset(jti, 'x', sizeof jti);
    snprintf(text, sizeof text, "{\"revoked\":{\"a\":1000000,\"%.256s\":1000000}}", jti);
    assert_true(revoked_read(slice_text(text), "list", NOW, &list, NULL, NULL, &why));
    assert_true(revoked_has(list, slice_of((const uint8_t *)jti, 256)));
    snprintf(text, sizeof text, "{\"revoked\":{\"a\":1000000,\"%.257s\":1000000}}", jti);
    assert_false(revoked_read(slice_text(text), "list", NOW, &list, NULL, NULL, &why));
    assert_string_equal(why.text, "list: revoked: entry 2: a jti of over 256 bytes");
    revoked_release(list);
}

static void a_push_may_say_not_before_and_what_a_later_version_says(void **state)
{
    struct revoked *list = NULL;
    int64_t not_before = 7;
    (void)state;
    assert_true(read_list("{\"revoked\":{\"a\":1000000},\"later\":{}}", &list, &not_before));
    assert_int_equal(not_before, 7);
    assert_true(read_list("{\"not_before\":9,\"revoked\":{}}", &list, &not_before));
    assert_int_equal(not_before, 9);
    assert_true(revoked_has(list, SLICE_LITERAL("a")));
    revoked_release(list);
}

/* Behind the leeway that clocks may have, and only when the list is made anew. */
static void what_has_expired_is_forgotten(void **state)
{
    struct revoked *list = NULL;
    struct fail why;
    (void)state;
    assert_true(read_list("{\"revoked\":{\"old\":996399,\"late\":996400,\"new\":1000000}}", &list, NULL));
    assert_false(revoked_has(list, SLICE_LITERAL("old")));
    assert_true(revoked_has(list, SLICE_LITERAL("late")));
    struct revoked *next = revoked_new(list, 1, NOW + 1, &why);
    assert_non_null(next);
    assert_int_equal(revoked_count(next), 1);
    assert_true(revoked_has(next, SLICE_LITERAL("new")));
    assert_false(revoked_has(next, SLICE_LITERAL("late")));
    revoked_release(list);
    revoked_release(next);
}

/* Whoever takes EXP for something else revokes nothing, and has to be told. */
static void what_is_left_out_of_a_list_is_counted(void **state)
{
    struct revoked *list = NULL;
    struct fail why;
    size_t over = 1;
    (void)state;
    assert_true(revoked_read(SLICE_LITERAL("{\"revoked\":{\"a\":0,\"b\":996399,\"c\":996400}}"), "list", NOW,
                             &list, NULL, &over, &why));
    assert_int_equal(over, 3);
    assert_int_equal(revoked_count(list), 1);
    assert_true(revoked_read_object(SLICE_LITERAL("{\"d\":1}"), "list", NOW, &list, &over, &why));
    assert_int_equal(over, 4);
    revoked_release(list);
}

static void the_later_of_two_times_counts(void **state)
{
    struct fail why;
    struct revoked *list = revoked_new(NULL, 4, NOW, &why);
    (void)state;
    assert_true(revoked_add(list, SLICE_LITERAL("a"), NOW + 10000));
    assert_true(revoked_add(list, SLICE_LITERAL("a"), NOW));
    assert_int_equal(revoked_count(list), 1);
    struct revoked *next = revoked_new(list, 1, NOW + 10000, &why);
    assert_true(revoked_has(next, SLICE_LITERAL("a")));
    revoked_release(list);
    revoked_release(next);
}

/* Who still reads the list of before finds there what was there. */
static void a_list_grows_and_is_bounded(void **state)
{
    struct fail why;
    struct revoked *list = NULL;
    char text[64], name[16];
    (void)state;
    assert_true(read_list("{\"revoked\":{\"first\":1000000}}", &list, NULL));
    struct revoked *before = revoked_retain(list);
    for (int i = 0; i < 5000; i++) {
        snprintf(text, sizeof text, "{\"revoked\":{\"j%d\":1000000}}", i);
        assert_true(read_list(text, &list, NULL));
    }
    assert_ptr_not_equal(list, before);
    assert_int_equal(revoked_count(list), 5001);
    assert_true(revoked_has(before, SLICE_LITERAL("first")) && revoked_has(list, SLICE_LITERAL("first")));
    for (int i = 0; i < 5000; i++) {
        snprintf(name, sizeof name, "j%d", i);
        assert_true(revoked_has(list, slice_text(name)));
    }
    assert_null(revoked_new(list, REVOKED_MOST - 5000, NOW, &why));
    struct revoked *full = revoked_new(list, REVOKED_MOST - 5001, NOW, &why);
    assert_non_null(full);
    for (int i = 0; i < REVOKED_MOST - 5001; i++) {
        snprintf(name, sizeof name, "k%d", i);
        assert_true(revoked_add(full, slice_text(name), NOW));
    }
    assert_false(revoked_add(full, SLICE_LITERAL("one more"), NOW));
    assert_true(read_list("{\"revoked\":{\"k7\":1000000}}", &full, NULL));
    assert_false(read_list("{\"revoked\":{\"one more\":1000000}}", &full, NULL));
    assert_true(revoked_has(full, SLICE_LITERAL("k7")) && revoked_has(full, SLICE_LITERAL("first")));
    revoked_release(full);
    revoked_release(before);
    revoked_release(list);
}

static void reading_survives_every_failing_allocation(void **state)
{
    bool good = false;
    (void)state;
    for (unsigned n = 1; !good && n < 200; n++) {
        struct revoked *list = NULL;
        struct fail why = {""};
        alloc_fail_at(n);
        good = revoked_read_object(SLICE_LITERAL("{\"a\":1000000,\"\\u0062\":1000000}"), "list", NOW, &list,
                                   NULL, &why);
        alloc_fail_at(0);
        assert_true(good || why.text[0]);
        revoked_release(list);
    }
    assert_true(good);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_a_list_names_is_revoked_and_nothing_else),
        cmocka_unit_test(lists_that_are_not_in_order_are_refused),
        cmocka_unit_test(a_jti_that_no_token_can_have_is_refused_and_told),
        cmocka_unit_test(a_push_may_say_not_before_and_what_a_later_version_says),
        cmocka_unit_test(what_has_expired_is_forgotten),
        cmocka_unit_test(what_is_left_out_of_a_list_is_counted),
        cmocka_unit_test(the_later_of_two_times_counts),
        cmocka_unit_test(a_list_grows_and_is_bounded),
        cmocka_unit_test(reading_survives_every_failing_allocation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
