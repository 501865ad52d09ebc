/* SPDX-License-Identifier: MIT */
#include "tests/unit/support.h"

#include <pthread.h>
#include <string.h>

#include "spoa/base/os/random.h"

enum { TAKEN = 4096 };

/* Takes parts of every length, so that the pool runs out within each of them. No eight bytes may come twice. */
static void *take(void *context)
{
    uint8_t *to = context;
    for (size_t len = 8, at = 0; at + RANDOM_MAX <= TAKEN; at += len, len = len < RANDOM_MAX ? len + 8 : 8)
        if (!random_bytes(to + at, len))
            return NULL;
    return to;
}

/* Returns the i-th eight bytes. The end of TAKEN is left out, because it may not have been filled. */
static const uint8_t *part(const uint8_t bytes[3][TAKEN], size_t i)
{
    size_t parts = (TAKEN - RANDOM_MAX) / 8;
    return bytes[i / parts] + i % parts * 8;
}

static void no_bytes_are_given_twice(void **state)
{
    static uint8_t bytes[3][TAKEN];
    const size_t parts = 3 * (TAKEN - RANDOM_MAX) / 8;
    pthread_t threads[2];
    void *taken[2];
    (void)state;
    for (unsigned i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, take, bytes[i]), 0);
    for (unsigned i = 0; i < 2; i++) {
        pthread_join(threads[i], &taken[i]);
        assert_non_null(taken[i]);
    }
    assert_non_null(take(bytes[2]));
    for (size_t i = 0; i < parts; i++)
        for (size_t k = i + 1; k < parts; k++)
            assert_memory_not_equal(part(bytes, i), part(bytes, k), 8);
}

static void numbers_use_all_bits(void **state)
{
    uint32_t seen = 0, missing = 0;
    (void)state;
    for (unsigned i = 0; i < 1000; i++) {
        uint32_t number = random_u32();
        seen |= number;
        missing |= ~number;
    }
    assert_int_equal(seen, UINT32_MAX);
    assert_int_equal(missing, UINT32_MAX);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_bytes_are_given_twice),
        cmocka_unit_test(numbers_use_all_bits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
