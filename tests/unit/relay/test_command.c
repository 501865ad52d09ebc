/* SPDX-License-Identifier: MIT */
#include "spoa/relay/tunnel/command.h"
#include "tests/unit/support.h"

static struct commands list;

static void put(enum command_kind kind, uint64_t bytes)
{
    commands_put(&list, &(struct command){.kind = kind, .bytes = bytes});
}

static unsigned drained(void)
{
    unsigned count = 0;
    while (commands_take(&list))
        count++;
    return count;
}

static void they_come_out_as_they_went_in(void **state)
{
    (void)state;
    list = (struct commands){0};
    put(COMMAND_ASK, 0);
    put(COMMAND_WATCH, 0);
    assert_int_equal(commands_take(&list)->kind, COMMAND_ASK);
    put(COMMAND_DIAL, 0); /* what is carried out may command more */
    assert_int_equal(commands_take(&list)->kind, COMMAND_WATCH);
    assert_int_equal(commands_take(&list)->kind, COMMAND_DIAL);
    assert_null(commands_take(&list));
    assert_int_equal(list.count, 0);
}

static void a_dial_that_has_not_begun_is_taken_back(void **state)
{
    (void)state;
    list = (struct commands){0};
    put(COMMAND_DIAL, 0);
    put(COMMAND_ASK, 0);
    put(COMMAND_HANG_UP, 0);
    assert_int_equal(commands_take(&list)->kind, COMMAND_ASK);
    assert_null(commands_take(&list));
    put(COMMAND_DIAL, 0);
    assert_int_equal(commands_take(&list)->kind, COMMAND_DIAL); /* now it has */
    put(COMMAND_HANG_UP, 0);
    assert_int_equal(commands_take(&list)->kind, COMMAND_HANG_UP);
    assert_null(commands_take(&list));
}

/* However often a hostile worker makes its adapter declare, between other commands too, there is room for what follows. */
static void declarations_are_bounded(void **state)
{
    (void)state;
    list = (struct commands){0};
    for (unsigned i = 0; i < 1000; i++)
        put(COMMAND_DECLARED, 1);
    assert_int_equal(list.count, COMMANDS_NOTES);
    assert_int_equal(list.at[COMMANDS_NOTES - 1].bytes, 1000 - COMMANDS_NOTES + 1);
    put(COMMAND_DECLARED, UINT64_MAX); /* unknown */
    assert_int_equal(list.at[COMMANDS_NOTES - 1].bytes, UINT64_MAX);
    put(COMMAND_DROP, 0);
    for (unsigned i = 0; i < 1000; i++)
        put(COMMAND_DECLARED, 1);
    assert_true(list.count <= COMMANDS_NOTES + 2);
    assert_true(drained() <= COMMANDS_NOTES + 2);
}

static void a_side_is_unattached_until_its_command_is_taken(void **state)
{
    (void)state;
    list = (struct commands){0};
    put(COMMAND_ADOPT, 0);
    put(COMMAND_ACCEPT, 0);
    assert_true(list.unattached[0] && list.unattached[1]);
    commands_take(&list);
    assert_true(list.unattached[CLIENT] && !list.unattached[WORKER]);
    commands_take(&list);
    assert_false(list.unattached[CLIENT]);
    assert_int_equal(drained(), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(they_come_out_as_they_went_in),
        cmocka_unit_test(a_dial_that_has_not_begun_is_taken_back),
        cmocka_unit_test(declarations_are_bounded),
        cmocka_unit_test(a_side_is_unattached_until_its_command_is_taken),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
