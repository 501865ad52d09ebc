/* SPDX-License-Identifier: MIT */
#include "examples/worker/session/ring.h"
#include "tests/unit/support.h"

#include <stdlib.h>

static uint8_t byte_at(uint64_t offset)
{
    return (uint8_t)(offset * 31 + offset / 251);
}

static void put(struct ring *r, size_t len)
{
    uint8_t *bytes = malloc(len + 1);
    for (size_t i = 0; i < len; i++)
        bytes[i] = byte_at(r->end + i);
    ring_put(r, slice_of(bytes, len));
    free(bytes);
}

/* All that is held is what was put at these offsets, and lies in at most two pieces. */
static void check(const struct ring *r)
{
    unsigned pieces = 0;
    for (uint64_t at = r->start; at < r->end; pieces++) {
        struct slice s = ring_at(r, at);
        assert_true(s.len > 0);
        for (size_t i = 0; i < s.len; i++)
            assert_int_equal(s.at[i], byte_at(at + i));
        at += s.len;
    }
    assert_true(pieces <= 2);
    assert_int_equal(ring_at(r, r->end).len, 0);
    assert_int_equal(ring_at(r, r->end + 1).len, 0);
    if (r->start)
        assert_int_equal(ring_at(r, r->start - 1).len, 0);
}

static void holds_the_last_bytes_by_their_offsets(void **state)
{
    static const size_t limits[] = {1, 7, 4096, 5000, 100000};
    (void)state;
    for (size_t l = 0; l < sizeof limits / sizeof *limits; l++) {
        struct ring r = ring_with_limit(limits[l]);
        uint64_t end = 0;
        for (size_t i = 0; i < 300; i++) {
            size_t len = (i * i * 37) % (limits[l] + limits[l] / 2 + 2);
            put(&r, len);
            end += len;
            assert_int_equal(r.end, end);
            assert_int_equal(r.start, end > limits[l] ? end - limits[l] : 0);
            check(&r);
        }
        ring_free(&r);
    }
}

static void takes_memory_as_it_is_needed(void **state)
{
    (void)state;
    struct ring r = ring_with_limit(1 << 20);
    assert_int_equal(r.size, 0);
    put(&r, 10);
    assert_true(r.size <= 4096);
    put(&r, 1 << 20);
    assert_int_equal(r.size, 1 << 20);
    put(&r, 1 << 20);
    assert_int_equal(r.size, 1 << 20);
    check(&r);
    ring_free(&r);
}

static void forgets_what_is_dropped(void **state)
{
    (void)state;
    struct ring r = ring_with_limit(100);
    put(&r, 250);
    ring_drop(&r, 200);
    assert_int_equal(r.start, 200);
    check(&r);
    ring_drop(&r, 100);
    assert_int_equal(r.start, 200);
    ring_drop(&r, 1000);
    assert_int_equal(r.start, 250);
    put(&r, 60);
    assert_int_equal(r.start, 250);
    put(&r, 60);
    assert_int_equal(r.start, 270);
    check(&r);
    ring_free(&r);
}

static void grows_after_a_drop_without_mixing_up_places(void **state)
{
    (void)state;
    struct ring r = ring_with_limit(64 * 1024);
    put(&r, 3000);
    ring_drop(&r, 2500);
    put(&r, 3400); /* wraps in 4096 */
    check(&r);
    put(&r, 20000);
    assert_int_equal(r.start, 2500);
    check(&r);
    ring_free(&r);
}

static void holds_less_when_memory_is_short(void **state)
{
    (void)state;
    struct ring r = ring_with_limit(1 << 20);
    alloc_fail_at(1);
    ring_put(&r, SLICE_LITERAL("lost"));
    assert_int_equal(r.start, 4);
    assert_int_equal(r.end, 4);
    alloc_fail_at(0);
    put(&r, 4000);
    alloc_fail_at(1);
    uint8_t more[4000];
    for (size_t i = 0; i < sizeof more; i++)
        more[i] = byte_at(r.end + i);
    ring_put(&r, slice_of(more, sizeof more));
    alloc_fail_at(0);
    assert_int_equal(r.end, 8004);
    assert_int_equal(r.start, 8004 - 4096);
    check(&r);
    put(&r, 8000);
    assert_int_equal(r.start, 8004 - 4096);
    check(&r);
    ring_free(&r);
}

static void what_is_reserved_pushes_nothing_out_however_short_memory_is(void **state)
{
    (void)state;
    struct ring r = ring_with_limit(20000);
    unsigned refused = 0;
    for (unsigned turn = 0; r.end < 60000; turn++) {
        assert_true(turn < 1000);
        alloc_fail_at(turn % 3 == 0 ? 1 : 0);
        size_t reserved = ring_reserve(&r);
        alloc_fail_at(0);
        uint64_t start = r.start;
        if (reserved) {
            put(&r, reserved < 700 ? reserved : 700);
            assert_true(r.start == start || r.end - r.start == r.limit);
        }
        refused += !reserved;
        assert_true(reserved >= 1024 || turn % 3 == 0);
        check(&r);
    }
    assert_true(refused);
    ring_free(&r);
}

static void offsets_pass_32_bits(void **state)
{
    (void)state;
    struct ring r = ring_with_limit(4096);
    r.start = r.end = UINT64_C(0xfffffff0);
    for (int i = 0; i < 20; i++)
        put(&r, 1000);
    assert_int_equal(r.end, UINT64_C(0xfffffff0) + 20000);
    check(&r);
    ring_free(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(holds_the_last_bytes_by_their_offsets),
        cmocka_unit_test(takes_memory_as_it_is_needed),
        cmocka_unit_test(forgets_what_is_dropped),
        cmocka_unit_test(grows_after_a_drop_without_mixing_up_places),
        cmocka_unit_test(holds_less_when_memory_is_short),
        cmocka_unit_test(what_is_reserved_pushes_nothing_out_however_short_memory_is),
        cmocka_unit_test(offsets_pass_32_bits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
