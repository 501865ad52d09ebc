/* SPDX-License-Identifier: MIT */
/* Tests listeners on Unix and TCP sockets, and the pauses between attempts. */
#include "tests/unit/support.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "spoa/net/backoff.h"
#include "spoa/net/listener.h"
#include "spoa/net/net.h"

#define TURNS   20000
#define CLIENTS 8

struct world {
    struct listener listener;
    struct loop *loop;
    struct net_address address;
    int taken[64], clients[64];
    unsigned taken_count, client_count, rests;
    unsigned hold_at, close_at; /* number of connections at which the owner does so; 0 means never */
};

static void on_accepted(void *owner, int fd)
{
    struct world *w = owner;
    w->taken[w->taken_count++] = fd;
    if (w->taken_count == w->hold_at)
        listener_hold(&w->listener, true);
    if (w->taken_count == w->close_at)
        listener_close(&w->listener);
}

static void on_rested(void *owner)
{
    ((struct world *)owner)->rests++;
}

static void begin(struct world *w, const char *address, unsigned batch)
{
    struct fail why;
    w->loop = loop_new(&why);
    assert_non_null(w->loop);
    assert_true(net_parse(slice_text(address), &w->address, &why));
    int fd = net_listen(&w->address, 0600, &why);
    assert_true(fd >= 0 && net_local(fd, &w->address));
    w->listener = (struct listener){.accepted = on_accepted, .rested = on_rested, .owner = w, .batch = batch};
    listener_open(&w->listener, w->loop, fd);
}

static void end(struct world *w)
{
    listener_close(&w->listener);
    while (w->taken_count)
        close(w->taken[--w->taken_count]);
    while (w->client_count)
        close(w->clients[--w->client_count]);
    if (net_is_unix(&w->address))
        unlink(w->address.path.sun_path);
    loop_free(w->loop);
}

static void come(struct world *w, unsigned count)
{
    struct fail why;
    while (count--) {
        int fd = net_connect(&w->address, &why);
        assert_true(fd >= 0);
        w->clients[w->client_count++] = fd;
    }
}

static void await_taken(struct world *w, unsigned count)
{
    for (int i = 0; i < TURNS && w->taken_count < count; i++)
        loop_turn(w->loop, false);
    assert_int_equal(w->taken_count, count);
}

static const char *unix_address(void)
{
    static char text[64];
    snprintf(text, sizeof text, "unix@/tmp/test_listener.%d", (int)getpid());
    return text;
}

static void connections_come_on_tcp_and_on_unix_sockets(void **state)
{
    (void)state;
    const char *const addresses[] = {"127.0.0.1:0", "[::1]:0", unix_address()};
    for (size_t i = 0; i < 3; i++) {
        struct world w = {0};
        begin(&w, addresses[i], 16);
        come(&w, CLIENTS);
        await_taken(&w, CLIENTS);
        assert_true(listener_is_open(&w.listener));
        end(&w);
    }
}

static void turns_in_a_row_take_more_up_to_the_batch(void **state)
{
    (void)state;
    struct world w = {0};
    begin(&w, unix_address(), 3);
    come(&w, CLIENTS);
    const unsigned taken[] = {1, 3, 6, CLIENTS};
    for (unsigned i = 0; i < 4; i++) {
        loop_turn(w.loop, false);
        assert_int_equal(w.taken_count, taken[i]);
    }
    await_taken(&w, CLIENTS);
    loop_turn(w.loop, false); /* a turn without a connection */
    come(&w, 3);
    loop_turn(w.loop, false);
    assert_int_equal(w.taken_count, CLIENTS + 1);
    loop_turn(w.loop, false);
    assert_int_equal(w.taken_count, CLIENTS + 3);
    end(&w);
}

static void a_listener_that_is_held_in_its_callback_takes_no_more(void **state)
{
    (void)state;
    struct world w = {.hold_at = 2};
    begin(&w, unix_address(), 16);
    come(&w, CLIENTS);
    for (int i = 0; i < 20; i++)
        loop_turn(w.loop, false);
    assert_int_equal(w.taken_count, 2);
    listener_hold(&w.listener, false);
    await_taken(&w, CLIENTS);
    assert_int_equal(w.rests, 0);
    end(&w);
}

static void a_listener_may_be_closed_in_its_callback(void **state)
{
    (void)state;
    struct world w = {.close_at = 2};
    begin(&w, unix_address(), 16);
    come(&w, CLIENTS);
    for (int i = 0; i < 20; i++)
        loop_turn(w.loop, false);
    assert_int_equal(w.taken_count, 2);
    assert_false(listener_is_open(&w.listener));
    end(&w);
}

/* Sets the limit of descriptors so that no further one can be opened, and returns the old limit. */
static struct rlimit no_more_descriptors(void)
{
    struct rlimit before, now;
    int next = dup(0);
    assert_true(next >= 0);
    close(next);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    now = (struct rlimit){(rlim_t)next, before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &now), 0);
    return before;
}

static void without_descriptors_it_rests_and_then_goes_on(void **state)
{
    (void)state;
    struct world w = {0};
    begin(&w, unix_address(), 16);
    come(&w, CLIENTS);
    struct rlimit before = no_more_descriptors();
    for (int i = 0; i < 50; i++)
        loop_turn(w.loop, false);
    assert_int_equal(w.taken_count, 0);
    assert_int_equal(w.rests, 1); /* the loop does not spin */
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    for (int i = 0; i < TURNS && w.taken_count < CLIENTS; i++)
        loop_turn(w.loop, true);
    assert_int_equal(w.taken_count, CLIENTS);
    end(&w);
}

static void a_held_listener_stays_held_behind_its_rest(void **state)
{
    (void)state;
    struct world w = {0};
    begin(&w, unix_address(), 16);
    listener_rest(&w.listener);
    listener_hold(&w.listener, true);
    come(&w, 1);
    uint64_t began = (uint64_t)loop_clock();
    while ((uint64_t)loop_clock() - began < 2 * (uint64_t)LISTENER_REST)
        loop_turn(w.loop, false);
    assert_int_equal(w.taken_count, 0);
    listener_hold(&w.listener, false);
    await_taken(&w, 1);
    end(&w);
}

static void a_released_socket_still_listens(void **state)
{
    (void)state;
    struct world w = {0};
    begin(&w, unix_address(), 16);
    int fd = listener_release(&w.listener);
    assert_int_equal(listener_release(&w.listener), -1);
    come(&w, 1);
    listener_open(&w.listener, w.loop, fd);
    await_taken(&w, 1);
    end(&w);
}

/* ---- threads that share a socket; each of them is a loop here ---- */

enum { THREADS = 3, MANY = 24 };

struct member {
    struct loop *loop;
    struct listener listener;
    int taken[MANY];
    unsigned count;
};

static void on_taken(void *owner, int fd)
{
    struct member *m = owner;
    assert_true(m->count < MANY);
    m->taken[m->count++] = fd;
}

static void close_last(struct member *m)
{
    close(m->taken[--m->count]);
    listener_gone(&m->listener);
}

struct party {
    struct listener_share share;
    struct member member[THREADS];
    struct net_address address;
    int clients[MANY];
    unsigned came;
};

static void begin_party(struct party *p)
{
    struct fail why;
    assert_true(net_parse(slice_text(unix_address()), &p->address, &why));
    int fd = net_listen(&p->address, 0600, &why);
    assert_true(fd >= 0);
    for (size_t i = 0; i < THREADS; i++) {
        struct member *m = &p->member[i];
        m->loop = loop_new(&why);
        m->listener = (struct listener){.accepted = on_taken, .owner = m, .batch = 4, .share = &p->share};
        listener_open(&m->listener, m->loop, i ? dup(fd) : fd);
    }
}

static void end_party(struct party *p)
{
    for (size_t i = 0; i < THREADS; i++) {
        struct member *m = &p->member[i];
        while (m->count)
            close_last(m);
        if (i < THREADS - 1)
            listener_close(&m->listener);
        else
            net_unlisten(listener_release(&m->listener));
        loop_free(m->loop);
    }
    for (unsigned i = 0; i < p->came; i++)
        close(p->clients[i]);
    assert_int_equal(p->share.connections, 0);
    assert_int_equal(p->share.listeners, 0);
}

static unsigned taken_by_all(const struct party *p)
{
    unsigned sum = 0;
    for (size_t i = 0; i < THREADS; i++)
        sum += p->member[i].count;
    return sum;
}

/* Connects `clients` clients, and runs the loops until they have accepted `until` connections. The first thread always looks first. */
static void invite(struct party *p, unsigned clients, unsigned threads, unsigned until)
{
    struct fail why;
    for (unsigned i = 0; i < clients; i++) {
        p->clients[p->came] = net_connect(&p->address, &why);
        assert_true(p->clients[p->came++] >= 0);
    }
    for (int turn = 0; turn < 1000000 && taken_by_all(p) < until; turn++)
        for (size_t i = 0; i < threads; i++)
            loop_turn(p->member[i].loop, false);
    assert_int_equal(taken_by_all(p), until);
}

static void threads_that_share_a_socket_have_equal_parts(void **state)
{
    struct party p = {.came = 0};
    begin_party(&p);
    invite(&p, 6, THREADS, 6);
    for (size_t i = 0; i < THREADS; i++)
        assert_int_equal(p.member[i].count, 2);
    close_last(&p.member[1]);
    close_last(&p.member[1]);
    invite(&p, 2, THREADS, 6); /* the thread that lost some takes them */
    assert_int_equal(p.member[1].count, 2);
    invite(&p, 15, THREADS, 21);
    for (size_t i = 0; i < THREADS; i++)
        assert_in_range(p.member[i].count, 4,
                        11); /* on a busy machine a pause may end before the others accept */
    end_party(&p);
    (void)state;
}

static void nobody_waits_for_a_thread_that_does_not_come(void **state)
{
    struct party p = {.came = 0};
    begin_party(&p);
    invite(&p, 6, 1, 6);
    assert_int_equal(p.member[0].count, 6);
    listener_close(&p.member[1].listener);
    invite(&p, 2, THREADS, 8); /* only the third thread accepts */
    assert_int_equal(p.member[2].count, 2);
    end_party(&p);
    (void)state;
}

/* ---- backoff ---- */
static void pauses_double_from_the_least_to_the_most(void **state)
{
    (void)state;
    struct backoff b = {.least = 100, .most = 1000};
    const uint64_t pauses[] = {100, 200, 400, 800, 1000, 1000};
    for (size_t i = 0; i < 6; i++)
        assert_int_equal(backoff_next(&b), pauses[i]);
    backoff_reset(&b);
    assert_int_equal(backoff_next(&b), 100);
    b = (struct backoff){.least = UINT64_MAX / 2, .most = UINT64_MAX};
    for (size_t i = 0; i < 4; i++)
        assert_true(backoff_next(&b) >= UINT64_MAX / 2);
}

static void a_share_of_each_pause_is_left_to_chance(void **state)
{
    (void)state;
    bool differs = false;
    uint64_t before = 0;
    for (int i = 0; i < 1000; i++) {
        struct backoff b = {.least = 50 * MILLISECOND, .most = SECOND, .jitter = 50};
        uint64_t first = backoff_next(&b), second = backoff_next(&b);
        assert_in_range(first, 25000, 50000);
        assert_in_range(second, 50000, 100000);
        differs = differs || (i && first != before);
        before = first;
    }
    assert_true(differs);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(connections_come_on_tcp_and_on_unix_sockets),
        cmocka_unit_test(turns_in_a_row_take_more_up_to_the_batch),
        cmocka_unit_test(a_listener_that_is_held_in_its_callback_takes_no_more),
        cmocka_unit_test(a_listener_may_be_closed_in_its_callback),
        cmocka_unit_test(without_descriptors_it_rests_and_then_goes_on),
        cmocka_unit_test(a_held_listener_stays_held_behind_its_rest),
        cmocka_unit_test(a_released_socket_still_listens),
        cmocka_unit_test(threads_that_share_a_socket_have_equal_parts),
        cmocka_unit_test(nobody_waits_for_a_thread_that_does_not_come),
        cmocka_unit_test(pauses_double_from_the_least_to_the_most),
        cmocka_unit_test(a_share_of_each_pause_is_left_to_chance),
    };
    return cmocka_run_group_tests_name("listener", tests, NULL, NULL);
}
