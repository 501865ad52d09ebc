/* SPDX-License-Identifier: MIT */
#include "tests/unit/support.h"

#include <stdlib.h>

#include "spoa/base/fold.h"

enum { SIZE = 1184 };

static uint8_t object[SIZE], seen[SIZE], packed[FOLD_PACKED_MOST], other[FOLD_PACKED_MOST];

/* Some bytes of each of some words, as a pattern of the round. */
static void fill(unsigned round)
{
    memset(object, 0, sizeof object);
    for (size_t i = 0; i < SIZE; i++)
        if (i * 7 % (round + 1) == 0)
            object[i] = (uint8_t)(i * 13 + round);
}

static void goes_on_byte_for_byte(void **state)
{
    (void)state;
    struct fold fold = {.size = SIZE};
    for (unsigned round = 0; round < 200; round++) {
        fill(round);
        assert_int_not_equal(fold_pack(&fold, object, packed), 0);
        memset(seen, 0xa5, sizeof seen);
        fold_unpack(&fold, packed, seen);
        assert_memory_equal(seen, object, SIZE);
    }
    fold_free(&fold);
}

/* Also one that differs everywhere from the first. */
static void keeps_the_largest_and_the_smallest(void **state)
{
    (void)state;
    struct fold fold = {.size = FOLD_SIZE_MOST};
    static uint8_t large[FOLD_SIZE_MOST], back[FOLD_SIZE_MOST];
    assert_int_equal(fold_pack(&fold, large, other), FOLD_SIZE_MOST / 64);
    memset(large, 0xff, sizeof large);
    assert_int_equal(fold_pack(&fold, large, packed), FOLD_PACKED_MOST);
    fold_unpack(&fold, packed, back);
    assert_memory_equal(back, large, sizeof large);
    memset(large, 0, sizeof large);
    fold_unpack(&fold, other, back);
    assert_memory_equal(back, large, sizeof large);
    fold_free(&fold);
}

static void takes_little_for_one_like_the_first(void **state)
{
    (void)state;
    struct fold fold = {.size = SIZE};
    fill(3);
    size_t words = (SIZE / 8 + 7) / 8;
    assert_int_equal(fold_pack(&fold, object, packed), words);
    for (size_t i = 0; i < SIZE; i += 64)
        object[i] ^= 1;
    assert_int_equal(fold_pack(&fold, object, packed), words + 2 * ((SIZE + 63) / 64));
    fold_free(&fold);
}

static void says_that_memory_is_short(void **state)
{
    (void)state;
    struct fold fold = {.size = SIZE};
    alloc_fail_at(1);
    assert_int_equal(fold_pack(&fold, object, packed), 0);
    alloc_fail_at(0);
    assert_int_not_equal(fold_pack(&fold, object, packed), 0);
    fold_unpack(&fold, packed, seen);
    assert_memory_equal(seen, object, SIZE);
    fold_free(&fold);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(goes_on_byte_for_byte),
        cmocka_unit_test(keeps_the_largest_and_the_smallest),
        cmocka_unit_test(takes_little_for_one_like_the_first),
        cmocka_unit_test(says_that_memory_is_short),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
