/* SPDX-License-Identifier: MIT */
/* Tunnels that are told to move: how many go at a time, and in which order. */
#include "tests/unit/support.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "spoa/net/net.h"
#include "spoa/relay/thread/moves.h"

#define ALL (4 * MOVES_AT_ONCE)

struct world {
    struct loop *loop;
    struct moves moves;
    struct mover {
        struct world *world;
        struct move *move;
        size_t went;   /* as the how manieth; 0: not yet */
        int fd;        /* with which it went */
        int64_t epoch; /* that it was told */
        char host[16];
    } movers[ALL];
    size_t went, connects;
    const struct net_address *connects_to; /* NULL: nowhere */
    bool ends_at_once, drops;
};

static int connect_mover(void *owner, const struct answer *answer)
{
    struct mover *mover = owner;
    struct fail why;
    assert_true(slice_is(answer->target.host, mover->host));
    mover->world->connects++;
    return mover->world->connects_to ? net_connect(mover->world->connects_to, &why) : -1;
}

static void go(void *owner, const struct answer *answer, int fd)
{
    struct mover *mover = owner;
    assert_true(slice_is(answer->target.host, mover->host));
    assert_int_equal(answer->epoch, mover->epoch);
    if (mover->world->drops)
        moves_drop(&mover->world->moves, mover->move);
    mover->move = NULL;
    mover->went = ++mover->world->went;
    mover->fd = fd;
    if (mover->world->ends_at_once)
        moves_end(&mover->world->moves);
}

static const struct moves_user user = {connect_mover, go};

static void begin(struct world *w, size_t i)
{
    struct mover *mover = &w->movers[i];
    char text[16]; /* what the answer points into is gone behind the call */
    snprintf(mover->host, sizeof mover->host, "worker-%zu", i);
    snprintf(text, sizeof text, "%s", mover->host);
    struct answer answer = {
        .state = ANSWER_RUNNING,
        .epoch = (int64_t)i,
        .target = {.addr = {.family = 4, .bytes = {127, 0, 0, 1}}, .port = 80, .host = slice_text(text)}};
    mover->world = w;
    mover->epoch = (int64_t)i;
    mover->move = moves_begin(&w->moves, mover, &answer);
    assert_non_null(mover->move);
    memset(text, 'x', sizeof text);
}

/* They are told in one turn of the loop. */
static void begin_some(struct world *w, size_t count)
{
    for (size_t i = 0; i < count; i++)
        begin(w, i);
    assert_int_equal(w->went, 0);
    loop_turn(w->loop, false);
}

static void open_world(struct world *w)
{
    struct fail why;
    *w = (struct world){.loop = loop_new(&why)};
    assert_non_null(w->loop);
    moves_open(&w->moves, w->loop, &user);
    assert_int_equal(w->moves.step_time, MOVES_STEP);
    w->moves.step_time = MINUTE; /* steps end when the test says so, however slow the machine is */
}

static void end_step(struct world *w)
{
    assert_true(loop_timer_active(&w->moves.step));
    loop_timer_set(&w->moves.step, 0);
    loop_turn(w->loop, true);
}

static void close_world(struct world *w)
{
    assert_null(w->moves.first);
    moves_close(&w->moves);
    loop_free(w->loop);
}

/* So many end in one turn of the loop. */
static void end(struct world *w, size_t count)
{
    for (size_t i = 0; i < count; i++)
        moves_end(&w->moves);
    loop_turn(w->loop, false);
}

static void end_all(struct world *w)
{
    while (w->moves.under_way)
        end(w, w->moves.under_way);
}

static void a_few_go_at_once_and_the_others_in_order(void **state)
{
    (void)state;
    struct world w;
    open_world(&w);
    begin_some(&w, ALL);
    assert_int_equal(w.went, MOVES_AT_ONCE);
    for (size_t i = 0; i < ALL; i++) {
        end(&w, 1);
        assert_int_equal(w.went, i + MOVES_AT_ONCE < ALL ? i + 1 + MOVES_AT_ONCE : ALL);
    }
    for (size_t i = 0; i < ALL; i++)
        assert_int_equal(w.movers[i].went, i + 1);
    assert_int_equal(w.moves.under_way, 0);
    close_world(&w);
}

/* Those whose worker has answered in this turn, too, are not to wait for others' connections. */
static void the_next_ones_go_when_the_turn_is_over(void **state)
{
    (void)state;
    struct world w;
    open_world(&w);
    begin_some(&w, ALL);
    for (size_t i = 0; i < MOVES_AT_ONCE; i++)
        moves_end(&w.moves);
    assert_int_equal(w.went, MOVES_AT_ONCE);
    loop_turn(w.loop, false);
    assert_int_equal(w.went, 2 * MOVES_AT_ONCE);
    end_all(&w);
    close_world(&w);
}

static void one_that_ends_within_its_turn_makes_room_for_the_next(void **state)
{
    (void)state;
    struct world w;
    open_world(&w);
    begin_some(&w, ALL);
    w.ends_at_once = true;
    end(&w, 1);
    assert_int_equal(w.went, ALL);
    assert_int_equal(w.moves.under_way, MOVES_AT_ONCE - 1);
    close_world(&w);
}

/* As of tunnels that are closing by then. */
static void as_many_as_there_are_may_end_within_their_turn(void **state)
{
    (void)state;
    struct world w;
    const size_t many = 200000;
    struct mover *movers = calloc(many, sizeof *movers);
    assert_non_null(movers);
    open_world(&w);
    begin_some(&w, MOVES_AT_ONCE);
    for (size_t i = 0; i < many; i++) {
        movers[i] = (struct mover){.world = &w, .epoch = (int64_t)i, .host = "worker"};
        assert_non_null(moves_begin(
            &w.moves, &movers[i],
            &(struct answer){.epoch = (int64_t)i, .target = {.host = slice_text(movers[i].host)}}));
    }
    w.ends_at_once = true;
    end(&w, 1);
    assert_int_equal(w.went, MOVES_AT_ONCE + many);
    close_world(&w);
    free(movers);
}

static void one_that_waits_no_more_is_passed_over(void **state)
{
    (void)state;
    struct world w;
    const size_t first = MOVES_AT_ONCE, middle = first + 3, last = ALL - 1;
    open_world(&w);
    begin_some(&w, ALL);
    moves_drop(&w.moves, w.movers[last].move);
    moves_drop(&w.moves, w.movers[middle].move);
    moves_drop(&w.moves, w.movers[first].move);
    begin(&w, last); /* told again, behind all others */
    for (size_t i = 0; i < ALL - 2; i++)
        end(&w, 1);
    assert_int_equal(w.movers[first].went + w.movers[middle].went, 0);
    assert_int_equal(w.movers[last].went, ALL - 2);
    close_world(&w);
}

/* It ends instead of going, and with it its move. */
static void one_that_is_dropped_when_it_is_to_go_makes_room_for_the_next(void **state)
{
    (void)state;
    struct world w;
    open_world(&w);
    begin_some(&w, ALL);
    w.drops = true;
    end(&w, MOVES_AT_ONCE);
    assert_int_equal(w.went, ALL);
    assert_int_equal(w.moves.under_way, 0);
    close_world(&w);
}

static void nobody_waits_for_workers_that_do_not_answer(void **state)
{
    (void)state;
    struct world w;
    open_world(&w);
    begin_some(&w, ALL);
    for (size_t most = MOVES_AT_ONCE; most < ALL; most += MOVES_AT_ONCE) {
        assert_int_equal(w.went, most);
        end_step(&w);
    }
    assert_int_equal(w.went, ALL);
    end(&w, ALL);
    w.went = 0;
    begin_some(&w, ALL);
    assert_int_equal(w.went, MOVES_AT_ONCE); /* it is as before */
    end_all(&w);
    close_world(&w);
}

static void while_enough_get_through_no_more_go_at_once(void **state)
{
    (void)state;
    struct world w;
    open_world(&w);
    begin_some(&w, 3 * MOVES_AT_ONCE);
    end(&w, MOVES_AT_ONCE);
    assert_int_equal(w.went, 2 * MOVES_AT_ONCE);
    end_step(&w);
    assert_int_equal(w.moves.most, MOVES_AT_ONCE);
    assert_int_equal(w.went, 2 * MOVES_AT_ONCE);
    end_all(&w);
    close_world(&w);
}

static void once_enough_get_through_fewer_go_at_once_again(void **state)
{
    (void)state;
    struct world w;
    open_world(&w);
    begin_some(&w, ALL);
    end_step(&w);
    assert_int_equal(w.moves.most, 2 * MOVES_AT_ONCE);
    for (size_t i = 0; i < MOVES_AT_ONCE; i++)
        moves_end(&w.moves);
    end_step(&w);
    assert_int_equal(w.moves.most, MOVES_AT_ONCE);
    assert_int_equal(w.went, 3 * MOVES_AT_ONCE); /* those that end make room */
    end_all(&w);
    close_world(&w);
}

/* ---- the connection ---- */
static int listen_here(struct net_address *address)
{
    struct fail why;
    assert_true(net_parse(SLICE_LITERAL("127.0.0.1:0"), address, &why));
    int listener = net_listen(address, 0, &why);
    assert_true(listener >= 0 && net_local(listener, address));
    return listener;
}

static void one_goes_with_its_connection_in_the_turn_in_which_it_was_told(void **state)
{
    (void)state;
    struct world w;
    struct net_address address;
    int listener = listen_here(&address);
    open_world(&w);
    w.connects_to = &address;
    begin_some(&w, 1);
    assert_int_equal(w.went, 1);
    assert_true(net_is_connected(w.movers[0].fd));
    close(w.movers[0].fd);
    close(listener);
    end_all(&w);
    close_world(&w);
}

/* The listener's queue is full: the system lets the next one wait. */
static int fill_queue(int listener, const struct net_address *address)
{
    struct fail why;
    assert_int_equal(listen(listener, 0), 0);
    int queued = net_connect(address, &why);
    assert_true(net_is_connected(queued));
    return queued;
}

static void nobody_goes_before_the_connection_is_made_unless_it_takes_long(void **state)
{
    (void)state;
    struct world w;
    struct net_address address;
    int listener = listen_here(&address), queued = fill_queue(listener, &address);
    uint64_t began = loop_clock(); /* libev counts from when its turn began */
    open_world(&w);
    w.connects_to = &address;
    begin_some(&w, 1);
    assert_int_equal(w.connects, 1);
    assert_int_equal(w.moves.under_way, 1);
    while (!w.went)
        loop_turn(w.loop, true);
    assert_true(loop_clock() - began >= MOVES_PATIENCE - MILLISECOND);
    assert_false(net_is_connected(w.movers[0].fd));
    assert_true(w.movers[0].fd >= 0); /* what it connects with it goes on with */
    close(w.movers[0].fd);
    close(queued);
    close(listener);
    end_all(&w);
    close_world(&w);
}

static void one_whose_connection_fails_goes_when_it_has_failed(void **state)
{
    (void)state;
    struct world w;
    struct net_address address;
    close(listen_here(&address));
    open_world(&w);
    w.connects_to = &address;
    begin_some(&w, 1);
    for (uint64_t began = loop_clock(); !w.went && loop_clock() - began < 50 * MOVES_PATIENCE;)
        loop_turn(w.loop, true);
    assert_int_equal(w.went, 1);
    assert_true(w.movers[0].fd < 0 || net_connected(w.movers[0].fd) == ECONNREFUSED);
    if (w.movers[0].fd >= 0)
        close(w.movers[0].fd);
    end_all(&w);
    close_world(&w);
}

static void one_that_waits_for_its_connection_no_more_makes_room(void **state)
{
    (void)state;
    struct world w;
    struct net_address address;
    int listener = listen_here(&address), queued = fill_queue(listener, &address);
    open_world(&w);
    w.connects_to = &address;
    begin_some(&w, MOVES_AT_ONCE + 1);
    assert_int_equal(w.connects, MOVES_AT_ONCE);
    moves_drop(&w.moves, w.movers[0].move);
    loop_turn(w.loop, false);
    assert_int_equal(w.connects, MOVES_AT_ONCE + 1);
    assert_int_equal(w.moves.under_way, MOVES_AT_ONCE);
    for (size_t i = 1; i <= MOVES_AT_ONCE; i++)
        moves_drop(&w.moves, w.movers[i].move);
    assert_int_equal(w.went + w.moves.under_way, 0);
    close(queued);
    close(listener);
    close_world(&w);
}

static void without_memory_one_goes_at_once(void **state)
{
    (void)state;
    struct world w;
    const struct answer answer = {.epoch = 1};
    open_world(&w);
    alloc_fail_at(1);
    assert_null(moves_begin(&w.moves, &w.movers[0], &answer));
    alloc_fail_at(0);
    assert_int_equal(w.moves.under_way, 1);
    assert_null(w.moves.first);
    end_all(&w);
    close_world(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_few_go_at_once_and_the_others_in_order),
        cmocka_unit_test(the_next_ones_go_when_the_turn_is_over),
        cmocka_unit_test(one_that_ends_within_its_turn_makes_room_for_the_next),
        cmocka_unit_test(as_many_as_there_are_may_end_within_their_turn),
        cmocka_unit_test(one_that_waits_no_more_is_passed_over),
        cmocka_unit_test(one_that_is_dropped_when_it_is_to_go_makes_room_for_the_next),
        cmocka_unit_test(nobody_waits_for_workers_that_do_not_answer),
        cmocka_unit_test(while_enough_get_through_no_more_go_at_once),
        cmocka_unit_test(once_enough_get_through_fewer_go_at_once_again),
        cmocka_unit_test(one_goes_with_its_connection_in_the_turn_in_which_it_was_told),
        cmocka_unit_test(nobody_goes_before_the_connection_is_made_unless_it_takes_long),
        cmocka_unit_test(one_whose_connection_fails_goes_when_it_has_failed),
        cmocka_unit_test(one_that_waits_for_its_connection_no_more_makes_room),
        cmocka_unit_test(without_memory_one_goes_at_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
