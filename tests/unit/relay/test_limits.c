/* SPDX-License-Identifier: MIT */
/* What the limits of memory promise: how much one tunnel may take, and who gives way to whom. */
#include "tests/unit/support.h"

#include <stdio.h>

#include "spoa/base/table/client_site.h"
#include "spoa/relay/thread/limits.h"

#define KIB   UINT64_C(1024)
#define MIB   (1024 * KIB)
#define LEAST (32 * KIB) /* of a tunnel, however short memory is */

static struct limits *limits_of(uint64_t memory)
{
    struct limits_settings most = {.memory = memory};
    struct limits *l = limits_new(&most);

    assert_non_null(l);
    return l;
}

/* ---- tunnels ---- */
enum { MANY = 200 };

struct tunnel {
    struct limits_owner owner;
    struct limits_use use;
    char sandbox[16], org[16];
    unsigned whose; /* a number of its owner */
    bool open, waits;
};

struct world {
    struct limits *l;
    struct tunnel tunnels[MANY];
    size_t count;
};

static void set(struct world *w, struct tunnel *t, uint64_t held, bool waits)
{
    limits_hold(w->l, (int64_t)(held - t->use.held));
    limits_use_set(w->l, &t->use, held, waits);
    t->waits = waits;
}

static struct tunnel *begin_of(struct world *w, struct tunnel *t, uint64_t held, bool waits)
{
    t->open = true;
    assert_int_equal(limits_enter(w->l, &t->owner), LIMIT_NONE);
    t->use = limits_use_begin(w->l, &t->owner);
    set(w, t, held, waits);
    return t;
}

/* org 0: none. */
static struct tunnel *begin(struct world *w, unsigned sandbox, unsigned org, uint64_t held, bool waits)
{
    struct tunnel *t = &w->tunnels[w->count++];

    assert_true(w->count <= MANY);
    snprintf(t->sandbox, sizeof t->sandbox, "s%u", sandbox);
    snprintf(t->org, sizeof t->org, "o%u", org);
    t->owner = (struct limits_owner){.sandbox = slice_text(t->sandbox), .org = slice_text(org ? t->org : "")};
    t->whose = org ? org : 3 + sandbox;
    return begin_of(w, t, held, waits);
}

/* Of a client without a token. */
static struct tunnel *begin_client(struct world *w, unsigned address, uint64_t held, bool waits)
{
    struct tunnel *t = &w->tunnels[w->count++];

    assert_true(w->count <= MANY);
    snprintf(t->sandbox, sizeof t->sandbox, "a%u", address);
    t->owner = (struct limits_owner){.client = slice_text(t->sandbox), .mux = true};
    return begin_of(w, t, held, waits);
}

static void end(struct world *w, struct tunnel *t)
{
    t->open = false;
    set(w, t, 0, false);
    limits_use_end(w->l, &t->use);
    limits_leave(w->l, &t->owner);
}

static void end_world(struct world *w)
{
    for (size_t i = 0; i < w->count; i++)
        if (w->tunnels[i].open)
            end(w, &w->tunnels[i]);
    assert_int_equal(limits_held(w->l), 0);
    limits_free(w->l);
}

static uint64_t all_held(const struct world *w)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < w->count; i++)
        sum += w->tunnels[i].use.held;
    return sum;
}

/* The bytes that are given back. */
static uint64_t turn(struct world *w)
{
    struct limits_round round;
    uint64_t before = all_held(w);

    if (!limits_round_begin(w->l, &round))
        return 0;
    for (size_t i = 0; i < w->count; i++)
        if (w->tunnels[i].open)
            limits_round_look(&round, &w->tunnels[i].use);
    for (size_t i = 0; i < w->count; i++)
        if (w->tunnels[i].open && limits_round_takes(w->l, &round, &w->tunnels[i].use))
            end(w, &w->tunnels[i]);
    return before - all_held(w);
}

static size_t room(const struct world *w, const struct tunnel *t)
{
    return limits_room_whole(w->l, &t->use, t->use.held, t->use.held);
}

/* ---- room ---- */
static void what_one_tunnel_may_hold_is_a_part_of_what_is_free(void **state)
{
    const struct limits_owner owner = {.sandbox = SLICE_LITERAL("s")};
    struct limits *l = limits_of(16 * MIB);
    struct limits_use use = limits_use_begin(l, &owner);
    (void)state;
    /* a quarter is for what has to become whole, and of the rest a quarter for one; its buffers may double */
    assert_int_equal(limits_room(l, &use, 0), 3 * MIB / 2);
    limits_hold(l, (int64_t)(10 * MIB));
    limits_use_set(l, &use, MIB, false);
    assert_int_equal(limits_room(l, &use, MIB), 0); /* the large one first */
    limits_use_set(l, &use, MIB / 4, false);
    assert_int_equal(limits_room(l, &use, MIB / 4), MIB / 8);
    limits_use_set(l, &use, 0, false);
    assert_int_equal(limits_room(l, &use, 2 * MIB), 0); /* of which nobody was told yet */
    limits_use_set(l, &use, MIB, false);
    assert_int_equal(limits_room_whole(l, &use, MIB, MIB), 5 * MIB / 2);
    limits_hold(l, (int64_t)(2 * MIB));
    assert_int_equal(limits_room_whole(l, &use, MIB, MIB), 3 * MIB / 2);
    limits_use_set(l, &use, 12 * MIB, false); /* its share, which an owner may fill whatever others hold */
    assert_int_equal(limits_room(l, &use, 12 * MIB), 0);
    limits_hold(l, (int64_t)(5 * MIB));
    limits_use_set(l, &use, 16 * MIB, false);
    assert_int_equal(limits_room_whole(l, &use, 16 * MIB, 0), 0);
    limits_use_end(l, &use);
    limits_free(l);
}

/* Who holds most of memory would not hear what lets it give that back. */
static void what_has_to_become_whole_has_room_beside_all_that_the_tunnel_holds(void **state)
{
    struct world w = {.l = limits_of(4 * MIB)};
    const struct tunnel *large = begin(&w, 1, 0, 3 * MIB, false);
    (void)state;
    assert_int_equal(limits_room(w.l, &large->use, 3 * MIB), 0);
    assert_int_equal(limits_room_whole(w.l, &large->use, 3 * MIB, 64 * KIB), (MIB - 64 * KIB) / 2);
    assert_int_equal(limits_room_whole(w.l, &large->use, 3 * MIB, MIB), 0);
    end_world(&w);
}

/* What was freed for those that wait is theirs: the hoarder that comes again does not get there first. */
static void who_is_beyond_its_share_gets_nothing_that_others_wait_for(void **state)
{
    struct world w = {.l = limits_of(4 * MIB)};
    struct tunnel *bad = begin(&w, 1, 1, 3 * MIB, false), *again = begin(&w, 1, 1, 16 * KIB, false);
    struct tunnel *good = begin(&w, 2, 0, 128 * KIB, false);
    (void)state;
    assert_true(room(&w, again) > 0 && room(&w, good) > 0);
    set(&w, good, 128 * KIB, true);
    size_t left = room(&w, again);
    assert_int_equal(room(&w, good), (MIB - 272 * KIB) / 2);
    assert_true(left > 0 && left < room(&w, good)); /* there is more than it waits for */
    set(&w, bad, 3 * MIB + 740 * KIB, false);
    assert_int_equal(room(&w, again), 0);
    assert_true(room(&w, good) > 0);
    set(&w, bad, 2 * MIB - 200 * KIB, false); /* less than its share */
    assert_true(room(&w, again) > left);
    end_world(&w);
}

/* Whatever one owner's many tunnels hold at least: it may be more than there is. */
static void who_is_within_its_share_has_room_when_more_is_held_than_there_is(void **state)
{
    struct world w = {.l = limits_of(2 * MIB)};
    struct tunnel *good = begin(&w, 1000, 2, 16 * KIB, true);
    (void)state;
    for (unsigned i = 0; i < 180; i++)
        begin(&w, i, 1, 16 * KIB, false);
    assert_true(all_held(&w) > 2 * MIB);
    assert_int_equal(room(&w, good), (MIB - 32 * KIB) / 2);
    assert_int_equal(room(&w, &w.tunnels[1]), 0);
    end_world(&w);
}

/* Fills what it may, as buffers do: each step doubles what they take. */
static void fill(struct world *w, struct tunnel *t, bool whole)
{
    for (size_t more; (more = whole ? room(w, t) : limits_room(w->l, &t->use, t->use.held)) >= 4096;)
        set(w, t, 2 * (t->use.held + more) - t->use.held, false);
}

/* Each is within its share when it comes, which gets smaller with each, but of what is full nothing is taken back. */
static void owners_that_come_one_behind_the_other_hold_twice_memory_at_most(void **state)
{
    (void)state;
    for (unsigned each = 1; each <= 4; each++) {
        struct world w = {.l = limits_of(8 * MIB)};
        for (unsigned i = 0; i < 48 * each; i++)
            fill(&w, begin(&w, i, 1 + i / each, 0, false), i % 2 || each < 3);
        assert_in_range(all_held(&w), 8 * MIB, 16 * MIB + w.count * LEAST);
        end_world(&w);
    }
}

/* However much that is of what each tunnel may hold anyhow, which others have many of. */
static void tunnels_that_hold_little_leave_others_their_share(void **state)
{
    struct world w = {.l = limits_of(MIB)};
    struct tunnel *good = begin(&w, 1000, 2, 16 * KIB, true);
    (void)state;
    for (unsigned i = 0; i < 180; i++)
        begin(&w, i, 1, LEAST, false);
    assert_true(all_held(&w) > 5 * MIB);
    assert_int_equal(room(&w, good), (MIB / 2 - 32 * KIB) / 2);
    end_world(&w);
}

/* ---- giving way ---- */
static void nobody_gives_way_while_there_is_room_or_nobody_waits(void **state)
{
    struct world w = {.l = limits_of(2 * MIB)};
    struct tunnel *t = begin(&w, 1, 0, 128 * KIB, true);
    (void)state;
    begin(&w, 2, 0, MIB, false);
    assert_int_equal(turn(&w), 0);
    begin(&w, 3, 0, MIB, false);
    set(&w, t, 128 * KIB, false);
    assert_int_equal(turn(&w), 0);
    set(&w, t, 128 * KIB, true);
    assert_int_equal(turn(&w), MIB);
    end_world(&w);
}

/* Many that hold little each, of one owner, are more than one of another's that holds a little more. */
static void who_holds_most_gives_way_however_it_is_spread(void **state)
{
    (void)state;
    for (unsigned org = 0; org <= 1; org++) {
        struct world w = {.l = limits_of(2 * MIB)};
        struct tunnel *good[8];
        unsigned turns = 0;
        for (unsigned i = 0; i < 80; i++)
            begin(&w, org ? i : i % 4, org, 26 * KIB, i % 2); /* they wait or do not */
        for (unsigned i = 0; i < 8; i++)
            good[i] = begin(&w, 100 + i, 0, 64 * KIB, true);
        for (uint64_t given; (given = turn(&w)); turns++)
            assert_in_range(given, 26 * KIB, 2 * MIB / 16 + 26 * KIB);
        assert_in_range(turns, 4, 20);
        for (unsigned i = 0; i < 8; i++)
            assert_true(good[i]->open && room(&w, good[i]) >= 4096);
        end_world(&w);
    }
}

/* However many there are, and whatever they wait for: nobody with less than its share ends, as long as somebody has more. */
static void who_holds_less_than_its_share_is_safe(void **state)
{
    uint64_t seed = 1;
    (void)state;
    for (unsigned run = 0; run < 200; run++) {
        struct world w = {.l = limits_of(8 * MIB)};
        unsigned owners = 2 + run % 30;
        for (unsigned i = 0; i < MANY - 10; i++) {
            seed = seed * UINT64_C(6364136223846793005) + 1442695040888963407;
            unsigned owner = (unsigned)(seed >> 33) % owners;
            owner = owner * owner / owners; /* some have more than others */
            begin(&w, owner, owner % 3, KIB << (seed >> 60) % 9, (seed >> 40) % 4 == 0);
        }
        bool done = false;
        for (unsigned turns = 0; turns < 1000 && !done; turns++) {
            uint64_t before[MANY + 3] = {0}, owners_now = 0, most = 0;
            bool was_open[MANY];
            for (size_t i = 0; i < w.count; i++) {
                was_open[i] = w.tunnels[i].open;
                before[w.tunnels[i].whose] += w.tunnels[i].use.held;
            }
            for (size_t i = 0; i < MANY + 3; i++) {
                owners_now += before[i] > 0;
                most = before[i] > most ? before[i] : most;
            }
            uint64_t share = owners_now ? 8 * MIB / owners_now : 0;
            done = !turn(&w);
            for (size_t i = 0; i < w.count; i++)
                if (was_open[i] && !w.tunnels[i].open)
                    assert_true(before[w.tunnels[i].whose] >= (share < most ? share : most));
        }
        assert_true(done);
        end_world(&w);
    }
}

/* All equal: some end, the others come to their end, and nobody waits for good. */
static void of_equals_some_give_way_and_the_others_go_on(void **state)
{
    struct world w = {.l = limits_of(2 * MIB)};
    unsigned done = 0, turns = 0;
    (void)state;
    for (unsigned i = 0; i < 32; i++)
        begin(&w, i, 0, 64 * KIB, true);
    for (uint64_t given = 1; given; turns++) {
        given = turn(&w);
        assert_true(given <= 2 * MIB / 16);
        for (size_t i = 0; i < w.count; i++) /* who has room for the rest ends, and gives back */
            if (w.tunnels[i].open && w.tunnels[i].waits && room(&w, &w.tunnels[i]) >= 4096) {
                set(&w, &w.tunnels[i], 0, false);
                done++;
            }
    }
    assert_true(done >= 28 && done < 32);
    assert_true(turns < 40);
    end_world(&w);
}

/* ---- clients without a token ---- */
static uint64_t held_by_clients(const struct world *w)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < w->count; i++)
        sum += w->tunnels[i].owner.client.len ? w->tunnels[i].use.held : 0;
    return sum;
}

/* However many addresses they have, and whatever it is that they fill. */
/* One customer may have all networks of a /48. */
static void a_site_of_ipv6_is_sixteen_clients_at_most(void **state)
{
    struct limits *l = limits_of(16 * MIB);
    char names[CLIENT_SITE_OWNERS + 1][LIMITS_CLIENT_NAME], other[LIMITS_CLIENT_NAME];
    size_t count = 0;
    (void)state;
    for (unsigned n = 0; n < 4096; n++) {
        const struct address source = {6, {0x20, 1, 0xd, 0xb8, 0, 1, (uint8_t)(n >> 8), (uint8_t)n, 9}};
        size_t i = 0;
        limits_client_name(l, &source, names[count]);
        while (strcmp(names[i], names[count]) != 0)
            i++;
        count += i == count;
        assert_in_range(count, 1, CLIENT_SITE_OWNERS);
    }
    assert_int_equal(count, CLIENT_SITE_OWNERS);
    limits_client_name(l, &(const struct address){6, {[10] = 0xff, [11] = 0xff, 192, 0, 2, 7}}, other);
    assert_string_equal(other, "192.0.2.7");
    limits_free(l);
}

static void clients_without_a_token_hold_their_slice_at_most(void **state)
{
    (void)state;
    for (unsigned addresses = 1; addresses <= 150; addresses += 149) {
        struct world w = {.l = limits_of(16 * MIB)};
        const struct tunnel *org = begin(&w, 1, 1, MIB, false);
        for (unsigned i = 0; i < 150; i++)
            fill(&w, begin_client(&w, i % addresses, 0, false), i % 2);
        assert_in_range(held_by_clients(&w), MIB, 4 * MIB);
        if (addresses == 1) {
            assert_in_range(held_by_clients(&w), 0, 2 * MIB); /* half of it */
            assert_true(room(&w, begin_client(&w, 1, 0, false)) > 256 * KIB);
        }
        assert_true(limits_room(w.l, &org->use, MIB) >= 256 * KIB);
        assert_true(room(&w, org) >= 4 * MIB);
        end_world(&w);
    }
}

/* They are one owner: more addresses make nobody's share smaller. */
static void addresses_without_a_token_take_no_share_of_others(void **state)
{
    struct world w = {.l = limits_of(16 * MIB)};
    struct tunnel *org = begin(&w, 1, 1, 4 * MIB, false), *hoard = begin(&w, 2, 2, 9 * MIB, false);
    (void)state;
    for (unsigned i = 0; i < 180; i++)
        begin_client(&w, i, 20 * KIB, true);
    while (turn(&w)) {
    }
    assert_true(org->open && !hoard->open);
    end_world(&w);
}

static void of_clients_without_a_token_the_greedy_address_gives_way(void **state)
{
    struct world w = {.l = limits_of(16 * MIB)};
    struct tunnel *org = begin(&w, 1, 1, 6 * MIB, false), *good[8];
    unsigned turns = 0;
    (void)state;
    for (unsigned i = 0; i < 60; i++)
        begin_client(&w, 0, 64 * KIB, i % 2);
    for (unsigned i = 0; i < 8; i++)
        good[i] = begin_client(&w, 1 + i, 80 * KIB, true); /* each larger than any of these */
    for (; turn(&w); turns++)
        assert_true(turns < 100);
    for (unsigned i = 0; i < 8; i++)
        assert_true(good[i]->open && room(&w, good[i]) >= 4096);
    assert_true(org->open && turns > 0);
    end_world(&w);
}

static void what_cannot_fit_at_all_is_not_waited_for(void **state)
{
    struct world w = {.l = limits_of(16 * MIB)};
    const struct tunnel *org = begin(&w, 1, 1, 0, false), *client = begin_client(&w, 1, 0, false);
    (void)state;
    assert_true(limits_fits(w.l, &org->use, 7 * MIB));
    assert_false(limits_fits(w.l, &org->use, 8 * MIB));
    assert_true(limits_fits(w.l, &client->use, 1000 * KIB));
    assert_false(limits_fits(w.l, &client->use, MIB));
    end_world(&w);
}

/* A socket whose first request is admitted is its organisation's from then on, with all that it holds. */
static void what_moves_to_another_owner_is_counted_there(void **state)
{
    struct world w = {.l = limits_of(16 * MIB)};
    struct tunnel *moved = begin_client(&w, 1, 2 * MIB - 4 * KIB, false),
                  *other = begin_client(&w, 1, 0, false);
    (void)state;
    assert_int_equal(room(&w, other), 2 * KIB);
    limits_use_move(w.l, &moved->use, &(struct limits_owner){.org = SLICE_LITERAL("o1")});
    assert_int_equal(moved->use.held, 2 * MIB - 4 * KIB);
    assert_int_equal(room(&w, other), MIB);
    assert_int_equal(room(&w, moved), (14 * MIB + 4 * KIB - (2 * MIB - 4 * KIB)) / 2);
    end_world(&w);
}

/* Their places, too: those of one address, and of all. */
static void clients_without_a_token_have_a_slice_of_the_places(void **state)
{
    const struct limits_settings most = {
        .tunnels = 32, .most = {[LIMIT_mux] = 16, [LIMIT_client] = 4, [LIMIT_unauthenticated] = 8}};
    struct limits *l = limits_new(&most);
    const struct limits_owner org = {.org = SLICE_LITERAL("o"), .mux = true},
                              clients[] = {{.client = SLICE_LITERAL("a"), .mux = true},
                                           {.client = SLICE_LITERAL("b"), .mux = true},
                                           {.client = SLICE_LITERAL("c"), .mux = true}};
    (void)state;
    for (unsigned i = 0; i < 4; i++) {
        assert_int_equal(limits_enter(l, &clients[0]), LIMIT_NONE);
        assert_int_equal(limits_enter(l, &clients[1]), LIMIT_NONE);
    }
    assert_int_equal(limits_enter(l, &clients[0]), LIMIT_client);
    assert_int_equal(limits_enter(l, &clients[2]), LIMIT_unauthenticated);
    for (unsigned i = 0; i < 8; i++)
        assert_int_equal(limits_enter(l, &org), LIMIT_NONE);
    assert_int_equal(limits_enter(l, &org), LIMIT_mux);
    for (unsigned i = 0; i < 4; i++) {
        limits_leave(l, &clients[0]);
        limits_leave(l, &clients[1]);
        limits_leave(l, &org);
        limits_leave(l, &org);
    }
    assert_int_equal(limits_tunnels(l), 0);
    limits_free(l);
}

/* A tunnel whose record comes later than its client counts for the record's organisation from then on, and what it holds does. */
static void a_tunnel_counts_for_an_organisation_that_becomes_known(void **state)
{
    struct limits_settings most = {.memory = MIB, .most = {[LIMIT_org] = 1}};
    struct limits *l = limits_new(&most);
    const struct limits_owner before[] = {{.sandbox = SLICE_LITERAL("s1")}, {.sandbox = SLICE_LITERAL("s2")}};
    struct limits_owner after[] = {before[0], before[1]};
    struct limits_use use[2];
    (void)state;
    for (size_t i = 0; i < 2; i++) {
        after[i].org = SLICE_LITERAL("o");
        assert_int_equal(limits_enter(l, &before[i]), LIMIT_NONE);
        use[i] = limits_use_begin(l, &before[i]);
        limits_use_set(l, &use[i], 64 * KIB, i == 0);
    }
    assert_int_equal(limits_name_org(l, &after[0], &use[0]), LIMIT_NONE);
    assert_true(use[0].held == 64 * KIB && use[0].wanted > 0);
    const struct limits_use kept = use[1];
    assert_int_equal(limits_name_org(l, &after[1], &use[1]), LIMIT_org);
    assert_memory_equal(&kept, &use[1], sizeof kept);
    struct limits_use of_org = limits_use_begin(l, &after[0]), of_sandbox = limits_use_begin(l, &before[0]);
    assert_ptr_equal(of_org.holder, use[0].holder);
    assert_ptr_not_equal(of_sandbox.holder, use[0].holder);
    limits_use_end(l, &of_org);
    limits_use_end(l, &of_sandbox);
    limits_use_end(l, &use[0]);
    limits_leave(l, &after[0]);
    assert_int_equal(limits_tunnels(l), 1);
    /* there is room for the other one now */
    assert_int_equal(limits_name_org(l, &after[1], &use[1]), LIMIT_NONE);
    limits_use_end(l, &use[1]);
    limits_leave(l, &after[1]);
    limits_free(l);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_tunnel_counts_for_an_organisation_that_becomes_known),
        cmocka_unit_test(what_one_tunnel_may_hold_is_a_part_of_what_is_free),
        cmocka_unit_test(what_has_to_become_whole_has_room_beside_all_that_the_tunnel_holds),
        cmocka_unit_test(who_is_beyond_its_share_gets_nothing_that_others_wait_for),
        cmocka_unit_test(who_is_within_its_share_has_room_when_more_is_held_than_there_is),
        cmocka_unit_test(owners_that_come_one_behind_the_other_hold_twice_memory_at_most),
        cmocka_unit_test(tunnels_that_hold_little_leave_others_their_share),
        cmocka_unit_test(nobody_gives_way_while_there_is_room_or_nobody_waits),
        cmocka_unit_test(who_holds_most_gives_way_however_it_is_spread),
        cmocka_unit_test(who_holds_less_than_its_share_is_safe),
        cmocka_unit_test(of_equals_some_give_way_and_the_others_go_on),
        cmocka_unit_test(a_site_of_ipv6_is_sixteen_clients_at_most),
        cmocka_unit_test(clients_without_a_token_hold_their_slice_at_most),
        cmocka_unit_test(addresses_without_a_token_take_no_share_of_others),
        cmocka_unit_test(of_clients_without_a_token_the_greedy_address_gives_way),
        cmocka_unit_test(what_cannot_fit_at_all_is_not_waited_for),
        cmocka_unit_test(what_moves_to_another_owner_is_counted_there),
        cmocka_unit_test(clients_without_a_token_have_a_slice_of_the_places),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
