/* SPDX-License-Identifier: MIT */
#include "spoa/base/bytes/image.h"
#include "tests/unit/support.h"

struct thing {
    uint64_t number;
    int64_t below;
    bool yes;
    uint8_t bytes[3];
    struct slice text, absent;
    struct buffer buffer;
};

static void thing_image(struct image *image, struct thing *t)
{
    IMAGE(image, t->number, 1000);
    IMAGE_U64(image, t->below);
    IMAGE_BOOL(image, t->yes);
    image_bytes(image, t->bytes, sizeof t->bytes);
    image_text(image, &t->text);
    image_text(image, &t->absent);
    image_buffer(image, &t->buffer);
}

static struct thing full(size_t held)
{
    static uint8_t many[1 << 20];
    struct thing t = {
        .number = 1000, .below = -1, .yes = true, .bytes = {1, 2, 3}, .text = SLICE_LITERAL("text")};
    t.buffer = buffer_with_limit(sizeof many);
    assert_true(buffer_put(&t.buffer, slice_of(many, held)));
    return t;
}

static struct buffer written(struct thing *t)
{
    struct buffer to = buffer_with_limit(4 << 20);
    struct image image = image_to(&to);
    thing_image(&image, t);
    assert_true(image_done(&image));
    buffer_free(&t->buffer);
    return to;
}

static bool reads(struct slice bytes, struct thing *t, size_t limit)
{
    struct image image = image_from(bytes);
    *t = (struct thing){.buffer = buffer_with_limit(limit)};
    thing_image(&image, t);
    bool done = image_done(&image);
    if (!done)
        buffer_free(&t->buffer);
    return done;
}

static void what_is_written_is_read_at_every_size(void **state)
{
    static const size_t sizes[] = {0, 1, 125, 126, 16384, 65535, 65536, 1 << 20};
    (void)state;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        struct thing t = full(sizes[i]), back;
        struct buffer image = written(&t);
        assert_true(reads(buffer_slice(&image), &back, 1 << 20));
        assert_int_equal(back.number, 1000);
        assert_int_equal(back.below, -1);
        assert_true(back.yes && back.bytes[2] == 3 && slice_is(back.text, "text"));
        assert_false(slice_present(back.absent));
        assert_int_equal(buffer_len(&back.buffer), sizes[i]);
        buffer_free(&back.buffer);
        /* over the limit of who reads */
        assert_true(sizes[i] == 0 || !reads(buffer_slice(&image), &back, sizes[i] - 1));
        buffer_free(&image);
    }
}

static void one_that_is_cut_or_too_long_is_not_read(void **state)
{
    struct thing t = full(10), back;
    struct buffer image = written(&t);
    struct slice all = buffer_slice(&image);
    (void)state;
    for (size_t len = 0; len < all.len; len++)
        assert_false(reads(slice_sub(all, 0, len), &back, 100));
    assert_true(buffer_put(&image, SLICE_LITERAL("x")));
    assert_false(reads(buffer_slice(&image), &back, 100));
    buffer_free(&image);
}

static void a_number_over_its_limit_is_not_read(void **state)
{
    struct thing t = full(0), back;
    struct buffer image = written(&t);
    (void)state;
    image.memory[image.start + 7]++; /* 1001 */
    assert_false(reads(buffer_slice(&image), &back, 100));
    image.memory[image.start + 7]--;
    image.memory[image.start + 23] = 2; /* no bool */
    assert_false(reads(buffer_slice(&image), &back, 100));
    buffer_free(&image);
}

static void a_full_buffer_fails_what_writes(void **state)
{
    struct thing t = full(100);
    (void)state;
    for (size_t limit = 0; limit < 150; limit++) {
        struct buffer to = buffer_with_limit(limit);
        struct image image = image_to(&to);
        thing_image(&image, &t);
        assert_true(buffer_len(&to) <= limit);
        assert_false(image_done(&image));
        buffer_free(&to);
    }
    buffer_free(&t.buffer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_written_is_read_at_every_size),
        cmocka_unit_test(one_that_is_cut_or_too_long_is_not_read),
        cmocka_unit_test(a_number_over_its_limit_is_not_read),
        cmocka_unit_test(a_full_buffer_fails_what_writes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
