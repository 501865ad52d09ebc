/* SPDX-License-Identifier: MIT */
#include <string.h>

#include "spoa/base/bytes/buffer.h"
#include "spoa/base/bytes/heap.h"
#include "tests/unit/support.h"

/* The tests run in this order: a process that has left malloc never returns. */

static void grows_and_keeps_what_was_held(void **state)
{
    (void)state;
    char *at = heap_grow(NULL, 0, 4);
    memcpy(at, "abc", 4);
    at = heap_grow(at, 4, 100000);
    assert_string_equal(at, "abc");
    heap_give(at);
}

static void a_buffer_that_malloc_holds_goes_on_after_leaving(void **state)
{
    struct buffer b = buffer_with_limit(1 << 20);

    (void)state;
    assert_true(buffer_put(&b, SLICE_LITERAL("before ")));
    uint8_t *before = b.memory;
    assert_true(heap_leave());
    alloc_fail_at(1);
    for (int i = 0; i < 10000; i++)
        assert_true(buffer_put(&b, SLICE_LITERAL("0123456789")));
    alloc_fail_at(0);
    assert_ptr_not_equal(b.memory, before);
    assert_int_equal(buffer_len(&b), 7 + 100000);
    assert_memory_equal(buffer_slice(&b).at, "before 0123456789", 17);
    buffer_free(&b); /* malloc's memory is not given back: nobody knows its lists */
}

static void what_is_returned_is_taken_again(void **state)
{
    const size_t mark = heap_mark();

    (void)state;
    uint8_t *large = heap_take((size_t)64 << 20), *other = heap_take(1);
    assert_non_null(large);
    assert_true(other >= large + ((size_t)64 << 20));
    memset(large, 1, (size_t)64 << 20);
    heap_return(mark);
    assert_ptr_equal(heap_take(16), large);
}

static void more_than_there_is_is_refused(void **state)
{
    (void)state;
    assert_null(heap_take(SIZE_MAX));
    assert_null(heap_take((size_t)1 << 40));
    assert_null(heap_grow(NULL, 0, SIZE_MAX - 1));
    assert_non_null(heap_take(1));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(grows_and_keeps_what_was_held),
        cmocka_unit_test(a_buffer_that_malloc_holds_goes_on_after_leaving),
        cmocka_unit_test(what_is_returned_is_taken_again),
        cmocka_unit_test(more_than_there_is_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
