/* SPDX-License-Identifier: MIT */
#include "tests/unit/support.h"

#include "spoa/agent/decision/guesses.h"

#define NOW 2000000000

static const struct address one = {.family = 4, .bytes = {192, 0, 2, 1}};

static void so_many_in_a_second_and_then_none_until_the_next(void **state)
{
    struct guesses *guesses = guesses_new();
    for (int i = 0; i < 3; i++) {
        assert_true(guesses_left(guesses, &one, GUESS_SECRET, NOW, 3));
        guesses_count(guesses, &one, GUESS_SECRET, NOW);
    }
    assert_false(guesses_left(guesses, &one, GUESS_SECRET, NOW, 3));
    assert_true(guesses_left(guesses, &one, GUESS_SECRET, NOW, 4));
    assert_true(guesses_left(guesses, &one, GUESS_SECRET, NOW, 0));
    assert_true(guesses_left(guesses, &one, GUESS_SECRET, NOW + 1, 3));
    guesses_free(guesses);
    (void)state;
}

static void one_address_does_not_use_up_what_others_have(void **state)
{
    struct guesses *guesses = guesses_new();
    unsigned without = 0;
    for (int i = 0; i < 1000; i++)
        guesses_count(guesses, &one, GUESS_SECRET, NOW);
    for (uint8_t i = 2; i < 102; i++) {
        struct address other = {.family = 4, .bytes = {192, 0, 2, i}};
        without += !guesses_left(guesses, &other, GUESS_SECRET, NOW, 1);
    }
    assert_int_equal(without, 0);
    guesses_free(guesses);
    (void)state;
}

static struct address network(uint8_t site, unsigned i)
{
    return (struct address){.family = 6,
                            .bytes = {0x20, 1, 0xd, 0xb8, 0, site, (uint8_t)(i >> 8), (uint8_t)i}};
}

static void guess_whatever_is_left(struct guesses *guesses, const struct address *from, int64_t most)
{
    for (int i = 0; i < 100 && guesses_left(guesses, from, GUESS_SECRET, NOW, most); i++)
        guesses_count(guesses, from, GUESS_SECRET, NOW);
}

static unsigned strangers_without(struct guesses *guesses, int64_t now)
{
    unsigned without = 0;
    for (unsigned i = 0; i < 10000; i++) {
        struct address stranger = {.family = 4, .bytes = {10, 0, (uint8_t)(i >> 8), (uint8_t)i}};
        without += !guesses_left(guesses, &stranger, GUESS_SECRET, now, 20);
    }
    return without;
}

/* As many as somebody has who has one /48, and more addresses than there are counters. */
static void nobody_is_refused_for_what_others_did(void **state)
{
    struct guesses *guesses = guesses_new();
    guess_whatever_is_left(guesses, &one, 20);
    assert_int_equal(strangers_without(guesses, NOW), 0);
    for (unsigned i = 0; i < 65536; i++) {
        struct address of_a_site = network(1, i);
        struct address of_many = {.family = 4, .bytes = {11, 0, (uint8_t)(i >> 8), (uint8_t)i}};
        guess_whatever_is_left(guesses, &of_a_site, 20);
        guess_whatever_is_left(guesses, &of_many, 20);
    }
    assert_int_equal(strangers_without(guesses, NOW), 0);
    assert_int_equal(strangers_without(guesses, NOW + 1), 0);
    guesses_free(guesses);
    (void)state;
}

static void hundreds_of_addresses_are_each_held_to_their_own_number(void **state)
{
    struct guesses *guesses = guesses_new();
    unsigned left = 0;
    for (unsigned i = 0; i < 512; i++) {
        struct address from = {.family = 4, .bytes = {10, 0, (uint8_t)(i >> 8), (uint8_t)i}};
        for (int times = 0; times < 3; times++) {
            assert_true(guesses_left(guesses, &from, GUESS_SECRET, NOW, 3));
            guesses_count(guesses, &from, GUESS_SECRET, NOW);
        }
    }
    for (unsigned i = 0; i < 512; i++) {
        struct address from = {.family = 4, .bytes = {10, 0, (uint8_t)(i >> 8), (uint8_t)i}};
        left += guesses_left(guesses, &from, GUESS_SECRET, NOW, 3);
    }
    assert_int_equal(left, 0);
    guesses_free(guesses);
    (void)state;
}

static void a_site_of_ipv6_has_sixteen_times_as_many(void **state)
{
    struct guesses *guesses = guesses_new();
    struct address last = network(1, 0xffff), other = network(2, 0);
    for (unsigned i = 0; i < 16; i++) {
        struct address from = network(1, i);
        assert_true(guesses_left(guesses, &last, GUESS_SECRET, NOW, 3));
        guess_whatever_is_left(guesses, &from, 3);
    }
    assert_false(guesses_left(guesses, &last, GUESS_SECRET, NOW, 3));
    assert_true(guesses_left(guesses, &other, GUESS_SECRET, NOW, 3));
    assert_true(guesses_left(guesses, &last, GUESS_SECRET, NOW + 1, 3));
    guesses_free(guesses);
    (void)state;
}

static void a_network_of_ipv6_counts_as_one(void **state)
{
    struct guesses *guesses = guesses_new();
    const struct address first = {.family = 6, .bytes = {0x20, 1, 0xd, 0xb8, 0, 0, 0, 1, 1}};
    const struct address same = {.family = 6, .bytes = {0x20, 1, 0xd, 0xb8, 0, 0, 0, 1, 2, 3, 4}};
    guesses_count(guesses, &first, GUESS_SECRET, NOW);
    assert_false(guesses_left(guesses, &same, GUESS_SECRET, NOW, 1));
    guesses_free(guesses);
    (void)state;
}

static void ipv4_addresses_on_an_ipv6_socket_are_not_one_network(void **state)
{
    struct guesses *guesses = guesses_new();
    unsigned without = 0;
    const struct address mapped = {.family = 6, .bytes = {[10] = 0xff, 0xff, 192, 0, 2, 1}};
    guesses_count(guesses, &mapped, GUESS_SECRET, NOW);
    assert_false(guesses_left(guesses, &one, GUESS_SECRET, NOW, 1)); /* the same client, whichever way it came */
    for (uint8_t i = 2; i < 102; i++) {
        const struct address other = {.family = 6, .bytes = {[10] = 0xff, 0xff, 192, 0, 2, i}};
        without += !guesses_left(guesses, &other, GUESS_SECRET, NOW, 1);
    }
    assert_int_equal(without, 0);
    guesses_free(guesses);
    (void)state;
}

static void without_counters_there_is_always_one_left(void **state)
{
    guesses_count(NULL, &one, GUESS_SECRET, NOW);
    assert_true(guesses_left(NULL, &one, GUESS_SECRET, NOW, 1));
    alloc_fail_at(1);
    assert_null(guesses_new());
    alloc_fail_at(0);
    (void)state;
}

static void sorts_are_counted_apart(void **state)
{
    struct guesses *guesses = guesses_new();
    (void)state;
    guesses_count(guesses, &one, GUESS_TOKEN, NOW);
    assert_false(guesses_left(guesses, &one, GUESS_TOKEN, NOW, 1));
    assert_true(guesses_left(guesses, &one, GUESS_SECRET, NOW, 1));
    guesses_free(guesses);
}

static void what_was_right_is_known_and_nothing_else(void **state)
{
    struct guesses *guesses = guesses_new();
    const struct slice a[] = {SLICE_LITERAL("sb-1"), SLICE_LITERAL("secret")},
                       b[] = {SLICE_LITERAL("sb-1s"), SLICE_LITERAL("ecret")},
                       c[] = {SLICE_LITERAL("sb-1"), SLICE_LITERAL("Secret")};
    unsigned known = 0;
    (void)state;
    assert_false(guesses_known(guesses, a, 2));
    guesses_learn(guesses, a, 2);
    guesses_learn(guesses, a, 2);
    assert_true(guesses_known(guesses, a, 2));
    assert_false(guesses_known(guesses, b, 2) || guesses_known(guesses, c, 2) || guesses_known(guesses, a, 1));
    for (uint32_t i = 0; i < 2000; i++)
        guesses_learn(guesses, &(struct slice){(const uint8_t *)&i, sizeof i}, 1);
    for (uint32_t i = 0; i < 2000; i++)
        known += guesses_known(guesses, &(struct slice){(const uint8_t *)&i, sizeof i}, 1);
    assert_true(known > 1500);
    assert_false(guesses_known(NULL, a, 2));
    guesses_learn(NULL, a, 2);
    guesses_free(guesses);
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
        cmocka_unit_test(what_was_right_is_known_and_nothing_else),
        cmocka_unit_test(without_counters_there_is_always_one_left),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
