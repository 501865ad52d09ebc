/* SPDX-License-Identifier: MIT */
#include "tests/unit/support.h"

#include "spoa/base/text/base64url.h"

static bool decodes(struct slice text, const char *bytes, size_t len)
{
    uint8_t memory[64];
    struct writer w = writer_of(memory, sizeof(memory));
    struct slice g = guarded(text);
    bool good = base64url_decode(g, &w);
    guarded_free(g);
    return good && slice_equal(writer_slice(&w), slice_of(bytes, len));
}

static bool refused(struct slice text)
{
    uint8_t memory[64];
    struct writer w = writer_of(memory, sizeof(memory));
    struct slice g = guarded(text);
    bool good = base64url_decode(g, &w);
    guarded_free(g);
    return !good && w.len == 0;
}

static void rfc4648_vectors_both_ways(void **state)
{
    static const struct {
        const char *bytes, *text;
    } vectors[] = {
        {"", ""},           {"f", "Zg"},          {"fo", "Zm8"},          {"foo", "Zm9v"},
        {"foob", "Zm9vYg"}, {"fooba", "Zm9vYmE"}, {"foobar", "Zm9vYmFy"}, {"\xff\xef\xfe", "_-_-"}};
    for (size_t i = 0; i < sizeof(vectors) / sizeof(*vectors); i++) {
        char memory[16];
        struct writer w = writer_of(memory, sizeof(memory));
        base64url_encode(slice_text(vectors[i].bytes), &w);
        assert_true(slice_is(writer_slice(&w), vectors[i].text));
        assert_int_equal(w.len, base64url_length(strlen(vectors[i].bytes)));
        assert_true(decodes(slice_text(vectors[i].text), vectors[i].bytes, strlen(vectors[i].bytes)));
    }
    (void)state;
}

static void every_two_bytes_come_back(void **state)
{
    for (unsigned v = 0; v < 65536; v++) {
        uint8_t bytes[2] = {(uint8_t)(v >> 8), (uint8_t)v}, text[4], back[2];
        struct writer t = writer_of(text, sizeof(text)), b = writer_of(back, sizeof(back));
        base64url_encode(slice_of(bytes, 2), &t);
        assert_true(base64url_decode(writer_slice(&t), &b));
        assert_memory_equal(bytes, back, 2);
    }
    (void)state;
}

static void only_one_spelling_of_two_characters_decodes_to_a_byte(void **state)
{
    unsigned good = 0;
    for (unsigned v = 0; v < 65536; v++) {
        uint8_t text[2] = {(uint8_t)(v >> 8), (uint8_t)v};
        if (!refused(slice_of(text, 2)))
            good++;
    }
    assert_int_equal(good, 256);
    (void)state;
}

static void foreign_characters_lengths_and_spare_bits_are_refused(void **state)
{
    static const char *const bad[] = {"A",
                                      "AAAAA",
                                      "Zg==",
                                      "Zm8=",
                                      "Zm9v\n",
                                      " Zm9v",
                                      "Zm9v ",
                                      "Zm 9v",
                                      "+/+/",
                                      "Zm9v#",
                                      "Zm9#",
                                      "Zh",
                                      "Zm9",
                                      "Z",
                                      "Zm9vYh",
                                      "Zm9vYmF",
                                      "Zm9v.",
                                      "Zm9vYg=",
                                      "\xc3\xa4\xc3\xa4"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++)
        assert_true(refused(slice_text(bad[i])));
    assert_true(refused(slice_of("Zm9\0", 4)));
    (void)state;
}

static void decoded_bytes_that_do_not_fit_are_refused_and_none_is_left(void **state)
{
    uint8_t memory[5];
    for (size_t size = 0; size < 6; size++) {
        struct writer w = writer_of(memory, size > 5 ? 5 : size);
        assert_false(base64url_decode(SLICE_LITERAL("Zm9vYmFy"), &w));
        assert_true(w.full);
        assert_int_equal(w.len, 0);
    }
    (void)state;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rfc4648_vectors_both_ways),
        cmocka_unit_test(every_two_bytes_come_back),
        cmocka_unit_test(only_one_spelling_of_two_characters_decodes_to_a_byte),
        cmocka_unit_test(foreign_characters_lengths_and_spare_bits_are_refused),
        cmocka_unit_test(decoded_bytes_that_do_not_fit_are_refused_and_none_is_left),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
