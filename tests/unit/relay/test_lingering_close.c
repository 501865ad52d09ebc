/* SPDX-License-Identifier: MIT */
/* Sockets whose tunnels are through with them. */
#include "tests/unit/support.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "spoa/relay/thread/lingering_close.h"
#include "spoa/relay/thread/relay_metrics.h"

#define REST_LEN (1 << 16)
#define ROOM     4096 /* what the socket takes at once, more or less */
#define UNREAD   7
#define IN_TIME  UINT64_C(1000000) /* a lingering is given up after two seconds */

struct world {
    struct relay_metrics *metrics;
    struct limits *limits;
    struct lingering_closes lingering;
    int peer;
    uint64_t began;
};

static void open_loop(struct world *w)
{
    struct fail why;
    w->metrics = relay_metrics_new();
    assert_non_null(w->metrics);
    w->limits = limits_new(&(struct limits_settings){.memory = REST_LEN});
    assert_non_null(w->limits);
    w->lingering = (struct lingering_closes){.loop = loop_new(&why),
                                             .shard = metrics_shard(relay_metrics_metrics(w->metrics)),
                                             .limits = w->limits,
                                             .most = LINGERING_MOST};
    assert_non_null(w->lingering.loop);
    w->began = loop_clock();
}

static void open_world(struct world *w)
{
    static uint8_t bytes[REST_LEN];
    struct buffer rest = buffer_with_limit(REST_LEN);
    int fds[2];
    for (size_t i = 0; i < REST_LEN; i++)
        bytes[i] = (uint8_t)(i % 251);
    assert_true(buffer_put(&rest, slice_of(bytes, sizeof bytes)));
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds), 0);
    assert_int_equal(setsockopt(fds[0], SOL_SOCKET, SO_SNDBUF, &(int){ROOM}, sizeof(int)), 0);
    w->peer = fds[1];
    open_loop(w);
    lingering_close_begin(&w->lingering, fds[0], &rest, 0, UNREAD);
    assert_int_equal(limits_held(w->limits), REST_LEN);
}

static void close_world(struct world *w)
{
    lingering_closes_end(&w->lingering);
    assert_int_equal(limits_held(w->limits), 0);
    limits_free(w->limits);
    close(w->peer);
    loop_free(w->lingering.loop);
    relay_metrics_free(w->metrics);
}

static int64_t unconfirmed(const struct world *w)
{
    return metrics_value(relay_metrics_metrics(w->metrics), METRIC_UNCONFIRMED, METRIC_PLAIN);
}

static bool is_late(const struct world *w)
{
    return loop_clock() - w->began > IN_TIME;
}

/* How many bytes come before the end; they are the right ones. */
static size_t read_all(struct world *w)
{
    uint8_t bytes[ROOM];
    size_t len = 0;
    for (ssize_t got = -1; got != 0 && !is_late(w); len += got > 0 ? (size_t)got : 0) {
        loop_turn(w->lingering.loop, false);
        got = recv(w->peer, bytes, sizeof bytes, 0);
        for (ssize_t i = 0; i < got; i++)
            assert_int_equal(bytes[i], (len + (size_t)i) % 251);
    }
    return len;
}

static void turn_until_over(struct world *w)
{
    while (w->lingering.count && !is_late(w))
        loop_turn(w->lingering.loop, false);
}

/* As a client does that ends its side behind its Close and then reads what there is. */
static bool a_peer_ends_before_it_reads(struct world *w)
{
    shutdown(w->peer, SHUT_WR);
    size_t len = read_all(w);
    turn_until_over(w);
    return len == REST_LEN && w->lingering.count == 0 && unconfirmed(w) == UNREAD;
}

static bool a_peer_reads_and_ends(struct world *w)
{
    size_t len = read_all(w);
    shutdown(w->peer, SHUT_WR);
    turn_until_over(w);
    return len == REST_LEN && w->lingering.count == 0 && unconfirmed(w) == 0;
}

static bool a_peer_goes(struct world *w)
{
    shutdown(w->peer, SHUT_RDWR);
    turn_until_over(w);
    return w->lingering.count == 0 && unconfirmed(w) == UNREAD;
}

/* On a machine that was busy with something else it is tried again. */
static void plays(bool (*play)(struct world *w))
{
    bool late = true, right = false;
    for (int tries = 0; late && !right && tries < 30; tries++) {
        struct world w;
        open_world(&w);
        right = play(&w);
        late = is_late(&w);
        close_world(&w);
    }
    assert_true(right);
}

static void a_peer_that_has_ended_its_side_gets_all_of_the_rest(void **state)
{
    (void)state;
    plays(a_peer_ends_before_it_reads);
}

static void a_peer_that_ends_behind_the_rest_has_read_it(void **state)
{
    (void)state;
    plays(a_peer_reads_and_ends);
}

static void a_peer_that_is_gone_is_not_waited_for(void **state)
{
    (void)state;
    plays(a_peer_goes);
}

/* One end of a TCP connection, and the other in *peer. */
static int connection(int *peer)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof at;
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(listener, (struct sockaddr *)&at, len), 0);
    assert_int_equal(listen(listener, 1), 0);
    assert_int_equal(getsockname(listener, (struct sockaddr *)&at, &len), 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&at, len), 0);
    *peer = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    assert_true(*peer >= 0);
    close(listener);
    return fd;
}

/* The peer's kernel does not even have it. */
static void a_peer_that_ends_while_input_is_on_its_way_has_not_read_it(void **state)
{
    struct world w;
    struct buffer nothing = buffer_with_limit(1);
    uint8_t bytes[REST_LEN] = {0};
    (void)state;
    int fd = connection(&w.peer);
    while (send(fd, bytes, sizeof bytes, MSG_DONTWAIT) > 0)
        ;
    open_loop(&w);
    lingering_close_begin(&w.lingering, fd, &nothing, 0, UNREAD);
    shutdown(w.peer, SHUT_WR);
    while (w.lingering.count)
        loop_turn(w.lingering.loop, true);
    assert_int_equal(unconfirmed(&w), UNREAD);
    close_world(&w);
}

static void a_peer_that_ends_behind_what_it_has_read_has_read_it(void **state)
{
    struct world w;
    struct buffer nothing = buffer_with_limit(1);
    uint8_t bytes[UNREAD] = {0};
    (void)state;
    int fd = connection(&w.peer);
    assert_int_equal(send(fd, bytes, sizeof bytes, 0), UNREAD);
    open_loop(&w);
    lingering_close_begin(&w.lingering, fd, &nothing, 0, UNREAD);
    assert_int_equal(recv(w.peer, bytes, sizeof bytes, MSG_WAITALL), UNREAD);
    shutdown(w.peer, SHUT_WR);
    while (w.lingering.count)
        loop_turn(w.lingering.loop, true);
    assert_int_equal(unconfirmed(&w), 0);
    close_world(&w);
}

/* Who has had the most time has to go. */
static void of_too_many_the_oldest_ends(void **state)
{
    enum { MOST = 3, ALL = 5 };
    struct world w;
    int fds[ALL][2];
    uint8_t byte;
    (void)state;
    open_loop(&w);
    w.lingering.most = MOST;
    for (size_t i = 0; i < ALL; i++) {
        struct buffer nothing = buffer_with_limit(0);
        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds[i]), 0);
        lingering_close_begin(&w.lingering, fds[i][0], &nothing, 0, 0);
        if (i == 1) { /* the newest ends by itself: the next one is behind the one before */
            close(fds[1][1]);
            while (w.lingering.count > 1)
                loop_turn(w.lingering.loop, true);
        }
    }
    assert_int_equal(w.lingering.count, MOST);
    assert_int_equal(
        metrics_value(relay_metrics_metrics(w.metrics), METRIC_CUT_SHORT, METRIC_INDEX(CUT_LINGERING)), 1);
    for (size_t i = 0; i < ALL; i++) {
        if (i == 1)
            continue;
        assert_int_equal(recv(fds[i][1], &byte, 1, 0), 0);
        /* that it is closed, and not only its side ended, shows when something is sent */
        assert_int_equal(send(fds[i][1], "", 1, MSG_NOSIGNAL), i == 0 ? -1 : 1);
        if (i > 1)
            close(fds[i][1]);
    }
    w.peer = fds[0][1];
    close_world(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_peer_that_has_ended_its_side_gets_all_of_the_rest),
        cmocka_unit_test(a_peer_that_ends_behind_the_rest_has_read_it),
        cmocka_unit_test(a_peer_that_is_gone_is_not_waited_for),
        cmocka_unit_test(a_peer_that_ends_while_input_is_on_its_way_has_not_read_it),
        cmocka_unit_test(a_peer_that_ends_behind_what_it_has_read_has_read_it),
        cmocka_unit_test(of_too_many_the_oldest_ends),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
