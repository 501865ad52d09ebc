/* SPDX-License-Identifier: MIT */
/* What the tunnel does with what its adapter says (docs/relay.md, docs/resume-protocol.md). */
#include "tests/unit/support.h"

#include "tests/unit/relay/tunnel_world.h"

static struct world w;
static struct http_head head;
static char head_text[512];

#define assert_said(side, text) assert_string_equal(w.ears[side].said, text)

static void forget(void)
{
    w.ears[CLIENT].said[0] = w.ears[WORKER].said[0] = '\0';
}

/* The 101 of the next dial. */
static void next_answer(const char *fields)
{
    struct http_reader r = http_reader_of(HTTP_RESPONSE, HTTP_HEAD_MAX);
    snprintf(head_text, sizeof head_text, "HTTP/1.1 101 Switching Protocols\r\n%s\r\n", fields);
    assert_int_equal(http_read(&r, slice_text(head_text), &head), HTTP_DONE);
    w.head = &head;
}

/* As a port does it before it dials. */
static void requests(void)
{
    uint8_t memory[2][512];
    struct writer query = writer_of(memory[0], 512), fields = writer_of(memory[1], 512);
    if (w.t.forward.adapter->request)
        w.t.forward.adapter->request(w.t.forward.adapter_state, &query, &fields);
}

static void serving_with(enum handover_resume resume, const char *session, const char *fields,
                         bool client_resumes)
{
    struct handover h = world_handover();
    h.resume = resume;
    h.session = slice_text(session);
    assert_true(world_open_to(&w, &h, "/pty/x/ws", client_resumes));
    requests();
    next_answer(fields);
    world_dialled(&w, DIAL_OPEN, 101);
    assert_int_equal(w.t.state, TUNNEL_serving);
    forget();
}

static void serving(void)
{
    serving_with(HANDOVER_RESUME_CELL, NULL, "Cell-Resume: 1; recv=0; next=1; buffer=8192\r\n", false);
}

static void finds_worker(void)
{
    assert_true(w.asking);
    world_answers(&w, ANSWER_RUNNING, 1, w.t.connector.epoch);
    assert_true(w.dialling);
    requests();
}

static void resumes_with(const char *fields)
{
    finds_worker();
    next_answer(fields);
    world_dialled(&w, DIAL_OPEN, 101);
}

static void ended_with(enum close_reason reason, const char *client)
{
    assert_int_equal(w.t.reason, reason);
    assert_said(CLIENT, client);
    if (w.t.state == TUNNEL_closing)
        world_closes(&w, CLIENT, 1000, "");
    assert_int_equal(w.t.state, TUNNEL_ended);
    assert_false(w.dialling || w.open);
    assert_false(w.ears[CLIENT].broken || w.ears[WORKER].broken);
    world_close(&w);
}

static void worker_pongs(const char *payload, size_t len)
{
    uint8_t frame[200];
    world_bytes(&w, WORKER, world_frame(frame, WORKER, 0x8a, slice_of(payload, len)), SIZE_MAX);
}

#define WORKER_PONGS(payload) worker_pongs(payload, sizeof(payload) - 1)

/* ---- workers that do not speak it ---- */
static void a_plain_worker_is_redialled_where_the_session_has_a_name(void **state)
{
    (void)state;
    serving_with(HANDOVER_RESUME_CELL, "name", "", false);
    world_lost(&w, WORKER, LOSS_eof, w.now);
    assert_int_equal(w.t.state, TUNNEL_redialling);
    resumes_with("");
    assert_int_equal(w.t.state, TUNNEL_serving);
    assert_int_equal(w.declared[1], 1);
    world_says(&w, CLIENT, 0x82, "x");
    assert_null(w.t.forward.legs[WORKER].out.frames.memory);
    world_close(&w);
}

static void a_plain_worker_is_not_redialled_where_it_has_none(void **state)
{
    (void)state;
    serving_with(HANDOVER_RESUME_CELL, NULL, "", false);
    world_lost(&w, WORKER, LOSS_eof, w.now);
    ended_with(CLOSE_worker_lost, "C1011:worker lost");
}

static void a_slow_client_gets_what_a_plain_worker_has_said_last(void **state)
{
    (void)state;
    serving_with(HANDOVER_RESUME_CELL, NULL, "", false);
    w.ears[CLIENT].room = 0;
    world_says(&w, WORKER, 0x82, "last words");
    world_lost(&w, WORKER, LOSS_eof, w.now);
    world_pass(&w, 200 * SEC);
    assert_int_equal(w.t.state, TUNNEL_closing);
    w.ears[CLIENT].room = SIZE_MAX;
    world_writable(&w, CLIENT, w.now);
    ended_with(CLOSE_worker_lost, "Blast words C1011:worker lost");
}

static void a_worker_that_has_forgotten_the_protocol_ends_the_tunnel(void **state)
{
    (void)state;
    serving();
    world_lost(&w, WORKER, LOSS_eof, w.now);
    resumes_with("");
    ended_with(CLOSE_resume_expired, "C1011:resume expired");
}

/* ---- answers at a redial ---- */
static void what_a_redial_is_answered_decides(void **state)
{
    static const struct {
        const char *fields;
        enum close_reason reason;
        const char *client;
    } rows[] = {{"Cell-Resume: 1; recv=0; next=2\r\n", CLOSE_resume_expired, "C1011:resume expired"},
                {"Cell-Resume: 1; recv=1; next=1\r\n", CLOSE_worker_protocol, "C1011:worker protocol error"},
                {"Cell-Resume: 1; next=1\r\n", CLOSE_worker_protocol, "C1011:worker protocol error"}};
    (void)state;
    for (unsigned i = 0; i < 3; i++) {
        serving();
        world_lost(&w, WORKER, LOSS_eof, w.now);
        resumes_with(rows[i].fields);
        ended_with(rows[i].reason, rows[i].client);
    }
}

static void gone_is_final_and_a_conflict_is_tried_again(void **state)
{
    (void)state;
    serving();
    world_lost(&w, WORKER, LOSS_eof, w.now);
    finds_worker();
    world_dialled(&w, DIAL_STATUS, 409);
    assert_int_equal(w.t.state, TUNNEL_redialling);
    world_pass(&w, 200 * MS);
    finds_worker();
    world_dialled(&w, DIAL_STATUS, 410);
    ended_with(CLOSE_resume_expired, "C1011:resume expired");
}

static void a_first_dial_whose_answer_was_lost_is_repeated(void **state)
{
    struct handover h = world_handover();
    (void)state;
    h.resume = HANDOVER_RESUME_CELL;
    assert_true(world_open(&w, &h));
    world_dialled(&w, DIAL_INVALID, 0);
    world_pass(&w, 200 * MS);
    assert_int_equal(w.t.state, TUNNEL_opening);
    resumes_with("Cell-Resume: 1; recv=0; next=1\r\n");
    assert_int_equal(w.t.state, TUNNEL_serving);
    world_close(&w);
}

/* ---- control frames ---- */
static void frames_of_the_protocol_never_cross(void **state)
{
    (void)state;
    serving();
    world_says(&w, CLIENT, 0x8a, "cr12345678");
    world_says(&w, CLIENT, 0x89, "crx");
    WORKER_PONGS("cr?");
    assert_said(WORKER, "");
    assert_said(CLIENT, "PONGcrx");
    world_says(&w, CLIENT, 0x89, "c");
    assert_said(WORKER, "PINGc");
    forget();
    world_says(&w, WORKER, 0x89, "cr");
    ended_with(CLOSE_worker_protocol, "C1011:worker protocol error");
}

static void output_is_acknowledged_in_time(void **state)
{
    (void)state;
    serving();
    world_says(&w, WORKER, 0x82, "x");
    assert_int_equal(tunnel_due(&w.t), w.now + 200 * MS);
    assert_int_equal(tunnel_judges_at(&w.t), w.now + w.settings.keepalive);
    world_pass(&w, 199 * MS);
    assert_said(WORKER, "");
    world_pass(&w, 1 * MS);
    assert_said(WORKER, "PONGcr"); /* a number with zeros follows */
    world_close(&w);
}

static void a_slow_client_withholds_acknowledgements(void **state)
{
    static uint8_t frame[3000], payload[2000];
    (void)state;
    serving_with(HANDOVER_RESUME_CELL, NULL, "Cell-Resume: 1; recv=0; next=1\r\n", false);
    w.ears[CLIENT].room = 0;
    for (unsigned i = 0; i < 60; i++)
        assert_true(world_bytes(
            &w, WORKER, world_frame(frame, WORKER, 0x82, slice_of(payload, sizeof payload)), SIZE_MAX));
    assert_true(send_queue_len(&w.t.forward.legs[CLIENT].out) > LEG_PAUSE);
    forget();
    world_pass(&w, 10 * SEC);
    assert_said(WORKER, "");
    world_says(&w, WORKER, 0x89, "there?"); /* still read */
    w.ears[CLIENT].room = SIZE_MAX;
    world_writable(&w, CLIENT, w.now);
    assert_said(WORKER, "PONGcr");
    world_close(&w);
}

/* ---- input ---- */
static void the_window_stops_the_client(void **state)
{
    static uint8_t frame[2000], payload[1000];
    unsigned messages = 0;
    (void)state;
    serving();
    while (world_bytes(&w, CLIENT, world_frame(frame, CLIENT, 0x82, slice_of(payload, sizeof payload)),
                       SIZE_MAX))
        assert_true(++messages < 20);
    assert_in_range(messages, 5, 8);
    assert_true(forward_room(&w.t.forward, CLIENT) == 0);
    WORKER_PONGS("cr\0\0\0\0\0\0\0\5");
    assert_true(w.t.forward.legs[CLIENT].reading);
    world_close(&w);
}

/* Whatever the sizes and wherever reads end, the worker is never sent more than it takes unacknowledged. */
static void the_window_is_never_exceeded(void **state)
{
    static uint8_t stream[60000], payload[8000];
    static const size_t sizes[] = {700, 3000, 1, 5000, 0, 2500, 5500, 16, 4000, 100};
    (void)state;
    for (size_t first = 0; first < 10; first++) {
        size_t len = 0;
        for (size_t i = 0; i < 10; i++) {
            struct slice part = slice_of(payload, sizes[(first + i) % 10]);
            len += world_frame(stream + len, CLIENT, i % 4 == 3 ? 0x80 : i % 4 == 2 ? 0x02 : 0x82, part).len;
        }
        struct slice rest = slice_of(stream, len);
        serving();
        while (rest.len && w.t.forward.legs[CLIENT].reading) {
            size_t room = forward_room(&w.t.forward, CLIENT);
            world_bytes(&w, CLIENT, slice_sub(rest, 0, room), SIZE_MAX);
            rest = slice_from(rest, room);
        }
        assert_int_equal(w.t.state, TUNNEL_serving);
        assert_true(rest.len > 0);
        assert_true(send_queue_payload(&w.t.forward.legs[WORKER].out) <= 8192 - 16);
        world_close(&w);
    }
}

/* A long message, of which so much is read as may be. */
static struct slice begins(struct slice rest, size_t most)
{
    for (size_t len = 1; rest.len && most && len && w.t.forward.legs[CLIENT].reading; most -= len) {
        len = forward_room(&w.t.forward, CLIENT);
        len = len < most ? len : most;
        len = len < rest.len ? len : rest.len;
        world_bytes(&w, CLIENT, slice_sub(rest, 0, len), SIZE_MAX);
        rest = slice_from(rest, len);
    }
    return rest;
}

static struct slice long_message(void)
{
    static uint8_t frame[70000], payload[60000];
    return world_frame(frame, CLIENT, 0x02, slice_of(payload, sizeof payload));
}

static void serving_wide(void)
{
    serving_with(HANDOVER_RESUME_CELL, NULL, "Cell-Resume: 1; recv=0; next=1; buffer=262144\r\n", false);
}

/* Else who is given a little room now and then would wait for good. */
static void a_wait_for_memory_is_not_forgotten_for_a_moment_of_room(void **state)
{
    (void)state;
    serving_wide();
    w.full = true;
    begins(long_message(), SIZE_MAX);
    assert_false(w.t.forward.legs[CLIENT].reading);
    for (unsigned i = 0; i < 10; i++) {
        assert_false(forward_waits(&w.t.forward));
        world_pass(&w, FORWARD_SHORT / 10);
        w.full = false;
        world_tick(&w, w.now);
        assert_true(w.t.forward.legs[CLIENT].reading);
        assert_false(forward_waits(&w.t.forward));
        w.now += 1000;
        w.full = true;
        world_tick(&w, w.now);
        assert_false(w.t.forward.legs[CLIENT].reading);
    }
    world_pass(&w, FORWARD_SHORT / 10);
    assert_true(forward_waits(&w.t.forward));
    /* what it has waited is worth no more when it has had room for as long */
    w.full = false;
    world_pass(&w, FORWARD_SHORT / 10);
    world_tick(&w, w.now);
    w.now += FORWARD_SHORT;
    w.full = true;
    world_tick(&w, w.now);
    world_pass(&w, FORWARD_SHORT / 2);
    assert_false(forward_waits(&w.t.forward));
    world_close(&w);
}

/* Another thread gives memory back between the two looks of one decision. */
static void memory_that_is_given_back_at_any_moment_is_noticed(void **state)
{
    (void)state;
    for (unsigned asked = 1; asked < 12; asked++) {
        serving_wide();
        w.full = true;
        begins(long_message(), SIZE_MAX);
        assert_false(w.t.forward.legs[CLIENT].reading);
        world_pass(&w, 10000);
        w.frees = asked;
        world_tick(&w, w.now);
        w.frees = 0;
        w.full = false;
        assert_true(w.t.forward.legs[CLIENT].reading || tunnel_due(&w.t) <= w.now + 1000000);
        world_close(&w);
    }
}

static void who_has_filled_its_window_does_not_wait_for_memory(void **state)
{
    static uint8_t frame[11000], payload[10000];
    (void)state;
    serving_with(HANDOVER_RESUME_CELL, NULL, "Cell-Resume: 1; recv=0; next=1; buffer=65536\r\n", false);
    world_bytes(&w, CLIENT, world_frame(frame, CLIENT, 0x82, slice_of(payload, sizeof payload)), SIZE_MAX);
    assert_true(begins(long_message(), SIZE_MAX).len > 0);
    assert_int_equal(w.t.state, TUNNEL_serving);
    w.full = true;
    world_tick(&w, w.now);
    world_pass(&w, 2 * FORWARD_SHORT);
    assert_false(w.t.forward.legs[CLIENT].reading || forward_waits(&w.t.forward));
    world_close(&w);
}

/* Memory that was taken already is filled. */
static void without_memory_what_is_left_of_a_buffer_is_filled(void **state)
{
    const struct buffer *kept = &w.t.forward.legs[WORKER].out.frames;
    (void)state;
    serving_wide();
    struct slice rest = begins(long_message(), 40000);
    size_t size = kept->size;
    assert_true(size > 60000);
    w.full = true;
    world_tick(&w, w.now);
    assert_int_equal(begins(rest, SIZE_MAX).len, 0);
    assert_int_equal(kept->size, size);
    world_close(&w);
}

static void a_message_of_the_whole_window_is_read_to_its_end(void **state)
{
    static uint8_t frame[9000], payload[9000];
    (void)state;
    for (unsigned over = 0; over < 2; over++) {
        serving();
        struct slice bytes = world_frame(frame, CLIENT, 0x82, slice_of(payload, 8192 - 16 + over));
        for (unsigned i = 0; bytes.len && w.t.state == TUNNEL_serving; i++) {
            assert_true(i < 9000);
            assert_true(w.t.forward.legs[CLIENT].reading);
            size_t room = forward_room(&w.t.forward, CLIENT);
            assert_true(room > 0);
            world_bytes(&w, CLIENT, slice_sub(bytes, 0, room), SIZE_MAX);
            bytes = slice_from(bytes, room);
        }
        assert_int_equal(w.t.state, over ? TUNNEL_ended : TUNNEL_serving);
        if (over)
            assert_int_equal(w.t.reason, CLOSE_message_too_big);
        world_close(&w);
    }
}

static void input_is_sent_again_from_what_was_consumed(void **state)
{
    (void)state;
    serving();
    world_says(&w, CLIENT, 0x82, "one");
    world_says(&w, CLIENT, 0x82, "two");
    world_says(&w, CLIENT, 0x01, "thr");
    world_lost(&w, WORKER, LOSS_reset, w.now);
    world_says(&w, CLIENT, 0x80, "ee");
    forget();
    resumes_with("Cell-Resume: 1; recv=1; next=1\r\n");
    assert_said(WORKER, "Btwo tthr .ee");
    assert_int_equal(w.declared[0], 1);
    world_close(&w);
}

/* As much as is read at once, of one frame again and again. */
static struct slice flood(unsigned start, const char *payload)
{
    static uint8_t stream[LEG_PAUSE];
    size_t len = 0;

    while (len + WS_CONTROL_FRAME_MAX <= sizeof stream)
        len += world_frame(stream + len, CLIENT, start, slice_text(payload)).len;
    return slice_of(stream, len);
}

/* The same of small messages and pings in turns, as many as the window allows. */
static struct slice flood_of_both(void)
{
    static uint8_t stream[16384];
    size_t len = 0;

    while (len + 2 * WS_CONTROL_FRAME_MAX <= sizeof stream) {
        len += world_frame(stream + len, CLIENT, 0x82, slice_text("")).len;
        len += world_frame(stream + len, CLIENT, 0x89, slice_text("")).len;
    }
    return slice_of(stream, len);
}

/* Reads of it, until the client is read no more. */
static unsigned floods(unsigned start, const char *payload)
{
    struct slice stream = flood(start, payload);
    unsigned reads = 0;

    while (reads < 1000 && w.t.state == TUNNEL_serving && world_bytes(&w, CLIENT, stream, SIZE_MAX))
        reads++;
    return reads;
}

/* Who sends nothing but small frames does not cost the others more than who sends large ones. */
static void small_frames_are_sent_together(void **state)
{
    static const struct {
        enum handover_resume resume;
        unsigned start;
        const char *payload;
        bool lost;
    } rows[] = {{HANDOVER_RESUME_NONE, 0x89, "", false},       {HANDOVER_RESUME_NONE, 0x8a, "x", false},
                {HANDOVER_RESUME_NONE, 0x89, "", true},        {HANDOVER_RESUME_SINCE, 0x00, "x", false},
                {HANDOVER_RESUME_CELL, 0x89, "", false},       {HANDOVER_RESUME_CELL, 0x89, "cr", false},
                {HANDOVER_RESUME_SCROLLBACK, 0x00, "x", false}};
    (void)state;
    for (unsigned i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        serving_with(rows[i].resume, NULL,
                     rows[i].resume == HANDOVER_RESUME_CELL ? "Cell-Resume: 1; recv=0; next=1\r\n" : "",
                     false);
        if (rows[i].start == 0x00)
            world_bytes(&w, CLIENT, SLICE_LITERAL("\x02\x82\0\0\0\0\0x"), SIZE_MAX);
        if (rows[i].lost)
            world_lost(&w, WORKER, LOSS_eof, w.now);
        w.sends[CLIENT] = w.sends[WORKER] = 0;
        assert_true(world_bytes(&w, CLIENT, flood(rows[i].start, rows[i].payload), SIZE_MAX));
        assert_in_range(w.sends[CLIENT] + w.sends[WORKER], 1, 100);
        world_close(&w);
    }
}

static void messages_and_pings_in_turns_are_sent_together(void **state)
{
    struct slice both = flood_of_both();
    struct send_queue *kept = &w.t.forward.legs[WORKER].out;
    (void)state;
    for (unsigned full = 0; full < 2; full++) {
        serving_with(HANDOVER_RESUME_CELL, NULL, "Cell-Resume: 1; recv=0; next=1\r\n", false);
        w.sends[WORKER] = 0;
        w.ears[WORKER].room = full ? 1001 : SIZE_MAX;
        assert_true(world_bytes(&w, CLIENT, both, SIZE_MAX));
        assert_in_range(w.sends[WORKER], 1, both.len / 12 / 4);
        w.ears[WORKER].room = SIZE_MAX;
        world_writable(&w, WORKER, w.now);
        /* nothing but the messages is kept */
        assert_true(send_queue_empty(kept));
        assert_int_equal(send_queue_len(kept) - kept->controls, both.len / 2);
        assert_true(full || !kept->controls);
        assert_false(w.ears[WORKER].broken);
        world_lost(&w, WORKER, LOSS_reset, w.now);
        assert_int_equal(send_queue_len(kept), both.len / 2);
        world_close(&w);
    }
}

static void pings_wait_for_a_worker_that_does_not_read(void **state)
{
    (void)state;
    serving();
    world_says(&w, CLIENT, 0x82, "kept");
    for (unsigned i = 0; i < 50; i++) {
        w.ears[WORKER].room = 0;
        assert_in_range(floods(0x89, "there?"), 1, 4);
        assert_int_equal(w.t.state, TUNNEL_serving);
        w.ears[WORKER].room = SIZE_MAX;
        world_writable(&w, WORKER, w.now);
        assert_true(w.t.forward.legs[CLIENT].reading);
    }
    world_lost(&w, WORKER, LOSS_reset, w.now);
    forget();
    resumes_with("Cell-Resume: 1; recv=0; next=1\r\n");
    assert_said(WORKER, "Bkept");
    world_close(&w);
}

static void pings_wait_for_a_client_that_does_not_take_their_answers(void **state)
{
    (void)state;
    serving();
    w.ears[CLIENT].room = 0;
    assert_in_range(floods(0x89, "crx"), 1, 20);
    assert_int_equal(w.t.state, TUNNEL_serving);
    w.ears[CLIENT].room = SIZE_MAX;
    world_writable(&w, CLIENT, w.now);
    assert_true(w.t.forward.legs[CLIENT].reading);
    world_close(&w);
}

/* As much output as there can be: the next worker has a window of its own. */
static void a_client_that_does_not_read_is_heard(void **state)
{
    static uint8_t frame[17000], payload[16000], stream[LEG_PAUSE];
    struct slice one = world_frame(frame, WORKER, 0x82, slice_of(payload, sizeof payload));
    struct slice first = slice_sub(one, 0, one.len - 1);
    (void)state;
    serving_with(HANDOVER_RESUME_CELL, NULL, "Cell-Resume: 1; recv=0; next=1\r\n", false);
    w.ears[CLIENT].room = 0;
    for (unsigned i = 0; i < 12; i++)
        assert_true(world_bytes(&w, WORKER, one, SIZE_MAX));
    world_lost(&w, WORKER, LOSS_reset, w.now);
    resumes_with("Cell-Resume: 1; recv=0; next=13\r\n");
    for (unsigned i = 0; i < 4; i++)
        assert_true(world_bytes(&w, WORKER, one, SIZE_MAX));
    assert_true(world_bytes(&w, WORKER, first, SIZE_MAX));
    stream[0] = one.at[one.len - 1];
    for (unsigned i = 0; i < 4; i++)
        memcpy(stream + 1 + i * one.len, one.at, one.len);
    assert_true(world_bytes(&w, WORKER, slice_of(stream, 1 + 4 * one.len), SIZE_MAX));
    assert_int_equal(w.t.state, TUNNEL_serving);
    assert_false(w.t.forward.legs[WORKER].reading);
    assert_true(w.t.forward.legs[CLIENT].reading);
    world_says(&w, CLIENT, 0x82, "stop");
    assert_non_null(strstr(w.ears[WORKER].said, "Bstop"));
    world_close(&w);
}

static void a_message_in_too_many_fragments_is_too_big(void **state)
{
    (void)state;
    serving();
    world_says(&w, CLIENT, 0x02, "x");
    assert_in_range(floods(0x00, ""), 1, 20);
    ended_with(CLOSE_message_too_big, "C1009:message too big");
}

/* ---- ends ---- */
static void an_unmarked_close_is_a_loss(void **state)
{
    (void)state;
    serving();
    world_closes(&w, WORKER, 1000, "");
    assert_int_equal(w.t.state, TUNNEL_redialling);
    assert_said(CLIENT, "");
    world_close(&w);
}

static void a_marked_close_is_acknowledged_and_passed_on(void **state)
{
    (void)state;
    serving();
    world_tells(&w, ANSWER_RUNNING, 2, 2); /* even while it moves */
    assert_true(w.dialling);
    WORKER_PONGS("cr\0\0\0\0\0\0\0\1end");
    world_closes(&w, WORKER, 4242, "done");
    assert_said(WORKER, "PONGcr C4242:done");
    ended_with(CLOSE_session_ended, "C4242:done");
}

/* Else the session would wait for the tunnel to come back. */
static void a_marked_close_is_acknowledged_however_slow_the_client_is(void **state)
{
    static uint8_t frame[3000], payload[2000];
    (void)state;
    serving_with(HANDOVER_RESUME_CELL, NULL, "Cell-Resume: 1; recv=0; next=1\r\n", false);
    w.ears[CLIENT].room = 0;
    for (unsigned i = 0; i < 60; i++)
        world_bytes(&w, WORKER, world_frame(frame, WORKER, 0x82, slice_of(payload, sizeof payload)),
                    SIZE_MAX);
    forget();
    WORKER_PONGS("cr\0\0\0\0\0\0\0\x3d"
                 "end");
    assert_said(WORKER, "");
    world_closes(&w, WORKER, 1000, "done");
    assert_int_equal(w.t.reason, CLOSE_session_ended);
    assert_said(WORKER, "PONGcr C1000:done");
    world_close(&w);
}

static void a_client_that_leaves_is_the_end(void **state)
{
    (void)state;
    serving();
    world_says(&w, CLIENT, 0x82, "last");
    forget();
    world_closes(&w, CLIENT, 1000, "bye");
    assert_said(WORKER, "PONGcr C1000:bye");
    world_closes(&w, WORKER, 1000, "bye");
    assert_said(CLIENT, "C1000:bye");
    assert_int_equal(w.t.state, TUNNEL_ended);
    world_close(&w);
}

/* As sessions do: the acknowledgement of all there was, and of the end, and their Close in one piece. */
static void a_clients_end_that_is_acknowledged_leaves_nothing_behind(void **state)
{
    uint8_t said[64];
    (void)state;
    serving();
    world_says(&w, CLIENT, 0x82, "last");
    world_closes(&w, CLIENT, 1000, "bye");
    forget();
    size_t len = world_frame(said, WORKER, 0x8a, SLICE_LITERAL("cr\0\0\0\0\0\0\0\2")).len;
    len += world_frame(said + len, WORKER, 0x88,
                       SLICE_LITERAL("\x03\xe8"
                                     "fine"))
               .len;
    world_bytes(&w, WORKER, slice_of(said, len), SIZE_MAX);
    assert_said(CLIENT, "C1000:fine");
    assert_int_equal(w.t.state, TUNNEL_ended);
    assert_int_equal(w.unconfirmed + w.unread, 0);
    assert_int_equal(w.t.forward.adapter->numbers->unacknowledged(w.t.forward.adapter_state), 0);
    world_close(&w);
}

static void a_worker_that_leaves_before_it_has_acknowledged_the_last_input_leaves_it_behind(void **state)
{
    (void)state;
    serving();
    world_says(&w, CLIENT, 0x82, "last");
    world_closes(&w, CLIENT, 1000, "bye");
    world_closes(&w, WORKER, 1012, "restart");
    assert_int_equal(w.t.state, TUNNEL_ended);
    assert_int_equal(w.unconfirmed, 4);
    assert_int_equal(w.unread, 0);
    world_close(&w);
}

/* One message was acknowledged, the next and a part of a third were not. */
static void serving_unacknowledged(void)
{
    serving();
    world_says(&w, CLIENT, 0x82, "known");
    world_says(&w, CLIENT, 0x82, "not");
    world_says(&w, CLIENT, 0x02, "nor");
    WORKER_PONGS("cr\0\0\0\0\0\0\0\1");
}

static void input_that_a_client_leaves_behind_is_counted(void **state)
{
    (void)state;
    serving_unacknowledged();
    world_lost(&w, CLIENT, LOSS_eof, w.now);
    assert_int_equal(w.t.state, TUNNEL_ended);
    assert_int_equal(w.unconfirmed, 0);
    assert_int_equal(w.unread, 6); /* unless the worker takes it */
    world_close(&w);

    serving_unacknowledged();
    world_lost(&w, WORKER, LOSS_eof, w.now);
    assert_int_equal(w.unconfirmed, 0); /* it is sent again */
    world_says(&w, CLIENT, 0x80, "held");
    world_lost(&w, CLIENT, LOSS_eof, w.now);
    assert_int_equal(w.unconfirmed, 10);
    world_close(&w);
}

static void input_that_a_session_that_ends_has_not_read_is_not_counted(void **state)
{
    (void)state;
    serving_unacknowledged();
    WORKER_PONGS("cr\0\0\0\0\0\0\0\1end");
    world_closes(&w, WORKER, 1000, "done");
    assert_int_equal(w.t.reason, CLOSE_session_ended);
    assert_int_equal(w.unconfirmed + w.unread, 0);
    world_close(&w);
}

static void a_worker_that_is_left_is_not_told_of_an_end(void **state)
{
    (void)state;
    serving();
    world_tells(&w, ANSWER_RUNNING, 2, 2);
    requests();
    next_answer("Cell-Resume: 1; recv=0; next=1\r\n");
    world_dialled(&w, DIAL_OPEN, 101);
    assert_int_equal(w.parted[WORKER], 1);
    assert_null(strstr(w.ears[WORKER].said, "PONGcr"));
    world_close(&w);
}

static void a_session_that_has_exited_is_not_attached_to_again(void **state)
{
    uint8_t memory[64];
    struct writer probe = writer_of(memory, sizeof memory);
    (void)state;
    serving_with(HANDOVER_RESUME_SINCE, "x", "", false);
    world_bytes(&w, WORKER, SLICE_LITERAL("\x82\x04\1abc"), SIZE_MAX);
    world_lost(&w, WORKER, LOSS_eof, w.now);
    finds_worker();
    assert_true(slice_is(tunnel_probe(&w.t, slice_text("/pty/x/ws"), &probe), "/pty/x"));
    enum dial_outcome outcome =
        tunnel_probed(&w.t, 200, slice_text("{\"running\":false,\"output_offset\":10}"));
    assert_int_equal(outcome, DIAL_ENDED);
    world_obeys(&w);
    assert_int_equal(w.missing, 7);
    forget();
    world_dialled(&w, DIAL_ENDED, 200);
    ended_with(CLOSE_process_exited, "C1000:process exited");
}

/* ---- clients that resume themselves ---- */
static void a_client_that_resumes_is_told_of_a_loss(void **state)
{
    (void)state;
    serving_with(HANDOVER_RESUME_CELL, NULL, "Cell-Resume: 1; recv=0; next=1\r\n", true);
    WORKER_PONGS("cr12345678");
    assert_said(CLIENT, "PONGcr12345678");
    world_says(&w, CLIENT, 0x8a, "cr87654321");
    assert_said(WORKER, "PONGcr87654321");
    forget();
    world_lost(&w, WORKER, LOSS_reset, w.now);
    ended_with(CLOSE_client_resumes, "C1012:worker lost");
}

static void a_client_that_resumes_is_told_of_a_move(void **state)
{
    (void)state;
    serving_with(HANDOVER_RESUME_CELL, NULL, "Cell-Resume: 1; recv=0; next=1\r\n", true);
    world_tells(&w, ANSWER_RUNNING, 2, 2);
    assert_int_equal(w.dials, 1);
    ended_with(CLOSE_client_resumes, "C1012:worker lost");
}

static void a_client_that_resumes_answers_a_close_itself(void **state)
{
    (void)state;
    serving_with(HANDOVER_RESUME_CELL, NULL, "Cell-Resume: 1; recv=0; next=1\r\n", true);
    world_closes(&w, WORKER, 1000, "done");
    assert_said(CLIENT, "C1000:done");
    assert_said(WORKER, "");
    world_closes(&w, CLIENT, 1000, "seen");
    assert_said(WORKER, "C1000:seen");
    assert_int_equal(w.t.state, TUNNEL_ended);
    world_close(&w);
}

/* ---- turns ---- */
static void resumes_among_many(void)
{
    serving_with(HANDOVER_RESUME_SCROLLBACK, "x", "", false);
    w.settings.keepalive = 3600 * SEC;
    world_says(&w, WORKER, 0x82, "\4");
    world_says(&w, WORKER, 0x82, "\1old");
    w.crowded = true;
    world_lost(&w, WORKER, LOSS_eof, w.now);
    resumes_with("");
    forget();
}

static void replays_the_rest(void)
{
    world_says(&w, WORKER, 0x82, "\1oldnew");
    world_says(&w, WORKER, 0x82, "\4");
    assert_said(CLIENT, "B\1new");
    assert_int_equal(w.declared[0], 1);
    assert_false(forward_needs_permit(&w.t.forward));
    world_close(&w);
}

static void a_replay_waits_for_its_turn_however_long_that_takes(void **state)
{
    (void)state;
    resumes_among_many();
    assert_int_equal(w.t.state, TUNNEL_serving);
    assert_true(forward_needs_permit(&w.t.forward));
    assert_false(world_says(&w, WORKER, 0x82, "\1old"));
    assert_in_range(tunnel_due(&w.t), w.now + 50 * MS, w.now + 75 * MS);
    assert_in_range(tunnel_judges_at(&w.t), w.now + SEC, UINT64_MAX); /* that is no judgement */
    world_says(&w, CLIENT, 0x82, "input");
    assert_said(WORKER, "Binput");
    world_pass(&w, 3000 * SEC);
    assert_int_equal(w.t.state, TUNNEL_serving);
    w.crowded = false;
    world_pass(&w, 75 * MS);
    replays_the_rest();
}

static void a_worker_that_is_lost_in_front_of_its_turn_is_replaced(void **state)
{
    (void)state;
    resumes_among_many();
    world_lost(&w, WORKER, LOSS_reset, w.now);
    assert_int_equal(w.t.state, TUNNEL_redialling);
    assert_false(forward_needs_permit(&w.t.forward));
    resumes_with("");
    assert_false(w.t.forward.legs[WORKER].reading);
    w.crowded = false;
    world_pass(&w, 75 * MS);
    replays_the_rest();
}

static void a_client_that_does_not_read_takes_no_turn(void **state)
{
    static uint8_t frame[LEG_PAUSE + 100], payload[LEG_PAUSE + 1] = {1};
    (void)state;
    serving_with(HANDOVER_RESUME_SCROLLBACK, "x", "", false);
    world_says(&w, WORKER, 0x82, "\4");
    w.ears[CLIENT].room = 0;
    world_bytes(&w, WORKER, world_frame(frame, WORKER, 0x82, slice_of(payload, sizeof payload)), SIZE_MAX);
    world_lost(&w, WORKER, LOSS_eof, w.now);
    resumes_with("");
    assert_true(forward_needs_permit(&w.t.forward));
    assert_false(w.turn);
    assert_in_range(tunnel_due(&w.t), w.now + SEC, UINT64_MAX);
    w.ears[CLIENT].room = SIZE_MAX;
    world_writable(&w, CLIENT, w.now);
    assert_true(w.turn);
    world_close(&w);
}

static void who_does_not_collect_needs_no_turn(void **state)
{
    static const enum handover_resume kinds[] = {HANDOVER_RESUME_NONE, HANDOVER_RESUME_SINCE,
                                                 HANDOVER_RESUME_SCROLLBACK};
    (void)state;
    for (unsigned i = 0; i < 3; i++) {
        serving_with(kinds[i], "x", "", false);
        assert_true(w.t.forward.legs[WORKER].reading);
        world_lost(&w, WORKER, LOSS_eof, w.now);
        resumes_with("");
        assert_int_equal(forward_needs_permit(&w.t.forward), kinds[i] == HANDOVER_RESUME_SCROLLBACK);
        assert_int_equal(w.turn, kinds[i] == HANDOVER_RESUME_SCROLLBACK);
        world_close(&w);
    }
}

/* ---- a loss while the next worker is looked for ---- */
static void a_loss_after_a_long_migration_is_as_any_other(void **state)
{
    (void)state;
    serving();
    w.settings.keepalive = 3600 * SEC;
    world_tells(&w, ANSWER_RUNNING, 2, 2);
    world_dialled(&w, DIAL_UNREACHABLE, 0);
    world_pass(&w, 121 * MS);
    world_answers(&w, ANSWER_MIGRATING, 0, 3);
    world_pass(&w, 599 * SEC);
    world_lost(&w, WORKER, LOSS_eof, w.now);
    world_pass(&w, 599 * SEC);
    assert_int_equal(w.t.state, TUNNEL_redialling);
    world_close(&w);
}

static void memory_that_is_short_ends_a_tunnel(void **state)
{
    static const enum handover_resume kinds[] = {HANDOVER_RESUME_SCROLLBACK, HANDOVER_RESUME_SINCE,
                                                 HANDOVER_RESUME_CELL};
    (void)state;
    for (unsigned kind = 0; kind < 3; kind++)
        for (unsigned n = 1; n < 12; n++) {
            serving_with(kinds[kind], "x", kind == 2 ? "Cell-Resume: 1; recv=0; next=1\r\n" : "", false);
            world_says(&w, WORKER, 0x82, "\4");
            world_says(&w, CLIENT, 0x82, "input");
            world_lost(&w, WORKER, LOSS_eof, w.now);
            resumes_with(kind == 2 ? "Cell-Resume: 1; recv=0; next=1\r\n" : "");
            static const uint8_t said[] = {0x82, 2, 1, 'a', 0x82, 2, 2, 'b', 0x82, 1, 4, 0x82, 2, 1, 'c'};
            uint8_t memory[FORWARD_FRONT + sizeof said];
            memcpy(memory + FORWARD_FRONT, said, sizeof said);
            w.ears[WORKER].room = 1;
            alloc_fail_at(n);
            world_read(&w, WORKER, slice_of(memory + FORWARD_FRONT, sizeof said), w.now);
            alloc_fail_at(0);
            assert_false(w.ears[CLIENT].broken);
            world_close(&w);
        }
}

/* ---- bad networks ---- */
static void cuts_often(enum handover_resume resume, bool says)
{
    bool cell = resume == HANDOVER_RESUME_CELL;
    uint64_t sent = 0;

    serving_with(resume, "x", cell ? "Cell-Resume: 1; recv=0; next=1\r\n" : "", false);
    for (unsigned i = 0; i < 20 && w.t.state == TUNNEL_serving; i++) {
        char answer[64];
        if (says)
            world_says(&w, WORKER, 0x82, cell ? "word" : "\1word");
        sent += says;
        world_pass(&w, SEC);
        world_lost(&w, WORKER, LOSS_eof, w.now);
        if (w.t.state != TUNNEL_redialling)
            break;
        while (!w.asking)
            world_pass(&w, 50 * MS);
        snprintf(answer, sizeof answer, "Cell-Resume: 1; recv=0; next=%u\r\n", (unsigned)sent + 1);
        resumes_with(cell ? answer : "");
    }
}

static void what_resumes_exactly_and_gets_on_does_not_flap(void **state)
{
    static const enum handover_resume kinds[] = {HANDOVER_RESUME_SINCE, HANDOVER_RESUME_CELL};
    (void)state;
    for (unsigned i = 0; i < 2; i++) {
        cuts_often(kinds[i], true);
        assert_int_equal(w.t.redials, 20);
        assert_int_equal(w.t.state, TUNNEL_serving);
        world_close(&w);
        cuts_often(kinds[i], false);
        assert_int_equal(w.t.reason, CLOSE_flapping);
        world_close(&w);
    }
}

/* ---- workers that fetch the ring behind their `04` ---- */
static void serving_exec(const char *output)
{
    struct handover h = world_handover();
    h.resume = HANDOVER_RESUME_SCROLLBACK;
    h.end = HANDOVER_END_EXIT_FRAME;
    h.session = SLICE_LITERAL("x");
    assert_true(world_open_to(&w, &h, "/exec/x", false));
    requests();
    next_answer("");
    world_dialled(&w, DIAL_OPEN, 101);
    world_says(&w, WORKER, 0x82, "\4");
    if (*output)
        world_says(&w, WORKER, 0x82, output);
    forget();
}

static void loses_and_resumes(void)
{
    world_lost(&w, WORKER, LOSS_eof, w.now);
    resumes_with("");
}

static void a_late_replay_is_told_apart_from_output(void **state)
{
    (void)state;
    serving_exec("\1old");
    loses_and_resumes();
    world_says(&w, WORKER, 0x82, "\4");
    world_says(&w, WORKER, 0x82, "\1oldnew");
    assert_said(CLIENT, "B\1new");
    assert_int_equal(w.declared[0] + w.declared[1], 0);
    world_pass(&w, SEC);
    assert_int_equal(w.declared[0], 1);
    world_close(&w);
}

static void what_is_no_replay_waits_for_a_bounded_time(void **state)
{
    (void)state;
    serving_exec("\1old");
    loses_and_resumes();
    world_says(&w, WORKER, 0x82, "\4");
    world_says(&w, WORKER, 0x82, "\1other");
    assert_said(CLIENT, "");
    w.crowded = true; /* it is not read meanwhile: nobody knows what it says */
    w.turn = false;
    world_tick(&w, w.now);
    world_pass(&w, 5 * SEC);
    assert_said(CLIENT, "");
    w.crowded = false;
    world_pass(&w, 3 * SEC);
    assert_said(CLIENT, "B\1other");
    assert_int_equal(w.declared[1], 1);
    world_close(&w);
}

static void an_exit_behind_a_late_replay_ends_it(void **state)
{
    (void)state;
    serving_exec("\1old");
    loses_and_resumes();
    world_says(&w, WORKER, 0x82, "\4");
    world_says(&w, WORKER, 0x82, "\1oldest");
    world_says(&w, WORKER, 0x82, "\1.");
    world_says(&w, WORKER, 0x82, "\3....");
    world_closes(&w, WORKER, 1000, "");
    assert_int_equal(w.declared[0], 1);
    assert_int_equal(w.t.reason, CLOSE_exec_completed);
    assert_said(CLIENT, "B\1est B\1. B\3.... C1000:exec completed");
    world_close(&w);
}

/* What it says of its session is that there is nothing, twice. */
static void a_worker_without_the_session_ends_the_tunnel(void **state)
{
    (void)state;
    for (unsigned had = 0; had < 2; had++) {
        serving_exec(had ? "\1old" : "");
        if (had) {
            loses_and_resumes();
            world_says(&w, WORKER, 0x82, "\4");
        }
        world_closes(&w, WORKER, 1000, ""); /* that may be a hand-over */
        assert_int_equal(w.t.state, TUNNEL_redialling);
        resumes_with("");
        world_says(&w, WORKER, 0x82, "\4");
        world_closes(&w, WORKER, 1000, "");
        assert_int_equal(w.t.reason, CLOSE_session_not_found);
        assert_said(CLIENT, "C1000:session not found");
        world_close(&w);
    }
}

static void an_empty_session_that_moves_is_not_one_that_is_gone(void **state)
{
    (void)state;
    serving_exec("");
    for (uint16_t port = 2; port < 6; port++) {
        world_closes(&w, WORKER, 1000, "");
        assert_true(w.asking);
        world_answers(&w, ANSWER_RUNNING, port, port);
        requests();
        next_answer("");
        world_dialled(&w, DIAL_OPEN, 101);
        world_says(&w, WORKER, 0x82, "\4");
        assert_int_equal(w.t.state, TUNNEL_serving);
        world_pass(&w, 20 * SEC);
    }
    world_close(&w);
}

static void a_worker_that_lacks_the_session_is_not_waited_for_longer_than_for_any(void **state)
{
    (void)state;
    serving_exec("\1old");
    loses_and_resumes();
    world_says(&w, WORKER, 0x82, "\4");
    world_pass(&w, 29 * SEC);
    assert_int_equal(w.t.state, TUNNEL_serving);
    world_pass(&w, SEC);
    assert_int_equal(w.t.reason, CLOSE_session_not_found);
    assert_said(CLIENT, "PINGown C1000:session not found");
    world_close(&w);
}

/* ---- a second connection to the worker that serves (spoa/relay/scrollback/settle.h) ---- */
static void second_hears(const char *message)
{
    uint8_t frame[200];

    tunnel_recheck_bytes(&w.t, world_frame(frame, WORKER, 0x82, slice_text(message)), 1, w.now);
    world_obeys(&w);
}

/* The worker was lost, and the next one is asked a second time what it has. */
static void rechecking(void)
{
    world_rechecks = true;
    serving_exec("\1old");
    world_rechecks = false;
    loses_and_resumes();
    world_says(&w, WORKER, 0x82, "\4");
    world_says(&w, WORKER, 0x82, "\1new");
    assert_int_equal(w.rechecks, 0);
    world_pass(&w, 400 * MS);
    assert_int_equal(w.rechecks, 1);
    assert_true(w.rechecking);
    assert_int_equal(tunnel_recheck_target(&w.t)->port, 1);
    assert_said(CLIENT, "");
    forget();
}

static void what_a_second_connection_shows_decides(void **state)
{
    (void)state;
    rechecking();
    world_says(&w, CLIENT, 0x82, "in");
    assert_said(WORKER, "Bin"); /* once, to the one that serves */
    second_hears("\1oldnew");
    assert_true(w.rechecking);
    second_hears("\4");
    assert_false(w.rechecking);
    world_pass(&w, SEC);
    assert_said(CLIENT, "B\1new");
    assert_int_equal(w.declared[0], 1);
    assert_int_equal(w.declared[1], 0);
    assert_int_equal(w.dials, 2); /* and no loss */
    assert_int_equal(w.t.connector.redial.history->losses, 1);
    world_close(&w);
}

static void one_event_of_a_second_connection_handles_so_many_frames(void **state)
{
    uint8_t pings[100 * 2];
    (void)state;
    rechecking();
    for (size_t i = 0; i < sizeof pings; i += 2)
        memcpy(pings + i, "\x89\0", 2);
    assert_int_equal(tunnel_recheck_bytes(&w.t, slice_of(pings, sizeof pings), 7, w.now), 7 * 2);
    assert_true(w.rechecking);
    world_close(&w);
}

static void a_second_connection_that_says_nothing_is_not_waited_for_long(void **state)
{
    (void)state;
    rechecking();
    world_pass(&w, 4 * SEC);
    assert_false(w.rechecking);
    assert_int_equal(w.rechecks, 2);
    world_pass(&w, 2 * SEC); /* as of a worker that is asked once */
    assert_said(CLIENT, "B\1new");
    assert_int_equal(w.declared[1], 1);
    world_close(&w);
}

static void a_second_connection_ends_with_what_it_is_for(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 4; i++) {
        rechecking();
        if (i == 0)
            world_lost(&w, WORKER, LOSS_eof, w.now);
        else if (i == 1)
            world_lost(&w, CLIENT, LOSS_eof, w.now);
        else if (i == 2)
            tunnel_end(&w.t, CLOSE_kicked, w.now);
        else
            world_closes(&w, WORKER, 1012, "restart");
        world_obeys(&w);
        assert_false(w.rechecking);
        tunnel_recheck_over(&w.t, w.now); /* too late */
        second_hears("\1oldnew");
        world_close(&w);
    }
}

static void a_move_goes_on_beside_a_second_connection(void **state)
{
    (void)state;
    rechecking();
    world_tells(&w, ANSWER_RUNNING, 2, w.t.connector.epoch + 1);
    assert_true(w.dialling && w.rechecking);
    requests();
    next_answer("");
    world_dialled(&w, DIAL_OPEN, 101);
    assert_false(w.rechecking);
    world_says(&w, WORKER, 0x82, "\1oldnewer");
    world_says(&w, WORKER, 0x82, "\4");
    assert_said(CLIENT, "B\1newer");
    world_close(&w);
}

/* Its output is not confirmed yet: the worker is dialled again, which is no loss, and has it all. */
static void a_worker_that_ends_before_it_is_confirmed_is_dialled_again(void **state)
{
    (void)state;
    rechecking();
    world_says(&w, WORKER, 0x82, "\3aaaa");
    world_closes(&w, WORKER, 1000, "");
    assert_int_equal(w.t.state, TUNNEL_redialling);
    assert_false(w.rechecking);
    resumes_with("");
    assert_int_equal(w.t.connector.redial.history->losses, 1);
    world_says(&w, WORKER, 0x82, "\1oldnewest");
    world_says(&w, WORKER, 0x82, "\4");
    world_says(&w, WORKER, 0x82, "\3aaaa");
    world_closes(&w, WORKER, 1000, "");
    assert_int_equal(w.declared[0], 1);
    ended_with(CLOSE_exec_completed, "B\1newest B\3aaaa C1000:exec completed");
}

static void an_exit_is_not_lost_with_a_sandbox_that_stops(void **state)
{
    (void)state;
    rechecking();
    world_says(&w, WORKER, 0x82, "\3aaaa");
    world_closes(&w, WORKER, 1000, "");
    assert_true(w.asking);
    world_answers(&w, ANSWER_STOPPED, 1, w.t.connector.epoch);
    assert_int_equal(w.declared[1], 1); /* nobody can say whether that was all */
    ended_with(CLOSE_exec_completed, "B\1new B\3aaaa C1000:exec completed");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_replay_waits_for_its_turn_however_long_that_takes),
        cmocka_unit_test(a_worker_that_is_lost_in_front_of_its_turn_is_replaced),
        cmocka_unit_test(a_client_that_does_not_read_takes_no_turn),
        cmocka_unit_test(who_does_not_collect_needs_no_turn),
        cmocka_unit_test(a_loss_after_a_long_migration_is_as_any_other),
        cmocka_unit_test(a_plain_worker_is_redialled_where_the_session_has_a_name),
        cmocka_unit_test(a_plain_worker_is_not_redialled_where_it_has_none),
        cmocka_unit_test(a_slow_client_gets_what_a_plain_worker_has_said_last),
        cmocka_unit_test(a_worker_that_has_forgotten_the_protocol_ends_the_tunnel),
        cmocka_unit_test(what_a_redial_is_answered_decides),
        cmocka_unit_test(gone_is_final_and_a_conflict_is_tried_again),
        cmocka_unit_test(a_first_dial_whose_answer_was_lost_is_repeated),
        cmocka_unit_test(frames_of_the_protocol_never_cross),
        cmocka_unit_test(output_is_acknowledged_in_time),
        cmocka_unit_test(a_slow_client_withholds_acknowledgements),
        cmocka_unit_test(the_window_stops_the_client),
        cmocka_unit_test(the_window_is_never_exceeded),
        cmocka_unit_test(small_frames_are_sent_together),
        cmocka_unit_test(messages_and_pings_in_turns_are_sent_together),
        cmocka_unit_test(pings_wait_for_a_worker_that_does_not_read),
        cmocka_unit_test(pings_wait_for_a_client_that_does_not_take_their_answers),
        cmocka_unit_test(a_client_that_does_not_read_is_heard),
        cmocka_unit_test(a_message_in_too_many_fragments_is_too_big),
        cmocka_unit_test(a_wait_for_memory_is_not_forgotten_for_a_moment_of_room),
        cmocka_unit_test(memory_that_is_given_back_at_any_moment_is_noticed),
        cmocka_unit_test(who_has_filled_its_window_does_not_wait_for_memory),
        cmocka_unit_test(without_memory_what_is_left_of_a_buffer_is_filled),
        cmocka_unit_test(a_message_of_the_whole_window_is_read_to_its_end),
        cmocka_unit_test(input_is_sent_again_from_what_was_consumed),
        cmocka_unit_test(an_unmarked_close_is_a_loss),
        cmocka_unit_test(a_marked_close_is_acknowledged_and_passed_on),
        cmocka_unit_test(a_marked_close_is_acknowledged_however_slow_the_client_is),
        cmocka_unit_test(a_client_that_leaves_is_the_end),
        cmocka_unit_test(a_clients_end_that_is_acknowledged_leaves_nothing_behind),
        cmocka_unit_test(a_worker_that_leaves_before_it_has_acknowledged_the_last_input_leaves_it_behind),
        cmocka_unit_test(input_that_a_client_leaves_behind_is_counted),
        cmocka_unit_test(input_that_a_session_that_ends_has_not_read_is_not_counted),
        cmocka_unit_test(a_worker_that_is_left_is_not_told_of_an_end),
        cmocka_unit_test(a_session_that_has_exited_is_not_attached_to_again),
        cmocka_unit_test(a_client_that_resumes_is_told_of_a_loss),
        cmocka_unit_test(a_client_that_resumes_is_told_of_a_move),
        cmocka_unit_test(a_client_that_resumes_answers_a_close_itself),
        cmocka_unit_test(memory_that_is_short_ends_a_tunnel),
        cmocka_unit_test(what_resumes_exactly_and_gets_on_does_not_flap),
        cmocka_unit_test(a_late_replay_is_told_apart_from_output),
        cmocka_unit_test(what_is_no_replay_waits_for_a_bounded_time),
        cmocka_unit_test(an_exit_behind_a_late_replay_ends_it),
        cmocka_unit_test(a_worker_without_the_session_ends_the_tunnel),
        cmocka_unit_test(an_empty_session_that_moves_is_not_one_that_is_gone),
        cmocka_unit_test(a_worker_that_lacks_the_session_is_not_waited_for_longer_than_for_any),
        cmocka_unit_test(what_a_second_connection_shows_decides),
        cmocka_unit_test(one_event_of_a_second_connection_handles_so_many_frames),
        cmocka_unit_test(a_second_connection_that_says_nothing_is_not_waited_for_long),
        cmocka_unit_test(a_second_connection_ends_with_what_it_is_for),
        cmocka_unit_test(a_move_goes_on_beside_a_second_connection),
        cmocka_unit_test(a_worker_that_ends_before_it_is_confirmed_is_dialled_again),
        cmocka_unit_test(an_exit_is_not_lost_with_a_sandbox_that_stops),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
