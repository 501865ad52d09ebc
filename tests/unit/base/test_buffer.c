/* SPDX-License-Identifier: MIT */
#include "tests/unit/support.h"

#include <stdlib.h>

#include "spoa/base/bytes/buffer.h"

static uint8_t byte_of(size_t n)
{
    return (uint8_t)(n * 31 + n / 256);
}

/* Valgrind and AddressSanitizer notice each access to memory that is not the buffer's. */
static void keeps_bytes_in_order_up_to_its_limit(void **state)
{
    (void)state;
    for (size_t step = 1; step < 700; step = step * 3 + 1) {
        struct buffer b = buffer_with_limit(5000);
        uint8_t bytes[700];
        size_t put = 0, taken = 0;
        for (unsigned round = 0; round < 3; round++) {
            bool fits = true;
            while (fits) {
                for (size_t i = 0; i < step; i++)
                    bytes[i] = byte_of(put + i);
                fits = buffer_put(&b, slice_of(bytes, step));
                assert_int_equal(fits, put - taken + step <= 5000);
                put += fits ? step : 0;
                assert_int_equal(buffer_len(&b), put - taken);
            }
            struct slice held = buffer_slice(&b);
            for (size_t i = 0; i < held.len; i++)
                assert_int_equal(held.at[i], byte_of(taken + i));
            buffer_consume(&b, held.len / 2 + 1);
            taken += held.len / 2 + 1;
        }
        buffer_free(&b);
    }
}

static void room_may_be_written_to_its_last_byte(void **state)
{
    (void)state;
    struct buffer b = buffer_with_limit(3000);
    size_t room, all = 0;
    uint8_t *at;
    while ((at = buffer_room(&b, 1, &room))) {
        assert_true(room >= 1 && all + room <= 3000);
        memset(at, 'x', room);
        buffer_commit(&b, room);
        all += room;
    }
    assert_int_equal(all, 3000);
    assert_int_equal(buffer_len(&b), 3000);
    buffer_free(&b);
}

static void holds_what_it_held_when_memory_is_short(void **state)
{
    (void)state;
    struct buffer b = buffer_with_limit(5000);
    uint8_t bytes[600] = {1, 2, 3};
    size_t room;
    alloc_fail_at(1);
    assert_false(buffer_put(&b, slice_of(bytes, 3)));
    assert_null(buffer_room(&b, 1, &room));
    alloc_fail_at(0);
    assert_true(buffer_put(&b, slice_of(bytes, 3)));
    alloc_fail_at(1);
    assert_false(buffer_put(&b, slice_of(bytes, 600)));
    alloc_fail_at(0);
    assert_true(slice_equal(buffer_slice(&b), slice_of(bytes, 3)));
    buffer_free(&b);
}

static void swapping_exchanges_the_content_and_not_the_limits(void **state)
{
    struct buffer a = buffer_with_limit(8), b = buffer_with_limit(3);
    (void)state;
    assert_true(buffer_put(&a, SLICE_LITERAL("xabc")));
    buffer_consume(&a, 1);
    buffer_swap(&a, &b);
    assert_int_equal(buffer_len(&a), 0);
    assert_true(slice_is(buffer_slice(&b), "abc"));
    assert_false(buffer_put(&b, SLICE_LITERAL("d")));
    assert_true(buffer_put(&a, SLICE_LITERAL("12345678")));
    buffer_consume(&b, 3);
    assert_true(buffer_put(&b, SLICE_LITERAL("123")));
    buffer_swap(&b, &b);
    assert_true(slice_is(buffer_slice(&b), "123"));
    buffer_free(&a);
    buffer_free(&b);
}

static void an_empty_one_has_no_memory(void **state)
{
    (void)state;
    struct buffer b = buffer_with_limit(100);
    assert_true(buffer_put(&b, slice_of("ab", 2)));
    buffer_consume(&b, 2);
    assert_null(b.memory);
    assert_int_equal(buffer_len(&b), 0);
    buffer_free(&b);
}

static void a_buffer_can_be_cut_and_get_another_limit(void **state)
{
    struct buffer b = buffer_with_limit(SIZE_MAX);
    (void)state;
    assert_int_equal(b.limit, BUFFER_LIMIT_MAX);
    buffer_set_limit(&b, 8);
    assert_true(buffer_put(&b, SLICE_LITERAL("abcdefgh")));
    assert_false(buffer_put(&b, SLICE_LITERAL("i")));
    buffer_consume(&b, 2);
    buffer_cut(&b, 3);
    assert_true(slice_is(buffer_slice(&b), "cde"));
    buffer_set_limit(&b, 2);
    assert_false(buffer_put(&b, SLICE_LITERAL("i")));
    assert_true(slice_is(buffer_slice(&b), "cde"));
    buffer_free(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keeps_bytes_in_order_up_to_its_limit),
        cmocka_unit_test(room_may_be_written_to_its_last_byte),
        cmocka_unit_test(holds_what_it_held_when_memory_is_short),
        cmocka_unit_test(swapping_exchanges_the_content_and_not_the_limits),
        cmocka_unit_test(an_empty_one_has_no_memory),
        cmocka_unit_test(a_buffer_can_be_cut_and_get_another_limit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
