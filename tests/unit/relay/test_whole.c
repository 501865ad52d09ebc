/* SPDX-License-Identifier: MIT */
/* Whole messages that pass as they came: each read is also made by a twin that looks at all of it, and both end up the same. */
#include "tests/unit/support.h"

#include "tests/unit/relay/tunnel_world.h"

static struct world w;
static uint8_t memory[1 << 19], payload[1 << 17];

static void serving_as(const struct handover *h)
{
    assert_true(world_open(&w, h));
    world_dialled(&w, DIAL_OPEN, 101);
    assert_int_equal(w.t.state, TUNNEL_serving);
    w.twins = true;
}

static void serving(void)
{
    struct handover h = world_handover();
    serving_as(&h);
}

static bool is_steady(void)
{
    return w.t.forward.steady[CLIENT] && w.t.forward.steady[WORKER];
}

static void read_at_once(enum side from, struct slice bytes)
{
    assert_true(world_bytes(&w, from, bytes, SIZE_MAX));
}

static struct slice message(uint8_t *to, enum side from, unsigned start, size_t len)
{
    memset(payload, 'x', len);
    return world_frame(to, from, start, slice_of(payload, len));
}

static void a_message_of_any_size_need_not_be_looked_at(void **state)
{
    static const size_t sizes[] = {1,    2,    124,   125,   126,   127,   300,
                                   4095, 4096, 16383, 16384, 16385, 65000, 65535};
    (void)state;
    serving();
    for (enum side from = CLIENT; from <= WORKER; from++)
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
            unsigned passed = w.passed;
            uint64_t before = w.t.forward.legs[other(from)].bytes_out;
            struct slice whole = message(memory, from, i % 2 ? 0x81 : 0x82, sizes[i]);
            read_at_once(from, whole);
            assert_int_equal(w.passed, passed + 1);
            assert_int_equal(w.t.forward.legs[other(from)].bytes_out - before, whole.len);
        }
    assert_int_equal(w.compared, w.passed);
    world_close(&w);
}

/* What begins with whole messages, and does not end with one. */
static const struct {
    unsigned start;
    size_t len;
    const char *head; /* instead of it, unmasked */
    size_t head_len;
} others[] = {
    {0x02, 10, NULL, 0}, /* a fragment */
    {0x80, 10, NULL, 0}, /* the end of no message */
    {0x89, 125, NULL, 0},
    {0x8a, 0, NULL, 0},
    {0x88, 0, NULL, 0}, /* Ping, Pong, Close */
    {0x83, 1, NULL, 0},
    {0xc2, 5, NULL, 0}, /* reserved opcode, reserved bit */
    {0x82, 0, NULL, 0},
    {0x82, 65536, NULL, 0},
    {0x82, 100000, NULL, 0},
    {0, 0, "\x82\x7e\x00\x05hello", 9}, /* lengths that are not in their shortest form */
    {0, 0, "\x82\xfe\x00\x05mask.....", 13},
    {0, 0, "\x82\x7f\0\0\0\0\0\0\x01\x00", 10},
    {0, 0, "\x81\xff\xff\xff\xff\xff\xff\xff\xff\xff", 10},
    {0, 0, "\x82", 1},
    {0, 0, "\x82\x05he", 4},
    {0, 0, "\x82\x85mask", 6}, /* not all of it */
};

/* With reads that end at each byte of the last 40. */
static void what_else_comes_is_told_from_whole_messages_wherever_it_is_cut(void **state)
{
    (void)state;
    for (enum side from = CLIENT; from <= WORKER; from++)
        for (size_t i = 0; i < sizeof others / sizeof *others; i++)
            for (size_t cut = 0; cut < 40; cut++) {
                serving();
                size_t len = message(memory, from, 0x81, 3).len;
                len += message(memory + len, from, 0x82, 126).len;
                if (others[i].head)
                    memcpy(memory + len, others[i].head, others[i].head_len);
                len += others[i].head ? others[i].head_len
                                      : message(memory + len, from, others[i].start, others[i].len).len;
                len += message(memory + len, from, 0x82, 7).len;
                read_at_once(from, slice_of(memory, len - cut));
                if (cut && w.t.state == TUNNEL_serving && w.t.forward.legs[from].reading)
                    read_at_once(from, slice_of(memory + len - cut, cut));
                assert_true(w.compared >= 1);
                assert_false(w.ears[CLIENT].broken || w.ears[WORKER].broken);
                world_close(&w);
            }
}

static void a_peer_that_takes_only_some_of_it_gets_the_rest_later(void **state)
{
    (void)state;
    for (enum side from = CLIENT; from <= WORKER; from++)
        for (size_t room = 0; room < 40; room++) {
            serving();
            size_t len = message(memory, from, 0x81, 10).len;
            len += message(memory + len, from, 0x82, 12).len;
            w.ears[other(from)].room = room;
            read_at_once(from, slice_of(memory, len));
            assert_int_equal(w.compared, 1);
            assert_int_equal(w.passed, room >= len);
            assert_int_equal(is_steady(), room >= len);
            w.ears[other(from)].room = SIZE_MAX;
            world_writable(&w, other(from), w.now);
            assert_true(is_steady());
            assert_int_equal(w.t.forward.legs[other(from)].bytes_out, len);
            assert_string_equal(w.ears[other(from)].said, "Txxxxxxxxxx Bxxxxxxxxxxxx");
            world_close(&w);
        }
}

static size_t takes;

static size_t take_and_run_short(void *io, enum side to, const struct slice *runs, size_t count)
{
    (void)io, (void)to, (void)runs, (void)count;
    alloc_fail_at(1);
    return takes;
}

static void a_peer_that_does_not_take_it_while_there_is_no_memory_ends_the_tunnel(void **state)
{
    struct tunnel_host host = world_host;
    (void)state;
    host.send = take_and_run_short;
    for (takes = 0; takes < 2; takes++) {
        serving();
        w.twins = false;
        w.t.forward.place.host = &host;
        struct slice whole = message(memory + FORWARD_FRONT, WORKER, 0x82, 10);
        assert_true(tunnel_read(&w.t, WORKER, whole, w.now));
        alloc_fail_at(0);
        assert_false(is_steady());
        w.t.forward.place.host = &world_host;
        world_obeys(&w);
        assert_int_equal(w.t.reason, CLOSE_no_memory);
        world_close(&w);
    }
}

static void a_message_over_the_limit_is_judged(void **state)
{
    struct handover h = world_handover();
    (void)state;
    h.max_message = 100;
    for (size_t len = 99; len <= 101; len++) {
        serving_as(&h);
        read_at_once(CLIENT, message(memory, CLIENT, 0x82, len));
        assert_int_equal(w.passed, len <= 100);
        assert_int_equal(w.t.state == TUNNEL_serving, len <= 100);
        world_close(&w);
    }
}

static void the_end_of_a_session_is_seen(void **state)
{
    struct handover h = world_handover();
    (void)state;
    h.end = HANDOVER_END_EXIT_FRAME;
    serving_as(&h);
    read_at_once(WORKER, world_frame(memory, WORKER, 0x82, slice_of("\x03\0\0\0\0", 5)));
    assert_int_equal(w.passed, 1);
    assert_true(w.t.forward.end_said);
    world_close(&w);
}

/* What is due may come sooner then. */
static void an_answer_that_was_waited_for_is_looked_at(void **state)
{
    (void)state;
    serving();
    world_pass(&w, 26 * SEC);
    assert_true(w.t.forward.legs[CLIENT].pinged && w.t.forward.legs[WORKER].pinged);
    for (enum side from = CLIENT; from <= WORKER; from++) {
        read_at_once(from, message(memory, from, 0x82, 1));
        assert_int_equal(w.passed, from);
        assert_false(w.t.forward.legs[from].pinged);
        read_at_once(from, message(memory, from, 0x82, 1));
        assert_int_equal(w.passed, from + 1);
    }
    world_close(&w);
}

static void a_worker_is_asked_how_far_it_has_read(void **state)
{
    (void)state;
    serving();
    for (unsigned i = 0; i < 30; i++) {
        read_at_once(CLIENT, message(memory, CLIENT, 0x82, 1));
        read_at_once(WORKER, message(memory, WORKER, 0x82, 1));
        w.now += SEC;
    }
    assert_int_equal(w.t.forward.legs[WORKER].pings, 1);
    assert_int_equal(w.passed, 59);
    assert_int_equal(w.compared, 60);
    world_close(&w);
}

static void is_answered_with(const char *answer)
{
    static struct http_head head;
    struct http_reader r = http_reader_of(HTTP_RESPONSE, HTTP_HEAD_MAX);
    assert_int_equal(http_read(&r, slice_text(answer), &head), HTTP_DONE);
    w.head = &head;
    world_dialled(&w, DIAL_OPEN, 101);
    assert_int_equal(w.t.state, TUNNEL_serving);
}

static void dialled_with(enum handover_resume resume, const char *answer)
{
    struct handover h = world_handover();
    h.resume = resume;
    assert_true(world_open(&w, &h));
    is_answered_with(answer);
}

static const char plain[] = "HTTP/1.1 101 S\r\n\r\n",
                  numbers[] = "HTTP/1.1 101 S\r\nCell-Resume: 1; recv=0; next=1\r\n\r\n";

static void who_has_to_look_at_all_output_is_not_steady(void **state)
{
    (void)state;
    dialled_with(HANDOVER_RESUME_SCROLLBACK, plain);
    assert_true(w.t.forward.steady[CLIENT]);
    assert_false(w.t.forward.steady[WORKER]);
    world_close(&w);
    dialled_with(HANDOVER_RESUME_CELL, plain); /* its worker does not number */
    assert_true(is_steady());
    world_close(&w);
}

static void messages_that_are_numbered_are_counted(void **state)
{
    (void)state;
    dialled_with(HANDOVER_RESUME_CELL, numbers);
    w.twins = true;
    for (unsigned i = 0; i < 50; i++) {
        size_t len = message(memory, WORKER, 0x82, i).len;
        len += message(memory + len, WORKER, 0x81, 7000).len;
        read_at_once(WORKER, slice_of(memory, len));
        read_at_once(CLIENT, message(memory, CLIENT, 0x81, 2));
        world_pass(&w, 3 * MS);
    }
    assert_int_equal(w.compared, 100);
    assert_in_range(w.passed, 20,
                    49); /* all but those behind which an acknowledgement leaves, or is due from then on */
    assert_non_null(strstr(w.ears[WORKER].said, "PONGcr"));
    world_close(&w);
}

static void input_that_is_kept_is_counted_and_bounded(void **state)
{
    (void)state;
    dialled_with(HANDOVER_RESUME_CELL, numbers);
    w.twins = true;
    unsigned read = 0;
    for (; w.t.forward.legs[CLIENT].reading; read++)
        read_at_once(CLIENT, message(memory, CLIENT, 0x82, 3000));
    assert_int_equal(w.compared, read);
    assert_int_equal(w.passed, 0); /* each changes how much may be read */
    assert_in_range(send_queue_payload(&w.t.forward.legs[WORKER].out), w.settings.buffer / 2,
                    w.settings.buffer);
    world_close(&w);
}

/* Binary messages that begin with a 0 are input. */
static void input_in_several_pieces_is_told_from_whole_messages(void **state)
{
    static const enum handover_resume tagged[] = {HANDOVER_RESUME_SCROLLBACK, HANDOVER_RESUME_SINCE};
    (void)state;
    for (size_t i = 0; i < 2; i++) {
        dialled_with(tagged[i], plain);
        w.twins = true;
        for (unsigned tag = 0; tag < 3; tag++) {
            uint8_t bytes[3] = {(uint8_t)tag, 'x', 'y'};
            size_t len = world_frame(memory, CLIENT, 0x82, slice_of(bytes, 3)).len;
            read_at_once(CLIENT, slice_of(memory, len));
            len = world_frame(memory, CLIENT, 0x81, slice_of(bytes, 3)).len;
            len += world_frame(memory + len, CLIENT, 0x02, slice_of(bytes, 2)).len;
            len += world_frame(memory + len, CLIENT, 0x80, slice_of(bytes, 3)).len;
            len += world_frame(memory + len, CLIENT, 0x82, slice_of(bytes, 0)).len;
            read_at_once(CLIENT, slice_of(memory, len));
        }
        assert_int_equal(w.compared, 6);
        assert_int_equal(w.passed, 3);
        world_close(&w);
    }
}

static void says_since(uint8_t tag, struct slice rest)
{
    uint8_t bytes[64] = {tag};
    memcpy(bytes + 1, rest.at, rest.len);
    read_at_once(WORKER, world_frame(memory, WORKER, 0x82, slice_of(bytes, 1 + rest.len)));
}

static void output_behind_its_offset_is_counted(void **state)
{
    static const char connected[] = "{\"type\": \"connected\"}";
    (void)state;
    dialled_with(HANDOVER_RESUME_SINCE, plain);
    w.twins = true;
    says_since(1, SLICE_LITERAL("before"));
    read_at_once(WORKER, world_frame(memory, WORKER, 0x81, slice_text(connected)));
    assert_int_equal(w.passed, 0);
    says_since(1, SLICE_LITERAL("output"));
    says_since(1, SLICE_LITERAL(""));
    read_at_once(WORKER, world_frame(memory, WORKER, 0x81, SLICE_LITERAL("text")));
    assert_int_equal(w.passed, 3);
    for (uint8_t tag = 0; tag < 8; tag++)
        says_since(tag, tag == 3 ? SLICE_LITERAL("\0\0\0\0\0\0\0\x20 a replay") : SLICE_LITERAL("a tag"));
    read_at_once(WORKER, world_frame(memory, WORKER, 0x82, slice_of(memory, 0)));
    assert_int_equal(w.passed, 4);
    assert_int_equal(w.compared, 14);
    world_close(&w);
}

/* The old worker goes on while the next one, which was asked before that, is dialled. */
static void what_the_next_worker_says_again_is_looked_at(void **state)
{
    static const struct slice connected = SLICE_STATIC("{\"type\": \"connected\"}");
    uint8_t query[100], fields[100];
    struct writer q = writer_of(query, sizeof query), f = writer_of(fields, sizeof fields);
    (void)state;
    dialled_with(HANDOVER_RESUME_SINCE, plain);
    read_at_once(WORKER, world_frame(memory, WORKER, 0x81, connected));
    says_since(1, SLICE_LITERAL("ab"));
    world_tells(&w, ANSWER_RUNNING, 2, 2);
    assert_true(w.dialling);
    w.t.forward.adapter->request(w.t.forward.adapter_state, &q, &f);
    says_since(1, SLICE_LITERAL("cdef"));
    is_answered_with(plain);
    w.twins = true;
    read_at_once(WORKER, world_frame(memory, WORKER, 0x81, connected));
    unsigned passed = w.passed;
    says_since(1, SLICE_LITERAL("cde"));
    says_since(1, SLICE_LITERAL("fg"));
    assert_int_equal(w.passed, passed);
    says_since(1, SLICE_LITERAL("h"));
    assert_int_equal(w.passed, passed + 1);
    assert_string_equal(w.ears[CLIENT].said, "T{\"type\": \"connected\"} B\1ab B\1cdef b\1 .g B\1h");
    world_close(&w);
}

static void more_than_may_be_unacknowledged_is_too_much(void **state)
{
    (void)state;
    dialled_with(HANDOVER_RESUME_CELL, numbers);
    w.twins = true;
    size_t len = 0;
    while (len <= w.settings.buffer)
        len += message(memory + len, WORKER, 0x82, 60000).len;
    read_at_once(WORKER, slice_of(memory, len));
    assert_int_equal(w.compared, 1);
    assert_int_equal(w.t.reason, CLOSE_message_too_big);
    world_close(&w);
}

static void an_acknowledgement_that_the_worker_does_not_take_is_held(void **state)
{
    (void)state;
    dialled_with(HANDOVER_RESUME_CELL, numbers);
    w.twins = true;
    w.ears[WORKER].room = 0;
    read_at_once(WORKER, message(memory, WORKER, 0x81, 10));
    assert_int_equal(w.passed, 0); /* the acknowledgement is due in a moment */
    read_at_once(WORKER, message(memory, WORKER, 0x81, 10));
    assert_int_equal(w.passed, 1);
    read_at_once(WORKER, message(memory, WORKER, 0x81, 65535));
    assert_int_equal(w.passed, 1); /* now */
    assert_int_equal(w.compared, 3);
    assert_false(send_queue_empty(&w.t.forward.legs[WORKER].out));
    world_close(&w);
}

static size_t takes_no_acknowledgement(void *io, enum side to, const struct slice *runs, size_t count)
{
    return to == CLIENT ? world_send(io, to, runs, count) : take_and_run_short(io, to, runs, count);
}

static void an_acknowledgement_that_is_lost_for_want_of_memory_ends_the_tunnel(void **state)
{
    struct tunnel_host host = world_host;
    (void)state;
    host.send = takes_no_acknowledgement;
    for (takes = 0; takes < 2; takes++) {
        dialled_with(HANDOVER_RESUME_CELL, numbers);
        w.t.forward.place.host = &host;
        struct slice whole = message(memory + FORWARD_FRONT, WORKER, 0x81, 65535);
        assert_true(tunnel_read(&w.t, WORKER, whole, w.now));
        alloc_fail_at(0);
        assert_false(w.t.forward.steady[WORKER]);
        w.t.forward.place.host = &world_host;
        world_obeys(&w);
        assert_int_equal(w.t.reason, CLOSE_no_memory);
        world_close(&w);
    }
}

static void what_follows_the_mark_of_an_end_takes_it_back(void **state)
{
    (void)state;
    dialled_with(HANDOVER_RESUME_CELL, numbers);
    w.twins = true;
    read_at_once(WORKER, world_frame(memory, WORKER, 0x8a,
                                     slice_of("cr\0\0\0\0\0\0\0\x01"
                                              "end",
                                              13)));
    read_at_once(WORKER, message(memory, WORKER, 0x81, 10));
    assert_int_equal(w.compared, 2);
    world_closes(&w, WORKER, 1000, "");
    assert_int_equal(w.t.state, TUNNEL_redialling);
    world_close(&w);
}

static void what_a_worker_repeats_is_looked_at(void **state)
{
    (void)state;
    dialled_with(HANDOVER_RESUME_CELL, numbers);
    for (unsigned i = 0; i < 5; i++)
        read_at_once(WORKER, message(memory, WORKER, 0x81, 3));
    world_lost(&w, WORKER, LOSS_reset, w.now);
    world_answers(&w, ANSWER_RUNNING, 1, 1);
    is_answered_with("HTTP/1.1 101 S\r\nCell-Resume: 1; recv=0; next=3\r\n\r\n");
    w.twins = true;
    size_t len = 0;
    for (unsigned i = 0; i < 5; i++)
        len +=
            message(memory + len, WORKER, 0x81, 3 + i / 3 * 10).len; /* 3 that it repeats, 2 that are new */
    read_at_once(WORKER, slice_of(memory, len));
    assert_int_equal(w.compared, 1);
    assert_string_equal(w.ears[CLIENT].said, "Txxx Txxx Txxx Txxx Txxx Txxxxxxxxxxxxx Txxxxxxxxxxxxx");
    world_close(&w);
}

static void one_that_has_lost_its_worker_or_closes_is_not_steady(void **state)
{
    (void)state;
    serving();
    assert_true(is_steady());
    world_lost(&w, WORKER, LOSS_reset, w.now);
    assert_false(is_steady());
    world_close(&w);
    serving();
    world_closes(&w, CLIENT, 1000, "");
    assert_false(is_steady());
    world_close(&w);
    serving();
    world_end(&w, CLOSE_kicked, w.now);
    assert_false(is_steady());
    world_lost(&w, CLIENT, LOSS_eof, w.now);
    assert_int_equal(w.t.state, TUNNEL_ended);
    assert_false(is_steady());
    world_close(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_message_of_any_size_need_not_be_looked_at),
        cmocka_unit_test(what_else_comes_is_told_from_whole_messages_wherever_it_is_cut),
        cmocka_unit_test(a_peer_that_takes_only_some_of_it_gets_the_rest_later),
        cmocka_unit_test(a_peer_that_does_not_take_it_while_there_is_no_memory_ends_the_tunnel),
        cmocka_unit_test(a_message_over_the_limit_is_judged),
        cmocka_unit_test(the_end_of_a_session_is_seen),
        cmocka_unit_test(an_answer_that_was_waited_for_is_looked_at),
        cmocka_unit_test(a_worker_is_asked_how_far_it_has_read),
        cmocka_unit_test(who_has_to_look_at_all_output_is_not_steady),
        cmocka_unit_test(messages_that_are_numbered_are_counted),
        cmocka_unit_test(input_that_is_kept_is_counted_and_bounded),
        cmocka_unit_test(input_in_several_pieces_is_told_from_whole_messages),
        cmocka_unit_test(output_behind_its_offset_is_counted),
        cmocka_unit_test(what_the_next_worker_says_again_is_looked_at),
        cmocka_unit_test(more_than_may_be_unacknowledged_is_too_much),
        cmocka_unit_test(an_acknowledgement_that_the_worker_does_not_take_is_held),
        cmocka_unit_test(an_acknowledgement_that_is_lost_for_want_of_memory_ends_the_tunnel),
        cmocka_unit_test(what_follows_the_mark_of_an_end_takes_it_back),
        cmocka_unit_test(what_a_worker_repeats_is_looked_at),
        cmocka_unit_test(one_that_has_lost_its_worker_or_closes_is_not_steady),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
