/* SPDX-License-Identifier: MIT */
#include "tests/unit/support.h"

#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include "spoa/relay/thread/pipes.h"

enum { SIZE = 200000, MOST = 65536 };

struct world {
    struct pipes pipes;
    int source[2], sink[2]; /* the far ends are [0] */
    struct buffer rest;
    uint8_t sent[SIZE], got[SIZE];
    size_t len;
};

static struct world *world_new(void)
{
    static struct world world;
    world = (struct world){.rest = buffer_with_limit(MOST)};
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, world.source), 0);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, world.sink), 0);
    int little = 16384;
    assert_int_equal(setsockopt(world.sink[1], SOL_SOCKET, SO_SNDBUF, &little, sizeof little), 0);
    for (size_t i = 0; i < SIZE; i++)
        world.sent[i] = (uint8_t)(i * 31 + i / 251);
    return &world;
}

static void world_end(struct world *w)
{
    buffer_free(&w->rest);
    pipes_free(&w->pipes);
    for (int i = 0; i < 2; i++) {
        close(w->source[i]);
        close(w->sink[i]);
    }
}

static void take(struct world *w)
{
    for (ssize_t got; (got = recv(w->sink[0], w->got + w->len, SIZE - w->len, 0)) > 0;)
        w->len += (size_t)got;
}

/* What the receiver has no room for is the caller's, in order. */
static void what_is_not_taken_is_kept(void **state)
{
    struct world *w = world_new();
    size_t put = 0, passed, kept = 0;
    (void)state;
    while (w->len < SIZE) {
        ssize_t more = put < SIZE ? send(w->source[0], w->sent + put, SIZE - put, MSG_NOSIGNAL) : -1;
        put += more > 0 ? (size_t)more : 0;
        if (buffer_len(&w->rest)) {
            struct slice rest = buffer_slice(&w->rest);
            kept += rest.len;
            take(w);
            memcpy(w->got + w->len, rest.at, rest.len);
            w->len += rest.len;
            buffer_consume(&w->rest, rest.len);
        }
        assert_true(pipes_pass(&w->pipes, w->source[1], w->sink[1], MOST, &w->rest, &passed));
        assert_true(passed <= MOST);
        if (put == SIZE && !passed)
            take(w);
    }
    assert_memory_equal(w->got, w->sent, SIZE);
    assert_true(kept > 0);
    assert_int_equal(w->pipes.count, 1);
    world_end(w);
}

static void ends_and_errors_are_left(void **state)
{
    struct world *w = world_new();
    size_t passed = 1;
    (void)state;
    assert_true(pipes_pass(&w->pipes, w->source[1], w->sink[1], MOST, &w->rest, &passed));
    assert_int_equal(passed, 0); /* nothing has come */
    assert_int_equal(send(w->source[0], "x", 1, 0), 1);
    shutdown(w->source[0], SHUT_WR);
    assert_true(pipes_pass(&w->pipes, w->source[1], w->sink[1], MOST, &w->rest, &passed));
    assert_int_equal(passed, 1);
    assert_true(pipes_pass(&w->pipes, w->source[1], w->sink[1], MOST, &w->rest, &passed));
    assert_int_equal(passed, 0); /* the end, which is still there to be read */
    assert_int_equal(recv(w->source[1], w->got, 1, 0), 0);
    assert_false(w->pipes.failed);
    world_end(w);
}

/* Bytes for who has gone are kept as any others: the next send finds it out. */
static void who_has_gone_takes_nothing(void **state)
{
    struct world *w = world_new();
    size_t passed;
    (void)state;
    shutdown(w->sink[0], SHUT_RDWR);
    assert_int_equal(send(w->source[0], "abc", 3, 0), 3);
    assert_true(pipes_pass(&w->pipes, w->source[1], w->sink[1], MOST, &w->rest, &passed));
    assert_int_equal(passed, 3);
    assert_true(slice_is(buffer_slice(&w->rest), "abc"));
    world_end(w);
}

static void says_that_memory_is_short(void **state)
{
    struct world *w = world_new();
    size_t passed;
    (void)state;
    assert_int_equal(send(w->source[0], "abc", 3, 0), 3);
    alloc_fail_at(1); /* no pipe: nothing is passed, nothing lost */
    assert_true(pipes_pass(&w->pipes, w->source[1], w->sink[1], MOST, &w->rest, &passed));
    assert_int_equal(passed, 0);
    alloc_fail_at(0);
    shutdown(w->sink[0], SHUT_RDWR);
    alloc_fail_at(2); /* none for the rest */
    assert_false(pipes_pass(&w->pipes, w->source[1], w->sink[1], MOST, &w->rest, &passed));
    alloc_fail_at(0);
    assert_int_equal(w->pipes.count, 0); /* a pipe with something in it is not used again */
    world_end(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_not_taken_is_kept),
        cmocka_unit_test(ends_and_errors_are_left),
        cmocka_unit_test(who_has_gone_takes_nothing),
        cmocka_unit_test(says_that_memory_is_short),
    };
    signal(SIGPIPE, SIG_IGN);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
