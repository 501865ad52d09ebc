/* SPDX-License-Identifier: MIT */
/* The worker's end of a WebSocket on a clock of the test's own, with a socket pair for the connection. */
#include "tests/unit/support.h"

#include <sys/socket.h>
#include <unistd.h>

#include "spoa/net/loop.h"

static uint64_t simulated_clock;

static uint64_t simulated_loop_clock(void)
{
    return simulated_clock;
}

#define loop_clock simulated_loop_clock
#include "examples/worker/http/ws_conn.c"

#define SILENCE UINT64_C(60000000)

/* What stands for the rest of the connection. */
struct http_conn {
    struct stream stream;
    struct ws_conn ws;
    bool gone;
};

struct stream *http_stream(struct http_conn *h)
{
    return &h->stream;
}

void http_send(struct http_conn *h, struct slice bytes)
{
    assert_true(buffer_put(&h->stream.out, bytes));
    stream_send_soon(&h->stream);
}

void http_finish(struct http_conn *h)
{
    stream_close(&h->stream);
}

void http_pause(struct http_conn *h, bool paused)
{
    (void)h, (void)paused;
}

bool http_is_paused(const struct http_conn *h)
{
    (void)h;
    return false;
}

bool http_is_full(const struct http_exchange *x)
{
    (void)x;
    return false;
}

struct web_server *web_server_of(struct http_conn *h)
{
    (void)h;
    return NULL;
}

bool web_server_is_draining(const struct web_server *web)
{
    (void)web;
    return false;
}

void http_upgraded(struct http_exchange *x)
{
    (void)x;
}

void http_refuse(struct http_exchange *x, unsigned status, const char *text)
{
    (void)x, (void)status, (void)text;
}

void http_answer(struct http_exchange *x, unsigned status, const char *type, const char *fields,
                 struct slice body)
{
    (void)x, (void)status, (void)type, (void)fields, (void)body;
}

static void input(void *user)
{
    struct http_conn *h = user;
    stream_consume(&h->stream, raw(&h->ws.x, buffer_slice(&h->stream.in)));
}

static void ended_by_peer(void *user, int error)
{
    (void)user, (void)error;
}

static void gone(void *user)
{
    ((struct http_conn *)user)->gone = true;
}

static void left(struct ws_conn *w)
{
    (void)w;
}

static void who_spoke_while_we_were_stopped_is_not_given_up(void **state)
{
    static const struct stream_user user = {.input = input, .ended = ended_by_peer, .gone = gone};
    struct http_conn h = {
        .stream = {
            .user = &user, .owner = &h, .in = buffer_with_limit(4096), .out = buffer_with_limit(4096)}};
    struct fail why;
    int pair[2];

    (void)state;
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair), 0);
    struct loop *loop = loop_new(&why);
    assert_non_null(loop);
    stream_open(&h.stream, loop, pair[0]);
    h.ws = (struct ws_conn){.x.conn = &h, .left = left, .silence_max = SILENCE, .open = true};
    h.ws.decoder = ws_decoder_of(WS_CLIENT, WHOLE);
    loop_timer_open(&h.ws.tick, loop, tick_due, &h.ws);

    assert_int_equal(send(pair[1], "\x89\x80mask", 6, 0), 6);
    simulated_clock += 2 * SILENCE;
    tick_due(&h.ws); /* it is due before what has come is looked at */
    loop_turn(loop, false);
    tick_due(&h.ws);
    loop_turn(loop, false);
    bool lived = !h.gone;

    simulated_clock += 2 * SILENCE;
    tick_due(&h.ws);
    loop_turn(loop, false);
    tick_due(&h.ws);
    loop_turn(loop, false);
    bool ended = h.gone;

    ws_conn_close(&h.ws);
    close(pair[1]);
    loop_free(loop);
    assert_true(lived);
    assert_true(ended);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(who_spoke_while_we_were_stopped_is_not_given_up)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
