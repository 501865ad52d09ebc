/* SPDX-License-Identifier: MIT */
#include "tests/unit/support.h"

#include "spoa/relay/thread/time_shares.h"

static struct loop *loop;
static struct time_shares shares;

static int open_all(void **state)
{
    (void)state;
    struct fail why;
    loop = loop_new(&why);
    shares = (struct time_shares){0};
    return loop && time_shares_open(&shares, loop) ? 0 : -1;
}

static int close_all(void **state)
{
    (void)state;
    loop_free(loop);
    time_shares_close(&shares);
    return 0;
}

static struct loop_share *take(const char *org, const char *sandbox, const char *client)
{
    const struct limits_owner owner = {.space = slice_text("default"),
                                       .org = slice_text(org),
                                       .sandbox = slice_text(sandbox),
                                       .client = slice_text(client)};
    return time_shares_take(&shares, &owner);
}

static void all_of_an_owner_are_in_one_share(void **state)
{
    (void)state;
    struct loop_share *one = take("o", "a", NULL), *other = take("o", "b", NULL),
                      *alone = take(NULL, "a", NULL);
    assert_ptr_equal(one, other);
    assert_ptr_not_equal(one, alone);
    assert_null(one->of);
    assert_null(alone->of);
    time_shares_give(&shares, one);
    time_shares_give(&shares, other);
    time_shares_give(&shares, alone);
}

/* However many addresses there are, what they do takes the time of one owner; and none of it that of who has just come. */
static void clients_without_a_token_are_one_owner_to_others(void **state)
{
    (void)state;
    struct loop_share *one = take(NULL, NULL, "192.0.2.1"), *other = take(NULL, NULL, "192.0.2.2"),
                      *refused = take(NULL, NULL, NULL);
    assert_ptr_not_equal(one, other);
    assert_ptr_equal(one->of, &shares.nobody);
    assert_ptr_equal(other->of, &shares.nobody);
    assert_ptr_equal(refused->of, &shares.nobody);
    assert_ptr_not_equal(refused, &shares.unknown);
    time_shares_give(&shares, one);
    time_shares_give(&shares, other);
    time_shares_give(&shares, refused);
}

static void without_memory_for_a_share_there_is_one_for_all(void **state)
{
    (void)state;
    alloc_fail_at(1);
    struct loop_share *none = take("o", NULL, NULL);
    alloc_fail_at(0);
    assert_ptr_equal(none, &shares.unknown);
    time_shares_give(&shares, none);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(all_of_an_owner_are_in_one_share, open_all, close_all),
        cmocka_unit_test_setup_teardown(clients_without_a_token_are_one_owner_to_others, open_all, close_all),
        cmocka_unit_test_setup_teardown(without_memory_for_a_share_there_is_one_for_all, open_all, close_all),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
