/* SPDX-License-Identifier: MIT */
#include "spoa/base/bytes/image.h"
#include "tests/unit/support.h"

#include <stdlib.h>

#define NOW (UINT64_C(1) << 40)

enum { VERSION = 3 };

struct inner {
    bool yes;
    uint16_t small;
};

struct thing {
    uint64_t number;
    int64_t below;
    bool yes, no;
    uint8_t bytes[20];
    uint64_t times[2];
    struct inner parts[2];
    struct inner *owned;
    struct buffer buffer, limited;
    uint8_t *memory;
    unsigned derived;
};

static const struct image_field inner_fields[] = {
    IMAGE_FLAG(struct inner, yes),
    IMAGE_ANY(struct inner, small),
};
static IMAGE_TABLE(inner_table, struct inner, inner_fields);

static void image_of_memory(struct image *image, void *object)
{
    struct thing *t = object;
    void *memory = t->memory;
    image_memory(image, &memory, 8, 3);
    t->memory = memory;
}

static void derive(void *object)
{
    struct thing *t = object;
    t->derived = t->parts[0].small + 1u;
}

static bool holds(const void *object)
{
    return ((const struct thing *)object)->parts[1].small != 13;
}

static const struct image_field fields[] = {
    IMAGE_NUMBER(struct thing, number, 1000),
    IMAGE_SIGNED(struct thing, below),
    IMAGE_FLAG(struct thing, yes),
    IMAGE_FLAG(struct thing, no),
    IMAGE_BYTES(struct thing, bytes),
    IMAGE_TIMES(struct thing, times),
    IMAGE_PARTS(struct thing, parts, &inner_table),
    IMAGE_OWNED(struct thing, owned, &inner_table),
    IMAGE_BUFFER(struct thing, buffer, 0),
    IMAGE_BUFFER(struct thing, limited, 10),
    IMAGE_BY(struct thing, memory, image_of_memory),
    IMAGE_DERIVED(struct thing, derived),
};
static IMAGE_TABLE(thing_table, struct thing, fields, .holds = holds, .derive = derive);

static struct thing full(size_t held)
{
    static uint8_t many[1 << 20];
    struct thing t = {.number = 1000,
                      .below = -1,
                      .yes = true,
                      .bytes = {1, 2, 3},
                      .times = {NOW - 5, UINT64_MAX},
                      .parts = {{true, 7}, {false, 0}},
                      .owned = calloc(1, sizeof *t.owned),
                      .memory = calloc(1, 8)};
    assert_true(t.owned && t.memory);
    *t.owned = (struct inner){false, UINT16_MAX};
    memcpy(t.memory, "abc", 3);
    t.buffer = buffer_with_limit(sizeof many);
    t.limited = buffer_with_limit(10);
    assert_true(buffer_put(&t.buffer, slice_of(many, held)) && buffer_put(&t.limited, SLICE_LITERAL("ten")));
    return t;
}

static void thing_free(struct thing *t)
{
    free(t->owned);
    free(t->memory);
    buffer_free(&t->buffer);
    buffer_free(&t->limited);
}

static bool writes(struct thing *t, struct buffer *to)
{
    struct image image = image_to(to, VERSION, NOW);
    image_part(&image, &thing_table, t);
    return image_done(&image);
}

static bool reads_at(struct slice bytes, struct thing *t, uint64_t now)
{
    struct image image = image_from(bytes, VERSION, now);
    *t = (struct thing){.number = 0};
    image_part(&image, &thing_table, t);
    bool done = image_done(&image);
    if (!done)
        thing_free(t);
    return done;
}

static bool reads(struct slice bytes, struct thing *t)
{
    return reads_at(bytes, t, UINT64_MAX);
}

static struct buffer written(size_t held)
{
    struct buffer to = buffer_with_limit(4 << 20);
    struct thing t = full(held);
    assert_true(writes(&t, &to));
    thing_free(&t);
    return to;
}

static void what_is_written_is_read_at_every_size(void **state)
{
    static const size_t sizes[] = {0, 1, 125, 126, 16384, 65535, 65536, 1 << 20};
    (void)state;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        struct thing back;
        struct buffer image = written(sizes[i]);
        assert_true(reads(buffer_slice(&image), &back));
        assert_int_equal(back.number, 1000);
        assert_int_equal(back.below, -1);
        assert_true(back.yes && !back.no && back.bytes[2] == 3 && !back.bytes[3]);
        assert_true(back.times[0] == NOW - 5 && back.times[1] == UINT64_MAX);
        assert_true(back.parts[0].yes && back.parts[0].small == 7 && !back.parts[1].small);
        assert_true(!back.owned->yes && back.owned->small == UINT16_MAX);
        assert_memory_equal(back.memory, "abc\0\0\0\0", 8);
        assert_int_equal(back.derived, 8);
        assert_int_equal(buffer_len(&back.buffer), sizes[i]);
        assert_int_equal(back.buffer.limit, 1 << 20);
        assert_true(slice_is(buffer_slice(&back.limited), "ten") && back.limited.limit == 10);
        thing_free(&back);
        buffer_free(&image);
    }
}

static void what_is_zero_takes_a_bit(void **state)
{
    struct thing t = {.limited = buffer_with_limit(10)}, back;
    struct buffer image = buffer_with_limit(100);
    (void)state;
    assert_true(writes(&t, &image));
    assert_in_range(buffer_len(&image), 1, 12); /* of which seven are the version and the time */
    assert_true(reads(buffer_slice(&image), &back));
    assert_true(!back.number && !back.below && !back.times[0] && !back.owned && !back.memory);
    buffer_free(&image);
}

static void one_that_is_cut_or_too_long_is_not_read(void **state)
{
    struct thing back;
    struct buffer image = written(10);
    struct slice all = buffer_slice(&image);
    (void)state;
    for (size_t len = 0; len < all.len; len++) {
        struct slice cut = guarded(slice_sub(all, 0, len));
        assert_false(reads(cut, &back));
        guarded_free(cut);
    }
    assert_true(buffer_put(&image, SLICE_LITERAL("x")));
    assert_false(reads(buffer_slice(&image), &back));
    buffer_free(&image);
}

/* Nothing of it is read. */
static void another_version_is_refused(void **state)
{
    struct buffer image = written(10);
    (void)state;
    for (unsigned version = 0; version < 10; version++) {
        struct image read = image_from(buffer_slice(&image), version, NOW);
        struct thing t = {.number = 7};
        if (version == VERSION)
            continue;
        image_part(&read, &thing_table, &t);
        assert_false(image_done(&read));
        assert_true(t.number == 7 && !t.owned);
    }
    buffer_free(&image);
}

static void what_cannot_be_is_neither_written_nor_read(void **state)
{
    struct buffer to = buffer_with_limit(1000);
    struct thing t = full(0), back;
    (void)state;
    t.number = 1001;
    assert_false(writes(&t, &to));
    t.number = 1000;
    t.parts[1].small = 13; /* what must hold does not */
    assert_false(writes(&t, &to));
    t.parts[1].small = 12;
    buffer_cut(&to, 0);
    assert_true(writes(&t, &to));
    uint8_t *small = memchr(to.memory, 12, to.end);
    assert_non_null(small);
    assert_null(memchr(small + 1, 12, (size_t)(to.memory + to.end - small - 1)));
    *small = 13;
    assert_false(reads(buffer_slice(&to), &back));
    *small = 12;
    assert_true(reads(buffer_slice(&to), &back));
    thing_free(&back);
    uint8_t *ten = memmem(to.memory, to.end, "\3ten", 4);
    assert_non_null(ten);
    *ten = 11; /* over the buffer's limit */
    assert_false(reads(buffer_slice(&to), &back));
    thing_free(&t);
    buffer_free(&to);
}

static void a_number_of_too_many_bytes_is_not_read(void **state)
{
    static const uint8_t bytes[] = {VERSION, 1,    0x80, 0x80, 0x80, 0x80, 0x80,
                                    0x80,    0x80, 0x80, 0x80, 0x80, 0x80, 1};
    struct image image = image_from(slice_of(bytes, sizeof bytes), VERSION, NOW);
    uint64_t number = 0;
    (void)state;
    image_number(&image, &number, UINT64_MAX);
    assert_true(image.failed);
}

/* A clock that began anew is behind what was written by the one before it. */
static void times_go_on_by_another_clock(void **state)
{
    struct buffer image = written(0);
    struct thing back;
    (void)state;
    assert_true(reads_at(buffer_slice(&image), &back, NOW + 100));
    assert_true(back.times[0] == NOW - 5 && back.times[1] == UINT64_MAX);
    thing_free(&back);
    assert_true(reads_at(buffer_slice(&image), &back, 50));
    assert_true(back.times[0] == 45 && back.times[1] == UINT64_MAX);
    thing_free(&back);
    buffer_free(&image);
}

static void a_full_buffer_fails_what_writes(void **state)
{
    struct thing t = full(100);
    struct buffer whole = written(100);
    (void)state;
    for (size_t limit = 0; limit < buffer_len(&whole); limit++) {
        struct buffer to = buffer_with_limit(limit);
        assert_false(writes(&t, &to));
        assert_true(buffer_len(&to) <= limit);
        buffer_free(&to);
    }
    buffer_free(&whole);
    thing_free(&t);
}

/* What was read until then is freed, which the sanitizers see. */
static void reading_may_lack_memory(void **state)
{
    struct buffer image = written(100);
    struct thing back;
    unsigned n = 1;
    (void)state;
    for (bool done = false; !done; n++) {
        alloc_fail_at(n);
        done = reads(buffer_slice(&image), &back);
        alloc_fail_at(0);
    }
    assert_int_equal(n - 2, 4); /* owned, two buffers, memory */
    thing_free(&back);
    buffer_free(&image);
}

static void memory_that_is_kept_is_given_back_without_memory(void **state)
{
    struct buffer to = buffer_with_limit(1000);
    struct thing t = full(100000), back = {.number = 0};
    void *kept[4];
    (void)state;
    buffer_consume(&t.buffer, 100);
    struct image write = image_to(&to, VERSION, NOW);
    image_keep(&write, kept, 4);
    image_part(&write, &thing_table, &t);
    assert_true(image_done(&write));
    assert_int_equal(write.kept_count, 4);
    assert_in_range(buffer_len(&to), 1, 60);
    struct image read = image_from(buffer_slice(&to), VERSION, NOW);
    image_keep(&read, kept, write.kept_count);
    alloc_fail_at(1);
    image_part(&read, &thing_table, &back);
    assert_int_equal(alloc_count(), 0);
    alloc_fail_at(0);
    assert_true(image_done(&read));
    assert_true(back.owned == t.owned && back.memory == t.memory);
    assert_memory_equal(&back.buffer, &t.buffer, sizeof t.buffer);
    assert_memory_equal(&back.limited, &t.limited, sizeof t.limited);
    thing_free(&back);
    buffer_free(&to);
}

static void more_memory_than_there_is_room_for_is_not_kept(void **state)
{
    struct buffer to = buffer_with_limit(1000);
    struct thing t = full(10);
    void *kept[3];
    (void)state;
    struct image write = image_to(&to, VERSION, NOW);
    image_keep(&write, kept, 3);
    image_part(&write, &thing_table, &t);
    assert_false(image_done(&write));
    thing_free(&t);
    buffer_free(&to);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_written_is_read_at_every_size),
        cmocka_unit_test(what_is_zero_takes_a_bit),
        cmocka_unit_test(one_that_is_cut_or_too_long_is_not_read),
        cmocka_unit_test(another_version_is_refused),
        cmocka_unit_test(what_cannot_be_is_neither_written_nor_read),
        cmocka_unit_test(a_number_of_too_many_bytes_is_not_read),
        cmocka_unit_test(times_go_on_by_another_clock),
        cmocka_unit_test(a_full_buffer_fails_what_writes),
        cmocka_unit_test(reading_may_lack_memory),
        cmocka_unit_test(memory_that_is_kept_is_given_back_without_memory),
        cmocka_unit_test(more_memory_than_there_is_room_for_is_not_kept),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
