/* SPDX-License-Identifier: MIT */
#include "tests/unit/support.h"

#include <malloc.h>
#include <stdlib.h>

#include "spoa/base/fold.h"

enum { SIZE = 1184 };

static uint8_t object[SIZE], seen[SIZE];

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
        uint8_t *packed = fold_pack(&fold, object);
        assert_non_null(packed);
        memset(seen, 0xa5, sizeof seen);
        fold_unpack(&fold, packed, seen);
        assert_memory_equal(seen, object, SIZE);
        free(packed);
    }
    fold_free(&fold);
}

/* Also one that differs everywhere from the first. */
static void keeps_the_largest_and_the_smallest(void **state)
{
    (void)state;
    struct fold fold = {.size = FOLD_SIZE_MOST};
    static uint8_t large[FOLD_SIZE_MOST], back[FOLD_SIZE_MOST];
    uint8_t *zero = fold_pack(&fold, large);
    memset(large, 0xff, sizeof large);
    uint8_t *ones = fold_pack(&fold, large);
    assert_non_null(zero);
    assert_non_null(ones);
    fold_unpack(&fold, ones, back);
    assert_memory_equal(back, large, sizeof large);
    memset(large, 0, sizeof large);
    fold_unpack(&fold, zero, back);
    assert_memory_equal(back, large, sizeof large);
    free(zero);
    free(ones);
    fold_free(&fold);
}

static void takes_little_for_one_like_the_first(void **state)
{
    (void)state;
    struct fold fold = {.size = SIZE};
    fill(3);
    uint8_t *first = fold_pack(&fold, object);
    for (size_t i = 0; i < SIZE; i += 64)
        object[i] ^= 1;
    uint8_t *other = fold_pack(&fold, object);
    assert_non_null(first);
    assert_non_null(other);
    assert_true(malloc_usable_size(first) <= 32);
    assert_true(malloc_usable_size(other) <= 32 + 2 * SIZE / 64 + 16);
    free(first);
    free(other);
    fold_free(&fold);
}

static void says_that_memory_is_short(void **state)
{
    (void)state;
    for (unsigned n = 1; n <= 2; n++) {
        struct fold fold = {.size = SIZE};
        alloc_fail_at(n);
        assert_null(fold_pack(&fold, object));
        alloc_fail_at(0);
        uint8_t *packed = fold_pack(&fold, object);
        assert_non_null(packed);
        fold_unpack(&fold, packed, seen);
        assert_memory_equal(seen, object, SIZE);
        free(packed);
        fold_free(&fold);
    }
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
