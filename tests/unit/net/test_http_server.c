/* SPDX-License-Identifier: MIT */
/* The HTTP server runs over real sockets. It answers a request with the length of its body, or upgrades it to an echo. */
#include "tests/unit/support.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "spoa/net/http_server.h"
#include "spoa/net/net.h"

#define TURNS 20000
#define MIB   ((size_t)1 << 20)

static struct world {
    struct http_server server;
    struct loop *loop;
    struct net_address address;
    unsigned gone, closed;
    size_t answer; /* bytes of an answer to GET */
    struct http_exchange *pending;
} w;

struct visit {
    struct http_exchange x;
    size_t body, sent;
};

static void on_body(struct http_exchange *x, struct slice piece)
{
    ((struct visit *)x)->body += piece.len;
}

/* Sends as much as there is room for. */
static void go_on(struct http_exchange *x)
{
    static const uint8_t block[4096];
    struct visit *v = (struct visit *)x;
    while (v->sent < w.answer && !http_is_full(x)) {
        struct slice part = slice_sub(slice_of(block, sizeof block), 0, w.answer - v->sent);
        v->sent += part.len;
        http_piece(x, part);
    }
    if (v->sent == w.answer)
        http_end(x);
}

static size_t on_raw(struct http_exchange *x, struct slice bytes)
{
    http_send(x->conn, bytes);
    return bytes.len;
}

static void on_end(struct http_exchange *x)
{
    char text[32];
    struct visit *v = (struct visit *)x;
    if (slice_is(x->path, "/echo")) {
        http_send(x->conn, SLICE_LITERAL("HTTP/1.1 101 Switching Protocols\r\n\r\n"));
        x->raw = on_raw;
        http_upgraded(x);
    } else if (slice_is(x->path, "/later")) {
        w.pending = x;
    } else if (slice_is(x->path, "/large")) {
        x->room = go_on;
        http_begin(x, 200, NULL, NULL, w.answer);
        go_on(x);
    } else {
        snprintf(text, sizeof text, "%zu", v->body);
        http_answer(x, 200, "text/plain", NULL, slice_text(text));
    }
}

static void on_close(struct http_exchange *x)
{
    (void)x;
    w.closed++;
}

static struct http_exchange *route(struct http_server *server, struct http_conn *conn)
{
    struct visit *v = http_exchange_new(sizeof *v, conn);
    (void)server;
    v->x.body = on_body;
    v->x.end = on_end;
    v->x.close = on_close;
    return &v->x;
}

static void refuse(struct http_server *server, unsigned status, struct buffer *answer)
{
    char text[64];
    (void)server;
    snprintf(text, sizeof text, "HTTP/1.1 %u Refused\r\n\r\n", status);
    assert_true(buffer_put(answer, slice_text(text)));
}

static void on_gone(struct http_server *server)
{
    (void)server;
    w.gone++;
}

static const struct http_server_options options = {
    .name = "test",
    .head_max = HTTP_HEAD_MAX,
    .output_max = 512 * 1024,
    .connections = 2,
    .head_time = 50000,
    .idle_time = 20 * SECOND,
    .linger = {.step = SECOND, .grace = SECOND, .drain = MIB},
    .route = route,
    .refuse = refuse,
    .gone = on_gone,
};

static int start(void **state)
{
    struct fail why;
    (void)state;
    memset(&w, 0, sizeof w);
    w.loop = loop_new(&why);
    assert_non_null(w.loop);
    assert_true(net_parse(SLICE_LITERAL("127.0.0.1:0"), &w.address, &why));
    int fd = net_listen(&w.address, 0, &why);
    assert_true(fd >= 0 && net_local(fd, &w.address));
    http_server_open(&w.server, w.loop, fd, &options);
    return 0;
}

static int stop(void **state)
{
    (void)state;
    close(http_server_close(&w.server));
    loop_turn(w.loop, false);
    assert_int_equal(w.server.count, 0);
    loop_free(w.loop);
    return 0;
}

static int come(void)
{
    struct fail why;
    int fd = net_connect(&w.address, &why);
    assert_true(fd >= 0);
    for (int i = 0; i < TURNS && net_connected(fd); i++)
        loop_turn(w.loop, false);
    return fd;
}

static void say(int fd, const void *bytes, size_t len)
{
    for (size_t said = 0, turns = 0; said < len && turns < TURNS; turns++) {
        ssize_t n = send(fd, (const char *)bytes + said, len - said, MSG_NOSIGNAL);
        said += n > 0 ? (size_t)n : 0;
        loop_turn(w.loop, false);
        if (n < 0 && errno != EAGAIN)
            return;
    }
}

static void say_text(int fd, const char *text)
{
    say(fd, text, strlen(text));
}

/* Reads until the input contains `text`, or until the end. */
static bool hear(int fd, const char *text, bool *ended)
{
    static char heard[65536];
    size_t len = 0;
    *ended = false;
    heard[0] = '\0';
    for (int i = 0; i < TURNS && !*ended && !(text && strstr(heard, text)); i++) {
        ssize_t n = recv(fd, heard + len, sizeof heard - 1 - len, MSG_DONTWAIT);
        len += n > 0 ? (size_t)n : 0;
        heard[len] = '\0';
        *ended = n == 0 || (n < 0 && errno != EAGAIN);
        loop_turn(w.loop, n < 0 && i > 1000);
    }
    return !text || strstr(heard, text);
}

static bool hears(int fd, const char *text)
{
    bool ended;
    return hear(fd, text, &ended);
}

static bool hears_the_end(int fd)
{
    bool ended;
    hear(fd, NULL, &ended);
    return ended;
}

/* ---- requests ---- */
static void requests_of_one_connection_are_answered_in_turn(void **state)
{
    (void)state;
    int fd = come();
    say_text(fd,
             "GET /a HTTP/1.1\r\nHost: h\r\n\r\nPOST /b HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\nabc"
             "POST /c HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n");
    assert_true(hears(fd, "Content-Length: 1\r\n\r\n5"));
    assert_int_equal(w.closed, 3);
    assert_int_equal(w.server.count, 1);
    close(fd);
}

static void a_request_may_be_cut_anywhere(void **state)
{
    (void)state;
    const char *text =
        "POST /c HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n";
    int fd = come();
    for (size_t i = 0; i < strlen(text); i++)
        say(fd, text + i, 1);
    assert_true(hears(fd, "\r\n\r\n5"));
    close(fd);
}

static void bodies_of_every_size_are_counted(void **state)
{
    (void)state;
    static const size_t sizes[] = {0, 125, 126, 16384, 65535, 65536, MIB};
    static uint8_t bytes[MIB];
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        char head[128], want[32];
        int fd = come();
        snprintf(head, sizeof head, "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: %zu\r\n\r\n", sizes[i]);
        snprintf(want, sizeof want, "\r\n\r\n%zu", sizes[i]);
        say_text(fd, head);
        say(fd, bytes, sizes[i]);
        assert_true(hears(fd, want));
        close(fd);
    }
}

static void a_head_is_refused_at_exactly_its_limit(void **state)
{
    (void)state;
    for (size_t over = 0; over < 2; over++) {
        static char head[HTTP_HEAD_MAX + 2];
        int len = snprintf(head, sizeof head, "GET / HTTP/1.1\r\nHost: h\r\nX: ");
        memset(head + len, 'x', sizeof head - (size_t)len);
        memcpy(head + HTTP_HEAD_MAX + over - 4, "\r\n\r\n", 4);
        int fd = come();
        say(fd, head, HTTP_HEAD_MAX + over);
        assert_true(hears(fd, over ? "HTTP/1.1 431 " : "HTTP/1.1 200 "));
        close(fd);
    }
}

static void a_malformed_request_is_refused_and_the_connection_ends(void **state)
{
    (void)state;
    int fd = come();
    bool ended;
    say_text(fd, "nonsense\r\n\r\n");
    assert_true(hear(fd, "HTTP/1.1 400 ", &ended));
    assert_true(ended || hears_the_end(fd));
    close(fd);
}

static void a_head_that_does_not_end_is_late(void **state)
{
    (void)state;
    int fd = come();
    say_text(fd, "GET / HTTP/1.1\r\n");
    assert_true(hears(fd, "HTTP/1.1 408 "));
    close(fd);
}

/* ---- connections ---- */
static void more_than_the_places_wait(void **state)
{
    (void)state;
    int fds[3];
    for (size_t i = 0; i < 3; i++) {
        fds[i] = come();
        say_text(fds[i], "GET / HTTP/1.1\r\nHost: h\r\n\r\n");
    }
    assert_true(hears(fds[0], "\r\n\r\n0") && hears(fds[1], "\r\n\r\n0"));
    assert_int_equal(w.server.count, 2);
    close(fds[0]);
    assert_true(hears(fds[2], "\r\n\r\n0"));
    assert_int_equal(w.gone, 1);
    close(fds[1]);
    close(fds[2]);
}

static void a_client_that_leaves_ends_its_exchange(void **state)
{
    (void)state;
    for (int reset = 0; reset < 2; reset++) {
        unsigned closed = w.closed;
        int fd = come();
        say_text(fd, "GET /later HTTP/1.1\r\nHost: h\r\n\r\n");
        for (int i = 0; i < TURNS && !w.pending; i++)
            loop_turn(w.loop, true);
        assert_non_null(w.pending);
        w.pending = NULL;
        if (reset)
            setsockopt(fd, SOL_SOCKET, SO_LINGER, &(struct linger){1, 0}, sizeof(struct linger));
        close(fd);
        for (int i = 0; i < TURNS && w.closed == closed; i++)
            loop_turn(w.loop, true);
        assert_int_equal(w.closed, closed + 1);
    }
}

static void a_client_that_stalls_is_not_answered_into_memory(void **state)
{
    (void)state;
    static char bytes[65536];
    int fd = come();
    w.answer = 16 * MIB;
    say_text(fd, "GET /large HTTP/1.1\r\nHost: h\r\n\r\n");
    for (int i = 0; i < 200; i++)
        loop_turn(w.loop, false);
    assert_int_equal(w.closed, 0); /* the exchange waits for room */
    size_t got = 0;
    for (int i = 0; i < 10 * TURNS && got < w.answer; i++) {
        ssize_t n = recv(fd, bytes, sizeof bytes, MSG_DONTWAIT);
        got += n > 0 ? (size_t)n : 0;
        loop_turn(w.loop, false);
    }
    assert_true(got >= w.answer);
    assert_int_equal(w.closed, 1);
    close(fd);
}

static void an_upgraded_connection_is_its_exchanges(void **state)
{
    (void)state;
    int fd = come();
    say_text(fd, "GET /echo HTTP/1.1\r\nHost: h\r\n\r\nfirst ");
    say_text(fd, "second");
    assert_true(hears(fd, "\r\n\r\nfirst second"));
    close(fd);
}

static void a_server_that_drains_ends_idle_connections_and_answers_the_others(void **state)
{
    (void)state;
    int idle = come(), busy = come();
    say_text(busy, "GET /later HTTP/1.1\r\nHost: h\r\n\r\n");
    for (int i = 0; i < TURNS && (!w.pending || w.server.count < 2); i++)
        loop_turn(w.loop, true);
    assert_non_null(w.pending);
    http_server_drain(&w.server);
    assert_true(hears_the_end(idle));
    http_answer(w.pending, 200, NULL, NULL, SLICE_LITERAL("done"));
    bool ended;
    assert_true(hear(busy, "Connection: close\r\n\r\ndone", &ended));
    assert_true(ended || hears_the_end(busy));
    close(idle);
    close(busy);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, start, stop)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(requests_of_one_connection_are_answered_in_turn),
        TEST(a_request_may_be_cut_anywhere),
        TEST(bodies_of_every_size_are_counted),
        TEST(a_head_is_refused_at_exactly_its_limit),
        TEST(a_malformed_request_is_refused_and_the_connection_ends),
        TEST(a_head_that_does_not_end_is_late),
        TEST(more_than_the_places_wait),
        TEST(a_client_that_leaves_ends_its_exchange),
        TEST(a_client_that_stalls_is_not_answered_into_memory),
        TEST(an_upgraded_connection_is_its_exchanges),
        TEST(a_server_that_drains_ends_idle_connections_and_answers_the_others),
    };
    return cmocka_run_group_tests_name("http_server", tests, NULL, NULL);
}
