/* SPDX-License-Identifier: MIT */
#include "examples/worker/session/chunks.h"
#include "tests/unit/support.h"

/* Chunk i has its number in each byte, and goes to stream i & 1. */
static void put(struct chunks *c, unsigned i, size_t len)
{
    uint8_t bytes[8192];
    memset(bytes, (int)(i & 255), len);
    chunks_put(c, i & 1, slice_of(bytes, len));
}

static void pieces_never_mix_streams_or_chunks(void **state)
{
    (void)state;
    struct chunks c = chunks_with_limit(4096);
    unsigned stream = 9;
    put(&c, 0, 10);
    put(&c, 1, 5);
    put(&c, 2, 1);
    struct slice s = chunks_at(&c, 0, &stream);
    assert_int_equal(s.len, 10);
    assert_int_equal(stream, 0);
    s = chunks_at(&c, 7, &stream);
    assert_int_equal(s.len, 3);
    s = chunks_at(&c, 10, &stream);
    assert_int_equal(s.len, 5);
    assert_int_equal(stream, 1);
    assert_int_equal(s.at[0], 1);
    s = chunks_at(&c, 15, &stream);
    assert_int_equal(s.len, 1);
    assert_int_equal(stream, 0);
    assert_int_equal(chunks_at(&c, 16, &stream).len, 0);
    chunks_free(&c);
}

static void only_whole_chunks_are_pushed_out(void **state)
{
    (void)state;
    struct chunks c = chunks_with_limit(10000);
    uint64_t begins[400], end = 0;
    for (unsigned i = 0; i < 400; i++) {
        size_t len = 1 + (i * 97) % 4096;
        begins[i] = end;
        put(&c, i, len);
        end += len;
        assert_int_equal(c.bytes.end, end);
        assert_true(end - c.bytes.start <= 10000);
        unsigned first = i;
        while (first > 0 && end - begins[first - 1] <= 10000)
            first--;
        assert_int_equal(c.bytes.start, begins[first]);
        for (uint64_t at = c.bytes.start; at < end;) {
            unsigned stream = 9;
            struct slice s = chunks_at(&c, at, &stream);
            assert_true(s.len > 0);
            assert_int_equal(stream, first & 1);
            assert_int_equal(s.at[0], first & 255);
            at += s.len;
            first += at == (first == i ? end : begins[first + 1]);
        }
    }
    chunks_free(&c);
}

static void room_is_what_pushes_out_nothing_a_reader_needs(void **state)
{
    (void)state;
    struct chunks c = chunks_with_limit(10000);
    for (unsigned i = 0; i < 5; i++)
        put(&c, i, 2000);
    assert_int_equal(chunks_room(&c, 0), 0);
    assert_int_equal(chunks_room(&c, 1999), 0);
    assert_int_equal(chunks_room(&c, 2000), 2000);
    assert_int_equal(chunks_room(&c, 2001), 2000); /* its chunk is still needed */
    assert_int_equal(chunks_room(&c, 10000), 10000);
    put(&c, 5, 2000);
    assert_int_equal(c.bytes.start, 2000);
    put(&c, 6, 1);
    assert_int_equal(c.bytes.start, 4000);
    chunks_free(&c);
}

static void single_bytes_shorten_the_ring(void **state)
{
    (void)state;
    struct chunks c = chunks_with_limit(1 << 20);
    for (unsigned i = 0; i < CHUNKS_MAX; i++)
        put(&c, i, 1);
    assert_int_equal(c.bytes.start, 0);
    assert_int_equal(chunks_room(&c, 0), 0);
    put(&c, 0, 1);
    assert_int_equal(c.bytes.start, 1);
    assert_int_equal(c.count, CHUNKS_MAX);
    chunks_free(&c);
}

static void short_memory_loses_chunks_but_never_tells_wrong_ones(void **state)
{
    (void)state;
    for (unsigned n = 1; n <= 8; n++) {
        struct chunks c = chunks_with_limit(100000);
        unsigned stream = 9;
        alloc_fail_at(n);
        for (unsigned i = 0; i < 90; i++)
            put(&c, i, 1000);
        alloc_fail_at(0);
        put(&c, 90, 1000);
        assert_int_equal(c.bytes.end, 91000);
        for (uint64_t at = c.bytes.start; at < c.bytes.end;) {
            struct slice s = chunks_at(&c, at, &stream);
            assert_true(s.len > 0);
            assert_int_equal(s.at[0], at / 1000);
            assert_int_equal(stream, at / 1000 & 1);
            at += s.len;
        }
        chunks_free(&c);
    }
}

static void what_is_reserved_loses_no_chunk_however_short_memory_is(void **state)
{
    (void)state;
    struct chunks c = chunks_with_limit(100000);
    unsigned refused = 0, i = 0;
    for (unsigned turn = 0; i < 90; turn++) {
        assert_true(turn < 1000);
        alloc_fail_at(turn % 2 == 0 ? 1 : 0);
        if (chunks_reserve(&c) >= 1000)
            put(&c, i++, 1000);
        else
            refused++;
        alloc_fail_at(0);
        assert_int_equal(c.count, i);
        assert_int_equal(c.bytes.start, 0);
        assert_int_equal(c.bytes.end, i * 1000);
    }
    assert_true(refused);
    chunks_free(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pieces_never_mix_streams_or_chunks),
        cmocka_unit_test(only_whole_chunks_are_pushed_out),
        cmocka_unit_test(room_is_what_pushes_out_nothing_a_reader_needs),
        cmocka_unit_test(single_bytes_shorten_the_ring),
        cmocka_unit_test(short_memory_loses_chunks_but_never_tells_wrong_ones),
        cmocka_unit_test(what_is_reserved_loses_no_chunk_however_short_memory_is),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
