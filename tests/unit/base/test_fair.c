/* SPDX-License-Identifier: MIT */
#include "tests/unit/support.h"

#include <stdlib.h>
#include <time.h>

#include "spoa/base/table/fair.h"

static const struct fair_owner greedy = {.hash = 1000, .rank = FAIR_VERIFIED};

static struct fair_owner owner_of(uint64_t number, enum fair_rank rank)
{
    return (struct fair_owner){.hash = number, .rank = rank};
}

static struct fair *fair_of(uint32_t places, uint32_t each, uint32_t served)
{
    const struct fair_limits limits = {.places = places, .each = each, .served = served};
    struct fair *f = fair_new(&limits);
    assert_non_null(f);
    return f;
}

/* Returns the number of places that the owner gets. */
static size_t fill(struct fair *f, struct fair_owner owner, struct fair_place *places, size_t count)
{
    size_t got = 0;
    while (got < count && fair_enter(f, &places[got], owner, 1, got))
        got++;
    return got;
}

static void an_owner_who_fills_its_places_is_refused_and_nobody_else(void **state)
{
    struct fair *f = fair_of(4096, 0, 0);
    struct fair_place *of_greedy = calloc(4096, sizeof *of_greedy), of_others[99] = {{NULL}};
    (void)state;
    assert_int_equal(fill(f, greedy, of_greedy, 4096), 1792);
    for (uint64_t i = 0; i < 99; i++)
        assert_true(fair_enter(f, &of_others[i], owner_of(i, FAIR_VERIFIED), 1, 0));
    assert_false(fair_has_room(f, greedy, 1));
    fair_leave(f, &of_greedy[7]);
    assert_int_equal(fair_used(f), 1791 + 99);
    free(of_greedy);
    free(f);
}

static void the_next_owner_finds_a_place_however_many_are_greedy(void **state)
{
    struct fair *f = fair_of(4096, 0, 0);
    struct fair_place *places = calloc(4096, sizeof *places), last = {NULL};
    size_t used = 0;
    (void)state;
    for (uint64_t i = 0; i < 10; i++)
        used += fill(f, owner_of(i, FAIR_VERIFIED), places + used, 4096 - used);
    assert_true(fair_enter(f, &last, owner_of(10, FAIR_VERIFIED), 1, 0));
    free(places);
    free(f);
}

static void many_small_owners_leave_what_is_spared(void **state)
{
    const struct fair_limits limits = {.places = 2048, .each = 32};
    struct fair *f = fair_new(&limits);
    struct fair_place *places = calloc(4096, sizeof *places), others[30] = {{NULL}};
    size_t used = 0;
    (void)state;
    assert_non_null(f);
    for (uint64_t i = 0; i < 70; i++)
        used += fill(f, owner_of(i, FAIR_VERIFIED), places + used, 4096 - used);
    for (uint64_t i = 0; i < 30; i++)
        assert_true(fair_enter(f, &others[i], owner_of(200 + i, FAIR_VERIFIED), 1, 0));
    free(places);
    free(f);
}

/* Forty owners come one after the other, and each takes all that it may have. */
static void very_many_owners_leave_some_in_whatever_order_they_come(void **state)
{
    const struct fair_limits all[] = {{.places = 8192, .each = 1024},
                                      {.places = 16384, .each = 1024},
                                      {.places = 25128, .each = 8192},
                                      {.places = 65536, .each = 8192},
                                      {.places = 128, .each = 8192}};
    (void)state;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        struct fair *f = fair_new(&all[i]);
        struct fair_place *places = calloc(65536, sizeof *places), next = {NULL};
        size_t used = 0, alone = 0;
        assert_non_null(f);
        for (uint64_t n = 0; n < (all[i].places > 128 ? 40 : 13); n++) {
            used += fill(f, owner_of(n, FAIR_VERIFIED), places + used, 65536 - used);
            alone = n == 0 ? used : alone;
        }
        assert_true(fair_enter(f, &next, owner_of(99, FAIR_VERIFIED), 1, 0));
        assert_true(all[i].places == 128 || all[i].places - used >= 64);
        assert_true(alone == all[i].each ||
                    alone * 5 >= (size_t)all[i].places * 2); /* alone it has its part */
        free(places);
        free(f);
    }
}

static void one_owner_has_a_bounded_number_of_places(void **state)
{
    struct fair *f = fair_of(1000, 10, 0);
    struct fair_place places[20] = {{NULL}};
    (void)state;
    assert_int_equal(fill(f, greedy, places, 20), 10);
    assert_false(fair_has_room(f, owner_of(1, FAIR_VERIFIED), 11));
    assert_true(fair_has_room(f, owner_of(1, FAIR_VERIFIED), 10));
    assert_false(fair_has_room(f, owner_of(1, FAIR_VERIFIED), UINT32_MAX));
    free(f);
}

static void unverified_owners_have_half_of_it_together(void **state)
{
    struct fair *f = fair_of(1000, 0, 10);
    struct fair_place *places = calloc(1001, sizeof *places);
    size_t got = 0, served = 0;
    (void)state;
    for (uint64_t i = 0; i < 1000; i++)
        got += fair_enter(f, &places[got], owner_of(i, FAIR_UNVERIFIED), 1, 0);
    assert_int_equal(got, 500);
    while (fair_next(f))
        served++;
    assert_int_equal(served, 5);
    assert_int_equal(fair_waiting(f), 495);
    assert_true(fair_enter(f, &places[1000], greedy, 1, 0));
    assert_ptr_equal(fair_next(f), &places[1000]);
    free(places);
    free(f);
}

/* The 99 others have one place each, which began to wait after all of the greedy owner's: each is served within two rounds. */
static void a_greedy_owner_does_not_make_others_wait(void **state)
{
    struct fair *f = fair_of(65536, 0, 64);
    struct fair_place *of_greedy = calloc(65536, sizeof *of_greedy), others[99] = {{NULL}}, *p;
    size_t got = fill(f, greedy, of_greedy, 65536), served = 0, left = 99;
    (void)state;
    for (uint64_t i = 0; i < 99; i++)
        assert_true(fair_enter(f, &others[i], owner_of(i, FAIR_VERIFIED), 1, 0));
    for (; left && (p = fair_next(f)); served++) {
        left -= p >= others && p < others + 99;
        fair_leave(f, p);
    }
    assert_int_equal(left, 0);
    assert_true(served <= 2 * (99 + 1));
    assert_true(fair_waiting(f) >= got - 200);
    free(of_greedy);
    free(f);
}

static void one_owner_has_half_served_and_the_next_one_is_served_at_once(void **state)
{
    struct fair *f = fair_of(1000, 0, 64);
    struct fair_place *of_greedy = calloc(1000, sizeof *of_greedy), other = {NULL};
    size_t served = 0;
    (void)state;
    fill(f, greedy, of_greedy, 1000);
    while (fair_next(f)) /* every one of them stays served */
        served++;
    assert_int_equal(served, 32);
    assert_true(fair_enter(f, &other, owner_of(1, FAIR_VERIFIED), 1, 0));
    assert_ptr_equal(fair_next(f), &other);
    assert_null(fair_next(f));
    free(of_greedy);
    free(f);
}

static void one_unverified_owner_leaves_some_to_the_next(void **state)
{
    struct fair *f = fair_of(1000, 0, 64);
    struct fair_place *places = calloc(1000, sizeof *places), other = {NULL};
    size_t served = 0;
    (void)state;
    assert_int_equal(fill(f, owner_of(1, FAIR_UNVERIFIED), places, 1000), 219);
    while (fair_next(f))
        served++;
    assert_int_equal(served, 16);
    assert_true(fair_enter(f, &other, owner_of(2, FAIR_UNVERIFIED), 1, 0));
    assert_ptr_equal(fair_next(f), &other);
    free(places);
    free(f);
}

static void sandboxes_in_use_do_not_wait_for_unverified_owners(void **state)
{
    struct fair *f = fair_of(10000, 0, 8);
    struct fair_place *new_ones = calloc(3000, sizeof *new_ones), used[30] = {{NULL}}, *p;
    size_t served = 0, left = 30;
    (void)state;
    for (uint64_t i = 0; i < 3000; i++)
        assert_true(fair_enter(f, &new_ones[i], owner_of(i, i % 2 ? FAIR_VERIFIED : FAIR_UNVERIFIED), 1, 0));
    for (uint64_t i = 0; i < 30; i++)
        assert_true(fair_enter(f, &used[i], owner_of(i, FAIR_IN_USE), 1, 0));
    for (; left && (p = fair_next(f)); served++) {
        left -= p >= used && p < used + 30;
        fair_leave(f, p);
    }
    assert_true(served <= 2 * 30);
    free(new_ones);
    free(f);
}

static void each_rank_is_served_whatever_the_others_want(void **state)
{
    struct fair *f = fair_of(10000, 0, 8);
    struct fair_place *places = calloc(3000, sizeof *places), *p;
    size_t of[FAIR_RANKS] = {0};
    (void)state;
    for (uint64_t i = 0; i < 3000; i++)
        assert_true(fair_enter(f, &places[i], owner_of(i % 7, i % FAIR_RANKS), 1, 0));
    for (unsigned i = 0; i < 80 && (p = fair_next(f)); i++) {
        of[(p - places) % FAIR_RANKS]++;
        fair_leave(f, p);
    }
    assert_int_equal(of[FAIR_IN_USE], 40);
    assert_int_equal(of[FAIR_VERIFIED], 30);
    assert_int_equal(of[FAIR_UNVERIFIED], 10);
    free(places);
    free(f);
}

static void the_oldest_waiting_place_is_found_and_can_wait_again(void **state)
{
    struct fair *f = fair_of(10, 0, 0);
    struct fair_place a = {NULL}, b = {NULL}, c = {NULL};
    (void)state;
    assert_null(fair_oldest(f));
    assert_true(fair_enter(f, &a, greedy, 1, 1) && fair_enter(f, &b, owner_of(1, FAIR_IN_USE), 1, 2) &&
                fair_enter(f, &c, greedy, 1, 3));
    assert_ptr_equal(fair_oldest(f), &a);
    fair_again(f, &a, 4);
    assert_ptr_equal(fair_oldest(f), &b);
    fair_hold(f, &b);
    assert_ptr_equal(fair_oldest(f), &c);
    assert_int_equal(fair_used(f), 3);
    assert_ptr_equal(fair_next(f), &c); /* `a` waits after it now */
    fair_hold(f, &c);
    assert_ptr_equal(fair_next(f), &a);
    assert_null(fair_next(f));
    fair_leave(f, &a);
    fair_leave(f, &b);
    fair_leave(f, &c);
    fair_leave(f, &c);
    assert_int_equal(fair_used(f), 0);
    free(f);
}

/* Owners whose hashes agree in the bits that choose a line have lines of their own, too. If too many agree, some share a part, and no
 * place is lost. */
static void owners_are_told_apart(void **state)
{
    struct fair *f = fair_of(1000, 10, 0);
    struct fair_place places[20] = {{NULL}}, others[20] = {{NULL}};
    size_t served = 0;
    (void)state;
    assert_int_equal(fill(f, greedy, places, 20), 10);
    for (uint64_t i = 0; i < 7; i++)
        assert_true(
            fair_enter(f, &others[i], owner_of(greedy.hash + (i + 1) * FAIR_LINES, FAIR_VERIFIED), 10, 0));
    for (uint64_t i = 7; i < 20; i++)
        assert_false(
            fair_enter(f, &others[i], owner_of(greedy.hash + (i + 1) * FAIR_LINES, FAIR_VERIFIED), 10, 0));
    while (fair_next(f))
        served++;
    assert_int_equal(served, 17);
    for (size_t i = 0; i < 20; i++) {
        fair_leave(f, &places[i]);
        fair_leave(f, &others[i]);
    }
    assert_int_equal(fair_used(f), 0);
    assert_true(fair_enter(f, &others[19], owner_of(greedy.hash + 20 * FAIR_LINES, FAIR_VERIFIED), 10, 0));
    free(f);
}

/* However many of them wait: their rank has as many served as it may. */
static void unverified_owners_who_wait_cost_the_others_nothing(void **state)
{
    struct fair *f = fair_of(8192, 0, 32);
    struct fair_place *places = calloc(4096, sizeof *places);
    unsigned entered = 0, served = 0;
    (void)state;
    for (uint64_t i = 0; i < 4096; i++)
        entered += fair_enter(f, &places[i], owner_of(i, FAIR_UNVERIFIED), 1, 0);
    assert_in_range(entered, 2048, 4096);
    while (fair_next(f))
        served++;
    assert_int_equal(served, 16);
    clock_t began = clock();
    for (unsigned i = 0; i < 50000; i++)
        assert_null(fair_next(f));
    assert_true(clock() - began < CLOCKS_PER_SEC);
    free(places);
    free(f);
}

static void without_memory_there_is_none(void **state)
{
    const struct fair_limits limits = {.places = 1};
    (void)state;
    alloc_fail_at(1);
    assert_null(fair_new(&limits));
    alloc_fail_at(0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_owner_who_fills_its_places_is_refused_and_nobody_else),
        cmocka_unit_test(the_next_owner_finds_a_place_however_many_are_greedy),
        cmocka_unit_test(many_small_owners_leave_what_is_spared),
        cmocka_unit_test(one_owner_has_a_bounded_number_of_places),
        cmocka_unit_test(unverified_owners_have_half_of_it_together),
        cmocka_unit_test(a_greedy_owner_does_not_make_others_wait),
        cmocka_unit_test(one_owner_has_half_served_and_the_next_one_is_served_at_once),
        cmocka_unit_test(one_unverified_owner_leaves_some_to_the_next),
        cmocka_unit_test(sandboxes_in_use_do_not_wait_for_unverified_owners),
        cmocka_unit_test(each_rank_is_served_whatever_the_others_want),
        cmocka_unit_test(the_oldest_waiting_place_is_found_and_can_wait_again),
        cmocka_unit_test(very_many_owners_leave_some_in_whatever_order_they_come),
        cmocka_unit_test(owners_are_told_apart),
        cmocka_unit_test(unverified_owners_who_wait_cost_the_others_nothing),
        cmocka_unit_test(without_memory_there_is_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
