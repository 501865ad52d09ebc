/* SPDX-License-Identifier: MIT */
#include "tests/unit/support.h"

#include <stdlib.h>

#include "spoa/base/bytes/alike.h"

static uint8_t packed[2 * ALIKE_MOST], opened[ALIKE_MOST];

/* Packs and unpacks between guard pages; how long it was packed. */
static size_t there_and_back(const struct alike *alike, struct slice bytes)
{
    struct writer w = writer_of(packed, bytes.len + bytes.len / 128 + 1);
    alike_pack(alike, bytes, &w);
    assert_false(w.full);
    struct slice read = guarded(writer_slice(&w));
    struct writer back = writer_of(opened, bytes.len);
    alike_unpack(alike, read, &back);
    assert_false(back.full);
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
    static uint8_t bytes[ALIKE_MOST], words[ALIKE_DICTIONARY];
    uint32_t seed = 7;
    for (unsigned letters = 1; letters <= 256; letters = letters * 4) {
        for (size_t i = 0; i < sizeof words; i++)
            words[i] = (uint8_t)((next(&seed) >> 16) % letters);
        struct alike *alike = alike_new(slice_of(words, letters == 4 ? 3 : sizeof words));
        assert_non_null(alike);
        for (size_t len = 0; len <= ALIKE_MOST; len = len < 300 ? len + 1 : len * 2) {
            for (size_t i = 0; i < len; i++)
                bytes[i] = (uint8_t)((next(&seed) >> 16) % letters);
            there_and_back(alike, slice_of(bytes, len));
        }
        alike_free(alike);
    }
    struct alike *alike = alike_new(slice_text(NULL));
    assert_non_null(alike);
    for (size_t i = 64; i < sizeof bytes; i++)
        bytes[i] = bytes[i - 64];
    assert_true(there_and_back(alike, slice_of(bytes, sizeof bytes)) < sizeof bytes / 16);
    alike_free(alike);
}

static void takes_little_for_what_is_in_the_dictionary(void **state)
{
    (void)state;
    struct slice agent = SLICE_LITERAL("user-agent: Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36"),
                 head = SLICE_LITERAL(
                     "12345678user-agent: Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36abcdefgh");
    struct alike *alike = alike_new(agent);
    assert_non_null(alike);
    assert_true(there_and_back(alike, head) < 16 + 2 + 4);
    alike_free(alike);
}

/* A reference may reach into what it appends. */
static void takes_little_for_a_run_of_equal_bytes(void **state)
{
    (void)state;
    static uint8_t bytes[1000];
    struct alike *alike = alike_new(slice_text(NULL));
    assert_non_null(alike);
    for (size_t period = 1; period <= 7; period++) {
        for (size_t i = 0; i < sizeof bytes; i++)
            bytes[i] = (uint8_t)('a' + i % period);
        assert_in_range(there_and_back(alike, slice_of(bytes, sizeof bytes)), 1, 40);
    }
    alike_free(alike);
}

static void a_dictionary_that_is_too_large_is_none(void **state)
{
    (void)state;
    static uint8_t words[ALIKE_DICTIONARY + 1];
    assert_null(alike_new(slice_of(words, sizeof words)));
}

static void does_not_write_past_its_end(void **state)
{
    (void)state;
    struct alike *alike = alike_new(slice_text(NULL));
    struct writer w = writer_of(packed, 5);
    assert_non_null(alike);
    alike_pack(alike, SLICE_LITERAL("0123456789"), &w);
    assert_true(w.full);
    alike_free(alike);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gives_back_what_it_was_given),
        cmocka_unit_test(takes_little_for_what_is_in_the_dictionary),
        cmocka_unit_test(takes_little_for_a_run_of_equal_bytes),
        cmocka_unit_test(a_dictionary_that_is_too_large_is_none),
        cmocka_unit_test(does_not_write_past_its_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
