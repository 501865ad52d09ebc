/* SPDX-License-Identifier: MIT */
#include "tests/unit/support.h"

#include "spoa/agent/decision/auth_failure_limiter.h"

#define NOW 2000000000

static const struct address one = {.family = 4, .bytes = {192, 0, 2, 1}};

static void so_many_in_a_second_and_then_none_until_the_next(void **state)
{
    struct auth_failure_limiter *limiter = auth_failure_limiter_new();
    for (int i = 0; i < 3; i++) {
        assert_true(auth_failure_limiter_allows(limiter, &one, AUTH_FAILURE_SECRET, NOW, 3));
        auth_failure_limiter_count(limiter, &one, AUTH_FAILURE_SECRET, NOW);
    }
    assert_false(auth_failure_limiter_allows(limiter, &one, AUTH_FAILURE_SECRET, NOW, 3));
    assert_true(auth_failure_limiter_allows(limiter, &one, AUTH_FAILURE_SECRET, NOW, 4));
    assert_true(auth_failure_limiter_allows(limiter, &one, AUTH_FAILURE_SECRET, NOW, 0));
    assert_true(auth_failure_limiter_allows(limiter, &one, AUTH_FAILURE_SECRET, NOW + 1, 3));
    auth_failure_limiter_free(limiter);
    (void)state;
}

static void one_address_does_not_use_up_what_others_have(void **state)
{
    struct auth_failure_limiter *limiter = auth_failure_limiter_new();
    unsigned without = 0;
    for (int i = 0; i < 1000; i++)
        auth_failure_limiter_count(limiter, &one, AUTH_FAILURE_SECRET, NOW);
    for (uint8_t i = 2; i < 102; i++) {
        struct address other = {.family = 4, .bytes = {192, 0, 2, i}};
        without += !auth_failure_limiter_allows(limiter, &other, AUTH_FAILURE_SECRET, NOW, 1);
    }
    assert_int_equal(without, 0);
    auth_failure_limiter_free(limiter);
    (void)state;
}

static struct address network(uint8_t site, unsigned i)
{
    return (struct address){.family = 6,
                            .bytes = {0x20, 1, 0xd, 0xb8, 0, site, (uint8_t)(i >> 8), (uint8_t)i}};
}

static void fail_whatever_is_left(struct auth_failure_limiter *limiter, const struct address *from,
                                  int64_t most)
{
    for (int i = 0; i < 100 && auth_failure_limiter_allows(limiter, from, AUTH_FAILURE_SECRET, NOW, most);
         i++)
        auth_failure_limiter_count(limiter, from, AUTH_FAILURE_SECRET, NOW);
}

static unsigned strangers_without(struct auth_failure_limiter *limiter, int64_t now)
{
    unsigned without = 0;
    for (unsigned i = 0; i < 10000; i++) {
        struct address stranger = {.family = 4, .bytes = {10, 0, (uint8_t)(i >> 8), (uint8_t)i}};
        without += !auth_failure_limiter_allows(limiter, &stranger, AUTH_FAILURE_SECRET, now, 20);
    }
    return without;
}

/* As many as somebody has who has one /48, and more addresses than there are counters. */
static void nobody_is_refused_for_what_others_did(void **state)
{
    struct auth_failure_limiter *limiter = auth_failure_limiter_new();
    fail_whatever_is_left(limiter, &one, 20);
    assert_int_equal(strangers_without(limiter, NOW), 0);
    for (unsigned i = 0; i < 65536; i++) {
        struct address of_a_site = network(1, i);
        struct address of_many = {.family = 4, .bytes = {11, 0, (uint8_t)(i >> 8), (uint8_t)i}};
        fail_whatever_is_left(limiter, &of_a_site, 20);
        fail_whatever_is_left(limiter, &of_many, 20);
    }
    assert_int_equal(strangers_without(limiter, NOW), 0);
    assert_int_equal(strangers_without(limiter, NOW + 1), 0);
    auth_failure_limiter_free(limiter);
    (void)state;
}

static void hundreds_of_addresses_are_each_held_to_their_own_number(void **state)
{
    struct auth_failure_limiter *limiter = auth_failure_limiter_new();
    unsigned left = 0;
    for (unsigned i = 0; i < 512; i++) {
        struct address from = {.family = 4, .bytes = {10, 0, (uint8_t)(i >> 8), (uint8_t)i}};
        for (int times = 0; times < 3; times++) {
            assert_true(auth_failure_limiter_allows(limiter, &from, AUTH_FAILURE_SECRET, NOW, 3));
            auth_failure_limiter_count(limiter, &from, AUTH_FAILURE_SECRET, NOW);
        }
    }
    for (unsigned i = 0; i < 512; i++) {
        struct address from = {.family = 4, .bytes = {10, 0, (uint8_t)(i >> 8), (uint8_t)i}};
        left += auth_failure_limiter_allows(limiter, &from, AUTH_FAILURE_SECRET, NOW, 3);
    }
    assert_int_equal(left, 0);
    auth_failure_limiter_free(limiter);
    (void)state;
}

static void a_site_of_ipv6_has_sixteen_times_as_many(void **state)
{
    struct auth_failure_limiter *limiter = auth_failure_limiter_new();
    struct address last = network(1, 0xffff), other = network(2, 0);
    for (unsigned i = 0; i < 16; i++) {
        struct address from = network(1, i);
        assert_true(auth_failure_limiter_allows(limiter, &last, AUTH_FAILURE_SECRET, NOW, 3));
        fail_whatever_is_left(limiter, &from, 3);
    }
    assert_false(auth_failure_limiter_allows(limiter, &last, AUTH_FAILURE_SECRET, NOW, 3));
    assert_true(auth_failure_limiter_allows(limiter, &other, AUTH_FAILURE_SECRET, NOW, 3));
    assert_true(auth_failure_limiter_allows(limiter, &last, AUTH_FAILURE_SECRET, NOW + 1, 3));
    auth_failure_limiter_free(limiter);
    (void)state;
}

static void a_network_of_ipv6_counts_as_one(void **state)
{
    struct auth_failure_limiter *limiter = auth_failure_limiter_new();
    const struct address first = {.family = 6, .bytes = {0x20, 1, 0xd, 0xb8, 0, 0, 0, 1, 1}};
    const struct address same = {.family = 6, .bytes = {0x20, 1, 0xd, 0xb8, 0, 0, 0, 1, 2, 3, 4}};
    auth_failure_limiter_count(limiter, &first, AUTH_FAILURE_SECRET, NOW);
    assert_false(auth_failure_limiter_allows(limiter, &same, AUTH_FAILURE_SECRET, NOW, 1));
    auth_failure_limiter_free(limiter);
    (void)state;
}

static void ipv4_addresses_on_an_ipv6_socket_are_not_one_network(void **state)
{
    struct auth_failure_limiter *limiter = auth_failure_limiter_new();
    unsigned without = 0;
    const struct address mapped = {.family = 6, .bytes = {[10] = 0xff, 0xff, 192, 0, 2, 1}};
    auth_failure_limiter_count(limiter, &mapped, AUTH_FAILURE_SECRET, NOW);
    assert_false(auth_failure_limiter_allows(limiter, &one, AUTH_FAILURE_SECRET, NOW,
                                             1)); /* the same client, whichever way it came */
    for (uint8_t i = 2; i < 102; i++) {
        const struct address other = {.family = 6, .bytes = {[10] = 0xff, 0xff, 192, 0, 2, i}};
        without += !auth_failure_limiter_allows(limiter, &other, AUTH_FAILURE_SECRET, NOW, 1);
    }
    assert_int_equal(without, 0);
    auth_failure_limiter_free(limiter);
    (void)state;
}

static void without_counters_there_is_always_one_left(void **state)
{
    auth_failure_limiter_count(NULL, &one, AUTH_FAILURE_SECRET, NOW);
    assert_true(auth_failure_limiter_allows(NULL, &one, AUTH_FAILURE_SECRET, NOW, 1));
    alloc_fail_at(1);
    assert_null(auth_failure_limiter_new());
    alloc_fail_at(0);
    (void)state;
}

static void sorts_are_counted_apart(void **state)
{
    struct auth_failure_limiter *limiter = auth_failure_limiter_new();
    (void)state;
    auth_failure_limiter_count(limiter, &one, AUTH_FAILURE_TOKEN, NOW);
    assert_false(auth_failure_limiter_allows(limiter, &one, AUTH_FAILURE_TOKEN, NOW, 1));
    assert_true(auth_failure_limiter_allows(limiter, &one, AUTH_FAILURE_SECRET, NOW, 1));
    auth_failure_limiter_free(limiter);
}

static void a_good_credential_passes_however_many_wrong_ones_came(void **state)
{
    struct auth_failure_limiter *limiter = auth_failure_limiter_new();
    const char *why = "its signature is wrong";
    const enum refusal wrong = REFUSAL_token_invalid;
    (void)state;
    assert_int_equal(auth_failure_limiter_judge(limiter, &one, AUTH_FAILURE_TOKEN, NOW, 1, wrong, &why),
                     wrong);
    assert_string_equal(why, "its signature is wrong");
    assert_int_equal(auth_failure_limiter_judge(limiter, &one, AUTH_FAILURE_TOKEN, NOW, 1, wrong, &why),
                     REFUSAL_too_many_requests);
    assert_string_not_equal(why, "its signature is wrong");
    static const enum refusal others[] = {REFUSAL_NONE, REFUSAL_token_expired, REFUSAL_agent_unavailable};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        assert_int_equal(
            auth_failure_limiter_judge(limiter, &one, AUTH_FAILURE_TOKEN, NOW, 1, others[i], &why),
            others[i]);
    auth_failure_limiter_free(limiter);
}

static void what_was_right_is_known_and_nothing_else(void **state)
{
    struct auth_failure_limiter *limiter = auth_failure_limiter_new();
    const struct slice a[] = {SLICE_LITERAL("sb-1"), SLICE_LITERAL("secret")},
                       b[] = {SLICE_LITERAL("sb-1s"), SLICE_LITERAL("ecret")},
                       c[] = {SLICE_LITERAL("sb-1"), SLICE_LITERAL("Secret")};
    unsigned known = 0;
    (void)state;
    assert_false(auth_failure_limiter_knows(limiter, a, 2));
    auth_failure_limiter_learn(limiter, a, 2);
    auth_failure_limiter_learn(limiter, a, 2);
    assert_true(auth_failure_limiter_knows(limiter, a, 2));
    assert_false(auth_failure_limiter_knows(limiter, b, 2) || auth_failure_limiter_knows(limiter, c, 2) ||
                 auth_failure_limiter_knows(limiter, a, 1));
    for (uint32_t i = 0; i < 2000; i++)
        auth_failure_limiter_learn(limiter, &(struct slice){(const uint8_t *)&i, sizeof i}, 1);
    for (uint32_t i = 0; i < 2000; i++)
        known += auth_failure_limiter_knows(limiter, &(struct slice){(const uint8_t *)&i, sizeof i}, 1);
    assert_true(known > 1500);
    assert_false(auth_failure_limiter_knows(NULL, a, 2));
    auth_failure_limiter_learn(NULL, a, 2);
    auth_failure_limiter_free(limiter);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(so_many_in_a_second_and_then_none_until_the_next),
        cmocka_unit_test(one_address_does_not_use_up_what_others_have),
        cmocka_unit_test(nobody_is_refused_for_what_others_did),
        cmocka_unit_test(hundreds_of_addresses_are_each_held_to_their_own_number),
        cmocka_unit_test(a_site_of_ipv6_has_sixteen_times_as_many),
        cmocka_unit_test(a_network_of_ipv6_counts_as_one),
        cmocka_unit_test(ipv4_addresses_on_an_ipv6_socket_are_not_one_network),
        cmocka_unit_test(sorts_are_counted_apart),
        cmocka_unit_test(a_good_credential_passes_however_many_wrong_ones_came),
        cmocka_unit_test(what_was_right_is_known_and_nothing_else),
        cmocka_unit_test(without_counters_there_is_always_one_left),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
