/* SPDX-License-Identifier: MIT */
/* The server runs over a real Unix socket; the tests play the client by hand, byte by byte where that matters. */
#include "tests/unit/support.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#include "spoa/net/net.h"
#include "spoa/spop/hello.h"
#include "spoa/spop/server.h"

#define TURNS_MAX 3000 /* each takes about a millisecond */
#define TICKETS   64

static char folder[] = "/tmp/test_server.XXXXXX";
static struct net_address unix_address, address;
static struct loop *loop;
static struct server *server;
static struct server_options options;
static uint64_t turn; /* options.turn */
static int listener;

static struct {
    struct server_ticket tickets[TICKETS];
    size_t later, messages;
    bool refuse_peers, begun;
    uint64_t arrived; /* the value of bytes_in when `begin` was called */
} handled;

/* ---- the handler: the message's name says what to do ---- */
static uint8_t filler[60000];

/* Notes the bytes that have been read before the messages that follow. */
static void on_begin(void *context)
{
    (void)context;
    handled.arrived = server_counter(&server_counters(server)->bytes_in);
    handled.begun = true;
}

static enum server_reply on_message(void *context, struct slice name, struct spop_args args,
                                    struct spop_actions *actions, const struct server_ticket *ticket)
{
    (void)context;
    struct spop_value value = spop_null();
    struct slice arg;
    handled.messages++;
    assert_true(handled.begun && handled.arrived == server_counter(&server_counters(server)->bytes_in));
    /* a message takes a whole turn of 1 us on any machine, so each turn has one frame if turns are on */
    for (uint64_t end = loop_clock() + options.turn; loop_clock() < end;)
        ;
    if (!spop_arg_next(&args, &arg, &value))
        value = spop_null();
    if (slice_is(name, "echo"))
        spop_set_var(actions, SPOP_TRANSACTION, SLICE_LITERAL("v"), value);
    if (slice_is(name, "size"))
        spop_set_var(actions, SPOP_TRANSACTION, SLICE_LITERAL("v"),
                     spop_text(slice_of(filler, (size_t)value.number)));
    if (slice_is(name, "bad-name"))
        spop_set_var(actions, SPOP_TRANSACTION, SLICE_LITERAL("no such name"), value);
    if (slice_is(name, "later")) {
        handled.tickets[handled.later++ % TICKETS] = *ticket;
        return SERVER_LATER;
    }
    return SERVER_NOW;
}

static bool admit(void *context, int fd)
{
    (void)context;
    struct net_peer peer;
    if (handled.refuse_peers)
        return false;
    return !net_is_unix(&address) || (net_peer(fd, &peer) && peer.uid == getuid());
}

static struct server *new_server(void)
{
    const struct server_handler handler = {.begin = on_begin, .message = on_message, .admit = admit};
    return server_new(loop, listener, &options, &handler);
}

static void begin(void)
{
    struct fail why;
    memset(&handled, 0, sizeof handled);
    loop = loop_new(&why);
    listener = net_listen(&address, 0600, &why);
    server = new_server();
    assert_non_null(server);
}

static void begin_tcp(void)
{
    struct fail why;
    assert_true(net_parse(SLICE_LITERAL("127.0.0.1:0"), &address, &why));
    begin();
    assert_true(net_local(listener, &address));
}

static int setup(void **state)
{
    (void)state;
    options = SERVER_OPTIONS_DEFAULT;
    options.turn = turn;
    address = unix_address;
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    alloc_fail_at(0);
    server_free(server);
    loop_free(loop);
    net_unlisten(listener);
    return 0;
}

static uint64_t counter(const _Atomic uint64_t *which)
{
    return server_counter(which);
}
#define COUNTER(field) counter(&server_counters(server)->field)

/* ---- the client ---- */
static uint8_t out_memory[256 * 1024], in_memory[256 * 1024];

static int dial(void)
{
    struct fail why;
    int fd = net_connect(&address, &why);
    assert_true(fd >= 0);
    loop_turn(loop, false);
    return fd;
}

static void turns(int count)
{
    for (int i = 0; i < count; i++) {
        loop_turn(loop, false);
        usleep(1000);
    }
}

static void say(int fd, struct slice bytes)
{
    assert_int_equal(send(fd, bytes.at, bytes.len, MSG_NOSIGNAL), bytes.len);
}

/* Returns the number of bytes to read for the current frame, of which `have` are there, so that no byte of the next frame is read. */
static size_t rest_of_frame(const uint8_t *at, size_t have)
{
    if (have < SPOP_LENGTH_BYTES)
        return SPOP_LENGTH_BYTES - have;
    size_t len = (size_t)at[0] << 24 | (size_t)at[1] << 16 | (size_t)at[2] << 8 | at[3];
    return SPOP_LENGTH_BYTES + len - have;
}

/* Reads until `frames` whole frames have come, or the end, which sets *ended. A frame that a full socket took only a part of is read to
 * its end. */
static struct slice hear(int fd, size_t frames, bool *ended)
{
    size_t len = 0, seen = 0, start = 0;
    *ended = false;
    for (int i = 0; i < TURNS_MAX && (seen < frames || start < len) && !*ended; i++) {
        loop_turn(loop, false);
        size_t room = seen < frames ? sizeof in_memory - SPOP_FRAME_MAX - len
                                    : rest_of_frame(in_memory + start, len - start);
        assert_in_range(room, 1, sizeof in_memory - len);
        ssize_t n = recv(fd, in_memory + len, room, 0);
        if (n < 0 && errno == EAGAIN) {
            usleep(500);
            continue;
        }
        *ended = n <= 0;
        len += n > 0 ? (size_t)n : 0;
        struct spop_frame frame;
        size_t size;
        while (spop_frame_read(slice_of(in_memory + start, len - start), SPOP_FRAME_MAX, &frame, &size) ==
               SPOP_STEP_FRAME) {
            start += size;
            seen++;
        }
    }
    assert_int_equal(start, len); /* the server never sends half a frame */
    return slice_of(in_memory, len);
}

static struct spop_frame take(struct slice *bytes)
{
    struct spop_frame frame;
    size_t size;
    assert_int_equal(spop_frame_read(*bytes, SPOP_FRAME_MAX, &frame, &size), SPOP_STEP_FRAME);
    *bytes = slice_from(*bytes, size);
    return frame;
}

static struct writer fresh(void)
{
    return writer_of(out_memory, sizeof out_memory);
}

static void put_notify(struct writer *w, uint64_t stream_id, const char *name, struct spop_value value)
{
    size_t at = spop_frame_begin(w, SPOP_TYPE_NOTIFY, stream_id, 1);
    if (name)
        spop_arg_write(w, spop_message_begin(w, slice_text(name)), SLICE_LITERAL("a"), value);
    assert_true(spop_frame_end(w, at, SPOP_FRAME_MAX));
}

static void notify(int fd, uint64_t stream_id, const char *name, struct spop_value value)
{
    struct writer w = fresh();
    put_notify(&w, stream_id, name, value);
    say(fd, writer_slice(&w));
}

static void put_hello(struct writer *w, size_t frame_size, bool healthcheck)
{
    spop_offer_write(w,
                     &(struct spop_offer){.frame_size = frame_size,
                                          .pipelining = !healthcheck,
                                          .healthcheck = healthcheck,
                                          .engine_id = healthcheck ? slice_text(NULL) : SLICE_LITERAL("e")});
}

static int dial_and_greet(size_t frame_size)
{
    int fd = dial();
    struct writer w = fresh();
    bool ended;
    put_hello(&w, frame_size, false);
    say(fd, writer_slice(&w));
    struct slice bytes = hear(fd, 1, &ended);
    assert_int_equal(take(&bytes).type, SPOP_TYPE_AGENT_HELLO);
    return fd;
}

static void assert_ack(struct slice *bytes, uint64_t stream_id, const char *name, const char *text)
{
    struct spop_frame frame = take(bytes);
    assert_int_equal(frame.type, SPOP_TYPE_ACK);
    assert_int_equal(frame.flags, SPOP_FIN);
    assert_true(frame.stream_id == stream_id && frame.frame_id == 1);
    struct reader payload = reader_of(frame.payload);
    struct spop_action action;
    assert_true(spop_action_next(&payload, &action));
    assert_true(action.scope == SPOP_TRANSACTION);
    assert_true(slice_is(action.name, name));
    assert_true(slice_is(action.value.bytes, text));
    assert_false(spop_action_next(&payload, &action));
    assert_false(payload.failed);
}

static void assert_disconnect(struct slice *bytes, enum spop_status want)
{
    struct spop_frame frame = take(bytes);
    uint64_t status;
    struct slice message;
    assert_int_equal(frame.type, SPOP_TYPE_AGENT_DISCONNECT);
    assert_true(spop_disconnect_read(frame.payload, &status, &message));
    assert_int_equal(status, want);
}

/* Expects a DISCONNECT and no other frame, then the end. */
static void assert_told_and_closed(int fd, enum spop_status want)
{
    bool ended;
    struct slice bytes = hear(fd, 2, &ended);
    assert_true(ended);
    assert_disconnect(&bytes, want);
    assert_int_equal(bytes.len, 0);
    close(fd);
    turns(3);
    assert_int_equal(COUNTER(connections), 0);
}

static void assert_echoes(int fd)
{
    bool ended;
    notify(fd, 7, "echo", spop_text(SLICE_LITERAL("alive")));
    struct slice bytes = hear(fd, 1, &ended);
    assert_ack(&bytes, 7, "v", "alive");
}

/* ---- answers ---- */
static void ids_are_echoed_as_64_bits_and_may_be_zero(void **state)
{
    (void)state;
    begin();
    int fd = dial_and_greet(16380);
    static const uint64_t ids[] = {0, 1, 240, UINT32_MAX, UINT64_C(1) << 40, UINT64_MAX};
    for (size_t i = 0; i < sizeof ids / sizeof *ids; i++) {
        bool ended;
        notify(fd, ids[i], "echo", spop_text(SLICE_LITERAL("x")));
        struct slice bytes = hear(fd, 1, &ended);
        assert_ack(&bytes, ids[i], "v", "x");
    }
    close(fd);
}

static void all_frames_of_one_read_are_answered_by_one_write(void **state)
{
    (void)state;
    begin();
    int fd = dial();
    struct writer w = fresh();
    bool ended;
    put_hello(&w, 16380, false);
    for (uint64_t i = 0; i < 100; i++)
        put_notify(&w, i, "echo", spop_text(SLICE_LITERAL("x")));
    say(fd, writer_slice(&w));
    struct slice bytes = hear(fd, 101, &ended);
    assert_int_equal(take(&bytes).type, SPOP_TYPE_AGENT_HELLO);
    for (uint64_t i = 0; i < 100; i++)
        assert_ack(&bytes, i, "v", "x");
    if (turn == 0) {
        assert_int_equal(COUNTER(reads), 1);
        assert_int_equal(COUNTER(writes), 1);
    }
    assert_int_equal(COUNTER(acks), 100);
    close(fd);
}

/* A client with many frames gets one answer per turn, and delays no other client. */
static void connections_are_read_in_turns(void **state)
{
    (void)state;
    options.turn = 1;
    begin();
    int much = dial_and_greet(16380), little = dial_and_greet(16380);
    struct writer w = fresh();
    bool ended;
    for (uint64_t i = 0; i < 100; i++)
        put_notify(&w, i, "echo", spop_text(SLICE_LITERAL("x")));
    say(much, writer_slice(&w));
    notify(little, 7, "echo", spop_text(SLICE_LITERAL("y")));
    struct slice bytes = hear(little, 1, &ended);
    assert_ack(&bytes, 7, "v", "y");
    assert_in_range(COUNTER(acks), 2, 4);
    bytes = hear(much, 100, &ended);
    for (uint64_t i = 0; i < 100; i++)
        assert_ack(&bytes, i, "v", "x");
    close(much);
    close(little);
}

static void a_process_gets_so_many_connections(void **state)
{
    (void)state;
    options.per_process = 2;
    begin();
    int one = dial_and_greet(16380), two = dial_and_greet(16380), more = dial();
    turns(3);
    uint8_t byte;
    assert_int_equal(recv(more, &byte, 1, 0), 0);
    assert_int_equal(COUNTER(refused_peers), 1);
    close(more);
    close(one);
    turns(3);
    one = dial_and_greet(16380);
    assert_echoes(one);
    assert_echoes(two);
    close(one);
    close(two);
}

static void every_byte_may_come_alone(void **state)
{
    (void)state;
    begin();
    int fd = dial();
    struct writer w = fresh();
    bool ended;
    put_hello(&w, 16380, false);
    put_notify(&w, 0, "echo", spop_text(SLICE_LITERAL("slow")));
    put_notify(&w, 300, "echo", spop_text(SLICE_LITERAL("slower")));
    for (size_t i = 0; i < w.len; i++) {
        say(fd, slice_of(out_memory + i, 1));
        loop_turn(loop, false);
    }
    struct slice bytes = hear(fd, 3, &ended);
    assert_int_equal(take(&bytes).type, SPOP_TYPE_AGENT_HELLO);
    assert_ack(&bytes, 0, "v", "slow");
    assert_ack(&bytes, 300, "v", "slower");
    assert_int_equal(COUNTER(writes), 3);
    close(fd);
}

static void every_split_gives_the_same_answers(void **state)
{
    (void)state;
    begin();
    struct writer w = fresh();
    put_hello(&w, 16380, false);
    put_notify(&w, 0, "echo", spop_text(SLICE_LITERAL("one")));
    put_notify(&w, 1, "echo", spop_text(SLICE_LITERAL("two")));
    for (size_t cut = 1; cut < w.len; cut++) {
        int fd = dial();
        bool ended;
        say(fd, slice_of(out_memory, cut));
        loop_turn(loop, false);
        say(fd, slice_of(out_memory + cut, w.len - cut));
        struct slice bytes = hear(fd, 3, &ended);
        assert_int_equal(take(&bytes).type, SPOP_TYPE_AGENT_HELLO);
        assert_ack(&bytes, 0, "v", "one");
        assert_ack(&bytes, 1, "v", "two");
        close(fd);
    }
}

/* HAProxy 3.1.0 takes an ACK without an action for a missing one, and waits for its whole timeout. */
static void every_notify_is_acknowledged_with_an_action(void **state)
{
    (void)state;
    begin();
    int fd = dial_and_greet(256);
    struct writer w = fresh();
    bool ended;
    put_notify(&w, 1, NULL, spop_null());
    put_notify(&w, 2, "unheard-of", spop_null());
    put_notify(&w, 3, "bad-name", spop_null());
    put_notify(&w, 4, "size", spop_int(300)); /* more than the agreed 256 bytes */
    put_notify(&w, 5, "size", spop_int(60000));
    put_notify(&w, 6, "echo", spop_text(SLICE_LITERAL("x")));
    say(fd, writer_slice(&w));
    struct slice bytes = hear(fd, 6, &ended);
    for (uint64_t i = 1; i <= 5; i++)
        assert_ack(&bytes, i, "error", "agent_unavailable");
    assert_ack(&bytes, 6, "v", "x");
    assert_int_equal(COUNTER(fallbacks), 5);
    close(fd);
}

static void frames_of_haproxys_size_are_taken_whatever_was_agreed(void **state)
{
    (void)state;
    begin();
    int fd = dial_and_greet(256);
    struct writer w = fresh();
    bool ended;
    put_notify(&w, 1, "unheard-of", spop_binary(slice_of(filler, 16380 - 25)));
    assert_int_equal(w.len, 4 + 16380);
    say(fd, writer_slice(&w));
    struct slice bytes = hear(fd, 1, &ended);
    assert_ack(&bytes, 1, "error", "agent_unavailable");
    close(fd);
}

static void a_health_check_is_greeted_and_may_go(void **state)
{
    (void)state;
    options.hello_timeout = 50 * MILLISECOND;
    begin();
    for (int stays = 0; stays < 2; stays++) {
        int fd = dial();
        struct writer w = fresh();
        bool ended;
        put_hello(&w, 16380, true);
        say(fd, writer_slice(&w));
        struct slice bytes = hear(fd, 1, &ended);
        assert_int_equal(take(&bytes).type, SPOP_TYPE_AGENT_HELLO);
        if (stays)
            assert_told_and_closed(fd, SPOP_STATUS_NORMAL);
        else
            close(fd);
        turns(5);
    }
    assert_int_equal(COUNTER(health_checks), 2);
    assert_int_equal(COUNTER(hellos), 0);
    assert_int_equal(COUNTER(resets), 0);
    assert_int_equal(COUNTER(errors_timeout), 0);
    assert_int_equal(COUNTER(connections), 0);
}

/* ---- bad peers ---- */
static void garbage_is_told_and_closed(void **state)
{
    (void)state;
    begin();
    static const struct {
        const char *bytes;
        size_t len;
        enum spop_status want;
    } cases[] = {
        {"GET / HTTP/1.1\r\n\r\n", 18, SPOP_STATUS_TOO_BIG},
        {"\x16\x03\x01\x02\x00\x01\x00\x01", 8, SPOP_STATUS_TOO_BIG},
        {"\xff\xff\xff\xff", 4, SPOP_STATUS_TOO_BIG},
        {"\0\0\x3f\xfd", 4, SPOP_STATUS_TOO_BIG},
        {"\0\0\0\0", 4, SPOP_STATUS_INVALID},
        {"\0\0\0\x06\x01\0\0\0\x01\0", 10, SPOP_STATUS_INVALID},
        {"\0\0\0\x07\x03\0\0\0\x01\x01\x01", 11, SPOP_STATUS_INVALID},
        {"\0\0\0\x07\x01\0\0\0\x01\0\0", 11, SPOP_STATUS_NO_VERSION},
        {"\0\0\0\x07\x01\0\0\0\x00\0\0", 11, SPOP_STATUS_FRAGMENTED},
        {"\0\0\0\x07\x01\0\0\0\x01\xff\xff", 11, SPOP_STATUS_INVALID},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int fd = dial();
        say(fd, slice_of(cases[i].bytes, cases[i].len));
        assert_told_and_closed(fd, cases[i].want);
    }
    assert_int_equal(COUNTER(errors_size), 4);
    assert_int_equal(COUNTER(errors_hello), 1);
    assert_int_equal(COUNTER(errors_frame), 5);
}

static void good_answers_go_out_before_a_bad_frame_ends_it(void **state)
{
    (void)state;
    begin();
    int fd = dial_and_greet(16380);
    struct writer w = fresh();
    bool ended;
    put_notify(&w, 1, "echo", spop_text(SLICE_LITERAL("x")));
    size_t bad = w.len;
    put_notify(&w, 2, "echo", spop_text(SLICE_LITERAL("y")));
    out_memory[bad + 11 + 5] = 9; /* more arguments than there are */
    put_notify(&w, 3, "echo", spop_text(SLICE_LITERAL("z")));
    say(fd, writer_slice(&w));
    struct slice bytes = hear(fd, 3, &ended);
    assert_true(ended);
    assert_ack(&bytes, 1, "v", "x");
    assert_disconnect(&bytes, SPOP_STATUS_INVALID);
    assert_int_equal(bytes.len, 0);
    close(fd);
}

/* Closing with unread bytes would reset the connection, and the DISCONNECT could get lost. */
static void a_disconnect_arrives_although_the_peer_goes_on_talking(void **state)
{
    (void)state;
    begin_tcp();
    int fd = dial();
    for (int i = 0; i < 5; i++) {
        say(fd, slice_of(filler, 60000));
        turns(3);
    }
    assert_told_and_closed(fd, SPOP_STATUS_INVALID);
}

static void the_peers_disconnect_is_answered(void **state)
{
    (void)state;
    begin();
    static const enum spop_status reasons[] = {SPOP_STATUS_NORMAL, SPOP_STATUS_TIMEOUT};
    for (size_t i = 0; i < 2; i++) {
        int fd = dial_and_greet(16380);
        struct writer w = fresh();
        spop_disconnect_write(&w, SPOP_TYPE_HAPROXY_DISCONNECT, reasons[i]);
        say(fd, writer_slice(&w));
        assert_told_and_closed(fd, SPOP_STATUS_NORMAL);
    }
    assert_int_equal(COUNTER(disconnects), 2);
    assert_int_equal(COUNTER(resets), 0);
}

static void half_a_frame_and_half_a_close_ends_it(void **state)
{
    (void)state;
    begin();
    int fd = dial_and_greet(16380);
    say(fd, SLICE_LITERAL("\0\0\0\x20\x03\0\0"));
    shutdown(fd, SHUT_WR);
    assert_told_and_closed(fd, SPOP_STATUS_IO);
}

static void a_half_closed_peer_gets_its_answers(void **state)
{
    (void)state;
    begin();
    int fd = dial_and_greet(16380);
    bool ended;
    notify(fd, 1, "echo", spop_text(SLICE_LITERAL("x")));
    notify(fd, 2, "later", spop_null());
    shutdown(fd, SHUT_WR);
    struct slice bytes = hear(fd, 1, &ended);
    assert_ack(&bytes, 1, "v", "x");
    turns(5);
    uint64_t before = COUNTER(reads);
    turns(20);
    assert_int_equal(COUNTER(reads), before); /* no busy loop on the end of file */
    struct spop_actions actions;
    assert_true(server_answer_begin(server, &handled.tickets[0], &actions));
    spop_set_var(&actions, SPOP_TRANSACTION, SLICE_LITERAL("v"), spop_text(SLICE_LITERAL("later")));
    server_answer_end(server, &handled.tickets[0], &actions);
    bytes = hear(fd, 2, &ended);
    assert_true(ended);
    assert_ack(&bytes, 2, "v", "later");
    assert_int_equal(COUNTER(connections), 0);
    close(fd);
}

static void slow_peers_time_out_and_others_do_not_notice(void **state)
{
    (void)state;
    options.hello_timeout = options.frame_timeout = 60 * MILLISECOND;
    begin();
    int good = dial_and_greet(16380), silent = dial(), slow = dial_and_greet(16380);
    bool ended = false;
    say(slow, SLICE_LITERAL("\0\0\1"));
    for (int i = 0; i < 40; i++) { /* a byte now and then does not extend the time */
        turns(4);
        send(slow, "", 1, MSG_NOSIGNAL);
        assert_echoes(good);
        if (COUNTER(errors_timeout) == 2)
            break;
    }
    struct slice bytes = hear(silent, 2, &ended);
    assert_true(ended);
    assert_disconnect(&bytes, SPOP_STATUS_TIMEOUT);
    bytes = hear(slow, 2, &ended);
    assert_true(ended);
    assert_disconnect(&bytes, SPOP_STATUS_TIMEOUT);
    close(silent);
    close(slow);
    turns(100);
    assert_int_equal(COUNTER(errors_timeout), 2);
    assert_int_equal(COUNTER(connections), 1);
    assert_echoes(good);
    close(good);
}

static void frames_that_arrived_while_the_server_was_delayed_count(void **state)
{
    (void)state;
    options.hello_timeout = options.frame_timeout = 30 * MILLISECOND;
    begin();
    struct writer w = fresh();
    bool ended;
    int fd = dial();
    put_hello(&w, 16380, false);
    put_notify(&w, 1, "echo", spop_text(SLICE_LITERAL("x")));
    say(fd, slice_of(out_memory, w.len - 1));
    usleep(40000); /* longer than the time for a hello */
    struct slice bytes = hear(fd, 1, &ended);
    assert_int_equal(take(&bytes).type, SPOP_TYPE_AGENT_HELLO);
    say(fd, slice_of(out_memory + w.len - 1, 1));
    usleep(40000); /* longer than the time for a frame */
    bytes = hear(fd, 1, &ended);
    assert_ack(&bytes, 1, "v", "x");
    close(fd);
}

static void an_idle_peer_is_sent_away_only_if_that_is_wanted(void **state)
{
    (void)state;
    options.idle_timeout = 50 * MILLISECOND;
    begin();
    int fd = dial_and_greet(16380), asking = dial_and_greet(16380);
    bool ended;
    notify(asking, 1, "later", spop_null());
    struct slice bytes = hear(fd, 2, &ended);
    assert_true(ended);
    assert_disconnect(&bytes, SPOP_STATUS_NORMAL);
    close(fd);
    turns(100);
    assert_int_equal(COUNTER(connections), 1); /* a connection with an open ticket is not idle */
    assert_int_equal(COUNTER(errors_timeout), 0);
    close(asking);
}

static void peers_that_may_not_connect_are_refused(void **state)
{
    (void)state;
    begin();
    handled.refuse_peers = true;
    int fd = dial();
    bool ended;
    assert_int_equal(hear(fd, 1, &ended).len, 0);
    assert_true(ended);
    assert_int_equal(COUNTER(refused_peers), 1);
    close(fd);
}

static void resets_and_half_closes_over_tcp_are_normal(void **state)
{
    (void)state;
    begin_tcp();
    bool ended;
    int reset = dial_and_greet(16380), half = dial_and_greet(16380), good = dial_and_greet(16380);
    notify(reset, 1, "later", spop_null());
    turns(3);
    notify(half, 2, "later", spop_null());
    turns(5);
    assert_int_equal(COUNTER(waiting), 2);
    const struct linger now = {.l_onoff = 1};
    assert_int_equal(setsockopt(reset, SOL_SOCKET, SO_LINGER, &now, sizeof now), 0);
    close(reset);
    shutdown(half, SHUT_WR);
    turns(5);
    assert_int_equal(COUNTER(connections), 2);
    assert_int_equal(COUNTER(resets), 1);
    struct spop_actions actions;
    assert_false(server_answer_begin(server, &handled.tickets[0], &actions));
    assert_true(server_answer_begin(server, &handled.tickets[1], &actions));
    spop_set_var(&actions, SPOP_TRANSACTION, SLICE_LITERAL("v"), spop_text(SLICE_LITERAL("late")));
    server_answer_end(server, &handled.tickets[1], &actions);
    struct slice bytes = hear(half, 2, &ended);
    assert_true(ended);
    assert_ack(&bytes, 2, "v", "late");
    assert_echoes(good);
    close(half);
    close(good);
}

/* ---- threads ---- */
struct thread {
    pthread_t id;
    struct loop *loop;
    struct server *server;
    struct loop_task stop;
};

static void stop_thread(void *context)
{
    loop_stop(((struct thread *)context)->loop);
}

static enum server_reply echo_only(void *context, struct slice name, struct spop_args args,
                                   struct spop_actions *actions, const struct server_ticket *ticket)
{
    (void)context, (void)name, (void)ticket;
    struct slice arg;
    struct spop_value value = spop_null();
    if (!spop_arg_next(&args, &arg, &value))
        value = spop_null();
    spop_set_var(actions, SPOP_TRANSACTION, SLICE_LITERAL("v"), value);
    return SERVER_NOW;
}

static void *run_thread(void *context)
{
    struct thread *thread = context;
    loop_run(thread->loop);
    return NULL;
}

static void threads_share_a_listener_and_counters_are_read_meanwhile(void **state)
{
    (void)state;
    begin();
    struct thread threads[3];
    const struct server_handler handler = {.message = echo_only};
    struct fail why;
    uint64_t accepted = 0, acks = 0;
    int fds[60];
    for (size_t i = 0; i < 3; i++) {
        threads[i].loop = loop_new(&why);
        threads[i].server = server_new(threads[i].loop, listener, &options, &handler);
        threads[i].stop = (struct loop_task){.run = stop_thread, .context = &threads[i]};
        assert_int_equal(pthread_create(&threads[i].id, NULL, run_thread, &threads[i]), 0);
    }
    for (size_t i = 0; i < 60; i++) { /* the server of this thread accepts its part once it gets a turn */
        fds[i] = dial_and_greet(16380);
        assert_echoes(fds[i]);
        accepted = acks = 0;
        for (size_t t = 0; t < 3; t++) {
            accepted += counter(&server_counters(threads[t].server)->accepted);
            acks += counter(&server_counters(threads[t].server)->acks);
        }
    }
    assert_in_range(accepted + COUNTER(accepted), 60, 60);
    assert_in_range(acks, 0, 60);
    for (size_t i = 0; i < 60; i++)
        close(fds[i]);
    for (size_t i = 0; i < 3; i++) {
        loop_post(threads[i].loop, &threads[i].stop);
        pthread_join(threads[i].id, NULL);
        server_free(threads[i].server);
        loop_free(threads[i].loop);
    }
}

/* ---- bounds ---- */
static void a_peer_that_does_not_read_is_not_read_until_it_does(void **state)
{
    (void)state;
    options.output = 32 * 1024;
    begin();
    int fd = dial_and_greet(16380);
    const size_t asked = 400;
    struct slice rest = {NULL, 0};
    struct writer w = fresh();
    bool ended;
    for (uint64_t i = 0; i < asked; i++)
        put_notify(&w, i, "size", spop_int(8000));
    say(fd, writer_slice(&w));
    turns(50);
    size_t answered = COUNTER(acks);
    assert_in_range(answered, 4, 200); /* the socket's buffer, `output` and one batch: not 3 MB */
    uint64_t reads = COUNTER(reads), writes = COUNTER(writes);
    turns(50);
    assert_int_equal(COUNTER(acks), answered);
    assert_in_range(COUNTER(reads) + COUNTER(writes) - reads - writes, 0, 2);
    for (uint64_t i = 0; i < asked; i++) {
        if (rest.len == 0)
            rest = hear(fd, 1, &ended);
        assert_true(take(&rest).stream_id == i);
    }
    assert_int_equal(COUNTER(acks), asked);
    assert_echoes(fd);
    close(fd);
}

static void a_peer_that_never_reads_is_closed(void **state)
{
    (void)state;
    options.output = 32 * 1024;
    options.write_timeout = 100 * MILLISECOND;
    begin();
    int fd = dial_and_greet(16380);
    struct writer w = fresh();
    for (uint64_t i = 0; i < 200; i++)
        put_notify(&w, i, "size", spop_int(8000));
    say(fd, writer_slice(&w));
    for (int i = 0; i < TURNS_MAX && COUNTER(connections); i++)
        turns(1);
    assert_int_equal(COUNTER(connections), 0);
    assert_int_equal(COUNTER(errors_timeout), 1);
    close(fd);
}

static void connections_over_the_limit_wait_in_the_backlog(void **state)
{
    (void)state;
    options.connections = 2;
    begin();
    int a = dial_and_greet(16380), b = dial_and_greet(16380), c = dial();
    struct writer w = fresh();
    bool ended;
    put_hello(&w, 16380, false);
    say(c, writer_slice(&w));
    turns(20);
    assert_int_equal(COUNTER(connections), 2);
    assert_int_equal(COUNTER(accept_pauses), 1);
    assert_echoes(a);
    close(b);
    struct slice bytes = hear(c, 1, &ended);
    assert_int_equal(take(&bytes).type, SPOP_TYPE_AGENT_HELLO);
    close(a);
    close(c);
}

static void accepting_pauses_when_descriptors_run_out(void **state)
{
    (void)state;
    begin();
    int good = dial_and_greet(16380), fd = -1;
    struct rlimit old, low;
    struct fail why;
    fd = net_connect(&address, &why);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &old), 0);
    low = old;
    low.rlim_cur = (rlim_t)fd + 1; /* none is left */
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &low), 0);
    uint64_t from = loop_clock();
    turns(50);
    assert_int_equal(COUNTER(connections), 1);
    /* ten pauses a second, not one in each turn */
    assert_in_range(COUNTER(accept_pauses), 1, 2 + (loop_clock() - from) / 100000);
    assert_echoes(good);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &old), 0);
    /* accepted after the connection that waited, unless Valgrind dropped that one */
    int next = dial_and_greet(16380);
    close(next);
    close(good);
    close(fd);
}

static void out_of_memory_costs_a_connection_and_never_the_server(void **state)
{
    (void)state;
    begin();
    struct writer w;
    /* the loop gets the memory that it needs for one descriptor; without it, no connection would be accepted below */
    int first = dial_and_greet(16380);
    close(first);
    turns(3);
    for (unsigned n = 1; n < 8; n++) {
        int fd = net_connect(&address, &(struct fail){""});
        w = fresh();
        put_hello(&w, 16380, false);
        put_notify(&w, 1, "later", spop_null());
        say(fd, slice_of(out_memory, w.len - 3)); /* an incomplete frame needs a buffer */
        alloc_fail_at(n);
        turns(3);
        send(fd, out_memory + w.len - 3, 3, MSG_NOSIGNAL);
        turns(2);
        struct spop_actions actions;
        if (handled.later && server_answer_begin(server, &handled.tickets[handled.later - 1], &actions))
            server_answer_end(server, &handled.tickets[handled.later - 1], &actions);
        turns(2);
        alloc_fail_at(0);
        close(fd);
        turns(3);
        assert_int_equal(COUNTER(connections), 0);
        assert_int_equal(COUNTER(waiting), 0);
    }
    assert_in_range(COUNTER(errors_resource), 2, 10);
    int fd = dial_and_greet(16380);
    assert_echoes(fd);
    close(fd);
    for (unsigned n = 1; n <= 3; n++) { /* the server, its slots, its buffer for answers */
        alloc_fail_at(n);
        assert_null(new_server());
    }
    alloc_fail_at(0);
}

/* ---- tickets ---- */
static void answer(const struct server_ticket *ticket, const char *text)
{
    struct spop_actions actions;
    assert_true(server_answer_begin(server, ticket, &actions));
    if (text)
        spop_set_var(&actions, SPOP_TRANSACTION, SLICE_LITERAL("v"), spop_text(slice_text(text)));
    server_answer_end(server, ticket, &actions);
}

static void tickets_are_answered_in_any_order_with_one_write_a_turn(void **state)
{
    (void)state;
    begin();
    int fd = dial_and_greet(16380);
    bool ended;
    for (uint64_t i = 0; i < 4; i++)
        notify(fd, i, "later", spop_null());
    assert_echoes(fd); /* other connections are not delayed */
    assert_int_equal(COUNTER(waiting), 4);
    uint64_t writes = COUNTER(writes);
    answer(&handled.tickets[2], "two");
    answer(&handled.tickets[0], NULL); /* without an action, the fallback is sent */
    answer(&handled.tickets[3], "three");
    answer(&handled.tickets[1], "one");
    struct slice bytes = hear(fd, 4, &ended);
    assert_int_equal(COUNTER(writes), writes + 1);
    assert_ack(&bytes, 2, "v", "two");
    assert_ack(&bytes, 0, "error", "agent_unavailable");
    assert_ack(&bytes, 3, "v", "three");
    assert_ack(&bytes, 1, "v", "one");
    assert_int_equal(COUNTER(waiting), 0);
    close(fd);
}

static void tickets_of_a_lost_connection_are_void(void **state)
{
    (void)state;
    begin();
    int fd = dial_and_greet(16380);
    struct spop_actions actions;
    notify(fd, 1, "later", spop_null());
    turns(3);
    assert_int_equal(COUNTER(waiting), 1);
    close(fd);
    turns(3);
    assert_int_equal(COUNTER(waiting), 0);
    assert_false(server_answer_begin(server, &handled.tickets[0], &actions));
    int next = dial_and_greet(16380); /* the same slot, another generation */
    notify(next, 1, "later", spop_null());
    turns(3);
    assert_int_equal(handled.tickets[1].slot, handled.tickets[0].slot);
    assert_false(server_answer_begin(server, &handled.tickets[0], &actions));
    bool ended;
    answer(&handled.tickets[1], "mine");
    struct slice bytes = hear(next, 1, &ended);
    assert_ack(&bytes, 1, "v", "mine");
    close(next);
}

static void a_ticket_is_void_after_the_peer_said_goodbye(void **state)
{
    (void)state;
    begin();
    int fd = dial_and_greet(16380);
    struct writer w = fresh();
    struct spop_actions actions;
    put_notify(&w, 1, "later", spop_null());
    spop_disconnect_write(&w, SPOP_TYPE_HAPROXY_DISCONNECT, SPOP_STATUS_NORMAL);
    say(fd, writer_slice(&w));
    turns(3);
    assert_false(server_answer_begin(server, &handled.tickets[0], &actions));
    assert_told_and_closed(fd, SPOP_STATUS_NORMAL);
}

static void many_answers_of_one_turn_arrive_although_the_peer_reads_late(void **state)
{
    (void)state;
    options.output = 8 * 1024;
    begin();
    int fd = dial_and_greet(16380);
    bool ended;
    for (uint64_t i = 0; i < TICKETS; i++)
        notify(fd, i, "later", spop_null());
    turns(turn ? 3 * TICKETS : 3);
    assert_true(server_has_room(server, &handled.tickets[0]));
    for (size_t i = 0; i < TICKETS; i++) {
        struct spop_actions actions;
        assert_true(server_answer_begin(server, &handled.tickets[i], &actions));
        spop_set_var(&actions, SPOP_TRANSACTION, SLICE_LITERAL("v"), spop_text(slice_of(filler, 2000)));
        server_answer_end(server, &handled.tickets[i], &actions);
        assert_true(i == 0 || i + 1 == TICKETS ||
                    server_has_room(server, &handled.tickets[i + 1]) == ((i + 1) * 2030 < options.output));
    }
    struct slice bytes = hear(fd, TICKETS, &ended);
    for (uint64_t i = 0; i < TICKETS; i++)
        assert_true(take(&bytes).stream_id == i);
    assert_echoes(fd);
    close(fd);
}

/* ---- the end ---- */
static void set_true(void *context)
{
    *(bool *)context = true;
}

static void draining_answers_what_came_and_says_goodbye(void **state)
{
    (void)state;
    begin();
    int idle = dial_and_greet(16380), asking = dial_and_greet(16380), sent = dial_and_greet(16380);
    bool drained = false, ended;
    notify(asking, 1, "later", spop_null());
    turns(3);
    notify(sent, 9, "echo", spop_text(SLICE_LITERAL("in flight")));
    server_drain(server, 10 * SECOND, set_true, &drained);
    struct slice bytes = hear(idle, 2, &ended);
    assert_true(ended);
    assert_disconnect(&bytes, SPOP_STATUS_NORMAL);
    bytes = hear(sent, 3, &ended);
    assert_true(ended);
    assert_ack(&bytes, 9, "v", "in flight");
    assert_disconnect(&bytes, SPOP_STATUS_NORMAL);
    close(idle);
    close(sent);
    turns(5);
    assert_false(drained);
    assert_echoes(asking); /* a connection with an open ticket is still served */
    answer(&handled.tickets[0], "last");
    bytes = hear(asking, 3, &ended);
    assert_true(ended);
    assert_ack(&bytes, 1, "v", "last");
    assert_disconnect(&bytes, SPOP_STATUS_NORMAL);
    close(asking);
    turns(5);
    assert_true(drained);
    assert_int_equal(COUNTER(connections), 0);
}

static void draining_does_not_wait_longer_than_its_grace(void **state)
{
    (void)state;
    begin();
    int fd = dial_and_greet(16380), half = dial_and_greet(16380);
    bool drained = false, ended;
    struct spop_actions actions;
    notify(fd, 1, "later", spop_null());
    notify(half, 1, "later", spop_null());
    shutdown(half, SHUT_WR);
    turns(5);
    assert_int_equal(COUNTER(waiting), 2);
    server_drain(server, 30 * MILLISECOND, set_true, &drained);
    assert_int_equal(hear(half, 1, &ended).len, 0);
    assert_true(ended);
    close(half);
    assert_told_and_closed(fd, SPOP_STATUS_NORMAL);
    turns(3);
    assert_true(drained);
    for (size_t i = 0; i < 2; i++)
        assert_false(server_answer_begin(server, &handled.tickets[i], &actions));
}

static void draining_nothing_is_over_at_once(void **state)
{
    (void)state;
    begin();
    bool drained = false;
    server_drain(server, 10 * SECOND, set_true, &drained);
    assert_false(drained);
    loop_turn(loop, false);
    assert_true(drained);
}

static void options_that_cannot_work_are_refused(void **state)
{
    (void)state;
    begin();
    static char long_name[64];
    memset(long_name, 'n', 60);
    options.fallback_name = long_name;
    assert_null(new_server());
    options = SERVER_OPTIONS_DEFAULT;
    options.fallback_value = (memset(filler, 'v', 300), (const char *)filler);
    filler[300] = '\0';
    assert_null(new_server());
    memset(filler, 0, sizeof filler);
}

int main(void)
{
    struct fail why;
    char written[96];
    snprintf(written, sizeof written, "unix@%s/socket", mkdtemp(folder));
    if (!net_parse(slice_text(written), &unix_address, &why))
        return 1;
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(ids_are_echoed_as_64_bits_and_may_be_zero),
        TEST(all_frames_of_one_read_are_answered_by_one_write),
        TEST(connections_are_read_in_turns),
        TEST(a_process_gets_so_many_connections),
        TEST(every_byte_may_come_alone),
        TEST(every_split_gives_the_same_answers),
        TEST(every_notify_is_acknowledged_with_an_action),
        TEST(frames_of_haproxys_size_are_taken_whatever_was_agreed),
        TEST(a_health_check_is_greeted_and_may_go),
        TEST(garbage_is_told_and_closed),
        TEST(good_answers_go_out_before_a_bad_frame_ends_it),
        TEST(a_disconnect_arrives_although_the_peer_goes_on_talking),
        TEST(the_peers_disconnect_is_answered),
        TEST(half_a_frame_and_half_a_close_ends_it),
        TEST(a_half_closed_peer_gets_its_answers),
        TEST(slow_peers_time_out_and_others_do_not_notice),
        TEST(frames_that_arrived_while_the_server_was_delayed_count),
        TEST(an_idle_peer_is_sent_away_only_if_that_is_wanted),
        TEST(peers_that_may_not_connect_are_refused),
        TEST(resets_and_half_closes_over_tcp_are_normal),
        TEST(threads_share_a_listener_and_counters_are_read_meanwhile),
        TEST(a_peer_that_does_not_read_is_not_read_until_it_does),
        TEST(a_peer_that_never_reads_is_closed),
        TEST(connections_over_the_limit_wait_in_the_backlog),
        TEST(accepting_pauses_when_descriptors_run_out),
        TEST(out_of_memory_costs_a_connection_and_never_the_server),
        TEST(tickets_are_answered_in_any_order_with_one_write_a_turn),
        TEST(tickets_of_a_lost_connection_are_void),
        TEST(a_ticket_is_void_after_the_peer_said_goodbye),
        TEST(many_answers_of_one_turn_arrive_although_the_peer_reads_late),
        TEST(draining_answers_what_came_and_says_goodbye),
        TEST(draining_does_not_wait_longer_than_its_grace),
        TEST(draining_nothing_is_over_at_once),
        TEST(options_that_cannot_work_are_refused),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    turn = 1; /* each turn handles one frame */
    failed += cmocka_run_group_tests_name("turns", tests, NULL, NULL);
    rmdir(folder);
    return failed;
}
