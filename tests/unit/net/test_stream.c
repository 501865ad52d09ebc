/* SPDX-License-Identifier: MIT */
/* The streams run over real sockets, and the test plays the peer. */
#include "tests/unit/support.h"

#include <errno.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "spoa/net/net.h"
#include "spoa/net/stream.h"

#define KIB   ((size_t)1024)
#define MIB   (KIB * KIB)
#define TURNS 20000 /* turns of the loop that a test waits for anything at most */

enum action { NOTHING, CONSUME, CLOSE, FINISH, RELEASE, PAUSE, ANSWER, FAREWELL };

struct owner {
    struct stream stream;
    struct loop *loop;
    int peer;
    enum action on_input, on_ended, on_sent, on_late, on_connected;
    struct stream_linger linger;
    unsigned inputs, ends, lates, connects, gone, sends;
    int error, released;
    size_t consumed;
    bool in_order; /* all bytes consumed were those of the pattern */
};

static uint8_t pattern(size_t at)
{
    return (uint8_t)(at * 31 % 251);
}

static void consume(struct owner *o)
{
    struct slice in = buffer_slice(&o->stream.in);
    for (size_t i = 0; i < in.len; i++)
        o->in_order = o->in_order && in.at[i] == pattern(o->consumed + i);
    o->consumed += in.len;
    stream_consume(&o->stream, in.len);
}

static void put_pattern(struct owner *o, size_t count)
{
    size_t room;
    uint8_t *at = buffer_room(&o->stream.out, count, &room);
    assert_non_null(at);
    for (size_t i = 0; i < count; i++)
        at[i] = pattern(i);
    buffer_commit(&o->stream.out, count);
}

static void act(struct owner *o, enum action action)
{
    switch (action) {
    case NOTHING:
        break;
    case CONSUME:
        consume(o);
        break;
    case CLOSE:
        stream_close(&o->stream);
        break;
    case FINISH:
        stream_finish(&o->stream, &o->linger);
        break;
    case RELEASE:
        o->released = stream_release(&o->stream);
        break;
    case PAUSE:
        stream_pause(&o->stream, true);
        break;
    case FAREWELL: /* answers the input with the last output */
        put_pattern(o, 400 * KIB);
        stream_finish(&o->stream, &o->linger);
        break;
    case ANSWER:
        consume(o);
        assert_true(buffer_put(&o->stream.out, SLICE_LITERAL("answer")));
        stream_send(&o->stream);
        break;
    }
}

/* The owner's input stays readable until the call-back returns, whatever the owner does to the stream. */
static void act_on_input(struct owner *o, enum action action)
{
    struct slice in = buffer_slice(&o->stream.in);
    uint8_t first = in.len ? in.at[0] : 0;
    act(o, action);
    if (in.len && action != CONSUME && action != ANSWER)
        assert_int_equal(in.at[0], first);
}

static void on_connected(void *owner)
{
    struct owner *o = owner;
    o->connects++;
    act(o, o->on_connected);
}

static void on_input(void *owner)
{
    struct owner *o = owner;
    o->inputs++;
    act_on_input(o, o->on_input);
}

static void on_sent(void *owner)
{
    struct owner *o = owner;
    o->sends++;
    act(o, o->on_sent);
}

static void on_ended(void *owner, int error)
{
    struct owner *o = owner;
    o->ends++;
    o->error = error;
    act_on_input(o, o->on_ended);
}

static void on_late(void *owner)
{
    struct owner *o = owner;
    o->lates++;
    act_on_input(o, o->on_late);
}

static void on_gone(void *owner)
{
    ((struct owner *)owner)->gone++;
}

#define CALLBACKS .input = on_input, .sent = on_sent, .ended = on_ended, .late = on_late, .gone = on_gone
static const struct stream_user usual = {CALLBACKS, .read_size = 4096};
static const struct stream_user dialling = {CALLBACKS, .connected = on_connected};
static const struct stream_user hearing = {CALLBACKS, .hears_out = true};
static const struct stream_user without_gone = {
    .input = on_input, .sent = on_sent, .ended = on_ended, .late = on_late};

static void begin(struct owner *o, const struct stream_user *user, int fd)
{
    struct fail why;
    o->loop = loop_new(&why);
    assert_non_null(o->loop);
    o->in_order = true;
    o->released = -1;
    o->linger = o->linger.grace ? o->linger : (struct stream_linger){SECOND, SECOND, MIB, 0, 0};
    o->stream.user = user;
    o->stream.owner = o;
    if (!o->stream.in.limit)
        o->stream.in = buffer_with_limit(64 * KIB);
    if (!o->stream.out.limit)
        o->stream.out = buffer_with_limit(4 * MIB);
    stream_open(&o->stream, o->loop, fd);
}

static void open_pair(struct owner *o, const struct stream_user *user)
{
    int fds[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds), 0);
    o->peer = fds[1];
    begin(o, user, fds[0]);
}

static void end(struct owner *o)
{
    stream_close(&o->stream);
    loop_turn(o->loop, false);
    assert_int_equal(stream_held(&o->stream), 0);
    assert_int_equal(o->gone, o->stream.user->gone ? 1 : 0);
    if (o->peer >= 0)
        close(o->peer);
    if (o->released >= 0)
        close(o->released);
    loop_free(o->loop);
}

static void turns(struct owner *o, unsigned count)
{
    while (count--)
        loop_turn(o->loop, false);
}

/* The peer sends `count` bytes of the pattern, from the byte numbered `from` on, as fast as the stream takes them. */
static void say(struct owner *o, size_t from, size_t count)
{
    uint8_t *bytes = malloc(count);
    size_t said = 0;
    for (size_t i = 0; i < count; i++)
        bytes[i] = pattern(from + i);
    for (int i = 0; i < TURNS && said < count; i++) {
        ssize_t n = send(o->peer, bytes + said, count - said, MSG_NOSIGNAL);
        said += n > 0 ? (size_t)n : 0;
        loop_turn(o->loop, false);
    }
    assert_int_equal(said, count);
    turns(o, 100);
    free(bytes);
}

/* Returns the number of bytes that the peer receives until the end, or until no more come. */
static size_t hear(struct owner *o, bool *ended)
{
    uint8_t bytes[4096];
    size_t heard = 0;
    *ended = false;
    for (int i = 0, quiet = 0; i < TURNS && quiet < 50 && !*ended; i++) {
        ssize_t n = recv(o->peer, bytes, sizeof bytes, 0);
        for (ssize_t k = 0; k < n; k++)
            assert_int_equal(bytes[k], pattern(heard + (size_t)k));
        heard += n > 0 ? (size_t)n : 0;
        quiet = n > 0 ? 0 : quiet + 1;
        *ended = n == 0 || (n < 0 && errno != EAGAIN);
        loop_turn(o->loop, false);
    }
    return heard;
}

/* Runs the loop until *what is not 0. */
static void await(struct owner *o, const unsigned *what)
{
    for (int i = 0; i < TURNS && !*what; i++)
        loop_turn(o->loop, true);
    assert_int_not_equal(*what, 0);
}

/* ---- input ---- */
static const size_t sizes[] = {1, 125, 126, 4096, 16 * KIB, 65535, 65536, MIB};

static void input_of_every_size_comes_in_order(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        struct owner o = {.on_input = CONSUME};
        open_pair(&o, &usual);
        say(&o, 0, sizes[i]);
        assert_int_equal(o.consumed, sizes[i]);
        assert_true(o.in_order);
        assert_int_equal(stream_held(&o.stream), 0); /* idle: no memory */
        end(&o);
    }
}

static void input_is_held_up_to_exactly_its_limit(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        struct owner o = {.on_input = NOTHING};
        o.stream.in = buffer_with_limit(sizes[i]);
        open_pair(&o, &usual);
        assert_int_equal(setsockopt(o.peer, SOL_SOCKET, SO_SNDBUF, &(int){8 * (int)MIB}, sizeof(int)), 0);
        for (size_t said = 0; said <= sizes[i]; said++) { /* sends one byte more than the limit */
            uint8_t rest[4096];
            size_t part = sizes[i] + 1 - said < sizeof rest ? sizes[i] + 1 - said : sizeof rest;
            for (size_t k = 0; k < part; k++)
                rest[k] = pattern(said + k);
            ssize_t n = send(o.peer, rest, part, MSG_NOSIGNAL);
            assert_true(n > 0);
            said += (size_t)n - 1;
            turns(&o, 2);
        }
        turns(&o, 50);
        assert_int_equal(buffer_len(&o.stream.in), sizes[i]);
        unsigned inputs = o.inputs;
        turns(&o, 50);
        assert_int_equal(o.inputs, inputs);
        o.on_input = CONSUME; /* the waiting byte comes once there is room */
        consume(&o);
        turns(&o, 10);
        assert_int_equal(o.consumed, sizes[i] + 1);
        assert_true(o.in_order);
        end(&o);
    }
}

static void a_paused_stream_reads_nothing(void **state)
{
    (void)state;
    struct owner o = {.on_input = CONSUME};
    open_pair(&o, &usual);
    stream_pause(&o.stream, true);
    assert_int_equal(send(o.peer, "\0\x1f", 2, 0), 2);
    turns(&o, 10);
    assert_int_equal(o.inputs, 0);
    stream_pause(&o.stream, false);
    turns(&o, 10);
    assert_int_equal(o.consumed, 2);
    assert_true(o.in_order);
    end(&o);
}

static void a_stream_may_be_paused_in_its_own_callback(void **state)
{
    (void)state;
    struct owner o = {.on_input = PAUSE};
    open_pair(&o, &usual);
    assert_int_equal(send(o.peer, "a", 1, 0), 1);
    turns(&o, 5);
    assert_int_equal(send(o.peer, "b", 1, 0), 1);
    turns(&o, 5);
    assert_int_equal(o.inputs, 1);
    assert_int_equal(buffer_len(&o.stream.in), 1);
    end(&o);
}

static void held_input_is_offered_again_after_a_pause(void **state)
{
    (void)state;
    struct owner o = {.on_input = PAUSE};
    open_pair(&o, &without_gone);
    stream_offer(&o.stream); /* there is nothing */
    assert_int_equal(send(o.peer, "\0", 1, 0), 1);
    turns(&o, 5);
    assert_int_equal(o.inputs, 1);
    o.on_input = CONSUME;
    stream_pause(&o.stream, false);
    stream_offer(&o.stream);
    assert_int_equal(o.consumed, 1);
    o.on_input = NOTHING;
    assert_int_equal(send(o.peer, "a", 1, 0), 1);
    turns(&o, 5);
    /* the owner may close the stream here, too, and its input stays readable until the call-back returns */
    o.on_input = CLOSE;
    stream_offer(&o.stream);
    assert_int_equal(stream_held(&o.stream), 0);
    end(&o);
}

/* Takes one byte of each input and leaves the rest for another turn. */
static void take_a_byte(void *owner)
{
    struct owner *o = owner;
    o->inputs++;
    stream_consume(&o->stream, 1);
    if (buffer_len(&o->stream.in))
        stream_offer_again(&o->stream);
}

static void input_left_by_the_owner_comes_in_later_turns_and_before_the_end(void **state)
{
    (void)state;
    static const struct stream_user user = {.input = take_a_byte, .ended = on_ended};
    struct owner o = {0};
    open_pair(&o, &user);
    assert_int_equal(send(o.peer, "abcd", 4, 0), 4);
    assert_int_equal(shutdown(o.peer, SHUT_WR), 0);
    for (unsigned before; (before = o.inputs) < 4;) {
        loop_turn(o.loop, true); /* does not sleep */
        assert_in_range(o.inputs, before + 1, before + 2);
        assert_true(!o.ends || o.inputs == 4);
    }
    turns(&o, 2);
    assert_int_equal(o.inputs, 4);
    assert_int_equal(o.ends, 1);
    end(&o);
}

static void input_left_by_the_owner_waits_while_the_stream_is_paused(void **state)
{
    (void)state;
    static const struct stream_user user = {.input = take_a_byte, .ended = on_ended};
    struct owner o = {0};
    open_pair(&o, &user);
    assert_int_equal(send(o.peer, "ab", 2, 0), 2);
    turns(&o, 1);
    stream_pause(&o.stream, true);
    turns(&o, 5);
    assert_int_equal(o.inputs, 1);
    stream_pause(&o.stream, false);
    turns(&o, 5);
    assert_int_equal(o.inputs, 2);
    end(&o);
}

static void a_look_reads_what_is_there_at_once(void **state)
{
    (void)state;
    struct owner o = {.on_input = CONSUME};
    open_pair(&o, &usual);
    stream_look(&o.stream);
    assert_int_equal(o.inputs, 0);
    assert_int_equal(send(o.peer, "\0", 1, 0), 1);
    stream_look(&o.stream);
    assert_int_equal(o.consumed, 1);
    end(&o);
}

static void memory_that_is_short_ends_the_input(void **state)
{
    (void)state;
    struct owner o = {.on_ended = CLOSE};
    open_pair(&o, &usual);
    assert_int_equal(send(o.peer, "a", 1, 0), 1);
    alloc_fail_at(1);
    stream_look(&o.stream);
    alloc_fail_at(0);
    assert_int_equal(o.ends, 1);
    assert_int_equal(o.error, ENOMEM);
    end(&o);
}

/* ---- output ---- */
static void output_of_every_size_is_sent(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        struct owner o = {0};
        bool ended;
        open_pair(&o, &usual);
        put_pattern(&o, sizes[i]);
        stream_send(&o.stream);
        assert_int_equal(hear(&o, &ended), sizes[i]);
        assert_false(ended);
        assert_int_equal(stream_held(&o.stream), 0);
        end(&o);
    }
}

static void output_is_bounded_at_exactly_its_limit(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        struct owner o = {0};
        o.stream.out = buffer_with_limit(sizes[i]);
        open_pair(&o, &usual);
        put_pattern(&o, sizes[i]);
        assert_false(buffer_put(&o.stream.out, SLICE_LITERAL("x")));
        end(&o);
    }
}

static void output_added_in_one_turn_leaves_together_in_the_next(void **state)
{
    (void)state;
    struct owner o = {0};
    char bytes[8];
    open_pair(&o, &usual);
    assert_true(buffer_put(&o.stream.out, SLICE_LITERAL("ab")));
    stream_send_soon(&o.stream);
    assert_true(buffer_put(&o.stream.out, SLICE_LITERAL("cd")));
    stream_send_soon(&o.stream);
    assert_int_equal(recv(o.peer, bytes, sizeof bytes, 0), -1);
    loop_turn(o.loop, false);
    assert_int_equal(recv(o.peer, bytes, sizeof bytes, 0), 4);
    end(&o);
}

static void a_peer_that_stalls_holds_the_output_and_not_the_loop(void **state)
{
    (void)state;
    struct owner o = {.on_input = CONSUME};
    bool ended;
    open_pair(&o, &usual);
    put_pattern(&o, MIB);
    stream_send(&o.stream);
    turns(&o, 50);
    assert_true(buffer_len(&o.stream.out) > 0);
    say(&o, 0, 100); /* input is still read */
    assert_int_equal(o.consumed, 100);
    assert_int_equal(hear(&o, &ended), MIB);
    end(&o);
}

/* ---- the peer's end ---- */
static void a_peer_that_ends_its_side_still_gets_an_answer(void **state)
{
    (void)state;
    struct owner o = {.on_input = CONSUME};
    bool ended;
    open_pair(&o, &usual);
    say(&o, 0, 10);
    shutdown(o.peer, SHUT_WR);
    await(&o, &o.ends);
    assert_int_equal(o.error, 0);
    put_pattern(&o, 65536);
    stream_send(&o.stream);
    stream_half_close(&o.stream);
    assert_int_equal(hear(&o, &ended), 65536);
    assert_true(ended);
    turns(&o, 20);
    assert_int_equal(o.ends, 1); /* is told once */
    end(&o);
}

static void our_own_half_close_follows_the_last_byte(void **state)
{
    (void)state;
    struct owner o = {.on_input = CONSUME};
    bool ended;
    open_pair(&o, &usual);
    put_pattern(&o, MIB);
    stream_half_close(&o.stream);
    assert_int_equal(hear(&o, &ended), MIB);
    assert_true(ended);
    say(&o, 0, 65535); /* the peer's bytes are still read */
    assert_int_equal(o.consumed, 65535);
    end(&o);
}

static void tcp_pair(int fds[2])
{
    struct net_address address;
    struct fail why;
    assert_true(net_parse(SLICE_LITERAL("127.0.0.1:0"), &address, &why));
    int listener = net_listen(&address, 0, &why);
    assert_true(listener >= 0 && net_local(listener, &address));
    fds[0] = net_connect(&address, &why);
    assert_true(fds[0] >= 0);
    for (int i = 0; i < TURNS && (fds[1] = net_accept(listener)) < 0; i++)
        ;
    assert_true(fds[1] >= 0);
    close(listener);
}

static unsigned packets_sent(int fd)
{
    struct tcp_info info = {0};
    socklen_t len = sizeof info;
    assert_int_equal(getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &len), 0);
    return info.tcpi_segs_out;
}

static void the_last_bytes_and_our_end_leave_in_one_packet(void **state)
{
    (void)state;
    struct owner o = {.linger = {SECOND, SECOND, MIB, 0, 0}};
    int fds[2];
    bool ended;
    tcp_pair(fds);
    o.peer = fds[1];
    begin(&o, &usual, fds[0]);
    put_pattern(&o, 10);
    unsigned before = packets_sent(fds[0]);
    stream_finish(&o.stream, &o.linger);
    assert_int_equal(packets_sent(fds[0]), before + 1);
    assert_int_equal(hear(&o, &ended), 10);
    assert_true(ended);
    end(&o);
}

static void reset_by_peer(struct owner *o)
{
    assert_int_equal(
        setsockopt(o->peer, SOL_SOCKET, SO_LINGER, &(struct linger){1, 0}, sizeof(struct linger)), 0);
    close(o->peer);
    o->peer = -1;
}

static void a_reset_is_told_with_its_error(void **state)
{
    (void)state;
    struct owner o = {.on_input = CONSUME, .on_ended = CLOSE};
    int fds[2];
    tcp_pair(fds);
    o.peer = fds[1];
    begin(&o, &dialling, fds[0]);
    await(&o, &o.connects);
    reset_by_peer(&o);
    await(&o, &o.ends);
    assert_int_equal(o.error, ECONNRESET);
    end(&o);
}

static void a_reset_of_a_paused_stream_is_seen_by_who_looks(void **state)
{
    (void)state;
    struct owner o = {0};
    int fds[2];
    tcp_pair(fds);
    o.peer = fds[1];
    begin(&o, &dialling, fds[0]);
    await(&o, &o.connects);
    stream_pause(&o.stream, true);
    assert_false(stream_is_broken(&o.stream));
    reset_by_peer(&o);
    for (int i = 0; i < TURNS && !stream_is_broken(&o.stream); i++)
        ;
    assert_true(stream_is_broken(&o.stream));
    end(&o);
}

static void a_failed_write_is_told_from_the_loop_behind_what_was_said_before(void **state)
{
    (void)state;
    struct owner o = {.on_input = CONSUME, .on_ended = CLOSE};
    open_pair(&o, &usual);
    assert_int_equal(send(o.peer, "\0", 1, 0), 1);
    shutdown(o.peer, SHUT_RD);
    put_pattern(&o, 10);
    stream_send(&o.stream);
    assert_int_equal(o.ends, 0);
    assert_int_equal(stream_held(&o.stream), 0); /* output that nobody can take is dropped */
    await(&o, &o.ends);
    assert_int_equal(o.error, EPIPE);
    assert_int_equal(o.consumed, 1);
    end(&o);
}

static void a_failed_write_of_a_full_stream_is_told_at_once(void **state)
{
    (void)state;
    struct owner o = {.on_ended = CLOSE};
    o.stream.in = buffer_with_limit(1);
    open_pair(&o, &usual);
    assert_int_equal(send(o.peer, "ab", 2, 0), 2);
    turns(&o, 5);
    shutdown(o.peer, SHUT_RD);
    put_pattern(&o, 10);
    stream_send(&o.stream);
    await(&o, &o.ends);
    assert_int_equal(o.error, EPIPE);
    end(&o);
}

static void a_stream_that_hears_out_reads_to_the_end_after_a_failed_write(void **state)
{
    (void)state;
    struct owner o = {.on_input = CONSUME};
    open_pair(&o, &hearing);
    shutdown(o.peer, SHUT_RD);
    put_pattern(&o, 10);
    stream_send_soon(&o.stream);
    turns(&o, 20);
    assert_int_equal(o.ends, 0);
    assert_int_equal(o.sends, 1); /* the stream waits for no more events */
    assert_int_equal(stream_held(&o.stream), 0);
    say(&o, 0, 65536);
    assert_int_equal(o.consumed, 65536);
    shutdown(o.peer, SHUT_WR);
    await(&o, &o.ends);
    assert_int_equal(o.error, 0);
    end(&o);
}

/* What the peer said before it took nothing more is read to its end, however late the owner reads it. */
static void who_hears_out_is_told_no_end_before_what_was_said(void **state)
{
    (void)state;
    for (unsigned paused = 0; paused <= 1; paused++) {
        struct owner o = {0};
        o.stream.in = buffer_with_limit(paused ? 64 * KIB : 1);
        open_pair(&o, &hearing);
        stream_pause(&o.stream, paused);
        say(&o, 0, 2);
        shutdown(o.peer, SHUT_RDWR);
        put_pattern(&o, 10);
        stream_send_soon(&o.stream);
        turns(&o, 20);
        assert_int_equal(o.ends, 0);
        assert_int_equal(stream_held(&o.stream), o.stream.in.size);
        o.on_input = CONSUME;
        stream_offer(&o.stream);
        stream_pause(&o.stream, false);
        await(&o, &o.ends);
        assert_int_equal(o.consumed, 2);
        end(&o);
    }
}

/* ---- connecting ---- */
static void nothing_is_sent_before_the_connection_is_made(void **state)
{
    (void)state;
    struct owner o = {0};
    bool ended;
    int fds[2];
    tcp_pair(fds);
    o.peer = fds[1];
    begin(&o, &dialling, fds[0]);
    put_pattern(&o, 65536);
    stream_send(&o.stream);
    assert_int_equal(buffer_len(&o.stream.out), 65536);
    await(&o, &o.connects);
    assert_int_equal(hear(&o, &ended), 65536);
    assert_int_equal(o.connects, 1);
    end(&o);
}

static void early_output_arrives_before_the_next_turn_of_the_loop(void **state)
{
    (void)state;
    struct owner o = {.on_input = CONSUME};
    uint8_t bytes[64];
    int fds[2];
    tcp_pair(fds);
    o.peer = fds[1];
    begin(&o, &dialling, fds[0]);
    put_pattern(&o, 10);
    assert_true(stream_send_early(&o.stream));
    assert_int_equal(buffer_len(&o.stream.out), 0);
    assert_int_equal(recv(o.peer, bytes, sizeof bytes, 0), 10);
    assert_false(stream_send_early(&o.stream)); /* the stream is not connecting any more */
    say(&o, 0, 1000);
    await(&o, &o.inputs);
    assert_int_equal(o.connects + o.sends, 0);
    end(&o);
}

static void early_output_that_the_socket_does_not_take_follows_later(void **state)
{
    (void)state;
    struct owner o = {0};
    bool ended;
    int fds[2];
    tcp_pair(fds);
    o.peer = fds[1];
    o.stream.out = buffer_with_limit(16 * MIB);
    begin(&o, &dialling, fds[0]);
    put_pattern(&o, 16 * MIB);
    assert_true(stream_send_early(&o.stream));
    assert_true(buffer_len(&o.stream.out) > 0);
    assert_int_equal(hear(&o, &ended), 16 * MIB);
    assert_true(o.sends > 0);
    assert_int_equal(o.connects, 0);
    end(&o);
}

/* The listener's queue is full, so the kernel lets the next connection wait. */
static void nothing_is_sent_early_while_the_connection_is_being_made(void **state)
{
    (void)state;
    struct owner o = {.peer = -1};
    struct net_address address;
    struct fail why;
    assert_true(net_parse(SLICE_LITERAL("127.0.0.1:0"), &address, &why));
    int listener = net_listen(&address, 0, &why);
    assert_true(listener >= 0 && net_local(listener, &address));
    assert_int_equal(listen(listener, 0), 0);
    int queued = net_connect(&address, &why);
    begin(&o, &dialling, net_connect(&address, &why));
    put_pattern(&o, 10);
    assert_false(stream_send_early(&o.stream));
    assert_int_equal(buffer_len(&o.stream.out), 10);
    close(queued);
    close(listener);
    end(&o);
}

static void a_failure_of_early_output_is_reported_later(void **state)
{
    (void)state;
    struct owner o = {.on_ended = CLOSE};
    open_pair(&o, &dialling);
    shutdown(o.peer, SHUT_RD);
    put_pattern(&o, 10);
    assert_false(stream_send_early(&o.stream));
    assert_int_equal(o.ends, 0);
    await(&o, &o.ends);
    assert_int_equal(o.error, EPIPE);
    assert_int_equal(o.connects, 0);
    end(&o);
}

static void a_connection_that_is_refused_ends_with_the_reason(void **state)
{
    (void)state;
    struct owner o = {.peer = -1, .on_ended = CLOSE};
    struct net_address address;
    struct fail why;
    assert_true(net_parse(SLICE_LITERAL("127.0.0.1:0"), &address, &why));
    int listener = net_listen(&address, 0, &why);
    assert_true(listener >= 0 && net_local(listener, &address));
    close(listener);
    begin(&o, &dialling, net_connect(&address, &why));
    await(&o, &o.ends);
    assert_int_equal(o.error, ECONNREFUSED);
    assert_int_equal(o.connects, 0);
    end(&o);
}

/* ---- closing in a call-back ---- */
static void a_stream_may_be_closed_in_each_of_its_callbacks(void **state)
{
    (void)state;
    const enum action actions[] = {CLOSE, FINISH, RELEASE};
    const struct stream_user *const users[] = {&usual, &without_gone};
    for (size_t i = 0; i < 6; i++) {
        struct owner o = {.on_input = actions[i / 2], .on_ended = NOTHING};
        open_pair(&o, users[i % 2]);
        assert_int_equal(send(o.peer, "some", 4, 0), 4);
        await(&o, &o.inputs);
        turns(&o, 5);
        assert_int_equal(o.inputs, 1);
        end(&o);

        o = (struct owner){.on_ended = actions[i / 2], .on_input = NOTHING};
        open_pair(&o, users[i % 2]);
        assert_int_equal(send(o.peer, "some", 4, 0), 4);
        shutdown(o.peer, SHUT_WR);
        await(&o, &o.ends);
        end(&o);

        o = (struct owner){.on_late = actions[i / 2]};
        open_pair(&o, users[i % 2]);
        stream_set_time(&o.stream, 1000);
        await(&o, &o.lates);
        turns(&o, 5);
        assert_int_equal(o.lates, 1);
        end(&o);

        o = (struct owner){.on_sent = actions[i / 2]};
        open_pair(&o, users[i % 2]);
        put_pattern(&o, 10);
        stream_send_soon(&o.stream);
        turns(&o, 5);
        assert_false(stream_is_open(&o.stream) && o.released < 0);
        end(&o);
    }
}

static void a_stream_may_be_closed_when_its_connection_is_made(void **state)
{
    (void)state;
    const enum action actions[] = {CLOSE, FINISH, RELEASE};
    for (size_t i = 0; i < 3; i++) {
        struct owner o = {.on_connected = actions[i]};
        int fds[2];
        tcp_pair(fds);
        o.peer = fds[1];
        begin(&o, &dialling, fds[0]);
        put_pattern(&o, 10);
        await(&o, &o.connects);
        turns(&o, 5);
        end(&o);
    }
}

static void a_released_descriptor_stays_open_and_the_input_readable(void **state)
{
    (void)state;
    struct owner o = {.on_input = RELEASE};
    open_pair(&o, &usual);
    assert_int_equal(send(o.peer, "head", 4, 0), 4);
    await(&o, &o.inputs);
    assert_true(slice_is(buffer_slice(&o.stream.in), "head"));
    assert_int_equal(send(o.released, "x", 1, 0), 1);
    assert_int_equal(o.gone, 0);
    end(&o);
}

static void closing_a_stream_that_was_never_opened_frees_its_buffers(void **state)
{
    (void)state;
    struct stream never = {.user = &usual, .out = buffer_with_limit(10)};
    assert_true(buffer_put(&never.out, SLICE_LITERAL("a request")));
    stream_close(&never);
    assert_int_equal(stream_held(&never), 0);
}

static void a_stream_without_gone_is_opened_again(void **state)
{
    (void)state;
    struct owner o = {.on_input = CONSUME};
    int fds[2];
    open_pair(&o, &without_gone);
    stream_close(&o.stream);
    close(o.peer);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds), 0);
    o.peer = fds[1];
    stream_open(&o.stream, o.loop, fds[0]);
    say(&o, 0, 65536);
    assert_int_equal(o.consumed, 65536);
    end(&o);
}

/* ---- the lingering close ---- */
static void a_finished_stream_sends_the_rest_and_reads_away_what_comes(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        struct owner o = {.linger = {SECOND, SECOND, 2 * MIB, 0, 0}};
        bool ended;
        open_pair(&o, &usual);
        assert_int_equal(send(o.peer, "unread", 6, 0), 6);
        put_pattern(&o, sizes[i]);
        stream_finish(&o.stream, &o.linger);
        assert_int_equal(hear(&o, &ended), sizes[i]);
        assert_true(ended);
        assert_int_equal(o.gone, 0); /* the peer has not ended its side yet */
        shutdown(o.peer, SHUT_WR);
        await(&o, &o.gone);
        assert_true(stream_was_taken(&o.stream));
        assert_int_equal(o.inputs, 0);
        assert_int_equal(o.ends, 0);
        end(&o);
    }
}

/* The peer takes each part in time, but everything would take ten times as long as the close may. */
static void a_peer_that_takes_a_little_at_a_time_is_not_waited_for_without_end(void **state)
{
    const uint64_t step = 20 * MILLISECOND;
    struct owner o = {.linger = {step, step, MIB, 0, 0}};
    const int small = 4096; /* a small send buffer, from which the peer takes small parts */
    uint8_t taken[2048];
    (void)state;
    open_pair(&o, &usual);
    assert_int_equal(setsockopt(stream_fd(&o.stream), SOL_SOCKET, SO_SNDBUF, &small, sizeof small), 0);
    put_pattern(&o, MIB);
    uint64_t began = loop_clock();
    stream_finish(&o.stream, &o.linger);
    while (!o.gone && loop_clock() - began < 100 * step) {
        usleep(2000);
        (void)!recv(o.peer, taken, sizeof taken, MSG_DONTWAIT);
        loop_turn(o.loop, false);
    }
    assert_int_equal(o.gone, 1);
    assert_in_range(loop_clock() - began, 0, 50 * step);
    end(&o);
}

static void a_peer_that_has_ended_before_gets_the_rest_and_no_grace(void **state)
{
    (void)state;
    struct owner o = {.on_ended = FINISH};
    bool ended;
    open_pair(&o, &usual);
    put_pattern(&o, MIB);
    shutdown(o.peer, SHUT_WR);
    assert_int_equal(hear(&o, &ended), MIB);
    assert_true(ended);
    assert_int_equal(o.gone, 1);
    end(&o);
}

static void a_peer_that_has_ended_its_side_gets_all_of_the_rest(void **state)
{
    (void)state;
    struct owner o = {.on_input = FAREWELL};
    bool ended;
    open_pair(&o, &usual);
    assert_int_equal(send(o.peer, "farewell", 8, 0), 8);
    shutdown(o.peer, SHUT_WR);
    assert_int_equal(hear(&o, &ended), 400 * KIB);
    turns(&o, 3);
    assert_int_equal(o.gone, 1);
    end(&o);
}

static void a_peer_that_ends_behind_its_last_words_is_closed_within_a_turn(void **state)
{
    (void)state;
    struct owner o = {.linger = {SECOND, SECOND, MIB, 0, 0}};
    open_pair(&o, &usual);
    stream_finish(&o.stream, &o.linger);
    assert_int_equal(send(o.peer, "last words", 10, 0), 10);
    shutdown(o.peer, SHUT_WR);
    turns(&o, 1);
    assert_int_equal(o.gone, 1);
    end(&o);
}

static void a_peer_that_does_not_end_is_closed_when_the_grace_is_over(void **state)
{
    (void)state;
    struct owner o = {.linger = {SECOND, 20000, MIB, 0, 0}};
    open_pair(&o, &usual);
    uint64_t began = loop_clock();
    stream_finish(&o.stream, &o.linger);
    await(&o, &o.gone);
    assert_true(loop_clock() - began >= 15000);
    assert_false(stream_was_taken(&o.stream));
    end(&o);
}

static void a_side_that_was_ended_before_has_the_grace_alone(void **state)
{
    (void)state;
    struct owner o = {.linger = {60 * SECOND, 20000, MIB, 0, 0}};
    open_pair(&o, &usual);
    stream_half_close(&o.stream);
    uint64_t began = loop_clock();
    stream_finish(&o.stream, &o.linger);
    await(&o, &o.gone);
    assert_true(loop_clock() - began < 30 * SECOND);
    end(&o);
}

static void a_peer_that_takes_nothing_is_closed_after_a_step(void **state)
{
    (void)state;
    struct owner o = {.linger = {20000, 60 * SECOND, MIB, 0, 0}};
    open_pair(&o, &usual);
    put_pattern(&o, MIB);
    stream_finish(&o.stream, &o.linger);
    await(&o, &o.gone);
    end(&o);
}

static void without_a_step_the_grace_is_for_all_together(void **state)
{
    (void)state;
    struct owner o = {.linger = {0, 50000, MIB, 0, 0}};
    uint8_t byte[512];
    open_pair(&o, &usual);
    assert_int_equal(setsockopt(o.peer, SOL_SOCKET, SO_RCVBUF, &(int){1}, sizeof(int)), 0);
    put_pattern(&o, 4 * MIB);
    stream_finish(&o.stream, &o.linger);
    uint64_t began = loop_clock();
    /* a few bytes now and then do not extend the time */
    while (!o.gone && loop_clock() - began < 5 * SECOND) {
        (void)!recv(o.peer, byte, sizeof byte, MSG_DONTWAIT);
        loop_turn(o.loop, true);
    }
    assert_int_equal(o.gone, 1);
    end(&o);
}

static void a_peer_that_sends_more_than_the_bound_is_closed(void **state)
{
    (void)state;
    struct owner o = {.linger = {60 * SECOND, 60 * SECOND, 65536, 0, 0}};
    uint8_t bytes[4096] = {0};
    open_pair(&o, &usual);
    stream_finish(&o.stream, &o.linger);
    size_t said = 0;
    for (int i = 0; i < TURNS && !o.gone; i++) {
        ssize_t n = send(o.peer, bytes, sizeof bytes, MSG_NOSIGNAL);
        said += n > 0 ? (size_t)n : 0;
        loop_turn(o.loop, false);
    }
    assert_int_equal(o.gone, 1);
    assert_true(said >= 65536);
    end(&o);
}

/* Returns the number of bytes that the peer has sent until the time is over, or the stream is gone. */
static size_t send_on(struct owner *o, uint64_t time)
{
    uint8_t bytes[16384] = {0};
    size_t said = 0;
    for (uint64_t end = loop_clock() + time; loop_clock() < end && !o->gone;) {
        ssize_t n = send(o->peer, bytes, sizeof bytes, MSG_NOSIGNAL | MSG_DONTWAIT);
        said += n > 0 ? (size_t)n : 0;
        loop_turn(o->loop, false);
    }
    return said;
}

static void a_lingering_close_reads_the_peers_frame_to_its_end(void **state)
{
    (void)state;
    for (int step = 0; step < 2; step++) {
        struct owner o = {.linger = {step ? 60 * SECOND : 0, SECOND / 2, MIB, 60 * SECOND, UINT64_MAX}};
        open_pair(&o, &usual);
        put_pattern(&o, 10);
        stream_finish(&o.stream, &o.linger);
        assert_true(send_on(&o, SECOND) > 4 * MIB);
        assert_int_equal(o.gone, 0);
        assert_int_equal(o.inputs, 0);
        assert_int_equal(stream_held(&o.stream), 0);
        assert_int_equal(recv(o.peer, &(uint8_t[100]){0}, 100, MSG_DONTWAIT), 10);
        await(&o, &o.gone);
        end(&o);
    }
}

/* After FIN, the rest of the peer's frame would be lost: HAProxy ends both sides of a tunnel at a FIN. */
static void our_end_follows_the_rest_of_what_the_peer_has_begun(void **state)
{
    (void)state;
    struct owner o = {.linger = {60 * SECOND, 60 * SECOND, MIB, 60 * SECOND, 2 * 16384 + 100}};
    uint8_t bytes[16384] = {0};
    bool ended;
    open_pair(&o, &usual);
    put_pattern(&o, 10);
    stream_finish(&o.stream, &o.linger);
    assert_int_equal(send(o.peer, bytes, sizeof bytes, 0), sizeof bytes);
    assert_int_equal(send(o.peer, bytes, sizeof bytes, 0), sizeof bytes);
    assert_int_equal(send(o.peer, bytes, 99, 0), 99);
    turns(&o, 5);
    assert_int_equal(recv(o.peer, bytes, sizeof bytes, MSG_DONTWAIT), 10);
    assert_int_equal(recv(o.peer, bytes, sizeof bytes, MSG_DONTWAIT), -1);
    assert_int_equal(send(o.peer, bytes, 1, 0), 1);
    assert_int_equal(hear(&o, &ended), 0);
    assert_true(ended);
    close(o.peer);
    o.peer = -1;
    await(&o, &o.gone);
    end(&o);
}

static void a_peer_that_sends_without_end_is_closed_by_time(void **state)
{
    (void)state;
    for (int step = 0; step < 2; step++) {
        struct owner o = {.linger = {step ? 50000 : 0, 50000, MIB, 400000, UINT64_MAX}};
        open_pair(&o, &usual);
        uint64_t began = loop_clock();
        stream_finish(&o.stream, &o.linger);
        (void)send_on(&o, 20 * SECOND);
        assert_int_equal(o.gone, 1);
        assert_true(loop_clock() - began >= 350000);
        end(&o);
    }
}

static void a_peer_that_resets_a_finishing_stream_ends_it(void **state)
{
    (void)state;
    struct owner o = {.linger = {60 * SECOND, 60 * SECOND, MIB, 0, 0}};
    int fds[2];
    tcp_pair(fds);
    o.peer = fds[1];
    begin(&o, &dialling, fds[0]);
    await(&o, &o.connects);
    stream_finish(&o.stream, &o.linger);
    reset_by_peer(&o);
    await(&o, &o.gone);
    assert_int_equal(o.ends, 0);
    end(&o);
}

static void a_stream_is_finished_while_it_connects(void **state)
{
    (void)state;
    struct owner o = {0};
    bool ended;
    int fds[2];
    tcp_pair(fds);
    o.peer = fds[1];
    begin(&o, &dialling, fds[0]);
    put_pattern(&o, 65535);
    stream_finish(&o.stream, &o.linger);
    assert_int_equal(hear(&o, &ended), 65535);
    assert_true(ended);
    assert_int_equal(o.connects, 0);
    end(&o);
}

/* ---- times ---- */
static void input_that_arrived_in_time_is_not_late(void **state)
{
    (void)state;
    struct owner o = {.on_input = CLOSE};
    open_pair(&o, &usual);
    stream_set_time(&o.stream, 1000);
    usleep(5000); /* this thread is delayed */
    assert_int_equal(send(o.peer, "a", 1, 0), 1);
    await(&o, &o.gone);
    assert_int_equal(o.inputs, 1);
    assert_int_equal(o.lates, 0);
    end(&o);
}

static void a_time_that_is_stopped_does_not_come(void **state)
{
    (void)state;
    struct owner o = {0};
    open_pair(&o, &usual);
    stream_set_time(&o.stream, 1000);
    stream_stop_time(&o.stream);
    usleep(3000);
    turns(&o, 5);
    assert_int_equal(o.lates, 0);
    stream_set_time(&o.stream, 1000);
    await(&o, &o.lates);
    end(&o);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(input_of_every_size_comes_in_order),
        cmocka_unit_test(input_is_held_up_to_exactly_its_limit),
        cmocka_unit_test(a_paused_stream_reads_nothing),
        cmocka_unit_test(a_stream_may_be_paused_in_its_own_callback),
        cmocka_unit_test(held_input_is_offered_again_after_a_pause),
        cmocka_unit_test(input_left_by_the_owner_comes_in_later_turns_and_before_the_end),
        cmocka_unit_test(input_left_by_the_owner_waits_while_the_stream_is_paused),
        cmocka_unit_test(a_look_reads_what_is_there_at_once),
        cmocka_unit_test(memory_that_is_short_ends_the_input),
        cmocka_unit_test(output_of_every_size_is_sent),
        cmocka_unit_test(output_is_bounded_at_exactly_its_limit),
        cmocka_unit_test(output_added_in_one_turn_leaves_together_in_the_next),
        cmocka_unit_test(a_peer_that_stalls_holds_the_output_and_not_the_loop),
        cmocka_unit_test(a_peer_that_ends_its_side_still_gets_an_answer),
        cmocka_unit_test(our_own_half_close_follows_the_last_byte),
        cmocka_unit_test(the_last_bytes_and_our_end_leave_in_one_packet),
        cmocka_unit_test(a_reset_is_told_with_its_error),
        cmocka_unit_test(a_reset_of_a_paused_stream_is_seen_by_who_looks),
        cmocka_unit_test(a_failed_write_is_told_from_the_loop_behind_what_was_said_before),
        cmocka_unit_test(a_failed_write_of_a_full_stream_is_told_at_once),
        cmocka_unit_test(a_stream_that_hears_out_reads_to_the_end_after_a_failed_write),
        cmocka_unit_test(who_hears_out_is_told_no_end_before_what_was_said),
        cmocka_unit_test(nothing_is_sent_before_the_connection_is_made),
        cmocka_unit_test(early_output_arrives_before_the_next_turn_of_the_loop),
        cmocka_unit_test(early_output_that_the_socket_does_not_take_follows_later),
        cmocka_unit_test(nothing_is_sent_early_while_the_connection_is_being_made),
        cmocka_unit_test(a_failure_of_early_output_is_reported_later),
        cmocka_unit_test(a_connection_that_is_refused_ends_with_the_reason),
        cmocka_unit_test(a_stream_may_be_closed_in_each_of_its_callbacks),
        cmocka_unit_test(a_stream_may_be_closed_when_its_connection_is_made),
        cmocka_unit_test(a_released_descriptor_stays_open_and_the_input_readable),
        cmocka_unit_test(closing_a_stream_that_was_never_opened_frees_its_buffers),
        cmocka_unit_test(a_stream_without_gone_is_opened_again),
        cmocka_unit_test(a_finished_stream_sends_the_rest_and_reads_away_what_comes),
        cmocka_unit_test(a_peer_that_takes_a_little_at_a_time_is_not_waited_for_without_end),
        cmocka_unit_test(a_peer_that_has_ended_before_gets_the_rest_and_no_grace),
        cmocka_unit_test(a_peer_that_has_ended_its_side_gets_all_of_the_rest),
        cmocka_unit_test(a_peer_that_ends_behind_its_last_words_is_closed_within_a_turn),
        cmocka_unit_test(a_peer_that_does_not_end_is_closed_when_the_grace_is_over),
        cmocka_unit_test(a_side_that_was_ended_before_has_the_grace_alone),
        cmocka_unit_test(a_peer_that_takes_nothing_is_closed_after_a_step),
        cmocka_unit_test(without_a_step_the_grace_is_for_all_together),
        cmocka_unit_test(a_peer_that_sends_more_than_the_bound_is_closed),
        cmocka_unit_test(a_lingering_close_reads_the_peers_frame_to_its_end),
        cmocka_unit_test(our_end_follows_the_rest_of_what_the_peer_has_begun),
        cmocka_unit_test(a_peer_that_sends_without_end_is_closed_by_time),
        cmocka_unit_test(a_peer_that_resets_a_finishing_stream_ends_it),
        cmocka_unit_test(a_stream_is_finished_while_it_connects),
        cmocka_unit_test(input_that_arrived_in_time_is_not_late),
        cmocka_unit_test(a_time_that_is_stopped_does_not_come),
    };
    return cmocka_run_group_tests_name("stream", tests, NULL, NULL);
}
