/* SPDX-License-Identifier: MIT */
#include "tests/unit/support.h"

#include "spoa/agent/token/mux_proof.h"

static const struct address v4 = {.family = 4, .bytes = {192, 0, 2, 7}},
                            mapped = {.family = 6, .bytes = {[10] = 0xff, 0xff, 192, 0, 2, 7}},
                            v6 = {.family = 6, .bytes = {0xfd, [15] = 1}}, nobody = {.family = 0};

static struct key *key_of(const char *secret)
{
    struct fail why;
    struct key *key = key_secret(slice_text(secret), 32, "test", &why);
    assert_non_null(key);
    return key;
}

static void a_proof_is_of_one_address_and_lasts_as_long_as_it_says(void **state)
{
    struct key *key = key_of("0123456789abcdef0123456789abcdef");
    const struct address *const all[] = {&v4, &mapped, &v6};
    const int64_t ends[] = {0, 2000000000, (int64_t)1 << 33, -1};
    (void)state;
    for (size_t i = 0; i < 12; i++) {
        uint8_t memory[MUX_PROOF_TEXT];
        struct writer w = writer_of(memory, sizeof memory);
        int64_t until;
        struct slice text = mux_proof_write(key, all[i % 3], ends[i / 3], &w);
        assert_int_equal(text.len, MUX_PROOF_TEXT);
        for (size_t j = 0; j < 3; j++) /* one is another's other form */
            assert_int_equal(mux_proof_read(key, text, all[j], &until), (i % 3 == 2) == (j == 2));
        assert_true(mux_proof_read(key, text, all[i % 3], &until));
        assert_int_equal(until, ends[i / 3]);
        assert_false(mux_proof_read(key, text, &nobody, &until));
    }
    key_free(key);
}

static void no_other_text_is_a_proof(void **state)
{
    struct key *key = key_of("0123456789abcdef0123456789abcdef"),
               *other = key_of("0123456789abcdef0123456789abcdeF");
    uint8_t memory[MUX_PROOF_TEXT + 1];
    struct writer w = writer_of(memory, sizeof memory);
    int64_t until;
    (void)state;
    struct slice text = mux_proof_write(key, &v4, 1000, &w);
    writer_text(&w, "A");
    assert_false(mux_proof_read(other, text, &v4, &until) || mux_proof_read(NULL, text, &v4, &until));
    assert_false(mux_proof_read(key, slice_text(NULL), &v4, &until));
    for (size_t i = 0; i < MUX_PROOF_TEXT; i++) {
        assert_false(mux_proof_read(key, slice_sub(text, 0, i), &v4, &until));
        for (unsigned bit = 1; bit < 256; bit <<= 1) {
            memory[i] ^= (uint8_t)bit;
            assert_false(mux_proof_read(key, text, &v4, &until));
            memory[i] ^= (uint8_t)bit;
        }
    }
    assert_false(mux_proof_read(key, slice_of(memory, sizeof memory), &v4, &until));
    assert_true(mux_proof_read(key, text, &v4, &until));
    key_free(key);
    key_free(other);
}

static void what_cannot_be_proved_is_not_written(void **state)
{
    struct key *key = key_of("0123456789abcdef0123456789abcdef");
    uint8_t memory[MUX_PROOF_TEXT];
    (void)state;
    for (size_t size = 0; size < sizeof memory; size++) {
        struct writer w = writer_of(memory, size);
        assert_false(slice_present(mux_proof_write(key, &v4, -1, &w)));
    }
    struct writer w = writer_of(memory, sizeof memory);
    assert_false(slice_present(mux_proof_write(NULL, &v4, -1, &w)));
    assert_false(slice_present(mux_proof_write(key, &nobody, -1, &w)));
    assert_int_equal(w.len, 0);
    key_free(key);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_proof_is_of_one_address_and_lasts_as_long_as_it_says),
        cmocka_unit_test(no_other_text_is_a_proof),
        cmocka_unit_test(what_cannot_be_proved_is_not_written),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
