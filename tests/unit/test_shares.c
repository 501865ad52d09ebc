/* SPDX-License-Identifier: MIT */
#include "tests/unit/support.h"

#include <stdlib.h>

#include "spoa/agent/serve/shares.h"

static void each_has_its_own_part(void **state)
{
    struct shares *s = shares_new(3, 100);
    (void)state;
    assert_non_null(s);
    uint32_t a = shares_of(s, SLICE_LITERAL("a")), b = a;
    for (char name = 'b'; b == a; name++) /* of another hash */
        b = shares_of(s, slice_of(&name, 1));
    assert_int_equal(shares_of(s, SLICE_LITERAL("a")), a);
    for (unsigned i = 0; i < 3; i++) {
        assert_true(shares_have_room(s, a, 10));
        shares_take(s, a, 10);
    }
    assert_false(shares_have_room(s, a, 0));
    assert_true(shares_have_room(s, b, 100));
    shares_give_back(s, a, 10);
    assert_true(shares_have_room(s, a, 80));
    assert_false(shares_have_room(s, a, 81));
    free(s);
}

static void bytes_come_back(void **state)
{
    struct shares *s = shares_new(1000, 65536);
    (void)state;
    assert_non_null(s);
    for (unsigned i = 0; i < 100; i++) {
        assert_true(shares_have_room(s, 7, 65536));
        shares_take(s, 7, 65536);
        assert_false(shares_have_room(s, 7, 1));
        assert_false(shares_have_room(s, 7, SIZE_MAX));
        assert_true(shares_have_room(s, 7, 0));
        shares_give_back(s, 7, 65536);
    }
    free(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(each_has_its_own_part),
                                       cmocka_unit_test(bytes_come_back)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
