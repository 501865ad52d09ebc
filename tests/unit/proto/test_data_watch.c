/* SPDX-License-Identifier: MIT */
#include "tests/unit/support.h"

#include "spoa/proto/data_watch.h"

/* Feeds the bytes in pieces of `piece` bytes. Returns the number of bytes fed until the watch was done, or SIZE_MAX. */
static size_t seen_at(struct slice bytes, size_t piece)
{
    struct data_watch w = {.done = false};
    size_t at = 0;
    for (; at < bytes.len && !w.done; at += piece) {
        struct slice copy = guarded(slice_sub(bytes, at, piece));
        data_watch_client(&w, copy);
        guarded_free(copy);
    }
    return w.done ? at : SIZE_MAX;
}

static void a_whole_record_of_data_ends_it(void **state)
{
    (void)state;
    /* a stand-in for the ClientHello, change_cipher_spec, the Finished, another record */
    static const uint8_t said[] = {22, 3, 1, 0, 2, 1, 0, 20, 3,  3, 0, 1, 1,
                                   23, 3, 3, 0, 3, 7, 7, 7,  23, 3, 3, 0, 1};
    const size_t finished = 21;
    for (size_t len = 0; len <= sizeof said; len++) {
        assert_true(seen_at(slice_of(said, len), 1) == (len >= finished ? finished : SIZE_MAX));
        assert_true((seen_at(slice_of(said, len), sizeof said) != SIZE_MAX) == (len >= finished));
    }
}

static void other_records_do_not(void **state)
{
    (void)state;
    uint8_t said[7] = {0, 3, 3, 0, 2, 23, 23};
    for (unsigned kind = 0; kind < 256; kind++) {
        said[0] = (uint8_t)kind;
        assert_true((seen_at(slice_of(said, sizeof said), 1) != SIZE_MAX) == (kind == 23));
    }
}

static void an_empty_record_has_no_end_to_wait_for(void **state)
{
    (void)state;
    assert_int_equal(seen_at(slice_of("\x17\3\3\0\0", 5), 1), 5);
    assert_true(seen_at(slice_of("\x16\3\3\0\0\x17\3\3\0", 9), 1) == SIZE_MAX);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_whole_record_of_data_ends_it),
        cmocka_unit_test(other_records_do_not),
        cmocka_unit_test(an_empty_record_has_no_end_to_wait_for),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
