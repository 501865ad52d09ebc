/* SPDX-License-Identifier: MIT */
/* Payload that goes by the host's pipe: the client gets what it would have got otherwise, wherever it is cut, and whatever
 * is said in between. */
#include "tests/unit/support.h"

#include "tests/unit/relay/tunnel_world.h"

#define LARGE 150000

static struct world w;
static uint8_t memory[4 * LARGE], payload[LARGE];

static size_t hears(void *io, enum side to, const struct slice *runs, size_t count);
static struct tunnel_host host;

static void serving_as(const struct handover *h)
{
    assert_true(world_open(&w, h));
    world_dialled(&w, DIAL_OPEN, 101);
    assert_int_equal(w.t.state, TUNNEL_serving);
    host = world_host;
    host.send = hears;
    w.t.forward.place.host = &host;
    w.pipes = true;
}

static void serving(void)
{
    struct handover h = world_handover();
    serving_as(&h);
}

/* Nothing is decoded yet: a frame's head alone may be there. */
static size_t hears(void *io, enum side to, const struct slice *runs, size_t count)
{
    struct world *world = io;
    struct ear *ear = &world->ears[to];
    size_t taken = 0;
    for (size_t i = 0; i < count; i++) {
        struct slice run = world_run(world, runs[i]), part = slice_sub(run, 0, ear->room);
        assert_true(buffer_put(&ear->bytes, part));
        if (leg_is_unseen(runs[i]))
            buffer_consume(&world->pipe, part.len);
        ear->room -= ear->room == SIZE_MAX ? 0 : part.len;
        taken += part.len;
        if (part.len < run.len)
            break;
    }
    return taken;
}

/* What the client has got, with fragments joined: opcodes, payload and ends. */
static struct buffer joined(void)
{
    struct slice in = buffer_slice(&w.ears[CLIENT].bytes);
    struct ws_decoder d = ws_decoder_of(WS_SERVER, 0);
    struct buffer all = buffer_with_limit(1 << 20);
    struct ws_piece piece;
    for (enum ws_event event; (event = ws_decode(&d, &in, &piece)) != WS_MORE;) {
        uint8_t start = (uint8_t)(d.frame.opcode == WS_PONG ? 0x8a : d.frame.opcode);
        assert_int_not_equal(event, WS_BAD);
        if (event == WS_CONTROL || (event == WS_HEAD && start))
            assert_true(buffer_put(&all, slice_of(&start, 1)));
        struct slice said = event == WS_PIECE     ? piece.bytes
                            : event == WS_CONTROL ? ws_control_payload(&d)
                                                  : slice_of(NULL, 0);
        assert_true(buffer_put(&all, said));
        if (event == WS_PIECE && piece.last && d.frame.fin)
            assert_true(buffer_put(&all, SLICE_LITERAL("\xff")));
    }
    assert_int_equal(in.len, 0);
    return all;
}

static size_t put_frame(size_t at, unsigned start, size_t len)
{
    return at + world_frame(memory + at, WORKER, start, slice_of(payload, len)).len;
}

/* Small messages, large ones, one in two large fragments with a Ping between them. */
static struct slice conversation(void)
{
    for (size_t i = 0; i < sizeof payload; i++)
        payload[i] = (uint8_t)(i * 7 + i / 251);
    size_t len = put_frame(0, 0x82, 5);
    len = put_frame(len, 0x82, 100000);
    len = put_frame(len, 0x82, 50000);
    len = put_frame(len, 0x89, 3);
    len = put_frame(len, 0x01, 65535);
    len = put_frame(len, 0x89, 125);
    len = put_frame(len, 0x80, 65536);
    return slice_of(memory, put_frame(len, 0x81, 11));
}

static void drain(size_t room)
{
    while (!send_queue_empty(&w.t.forward.legs[CLIENT].out)) {
        w.ears[CLIENT].room = room;
        world_writable(&w, CLIENT, w.now);
    }
    w.ears[CLIENT].room = SIZE_MAX;
}

/* All of it, in reads of 40 KiB at most, of which one ends at `cut`; the client's socket has room for as much at a time. */
static struct buffer passed(struct slice all, bool pipes, size_t cut, size_t room)
{
    serving();
    w.pipes = pipes;
    for (size_t at = 0, step; at < all.len; at += step) {
        step = at < cut && cut - at < 40960 ? cut - at : 40960;
        struct slice part = slice_sub(all, at, step);
        step = part.len;
        w.ears[CLIENT].room = room;
        while (part.len) {
            size_t before = w.t.forward.legs[WORKER].bytes_in + buffer_len(&w.t.forward.legs[WORKER].partial);
            world_bytes(&w, WORKER, part, SIZE_MAX);
            size_t now = w.t.forward.legs[WORKER].bytes_in + buffer_len(&w.t.forward.legs[WORKER].partial);
            part = slice_from(part, now - before);
            drain(room);
        }
    }
    assert_int_equal(w.t.state, TUNNEL_serving);
    assert_int_equal(w.t.forward.legs[WORKER].bytes_in, all.len);
    assert_int_equal(w.t.forward.legs[CLIENT].bytes_out, buffer_len(&w.ears[CLIENT].bytes));
    struct buffer got = joined();
    world_close(&w);
    return got;
}

static void assert_same(const struct buffer *want, struct buffer got)
{
    assert_true(slice_equal(buffer_slice(want), buffer_slice(&got)));
    buffer_free(&got);
}

static void what_is_unseen_arrives_wherever_it_is_cut(void **state)
{
    static const size_t rooms[] = {1000, 4096, 30000, 65546, SIZE_MAX};
    struct slice all = conversation();
    struct buffer want = passed(all, false, 0, SIZE_MAX);
    (void)state;
    assert_in_range(buffer_len(&want), 280000, 290000);
    for (size_t i = 0; i < sizeof rooms / sizeof rooms[0]; i++)
        assert_same(&want, passed(all, true, 0, rooms[i]));
    /* at each byte about each head */
    static const size_t frames[] = {0, 7, 100017, 150021, 150026, 215565, 215692};
    for (size_t i = 0; i < sizeof frames / sizeof frames[0]; i++)
        for (size_t at = frames[i]; at < frames[i] + 24; at++)
            assert_same(&want, passed(all, true, at, at % 2 ? SIZE_MAX : 20000));
    for (size_t at = 500; at < all.len; at += 6011)
        assert_same(&want, passed(all, true, at, at % 2 ? SIZE_MAX : 20000));
    buffer_free(&want);
}

/* A frame of LARGE of which the worker has said 40 KiB, and then `more`; the client takes `room` of that. */
static void pours(size_t more, size_t room)
{
    serving();
    struct slice all = slice_of(memory, put_frame(0, 0x82, LARGE));
    assert_true(world_bytes(&w, WORKER, slice_sub(all, 0, 40960), SIZE_MAX));
    assert_int_equal(forward_unseen_most(&w.t.forward), FORWARD_UNSEEN_MOST);
    w.ears[CLIENT].room = room;
    assert_true(world_bytes(&w, WORKER, slice_sub(all, 40960, more), SIZE_MAX));
}

static void a_ping_is_said_at_each_place_of_what_is_unseen(void **state)
{
    (void)state;
    for (size_t room = 0; room < 60200; room += room < 16 || room > 59990 ? 1 : 4999) {
        pours(60000, room);
        bool gone = room >= 60004;
        assert_int_equal(send_queue_len(&w.t.forward.legs[CLIENT].out), gone ? 0 : 60004);
        assert_int_equal(w.t.forward.legs[WORKER].reading, gone);
        assert_true(forward_send_control(&w.t.forward, CLIENT, WS_PING, SLICE_LITERAL("now"), w.now));
        assert_int_equal(buffer_len(&w.pipe), 0);
        drain(777);
        assert_true(
            world_bytes(&w, WORKER, slice_sub(slice_of(memory, LARGE + 10), 100960, LARGE), SIZE_MAX));
        struct buffer got = joined();
        struct slice said = buffer_slice(&got);
        assert_int_equal(said.len, 1 + LARGE + 4 + 1);
        assert_int_equal(said.at[0], WS_BINARY);
        assert_memory_equal(said.at + 1, payload, 100950);
        assert_memory_equal(said.at + 1 + 100950, "\x09now", 4);
        assert_memory_equal(said.at + 1 + 100950 + 4, payload + 100950, LARGE - 100950);
        buffer_free(&got);
        world_close(&w);
    }
}

/* It has what came of the message, and a Close behind that. */
static void assert_cut_and_closed(void)
{
    struct buffer got = joined();
    struct slice said = buffer_slice(&got);
    assert_true(said.len > 1 + 100950 + 1);
    assert_memory_equal(said.at + 1, payload, 100950);
    assert_int_equal(said.at[1 + 100950], WS_CLOSE);
    buffer_free(&got);
}

/* A fragment's end, a whole message, one in two frames, one that goes through, a small one, the beginning of a large one: more
 * than goes at once. Behind that the rest, a Ping among it. */
static struct slice many_frames(void)
{
    size_t len = put_frame(0, 0x82, 60000);
    len = put_frame(len, 0x82, 65536);
    len = put_frame(len, 0x01, 49152);
    len = put_frame(len, 0x80, 50000);
    len = put_frame(len, 0x82, 65535);
    len = put_frame(len, 0x82, 300);
    return slice_of(memory, put_frame(len, 0x82, 100000));
}

/* The client's socket takes `room`, its pipe `pipe_room`; then a Ping of the relay's is said. */
static struct buffer at_once(struct slice all, bool pipes, size_t step, size_t room, size_t pipe_room)
{
    serving();
    w.pipes = pipes;
    w.pipe_room = pipe_room;
    for (size_t at = 0, len = 40960; at < all.len; at += len, len = step) {
        struct slice part = slice_sub(all, at, len);
        w.ears[CLIENT].room = at ? room : SIZE_MAX;
        while (part.len) {
            size_t before = w.t.forward.legs[WORKER].bytes_in + buffer_len(&w.t.forward.legs[WORKER].partial);
            world_bytes(&w, WORKER, part, SIZE_MAX);
            part = slice_from(part, w.t.forward.legs[WORKER].bytes_in +
                                        buffer_len(&w.t.forward.legs[WORKER].partial) - before);
            if (!send_queue_empty(&w.t.forward.legs[CLIENT].out) && room % 2)
                assert_true(forward_send_control(&w.t.forward, CLIENT, WS_PONG, SLICE_LITERAL(""), w.now));
            drain(room < 4096 ? 4096 : room);
            w.ears[CLIENT].room = room;
        }
    }
    assert_int_equal(w.t.state, TUNNEL_serving);
    assert_int_equal(w.t.forward.legs[WORKER].bytes_in, all.len);
    assert_int_equal(w.t.forward.legs[CLIENT].bytes_out, buffer_len(&w.ears[CLIENT].bytes));
    assert_int_equal(w.t.forward.legs[CLIENT].message_out, 0);
    assert_int_equal(w.t.forward.legs[CLIENT].out.message, 0);
    assert_int_equal(w.t.forward.legs[CLIENT].data, 390523);
    struct buffer got = joined();
    world_close(&w);
    return got;
}

/* Without the Pongs. */
static struct buffer unanswered(struct buffer got)
{
    struct slice all = buffer_slice(&got);
    struct buffer rest = buffer_with_limit(1 << 20);
    const uint8_t *from = all.at;
    for (size_t i = 0; i < all.len; i++) {
        if (all.at[i] != 0x8a)
            continue;
        assert_true(buffer_put(&rest, slice_of(from, (size_t)(all.at + i - from))));
        from = all.at + i + 1;
    }
    assert_true(buffer_put(&rest, slice_of(from, (size_t)(all.at + all.len - from))));
    buffer_free(&got);
    return rest;
}

static void many_frames_go_at_once(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof payload; i++)
        payload[i] = (uint8_t)(i * 7 + i / 251) & 0x7f;
    struct slice all = many_frames();
    struct buffer want = at_once(all, false, 65536, SIZE_MAX, 0);
    assert_int_equal(buffer_len(&want), 390523 + 2 * 6);
    for (size_t step = 250000; step < 250040; step++)
        assert_same(&want, unanswered(at_once(all, true, step, SIZE_MAX, 0)));
    /* the client takes it up to each place about each head, and so does the pipe */
    for (size_t place = 0, at = 19044; place < 5;
         at += (const size_t[]){65546, 49156, 50004, 65539, 0}[place++])
        for (size_t room = at - 12; room < at + 24; room++) {
            assert_same(&want, unanswered(at_once(all, true, 262144, room, 0)));
            assert_same(&want, unanswered(at_once(all, true, 262144, room | 1, room)));
            assert_same(&want, unanswered(at_once(all, true, 262144, SIZE_MAX - 1, room)));
        }
    for (size_t room = 1; room < 262144; room += 4999)
        assert_same(&want, unanswered(at_once(all, true, 262144, 1 + room * 7 % 262144, room)));
    buffer_free(&want);
}

/* A second frame that may not pass, behind one that goes unseen: the client has the first, and is told why. */
static void assert_ends(struct slice all, enum close_reason why)
{
    assert_true(world_bytes(&w, WORKER, slice_sub(all, 0, 40960), SIZE_MAX));
    assert_int_not_equal(forward_unseen_most(&w.t.forward), 0);
    world_bytes(&w, WORKER, slice_from(all, 40960), SIZE_MAX);
    assert_int_equal(w.t.reason, why);
    struct buffer got = joined();
    struct slice said = buffer_slice(&got);
    assert_true(said.len > 1 + 60000 + 1 + 1);
    assert_memory_equal(said.at + 1, payload, 60000);
    assert_int_equal(said.at[1 + 60000], 0xff);
    assert_int_equal(said.at[1 + 60000 + 1], WS_CLOSE);
    buffer_free(&got);
    world_close(&w);
}

static void the_next_frame_is_judged_as_any(void **state)
{
    struct handover h = world_handover();
    (void)state;
    for (int fragments = 0; fragments < 2; fragments++) {
        h.max_message = 120000;
        serving_as(&h);
        size_t len = put_frame(0, 0x82, 60000);
        len = fragments ? put_frame(put_frame(len, 0x02, 60000), 0x80, 60001) : put_frame(len, 0x82, 120001);
        if (!fragments) {
            assert_ends(slice_of(memory, len), CLOSE_message_too_big);
            continue;
        }
        assert_true(world_bytes(&w, WORKER, slice_of(memory, 40960), SIZE_MAX));
        world_bytes(&w, WORKER, slice_sub(slice_of(memory, len), 40960, SIZE_MAX), SIZE_MAX);
        assert_int_equal(w.t.reason, CLOSE_message_too_big);
        world_close(&w);
    }
    static const unsigned wrong[] = {0x80, 0x83, 0x09};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        serving();
        size_t len = put_frame(0, 0x82, 60000);
        assert_ends(slice_of(memory, put_frame(len, wrong[i], 60000)), CLOSE_worker_protocol);
    }
}

static void a_worker_that_is_lost_leaves_the_message_as_far_as_it_came(void **state)
{
    (void)state;
    for (size_t room = 0; room < 60200; room += room < 16 ? 1 : 10007) {
        pours(60000, room);
        world_lost(&w, WORKER, LOSS_reset, w.now);
        drain(4096);
        assert_int_equal(w.t.forward.legs[CLIENT].message_out, WS_BINARY);
        world_end(&w, CLOSE_kicked, w.now);
        drain(4096);
        assert_cut_and_closed();
        world_close(&w);
    }
}

static void a_client_that_is_left_gets_what_is_in_the_pipe(void **state)
{
    (void)state;
    pours(60000, 30000);
    assert_int_equal(buffer_len(&w.pipe), 30004);
    world_end(&w, CLOSE_kicked, w.now);
    world_pass(&w, 6 * SEC); /* it does not answer */
    assert_int_equal(w.parted[CLIENT], 1);
    assert_cut_and_closed();
    world_close(&w);
}

static void a_client_that_takes_nothing_of_the_pipe_is_too_slow(void **state)
{
    (void)state;
    pours(60000, 30000);
    world_pass(&w, 299 * SEC);
    assert_int_equal(w.t.state, TUNNEL_serving);
    w.ears[CLIENT].room = 1; /* each step of its counts */
    world_writable(&w, CLIENT, w.now);
    w.ears[CLIENT].room = 0;
    world_pass(&w, 299 * SEC);
    assert_int_equal(w.t.state, TUNNEL_serving);
    world_pass(&w, 2 * SEC);
    assert_int_equal(w.t.reason, CLOSE_client_too_slow);
    world_close(&w);
}

static void only_the_payload_of_large_frames_is_unseen(void **state)
{
    static const size_t smalls[] = {0, 5, 16384, 16385, 40000};
    struct forward *f = &w.t.forward;
    (void)state;
    for (size_t i = 0; i < sizeof smalls / sizeof smalls[0]; i++) {
        serving();
        for (int k = 0; k < 3; k++)
            assert_true(world_bytes(&w, WORKER, slice_of(memory, put_frame(0, 0x82, smalls[i])), SIZE_MAX));
        assert_int_equal(forward_unseen_most(f), 0);
        world_close(&w);
    }
}

static void who_has_to_look_is_given_nothing_unseen(void **state)
{
    static const struct adapter *const adapters[] = {&adapter_scrollback, &adapter_since, &adapter_cell};
    struct forward *f = &w.t.forward;
    (void)state;
    pours(0, SIZE_MAX);
    for (size_t i = 0; i < sizeof adapters / sizeof adapters[0]; i++) {
        f->adapter = adapters[i];
        assert_int_equal(forward_unseen_most(f), 0);
    }
    f->adapter = &adapter_through; /* the client's own numbers are nothing to the relay */
    assert_int_not_equal(forward_unseen_most(f), 0);
    f->adapter = &adapter_none;
    f->mode = FORWARD_CLOSING;
    assert_int_equal(forward_unseen_most(f), 0);
    f->mode = FORWARD_SERVING;
    assert_int_not_equal(forward_unseen_most(f), 0);
    world_close(&w);
}

static void memory_bounds_what_is_unseen(void **state)
{
    (void)state;
    pours(0, SIZE_MAX);
    w.full = true;
    assert_int_equal(forward_unseen_most(&w.t.forward), 0);
    w.full = false;
    w.settings.buffer = 65536;
    assert_int_equal(forward_unseen_most(&w.t.forward), 65536);
    w.settings.buffer = 32768; /* less than is worth it */
    assert_int_equal(forward_unseen_most(&w.t.forward), 0);
    world_close(&w);
}

static void a_worker_that_trickles_is_read(void **state)
{
    (void)state;
    pours(20000, SIZE_MAX);
    assert_int_not_equal(forward_unseen_most(&w.t.forward), 0);
    assert_int_equal(world_moves(&w, slice_of(memory + 60960, 1000)), 1000);
    assert_int_equal(forward_unseen_most(&w.t.forward), 0);
    world_close(&w);
}

static void a_message_that_is_too_long_is_not_moved(void **state)
{
    struct handover h = world_handover();
    (void)state;
    h.max_message = LARGE - 1;
    serving_as(&h);
    struct slice all = slice_of(memory, put_frame(0, 0x82, LARGE));
    world_bytes(&w, WORKER, slice_sub(all, 0, 40960), SIZE_MAX);
    assert_int_equal(w.t.reason, CLOSE_message_too_big);
    assert_int_equal(forward_unseen_most(&w.t.forward), 0);
    world_close(&w);
}

static void what_is_in_the_pipe_is_not_saved_before_it_is_gathered(void **state)
{
    struct buffer image = buffer_with_limit(1 << 20);
    (void)state;
    pours(60000, 30000);
    assert_false(tunnel_save(&w.t, &image, w.now));
    buffer_free(&image);
    assert_true(world_hands_over(&w, NULL, NULL));
    drain(SIZE_MAX);
    assert_int_equal(buffer_len(&w.ears[CLIENT].bytes), 40960 + 60004 + (4 - 10));
    world_close(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_unseen_arrives_wherever_it_is_cut),
        cmocka_unit_test(a_ping_is_said_at_each_place_of_what_is_unseen),
        cmocka_unit_test(many_frames_go_at_once),
        cmocka_unit_test(the_next_frame_is_judged_as_any),
        cmocka_unit_test(a_worker_that_is_lost_leaves_the_message_as_far_as_it_came),
        cmocka_unit_test(a_client_that_is_left_gets_what_is_in_the_pipe),
        cmocka_unit_test(a_client_that_takes_nothing_of_the_pipe_is_too_slow),
        cmocka_unit_test(only_the_payload_of_large_frames_is_unseen),
        cmocka_unit_test(who_has_to_look_is_given_nothing_unseen),
        cmocka_unit_test(memory_bounds_what_is_unseen),
        cmocka_unit_test(a_worker_that_trickles_is_read),
        cmocka_unit_test(a_message_that_is_too_long_is_not_moved),
        cmocka_unit_test(what_is_in_the_pipe_is_not_saved_before_it_is_gathered),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
