/* SPDX-License-Identifier: MIT */
/* Attempts to reach a worker, which is the test, on a Unix socket. */
#include "tests/unit/support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "spoa/relay/thread/dial.h"

#define TURNS 1000

struct world {
    struct loop *loop;
    struct upgrade_kept *upgrade;
    struct dial *dial;
    char folder[40], path[64];
    int listener, worker;
    unsigned done;
    enum dial_outcome outcome;
};

static void on_done(void *owner, enum dial_outcome outcome)
{
    struct world *w = owner;
    w->done++;
    w->outcome = outcome;
}

static struct upgrade_kept *new_upgrade(void)
{
    static const char text[] =
        "GET / HTTP/1.1\r\nHost: h\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: "
        "13\r\n"
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nX-Cell-Handover:route=r;sandbox=s\r\n\r\n";
    struct http_reader reader = http_reader_of(HTTP_REQUEST, HTTP_HEAD_MAX);
    struct http_head head;
    enum refusal refusal;
    struct fail why;
    assert_int_equal(http_read(&reader, slice_text(text), &head), HTTP_DONE);
    struct upgrade *upgrade = upgrade_new(&head, &refusal, &why);
    struct upgrade_kept *kept = upgrade ? upgrade_keep(upgrade) : NULL;
    free(upgrade);
    return kept;
}

static int start(void **state)
{
    struct world *w = calloc(1, sizeof *w);
    struct net_address address;
    struct fail why;
    char text[80];
    snprintf(w->folder, sizeof w->folder, "/tmp/cellgate-dial.XXXXXX");
    assert_non_null(mkdtemp(w->folder));
    strcat(w->folder, "/");
    snprintf(w->path, sizeof w->path, "%sw", w->folder);
    snprintf(text, sizeof text, "unix@%s", w->path);
    assert_true(net_parse(slice_text(text), &address, &why));
    w->listener = net_listen(&address, 0600, &why);
    w->loop = loop_new(&why);
    w->upgrade = new_upgrade();
    assert_true(w->listener >= 0 && w->loop && w->upgrade);
    struct target to = {.unix_path = slice_text(w->path)};
    w->dial = dial_new(&(struct dial_options){.loop = w->loop,
                                              .timeout = 2000000,
                                              .head_max = HTTP_HEAD_MAX,
                                              .upgrade = w->upgrade,
                                              .to = &to,
                                              .folder = w->folder,
                                              .first = true,
                                              .done = on_done,
                                              .owner = w});
    assert_non_null(w->dial);
    w->worker = net_accept(w->listener); /* before the dial knows that it is connected */
    assert_true(w->worker >= 0);
    *state = w;
    return 0;
}

static int stop(void **state)
{
    struct world *w = *state;
    dial_free(w->dial);
    loop_free(w->loop);
    free(w->upgrade);
    close(w->worker);
    net_unlisten(w->listener);
    w->folder[strlen(w->folder) - 1] = '\0';
    assert_int_equal(rmdir(w->folder), 0);
    free(w);
    return 0;
}

static void await_done(struct world *w)
{
    for (int i = 0; i < TURNS && !w->done; i++)
        loop_turn(w->loop, true);
    assert_int_equal(w->done, 1);
}

#define REFUSED "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 5\r\n\r\nlater"

static void an_answer_is_heard_though_the_request_was_not_taken(void **state)
{
    struct world *w = *state;
    assert_int_equal(send(w->worker, REFUSED, strlen(REFUSED), 0), strlen(REFUSED));
    shutdown(w->worker, SHUT_RDWR);
    await_done(w);
    assert_int_equal(w->outcome, DIAL_STATUS);
    assert_int_equal(dial_status(w->dial), 503);
    assert_true(slice_is(dial_body(w->dial), "later"));
}

static void a_worker_that_takes_nothing_and_says_nothing_is_unreachable(void **state)
{
    struct world *w = *state;
    shutdown(w->worker, SHUT_RD);
    await_done(w);
    assert_int_equal(w->outcome, DIAL_UNREACHABLE);
}

static void a_hurried_request_is_there_before_the_loop_has_its_turn(void **state)
{
    struct world *w = *state;
    char bytes[2048];
    dial_hurry(w->dial);
    assert_true(recv(w->worker, bytes, sizeof bytes, 0) > 0);
    assert_memory_equal(bytes, "GET / HTTP/1.1\r\n", 16);
    assert_int_equal(send(w->worker, REFUSED, strlen(REFUSED), 0), strlen(REFUSED));
    await_done(w);
    assert_int_equal(w->outcome, DIAL_STATUS);
    assert_int_equal(recv(w->worker, bytes, sizeof bytes, 0), -1); /* it was sent once */
}

static void a_connection_that_was_made_ahead_is_used_and_no_other(void **state)
{
    struct world *w = *state;
    const struct target to = {.unix_path = slice_text(w->path)};
    struct fail why;
    char bytes[2048];
    int ahead = dial_connect(&to, NULL, w->folder, &why), worker = net_accept(w->listener);
    assert_true(ahead >= 0 && worker >= 0);
    struct dial *dial = dial_new(&(struct dial_options){.loop = w->loop,
                                                        .timeout = 2000000,
                                                        .head_max = HTTP_HEAD_MAX,
                                                        .upgrade = w->upgrade,
                                                        .to = &to,
                                                        .ahead = &ahead,
                                                        .folder = w->folder,
                                                        .done = on_done,
                                                        .owner = w});
    assert_non_null(dial);
    assert_int_equal(ahead, -1);
    dial_hurry(dial);
    assert_true(recv(worker, bytes, sizeof bytes, 0) > 0);
    assert_int_equal(net_accept(w->listener), -1);
    dial_free(dial);
    close(worker);
}

/* It may have seen it. */
static void a_worker_that_ends_behind_a_hurried_request_is_not_unreachable(void **state)
{
    struct world *w = *state;
    dial_hurry(w->dial);
    shutdown(w->worker, SHUT_RDWR);
    await_done(w);
    assert_int_equal(w->outcome, DIAL_INVALID);
}

static void a_worker_that_takes_no_hurried_request_is_unreachable(void **state)
{
    struct world *w = *state;
    shutdown(w->worker, SHUT_RD);
    dial_hurry(w->dial);
    await_done(w);
    assert_int_equal(w->outcome, DIAL_UNREACHABLE);
}

static void an_answer_that_was_there_in_time_is_not_late(void **state)
{
    struct world *w = *state;
    loop_turn(w->loop, true);
    loop_turn(w->loop, false);
    usleep(2100000); /* the thread stands still */
    assert_int_equal(send(w->worker, REFUSED, strlen(REFUSED), 0), strlen(REFUSED));
    await_done(w);
    assert_int_equal(w->outcome, DIAL_STATUS);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, start, stop)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(an_answer_is_heard_though_the_request_was_not_taken),
        TEST(a_worker_that_takes_nothing_and_says_nothing_is_unreachable),
        TEST(a_hurried_request_is_there_before_the_loop_has_its_turn),
        TEST(a_connection_that_was_made_ahead_is_used_and_no_other),
        TEST(a_worker_that_ends_behind_a_hurried_request_is_not_unreachable),
        TEST(a_worker_that_takes_no_hurried_request_is_unreachable),
        TEST(an_answer_that_was_there_in_time_is_not_late),
    };
    return cmocka_run_group_tests_name("dial", tests, NULL, NULL);
}
