/* SPDX-License-Identifier: MIT */
#include "tests/unit/support.h"

#include <errno.h>
#include <sys/socket.h>
#include <unistd.h>

#include "examples/worker/client.h"

#define OUTPUT ((size_t)400 * 1024)

struct user {
    struct client client; /* first: its callbacks know the user by it */
    bool gone;
};

/* What comes is a farewell: it is answered with the last output. */
static size_t input(void *user, struct slice bytes)
{
    static const uint8_t output[OUTPUT];
    struct user *u = user;

    client_send(&u->client, slice_of(output, sizeof output));
    client_finish(&u->client);
    return bytes.len;
}

static void room(void *user)
{
    (void)user;
}

static void gone(void *user)
{
    ((struct user *)user)->gone = true;
}

/* All that a peer gets that reads as long as anything comes; its side of the connection is ended before. */
static size_t take_all(struct loop *loop, const struct user *u, int peer)
{
    static uint8_t bytes[65536];
    size_t taken = 0;
    ssize_t got;

    do {
        if (!u->gone)
            loop_turn(loop, false);
        got = recv(peer, bytes, sizeof bytes, MSG_DONTWAIT);
        taken += got > 0 ? (size_t)got : 0;
    } while (got > 0 || (got < 0 && errno == EAGAIN && !u->gone));
    return taken;
}

static void a_peer_that_has_ended_its_side_gets_all_of_the_rest(void **state)
{
    struct user u = {.client = {.input = input, .room = room, .gone = gone, .user = &u}};
    struct fail why;
    int pair[2];

    (void)state;
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair), 0);
    struct loop *loop = loop_new(&why);
    assert_non_null(loop);
    client_open(&u.client, loop, pair[0]);
    assert_int_equal(send(pair[1], "farewell", 8, 0), 8);
    shutdown(pair[1], SHUT_WR);
    assert_int_equal(take_all(loop, &u, pair[1]), OUTPUT);
    for (int i = 0; i < 3 && !u.gone; i++)
        loop_turn(loop, false);
    assert_true(u.gone);
    close(pair[1]);
    loop_free(loop);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_peer_that_has_ended_its_side_gets_all_of_the_rest)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
