/* SPDX-License-Identifier: MIT */
#include "tests/unit/support.h"

#include <stdlib.h>

#include "spoa/base/bytes/fold.h"

enum {
    SIZE = 1184,
    WORDS = SIZE / 8,
    GAP = 32 /* words that the byte of the next one says are the same, and one */
};

static uint8_t object[SIZE], seen[SIZE], packed[FOLD_PACKED_MOST];

static void put_word(size_t place, uint64_t word)
{
    memcpy(object + 8 * place, &word, sizeof word);
}

/* Its bytes, once it is seen that it comes back. */
static size_t fold_object(struct fold *fold)
{
    size_t len = fold_pack(fold, object, packed);
    assert_in_range(len, 0, SIZE / 8 * 10);
    struct slice guard = guarded(slice_of(packed, len)); /* it is not read past its end */
    memset(seen, 0xa5, sizeof seen);
    fold_unpack(fold, guard, seen);
    guarded_free(guard);
    assert_memory_equal(seen, object, SIZE);
    return len;
}

/* Of one whose first one was this one. */
static struct fold fold_of_object(void)
{
    struct fold fold = {.size = SIZE};
    assert_int_equal(fold_object(&fold), 0);
    return fold;
}

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
    fill(0);
    struct fold fold = fold_of_object();
    for (unsigned round = 0; round < 200; round++) {
        fill(round);
        fold_object(&fold);
    }
    fold_free(&fold);
}

/* Also one that differs everywhere from the first, in each word by something else. */
static void keeps_the_largest_and_the_smallest(void **state)
{
    (void)state;
    struct fold fold = {.size = FOLD_SIZE_MOST};
    static uint8_t large[FOLD_SIZE_MOST], back[FOLD_SIZE_MOST];
    assert_int_equal(fold_pack(&fold, large, packed), 0);
    fold_unpack(&fold, slice_of(packed, 0), back);
    assert_memory_equal(back, large, sizeof large);
    for (size_t i = 0; i < sizeof large; i++)
        large[i] = (uint8_t)(1 + i % 251);
    assert_int_equal(fold_pack(&fold, large, packed), FOLD_PACKED_MOST);
    fold_unpack(&fold, slice_of(packed, FOLD_PACKED_MOST), back);
    assert_memory_equal(back, large, sizeof large);
    fold_free(&fold);
}

/* A byte says where the next word is that differs, up to GAP words behind the last one. */
static void takes_a_byte_more_for_each_gap(void **state)
{
    (void)state;
    static const size_t places[] = {0, 1, GAP - 1, GAP, GAP + 1, 2 * GAP - 1, 2 * GAP, WORDS - 1};
    fill(3);
    struct fold fold = fold_of_object();
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        fill(3);
        object[8 * places[i] + 7] ^= 0x5a;
        assert_int_equal(fold_object(&fold), places[i] / GAP + 1 + 2);
    }
    fold_free(&fold);
}

/* Times, most of them: by how much they are later than the first one's is about the same in all. */
static void takes_little_for_what_is_as_much_larger_as_another_word(void **state)
{
    static const struct {
        int64_t by; /* more than the word before */
        size_t bytes;
    } cases[] = {{0, 0},
                 {1, 1},
                 {INT8_MAX, 1},
                 {INT8_MIN, 1},
                 {INT8_MAX + 1, 2},
                 {INT8_MIN - 1, 2},
                 {INT16_MAX, 2},
                 {INT16_MIN, 2},
                 {INT16_MAX + 1, 1 + 8},
                 {INT16_MIN - 1, 1 + 8}};
    const uint64_t first = 0x1111111111111111, later = 0x2222222222222222;
    (void)state;
    memset(object, 0, sizeof object);
    for (size_t i = 0; i < 3; i++)
        put_word(i, first * i); /* differences count, not the words */
    struct fold fold = fold_of_object();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        /* the bytes of all three differ from the first one's */
        put_word(0, later);
        put_word(1, first + later + (uint64_t)cases[i].by);
        put_word(2, 2 * first + later + (uint64_t)cases[i].by);
        assert_int_equal(fold_object(&fold), 1 + 9 + 1 + cases[i].bytes + 1);
    }
    fold_free(&fold);
}

static void remembers_two_that_alternate(void **state)
{
    const uint64_t later[] = {0x0101010101010101, 0x7070707070707070};
    (void)state;
    memset(object, 0, sizeof object);
    struct fold fold = fold_of_object();
    for (size_t i = 0; i < WORDS; i++)
        put_word(i, later[i % 2] + (i > 1));
    assert_int_equal(fold_object(&fold), 2 * (1 + 9) + 2 * 2 + (WORDS - 4));
    fold_free(&fold);
}

static void says_that_memory_is_short(void **state)
{
    (void)state;
    struct fold fold = {.size = SIZE};
    fill(3);
    alloc_fail_at(1);
    assert_int_equal(fold_pack(&fold, object, packed), FOLD_NO_MEMORY);
    alloc_fail_at(0);
    assert_int_equal(fold_object(&fold), 0);
    fold_free(&fold);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(goes_on_byte_for_byte),
        cmocka_unit_test(keeps_the_largest_and_the_smallest),
        cmocka_unit_test(takes_a_byte_more_for_each_gap),
        cmocka_unit_test(takes_little_for_what_is_as_much_larger_as_another_word),
        cmocka_unit_test(remembers_two_that_alternate),
        cmocka_unit_test(says_that_memory_is_short),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
