/* SPDX-License-Identifier: MIT */
#include "tests/unit/support.h"

#include <stdlib.h>

#include "spoa/base/bytes/image_pack.h"

static uint8_t packed[2 * IMAGE_PACK_MAX], opened[IMAGE_PACK_MAX];

/* Packs and unpacks between guard pages; how long it was packed. */
static size_t there_and_back(const struct image_words *words, struct slice bytes)
{
    struct writer w = writer_of(packed, bytes.len + bytes.len / 128 + 1);
    image_pack(words, bytes, &w);
    assert_false(w.full);
    struct slice read = guarded(writer_slice(&w));
    struct writer back = writer_of(opened, bytes.len);
    assert_true(image_unpack(words, read, &back));
    assert_int_equal(back.len, bytes.len);
    if (bytes.len)
        assert_memory_equal(opened, bytes.at, bytes.len);
    guarded_free(read);
    return w.len;
}

static uint32_t next(uint32_t *seed)
{
    return *seed = *seed * 1664525u + 1013904223u;
}

static void gives_back_what_it_was_given(void **state)
{
    (void)state;
    static uint8_t bytes[IMAGE_PACK_MAX], text[IMAGE_WORDS_MAX];
    uint32_t seed = 7;
    for (unsigned letters = 1; letters <= 256; letters = letters * 4) {
        for (size_t i = 0; i < sizeof text; i++)
            text[i] = (uint8_t)((next(&seed) >> 16) % letters);
        struct image_words *words = image_words_new(slice_of(text, letters == 4 ? 3 : sizeof text));
        assert_non_null(words);
        for (size_t len = 0; len <= IMAGE_PACK_MAX; len = len < 300 ? len + 1 : len * 2) {
            for (size_t i = 0; i < len; i++)
                bytes[i] = (uint8_t)((next(&seed) >> 16) % letters);
            there_and_back(words, slice_of(bytes, len));
        }
        image_words_free(words);
    }
    struct image_words *words = image_words_new(slice_text(NULL));
    assert_non_null(words);
    for (size_t i = 64; i < sizeof bytes; i++)
        bytes[i] = bytes[i - 64];
    assert_true(there_and_back(words, slice_of(bytes, sizeof bytes)) < sizeof bytes / 16);
    image_words_free(words);
}

static void takes_little_for_what_is_in_the_dictionary(void **state)
{
    (void)state;
    struct slice agent = SLICE_LITERAL("user-agent: Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36"),
                 head = SLICE_LITERAL(
                     "12345678user-agent: Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36abcdefgh");
    struct image_words *words = image_words_new(agent);
    assert_non_null(words);
    assert_true(there_and_back(words, head) < 16 + 2 + 4);
    image_words_free(words);
}

/* A reference may reach into what it appends. */
static void takes_little_for_a_run_of_equal_bytes(void **state)
{
    (void)state;
    static uint8_t bytes[1000];
    struct image_words *words = image_words_new(slice_text(NULL));
    assert_non_null(words);
    for (size_t period = 1; period <= 7; period++) {
        for (size_t i = 0; i < sizeof bytes; i++)
            bytes[i] = (uint8_t)('a' + i % period);
        assert_in_range(there_and_back(words, slice_of(bytes, sizeof bytes)), 1, 40);
    }
    image_words_free(words);
}

static void a_dictionary_that_is_too_large_is_none(void **state)
{
    (void)state;
    static uint8_t text[IMAGE_WORDS_MAX + 1];
    assert_null(image_words_new(slice_of(text, sizeof text)));
}

static void does_not_write_past_its_end(void **state)
{
    (void)state;
    struct image_words *words = image_words_new(slice_text(NULL));
    struct writer w = writer_of(packed, 5);
    assert_non_null(words);
    image_pack(words, SLICE_LITERAL("0123456789"), &w);
    assert_true(w.full);
    image_words_free(words);
}

/* Another process may say anything. */
static void what_was_not_packed_so_is_refused(void **state)
{
    static const struct slice cases[] = {
        SLICE_LITERAL(""),                /* too little */
        SLICE_LITERAL("\3abc"),           /* a run that is not there */
        SLICE_LITERAL("\3abcd\0"),        /* another one */
        SLICE_LITERAL("\4abcde"),         /* too much */
        SLICE_LITERAL("\3abcd\0a"),       /* too much, by a second run */
        SLICE_LITERAL("\200"),            /* a reference without a place */
        SLICE_LITERAL("\200\0"),          /* with half of one */
        SLICE_LITERAL("\200\0\5"),        /* after the end of the dictionary */
        SLICE_LITERAL("\200\x3f\xff"),    /* far behind it */
        SLICE_LITERAL("\200\x40\0"),      /* to what was not unpacked yet */
        SLICE_LITERAL("\0a\200\x40\1"),   /* the same */
        SLICE_LITERAL("\0a\200\xff\xff"), /* the same */
        SLICE_LITERAL("\0a\200\x40\0"),   /* too much: five bytes */
    };
    struct image_words *words = image_words_new(SLICE_LITERAL("12345678"));
    (void)state;
    assert_non_null(words);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct slice guard = guarded(cases[i]);
        struct writer w = writer_of(opened, 4);
        assert_false(image_unpack(words, guard, &w));
        guarded_free(guard);
    }
    struct writer w = writer_of(opened, 4);
    assert_true(image_unpack(words, SLICE_LITERAL("\200\0\4"), &w) && slice_is(writer_slice(&w), "5678"));
    image_words_free(words);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gives_back_what_it_was_given),
        cmocka_unit_test(takes_little_for_what_is_in_the_dictionary),
        cmocka_unit_test(takes_little_for_a_run_of_equal_bytes),
        cmocka_unit_test(a_dictionary_that_is_too_large_is_none),
        cmocka_unit_test(does_not_write_past_its_end),
        cmocka_unit_test(what_was_not_packed_so_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
