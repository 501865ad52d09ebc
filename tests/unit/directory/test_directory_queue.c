/* SPDX-License-Identifier: MIT */
/* Whose turn it is when several owners wait for the same answer. */
#include "tests/unit/support.h"

#include <stdio.h>
#include <stdlib.h>

#include "spoa/agent/directory/queue.h"

enum { MANY = 4096 };

static struct directory_question questions[MANY];
static char names[MANY][16];
static size_t count;
static struct directory_queue *queue;

static const struct fair_owner first = {.hash = 1001, .rank = FAIR_VERIFIED},
                               second = {.hash = 1002, .rank = FAIR_VERIFIED},
                               third = {.hash = 1003, .rank = FAIR_VERIFIED};

static int make(void **state)
{
    const struct fair_limits limits = {.places = 16384, .each = 1024, .served = 64};
    (void)state;
    count = 0;
    memset(questions, 0, sizeof questions);
    queue = directory_queue_new(&limits);
    return queue == NULL;
}

/* Whatever is served or waits ends. */
static int drop(void **state)
{
    struct directory_question *q;
    (void)state;
    while ((q = directory_queue_late(queue, UINT64_MAX)))
        continue;
    for (size_t i = 0; i < count; i++)
        directory_queue_leave(queue, &questions[i]);
    directory_queue_free(queue);
    return 0;
}

static struct directory_question *ask(struct fair_owner owner)
{
    struct directory_question *q = &questions[count];
    snprintf(names[count], sizeof names[count], "sandbox-%zu", count);
    q->key = slice_text(names[count++]);
    assert_int_equal(directory_queue_put(queue, q, owner), ASK_BEGUN);
    return q;
}

static void ask_many(struct fair_owner owner, unsigned n)
{
    while (n--)
        ask(owner);
}

/* The number of turns until it is served, in which whatever is served of the third one ends at once, and nothing else ever. */
static unsigned turns_until(const struct directory_question *wanted, size_t from, size_t to)
{
    struct directory_question *q;
    unsigned turns = 0;
    while ((q = directory_queue_next(queue)) && ++turns && q != wanted)
        if (q >= &questions[from] && q < &questions[to])
            directory_queue_leave(queue, q);
    return q ? turns : MANY;
}

/* One asks for it after all that it asks for, one joins it in a line that is short but does not move. */
static void two_who_collude_make_nobody_wait_for_what_they_ask_for(void **state)
{
    (void)state;
    ask_many(first, 200);
    struct directory_question *q = ask(first);
    ask_many(second, 33);
    assert_true(directory_queue_join(queue, q->key, second));
    size_t from = count;
    ask_many(third, 40);
    assert_true(directory_queue_join(queue, q->key, third));
    assert_in_range(turns_until(q, from, count), 41, 3 * 41);
}

static void who_has_joined_does_not_join_again(void **state)
{
    struct directory_question *q = ask(first);
    (void)state;
    assert_false(directory_queue_join(queue, q->key, first));
    assert_true(directory_queue_join(queue, q->key, second));
    assert_false(directory_queue_join(queue, q->key, second));
    assert_true(directory_queue_join(queue, q->key, third));
    assert_false(directory_queue_join(queue, SLICE_LITERAL("another"), third));
    assert_ptr_equal(directory_queue_next(queue), q);
    assert_null(directory_queue_next(queue));
    directory_queue_again(queue, q);
    assert_true(directory_queue_join(queue, q->key, second)); /* its place was given up */
}

static void it_waits_on_for_those_who_came_later(void **state)
{
    struct directory_question *q = ask(first);
    (void)state;
    assert_true(directory_queue_join(queue, q->key, second));
    assert_null(directory_queue_late(queue, q->asked));
    assert_true(directory_queue_is_waiting(queue));
    assert_ptr_equal(directory_queue_late(queue, UINT64_MAX), q);
    assert_false(directory_queue_is_waiting(queue));
}

static void very_many_can_join_and_all_give_up_at_once(void **state)
{
    struct directory_question *q = ask(first);
    unsigned joined = 0;
    (void)state;
    for (uint64_t i = 0; i < 2000; i++)
        joined += directory_queue_join(queue, q->key, (struct fair_owner){i + 1, FAIR_VERIFIED});
    assert_int_equal(joined, 1024);
    assert_ptr_equal(directory_queue_next(queue), q);
    assert_int_equal(q->joined, q->place.state == FAIR_OUT);
}

static void without_memory_it_goes_on_alone(void **state)
{
    struct directory_question *q = ask(first);
    (void)state;
    alloc_fail_at(1);
    assert_false(directory_queue_join(queue, q->key, second));
    alloc_fail_at(0);
    assert_ptr_equal(directory_queue_next(queue), q);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(two_who_collude_make_nobody_wait_for_what_they_ask_for, make, drop),
        cmocka_unit_test_setup_teardown(who_has_joined_does_not_join_again, make, drop),
        cmocka_unit_test_setup_teardown(it_waits_on_for_those_who_came_later, make, drop),
        cmocka_unit_test_setup_teardown(very_many_can_join_and_all_give_up_at_once, make, drop),
        cmocka_unit_test_setup_teardown(without_memory_it_goes_on_alone, make, drop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
