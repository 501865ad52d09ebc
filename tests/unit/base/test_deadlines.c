/* SPDX-License-Identifier: MIT */
#include "tests/unit/support.h"

#include <stdlib.h>

#include "spoa/base/table/deadlines.h"

enum { MANY = 1000, STEPS = 20000 };

struct object {
    struct deadline deadline;
    uint64_t at; /* the deadline that the test expects; UINT64_MAX if none */
};

static struct object objects[MANY];

static void begin(struct deadlines *d, size_t count)
{
    *d = (struct deadlines){0};
    for (size_t i = 0; i < MANY; i++)
        objects[i] = (struct object){.at = UINT64_MAX};
    assert_true(deadlines_reserve(d, count));
}

static uint64_t least(size_t count)
{
    uint64_t at = UINT64_MAX;
    for (size_t i = 0; i < count; i++)
        at = objects[i].at < at ? objects[i].at : at;
    return at;
}

/* A fixed seed gives each run the same numbers. */
static uint32_t next_number(uint32_t *seed)
{
    *seed = *seed * 1664525 + 1013904223;
    return *seed >> 8;
}

static void take_one(struct deadlines *d, size_t count)
{
    uint64_t first = least(count);
    if (first != UINT64_MAX && first)
        assert_null(deadlines_take(d, first - 1));
    struct object *taken = (struct object *)deadlines_take(d, first);
    assert_int_equal(taken != NULL, first != UINT64_MAX);
    if (!taken)
        return;
    assert_int_equal(taken->at, first);
    assert_int_equal(taken->deadline.place, 0);
    taken->at = UINT64_MAX;
}

static void says_who_is_due_next_whatever_was_set_and_cleared(void **state)
{
    (void)state;
    /* whole levels of a heap (1, 1 + 4, 1 + 4 + 16), and one more */
    static const size_t counts[] = {1, 2, 5, 6, 21, MANY};
    uint32_t seed = 7;
    for (size_t c = 0; c < sizeof counts / sizeof *counts; c++) {
        struct deadlines d;
        begin(&d, counts[c]);
        for (unsigned step = 0; step < STEPS; step++) {
            struct object *object = &objects[next_number(&seed) % counts[c]];
            switch (next_number(&seed) % 8) {
            case 0:
                deadlines_clear(&d, &object->deadline);
                object->at = UINT64_MAX;
                break;
            case 1:
                take_one(&d, counts[c]);
                break;
            default: /* many deadlines are equal */
                object->at = next_number(&seed) % (2 * MANY);
                deadlines_set(&d, &object->deadline, object->at);
            }
            assert_int_equal(deadlines_at(&d, &object->deadline), object->at);
            if (step % 16 == 0)
                assert_int_equal(deadlines_first(&d), least(counts[c]));
        }
        while (least(counts[c]) != UINT64_MAX)
            take_one(&d, counts[c]);
        take_one(&d, counts[c]);
        deadlines_free(&d);
    }
}

static void an_empty_heap_has_no_deadline(void **state)
{
    (void)state;
    struct deadlines d;
    begin(&d, 1);
    assert_int_equal(deadlines_first(&d), UINT64_MAX);
    assert_null(deadlines_take(&d, UINT64_MAX));
    deadlines_clear(&d, &objects[0].deadline);
    deadlines_set(&d, &objects[0].deadline, 0);
    assert_int_equal(deadlines_first(&d), 0);
    assert_ptr_equal(deadlines_take(&d, 0), &objects[0].deadline);
    deadlines_set(&d, &objects[0].deadline, UINT64_MAX - 1);
    assert_null(deadlines_take(&d, UINT64_MAX - 2));
    assert_ptr_equal(deadlines_take(&d, UINT64_MAX - 1), &objects[0].deadline);
    deadlines_free(&d);
}

static void room_for_more_leaves_what_is_there(void **state)
{
    (void)state;
    struct deadlines d;
    begin(&d, 1);
    for (size_t i = 0; i < MANY; i++) {
        assert_true(deadlines_reserve(&d, i + 1));
        objects[i].at = MANY - i;
        deadlines_set(&d, &objects[i].deadline, objects[i].at);
    }
    for (size_t i = 0; i < MANY; i++)
        take_one(&d, MANY);
    deadlines_free(&d);
}

static void says_that_there_is_no_room(void **state)
{
    (void)state;
    struct deadlines d;
    begin(&d, 1);
    deadlines_set(&d, &objects[0].deadline, 5);
    size_t room = d.room;
    assert_false(deadlines_reserve(&d, (size_t)DEADLINES_MAX + 1));
    alloc_fail_at(1);
    assert_false(deadlines_reserve(&d, room + 1));
    assert_true(deadlines_reserve(&d, room));
    alloc_fail_at(0);
    assert_int_equal(d.room, room);
    assert_int_equal(deadlines_first(&d), 5);
    deadlines_free(&d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(says_who_is_due_next_whatever_was_set_and_cleared),
        cmocka_unit_test(an_empty_heap_has_no_deadline),
        cmocka_unit_test(room_for_more_leaves_what_is_there),
        cmocka_unit_test(says_that_there_is_no_room),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
