/* SPDX-License-Identifier: MIT */
#include "tests/unit/support.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include "spoa/base/slabs.h"

enum { SIZE = 296, MANY = 3 * SLABS_SIZE / SIZE };

static uint8_t *objects[MANY];

static void take_all(struct slabs *slabs)
{
    for (size_t i = 0; i < MANY; i++) {
        objects[i] = slabs_take(slabs);
        assert_non_null(objects[i]);
        assert_int_equal((uintptr_t)objects[i] % 8, 0);
        for (size_t j = 0; j < SIZE; j++)
            assert_int_equal(objects[i][j], 0);
        memset(objects[i], (int)(i % 251) + 1, SIZE);
    }
}

static void check(size_t i)
{
    for (size_t j = 0; j < SIZE; j++)
        assert_int_equal(objects[i][j], i % 251 + 1);
}

static void gives_zeroed_objects_that_do_not_overlap(void **state)
{
    (void)state;
    struct slabs slabs = slabs_of(SIZE - 3);
    for (unsigned round = 0; round < 2; round++) {
        take_all(&slabs);
        for (size_t i = 0; i < MANY; i++)
            check(i);
        for (size_t i = 0; i < MANY; i += 2)
            slabs_give(&slabs, objects[i]);
        for (size_t i = 1; i < MANY; i += 2) {
            check(i);
            slabs_give(&slabs, objects[i]);
        }
    }
    slabs_free(&slabs);
}

#ifndef __SANITIZE_ADDRESS__ /* there each object is malloc's */
static void gives_slabs_back_that_are_free_but_the_last(void **state)
{
    (void)state;
    struct slabs slabs = slabs_of(SIZE);
    take_all(&slabs);
    size_t most = slabs.count;
    assert_true(most >= 3);
    for (size_t i = 0; i < MANY; i++)
        slabs_give(&slabs, objects[i]);
    assert_int_equal(slabs.count, 1);
    take_all(&slabs);
    assert_int_equal(slabs.count, most);
    for (size_t i = MANY; i--;)
        slabs_give(&slabs, objects[i]);
    assert_int_equal(slabs.count, 1);
    slabs_free(&slabs);
    assert_int_equal(slabs.count, 0);
}

static void takes_what_was_given_back_before_a_new_slab(void **state)
{
    (void)state;
    struct slabs slabs = slabs_of(SIZE);
    take_all(&slabs);
    size_t most = slabs.count;
    for (size_t i = 0; i < MANY; i += 3)
        slabs_give(&slabs, objects[i]);
    for (size_t i = 0; i < MANY; i += 3)
        assert_non_null(objects[i] = slabs_take(&slabs));
    assert_int_equal(slabs.count, most);
    for (size_t i = 0; i < MANY; i++)
        slabs_give(&slabs, objects[i]);
    slabs_free(&slabs);
}
#endif

static void one_that_rests_has_a_place_whatever_is_taken_meanwhile(void **state)
{
    (void)state;
    struct slabs slabs = slabs_of(SIZE);
    for (unsigned round = 0; round < 3; round++) {
        take_all(&slabs);
        for (size_t i = 0; i < MANY; i += 1 + round)
            slabs_rest(&slabs, objects[i]);
        void *others[40];
        for (size_t i = 0; i < 40; i++)
            assert_non_null(memset(others[i] = slabs_take(&slabs), 255, SIZE));
        struct rlimit limit, none;
        assert_int_equal(getrlimit(RLIMIT_DATA, &limit), 0);
        none = (struct rlimit){0, limit.rlim_max};
        assert_int_equal(setrlimit(RLIMIT_DATA, &none), 0);
        for (size_t i = 0; i < MANY; i += 1 + round) {
            objects[i] = slabs_wake(&slabs);
            for (size_t j = 0; objects[i] && j < SIZE; j++)
                assert_int_equal(objects[i][j], 0);
            memset(objects[i], (int)(i % 251) + 1, SIZE);
        }
        assert_int_equal(setrlimit(RLIMIT_DATA, &limit), 0);
        for (size_t i = 0; i < MANY; i++) {
            check(i);
            slabs_give(&slabs, objects[i]);
        }
        for (size_t i = 0; i < 40; i++)
            slabs_give(&slabs, others[i]);
    }
    slabs_free(&slabs);
}

#ifndef __SANITIZE_ADDRESS__
static size_t resident(const struct slabs *slabs)
{
    size_t pages = 0;
    for (size_t i = 0; i < slabs->empty_count; i++) {
        unsigned char there[SLABS_SIZE / 4096];
        assert_int_equal(mincore(slabs->empty[i], SLABS_SIZE, there), 0);
        for (size_t j = 0; j < sizeof there; j++)
            pages += there[j] & 1;
    }
    return pages;
}

static void those_that_rest_cost_no_memory_and_nothing_once_they_are_gone(void **state)
{
    (void)state;
    struct slabs slabs = slabs_of(SIZE);
    take_all(&slabs);
    size_t most = slabs.count;
    for (size_t i = 0; i < MANY; i++)
        slabs_rest(&slabs, objects[i]);
    assert_int_equal(slabs.count, most);
    assert_int_equal(slabs.empty_count, most - 1);
    assert_int_equal(resident(&slabs), 0);
    void *one = slabs_take(&slabs); /* no place of those that rest */
    assert_int_equal(slabs.places, slabs.kept + (most * ((SLABS_SIZE - 64) / SIZE) - MANY) - 1);
    slabs_give(&slabs, one);
    for (size_t i = 0; i < MANY; i++)
        slabs_give(&slabs, slabs_wake(&slabs));
    assert_int_equal(slabs.count, 1);
    slabs_free(&slabs);
    assert_int_equal(slabs.count, 0);
}
#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gives_zeroed_objects_that_do_not_overlap),
        cmocka_unit_test(one_that_rests_has_a_place_whatever_is_taken_meanwhile),
#ifndef __SANITIZE_ADDRESS__
        cmocka_unit_test(gives_slabs_back_that_are_free_but_the_last),
        cmocka_unit_test(takes_what_was_given_back_before_a_new_slab),
        cmocka_unit_test(those_that_rest_cost_no_memory_and_nothing_once_they_are_gone),
#endif
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
