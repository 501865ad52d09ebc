/* SPDX-License-Identifier: MIT */
/* Each row of the tables of state.h and upstream.h, played with a clock of the test's own. */
#include "tests/unit/support.h"

#include <time.h>

#include "tests/unit/relay/tunnel_world.h"

static struct world w;

#define TEXT(text_)             (0x80 | WS_TEXT)
#define assert_said(side, text) assert_string_equal(w.ears[side].said, text)

static void forget(void)
{
    w.ears[CLIENT].said[0] = w.ears[WORKER].said[0] = '\0';
}

static void serving_as(const struct handover *h)
{
    assert_true(world_open(&w, h));
    assert_int_equal(w.dials, 1);
    world_dialled(&w, DIAL_OPEN, 101);
    assert_int_equal(w.accepts, 1);
    assert_int_equal(w.t.state, TUNNEL_serving);
}

static void serving(void)
{
    struct handover h = world_handover();
    serving_as(&h);
}

static void serving_until(enum handover_end end)
{
    struct handover h = world_handover();
    h.end = end;
    serving_as(&h);
}

/* The agent answers with this worker, and it can be reached. */
static void resumes(uint16_t port)
{
    assert_true(w.asking);
    world_answers(&w, ANSWER_RUNNING, port, w.t.connector.epoch);
    assert_true(w.dialling);
    assert_int_equal(w.dialled_port, port);
    world_dialled(&w, DIAL_OPEN, 101);
    assert_int_equal(w.t.state, TUNNEL_serving);
}

static void ended_with(enum close_reason reason, const char *client)
{
    assert_int_equal(w.t.reason, reason);
    assert_said(CLIENT, client);
    assert_false(w.t.forward.there[WORKER]);
    if (w.t.state == TUNNEL_closing)
        world_closes(&w, CLIENT, 1000, "");
    assert_int_equal(w.t.state, TUNNEL_ended);
    assert_int_equal(w.ends, 1);
    assert_false(w.dialling || w.open);
    assert_false(w.ears[CLIENT].broken || w.ears[WORKER].broken);
    world_close(&w);
}

/* ---- opening ---- */
static void the_worker_is_dialled_before_the_client_is_accepted(void **state)
{
    struct handover h = world_handover();
    (void)state;
    world_open(&w, &h);
    assert_int_equal(w.dials, 1);
    assert_int_equal(w.asks, 0);
    assert_int_equal(w.accepts, 0);
    world_dialled(&w, DIAL_OPEN, 101);
    assert_int_equal(w.accepts, 1);
    assert_true(w.watching);
    world_end(&w, CLOSE_kicked, w.now);
    ended_with(CLOSE_kicked, "C1008:closed by the operator");
}

static void refused_with(enum refusal refusal)
{
    assert_int_equal(w.refusals, 1);
    assert_int_equal(w.refusal, refusal);
    assert_int_equal(w.accepts, 0);
    assert_int_equal(w.t.state, TUNNEL_ended);
    assert_int_equal(w.ends, 1);
    world_close(&w);
}

static void a_refusal_of_the_worker_is_passed_on(void **state)
{
    struct handover h = world_handover();
    (void)state;
    world_open(&w, &h);
    world_dialled(&w, DIAL_STATUS, 404);
    refused_with(REFUSAL_NONE);
}

static void a_first_dial_without_an_answer_is_a_timeout(void **state)
{
    struct handover h = world_handover();
    (void)state;
    world_open(&w, &h);
    world_dialled(&w, DIAL_TIMEOUT, 0);
    refused_with(REFUSAL_worker_timeout);
}

static void a_first_dial_without_memory_is_not_the_workers_fault(void **state)
{
    struct handover h = world_handover();
    (void)state;
    world_open(&w, &h);
    world_dialled(&w, DIAL_MEMORY, 0);
    refused_with(REFUSAL_relay_unavailable);
}

/* A tunnel all of whose dials end so, until it is given up. */
static void dial_in_vain(enum handover_resume resume, enum dial_outcome outcome)
{
    struct handover h = world_handover();
    h.resume = resume;
    world_open(&w, &h);
    for (unsigned i = 0; w.t.state == TUNNEL_opening; i++) {
        assert_true(i < 10);
        world_dialled(&w, outcome, 0);
        world_pass(&w, 5 * SEC);
        if (w.asking)
            world_answers(&w, ANSWER_RUNNING, 1, 1);
    }
    assert_in_range(w.now, 1005 * SEC, 1040 * SEC);
}

static void a_first_dial_without_a_descriptor_is_repeated_and_not_the_workers_fault(void **state)
{
    (void)state;
    dial_in_vain(HANDOVER_RESUME_NONE, DIAL_NO_SOCKET);
    refused_with(REFUSAL_relay_unavailable);
}

static void a_first_dial_with_a_wrong_answer_is_refused(void **state)
{
    struct handover h = world_handover();
    (void)state;
    world_open(&w, &h);
    world_dialled(&w, DIAL_INVALID, 0);
    refused_with(REFUSAL_worker_unreachable);
}

static void a_first_dial_is_repeated_within_the_connect_budget(void **state)
{
    (void)state;
    dial_in_vain(HANDOVER_RESUME_NONE, DIAL_UNREACHABLE);
    refused_with(REFUSAL_worker_unreachable);
}

static void first_dials_that_are_repeated_without_an_answer_are_a_timeout(void **state)
{
    (void)state;
    dial_in_vain(HANDOVER_RESUME_CELL, DIAL_TIMEOUT);
    refused_with(REFUSAL_worker_timeout);
}

static void a_first_dial_succeeds_at_a_fresh_address(void **state)
{
    struct handover h = world_handover();
    (void)state;
    world_open(&w, &h);
    world_dialled(&w, DIAL_UNREACHABLE, 0);
    world_pass(&w, 120 * MS);
    resumes(2);
    assert_int_equal(w.accepts, 1);
    assert_int_equal(w.resumes, 0);
    world_close(&w);
}

static void a_record_with_secrets_is_asked_for_first(void **state)
{
    struct handover h = world_handover();
    (void)state;
    h.secrets = true;
    world_open(&w, &h);
    assert_int_equal(w.dials, 0);
    resumes(1);
    world_close(&w);
}

static void a_waking_sandbox_is_waited_for(void **state)
{
    struct handover h = world_handover();
    (void)state;
    h.addr.family = 0;
    world_open(&w, &h);
    world_answers(&w, ANSWER_WAKING, 0, 1);
    assert_true(w.watching);
    world_pass(&w, 4900 * MS);
    world_tells(&w, ANSWER_RUNNING, 7, 2);
    assert_int_equal(w.dialled_port, 7);
    world_dialled(&w, DIAL_UNREACHABLE, 0);
    world_pass(&w, 200 * MS);
    resumes(7); /* the wait did not cost the budget of the dial */
    world_close(&w);
}

static void a_sandbox_that_does_not_wake_within_hold_is_refused(void **state)
{
    static const struct {
        enum answer_state state;
        enum refusal refusal;
    } rows[] = {{ANSWER_WAKING, REFUSAL_sandbox_waking},
                {ANSWER_SUSPENDED, REFUSAL_sandbox_waking},
                {ANSWER_MIGRATING, REFUSAL_sandbox_migrating}};
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct handover h = world_handover();
        h.addr.family = 0;
        world_open(&w, &h);
        world_answers(&w, rows[i].state, 0, 1);
        world_pass(&w, 4999 * MS);
        assert_int_equal(w.t.state, TUNNEL_opening);
        world_pass(&w, 2 * MS);
        refused_with(rows[i].refusal);
    }
}

static void an_answer_that_is_final_refuses(void **state)
{
    static const struct {
        enum answer_state state;
        enum refusal refused, refusal;
    } rows[] = {{ANSWER_STOPPED, REFUSAL_NONE, REFUSAL_sandbox_stopped},
                {ANSWER_ABSENT, REFUSAL_NONE, REFUSAL_sandbox_not_found},
                {ANSWER_RUNNING, REFUSAL_token_revoked, REFUSAL_token_revoked},
                {ANSWER_RUNNING, REFUSAL_token_expired, REFUSAL_token_expired}};
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct handover h = world_handover();
        struct answer answer = world_answer(rows[i].state, 1, 1);
        h.secrets = true;
        answer.refused = rows[i].refused;
        world_open(&w, &h);
        world_answered(&w, &answer, false, w.now);
        refused_with(rows[i].refusal);
    }
}

static void a_refusal_is_told_by_a_close(void **state)
{
    struct handover h = world_handover();
    (void)state;
    h.refuse = 404;
    h.error = SLICE_LITERAL("sandbox_not_found");
    world_open(&w, &h);
    assert_int_equal(w.accepts, 1);
    assert_int_equal(w.dials, 0);
    ended_with(CLOSE_refused, "C4404:sandbox_not_found");
}

static void a_client_that_leaves_while_it_is_opened_ends_the_dial(void **state)
{
    struct handover h = world_handover();
    (void)state;
    world_open(&w, &h);
    world_lost(&w, CLIENT, LOSS_eof, w.now);
    assert_int_equal(w.hang_ups, 1);
    ended_with(CLOSE_client_lost, "");
}

/* ---- passing ---- */
static void everything_passes_unchanged(void **state)
{
    (void)state;
    serving();
    world_says(&w, CLIENT, 0x81, "hello");
    world_says(&w, CLIENT, 0x02, "a");
    world_says(&w, CLIENT, 0x89, "ping");
    world_says(&w, CLIENT, 0x00, "");
    world_says(&w, CLIENT, 0x80, "z");
    world_says(&w, WORKER, 0x8a, "ping");
    world_says(&w, WORKER, 0x82, "out");
    world_says(&w, WORKER, 0x81, "");
    world_says(&w, WORKER, 0x89, "");
    assert_said(WORKER, "Thello ba PINGping + .z");
    assert_said(CLIENT, "PONGping Bout T PING");
    assert_int_equal(w.t.forward.legs[CLIENT].bytes_in, w.t.forward.legs[WORKER].bytes_out);
    assert_int_equal(w.t.forward.legs[WORKER].bytes_in, w.t.forward.legs[CLIENT].bytes_out);
    world_close(&w);
}

/* A conversation from one side as bytes, for splitting. */
static struct slice conversation(enum side from, uint8_t *to, size_t size)
{
    static uint8_t big[40000];
    static const struct {
        unsigned start;
        size_t len;
    } frames[] = {{0x81, 5},   {0x02, 130}, {0x89, 4},     {0x00, 0}, {0x80, 17000},
                  {0x82, 200}, {0x8a, 3},   {0x82, 40000}, {0x81, 0}};
    struct writer out = writer_of(to, size);
    for (size_t i = 0; i < sizeof big; i++)
        big[i] = (uint8_t)(i * 7 + i / 251);
    for (size_t i = 0; i < sizeof frames / sizeof frames[0]; i++)
        out.len += world_frame(out.at + out.len, from, frames[i].start, slice_of(big, frames[i].len)).len;
    return writer_slice(&out);
}

/* What the peer gets, with fragments joined: opcodes, ends and payload. */
static void join(struct ear *ear, struct buffer *joined)
{
    static uint8_t plain[1 << 17];
    struct slice in = buffer_slice(&ear->bytes);
    struct ws_decoder d = ws_decoder_of(ear->in.sender, 0);
    struct ws_piece piece;
    for (enum ws_event event; (event = ws_decode(&d, &in, &piece)) != WS_MORE;) {
        assert_int_not_equal(event, WS_BAD);
        struct slice payload = event == WS_CONTROL ? ws_control_payload(&d) : slice_of(NULL, 0);
        if (event == WS_PIECE) {
            ws_mask(plain, piece.bytes.at, piece.bytes.len, d.frame.mask, piece.offset);
            payload = slice_of(plain, piece.bytes.len);
        }
        uint8_t start = (uint8_t)d.frame.opcode;
        if (event == WS_CONTROL || (event == WS_HEAD && start))
            assert_true(buffer_put(joined, slice_of(&start, 1)));
        assert_true(buffer_put(joined, payload));
        if (event == WS_PIECE && piece.last && d.frame.fin)
            assert_true(buffer_put(joined, SLICE_LITERAL("\xff")));
    }
    assert_int_equal(in.len, 0);
}

static size_t deaf_send(void *io, enum side to, const struct slice *runs, size_t count)
{
    struct world *world = io;
    size_t taken = 0;
    for (size_t i = 0; i < count; i++) {
        struct slice part = slice_sub(runs[i], 0, world->ears[to].room);
        assert_true(buffer_put(&world->ears[to].bytes, part));
        taken += part.len;
        if (part.len < runs[i].len)
            break;
    }
    return taken;
}

static struct buffer passed_with(enum side from, struct slice first, struct slice second, size_t step,
                                 size_t room)
{
    struct tunnel_host deaf = world_host;
    struct buffer joined = buffer_with_limit(1 << 20);
    enum side to = from == CLIENT ? WORKER : CLIENT;
    serving();
    deaf.send = deaf_send;
    w.t.forward.place.host = &deaf;
    w.ears[to].room = room;
    assert_true(world_bytes(&w, from, first, step));
    while (!w.t.forward.legs[from].reading || !send_queue_empty(&w.t.forward.legs[to].out))
        world_writable(&w, to, w.now);
    assert_true(world_bytes(&w, from, second, step));
    while (!send_queue_empty(&w.t.forward.legs[to].out))
        world_writable(&w, to, w.now);
    join(&w.ears[to], &joined);
    world_close(&w);
    return joined;
}

static void assert_joined(struct buffer *want, struct buffer got)
{
    assert_true(slice_equal(buffer_slice(want), buffer_slice(&got)));
    buffer_free(&got);
}

static void a_conversation_passes_however_it_is_split(void **state)
{
    static uint8_t bytes[70000];
    (void)state;
    for (int side = CLIENT; side <= WORKER; side++) {
        struct slice all = conversation((enum side)side, bytes, sizeof bytes);
        struct buffer want = passed_with((enum side)side, all, slice_of(NULL, 0), SIZE_MAX, SIZE_MAX);
        assert_in_range(buffer_len(&want), 57000, 58000);
        for (size_t at = 0; at <= all.len; at += at < 400 || at > all.len - 400 ? 1 : 997)
            assert_joined(&want, passed_with((enum side)side, slice_sub(all, 0, at), slice_from(all, at),
                                             SIZE_MAX, SIZE_MAX));
        static const size_t steps[] = {1, 2, 3, 5, 7, 16, 127, 4096, 16384, 16398};
        for (size_t i = 0; i < sizeof steps / sizeof steps[0]; i++) {
            assert_joined(&want, passed_with((enum side)side, all, slice_of(NULL, 0), steps[i], SIZE_MAX));
            if (steps[i] > 2)
                assert_joined(&want,
                              passed_with((enum side)side, all, slice_of(NULL, 0), SIZE_MAX, steps[i]));
        }
        buffer_free(&want);
    }
}

static void a_long_frame_is_never_half_sent(void **state)
{
    static uint8_t frame[100000], payload[60000];
    (void)state;
    serving();
    struct slice bytes = world_frame(frame, CLIENT, 0x82, slice_of(payload, sizeof payload));
    world_bytes(&w, CLIENT, slice_sub(bytes, 0, 20000), SIZE_MAX);
    assert_int_equal(buffer_len(&w.ears[WORKER].bytes),
                     0); /* the ear has decoded all of it: whole fragments */
    assert_int_equal(w.ears[WORKER].said[0], 'b');
    world_pass(&w, 26 * SEC); /* and a Ping can be written in between */
    assert_non_null(strstr(w.ears[WORKER].said, "PINGown"));
    world_close(&w);
}

static void protocol_errors_end_the_tunnel(void **state)
{
    (void)state;
    serving();
    world_bytes(&w, CLIENT, SLICE_LITERAL("\x81\x01x"), 1);
    assert_said(WORKER, "C1001:protocol error");
    world_closes(&w, WORKER, 1001, "");
    ended_with(CLOSE_client_protocol, "C1002:protocol error");
    serving();
    world_bytes(&w, WORKER, SLICE_LITERAL("\x83\x00"), 1);
    assert_said(WORKER, ""); /* the client has the first word */
    world_closes(&w, CLIENT, 1011, "");
    assert_said(WORKER, "C1002:worker protocol error");
    ended_with(CLOSE_worker_protocol, "C1011:worker protocol error");
}

static void behind_a_clients_mistake_the_workers_words_come_first(void **state)
{
    (void)state;
    for (unsigned way = 0; way < 4; way++) {
        serving();
        world_says(&w, CLIENT, 0x81, "first");
        world_bytes(&w, CLIENT, SLICE_LITERAL("\x83\x80....\x81\x80...."), SIZE_MAX);
        assert_said(WORKER, "Tfirst C1001:protocol error"); /* nothing of what follows it */
        assert_said(CLIENT, "");
        assert_false(w.t.forward.legs[CLIENT].reading);
        world_says(&w, WORKER, 0x81, "re: first");
        assert_said(CLIENT, "Tre: first");
        if (way == 0)
            world_closes(&w, WORKER, 1001, "");
        else if (way == 1)
            world_lost(&w, WORKER, LOSS_reset, w.now);
        else if (way == 2)
            world_pass(&w, SEC); /* it does not answer */
        else
            world_closes(&w, WORKER, 4001, "taken over");
        ended_with(CLOSE_client_protocol, "Tre: first C1002:protocol error");
    }
    serving();
    world_lost(&w, WORKER, LOSS_eof, w.now);
    world_bytes(&w, CLIENT, SLICE_LITERAL("\x83\x80...."), SIZE_MAX);
    w.asking = false;
    ended_with(CLOSE_client_protocol, "C1002:protocol error"); /* nobody is there to wait for */
}

static void behind_a_workers_mistake_the_clients_words_come_first(void **state)
{
    (void)state;
    for (unsigned way = 0; way < 5; way++) {
        serving();
        world_says(&w, WORKER, 0x81, "first");
        world_bytes(&w, WORKER, SLICE_LITERAL("\x83\x00\x81\x00"), SIZE_MAX);
        assert_said(CLIENT, "Tfirst C1011:worker protocol error"); /* nothing of what follows it */
        assert_false(w.t.forward.legs[WORKER].reading);
        world_says(&w, CLIENT, 0x81, "re: first");
        assert_said(WORKER, "Tre: first");
        if (way == 0)
            world_closes(&w, CLIENT, 1011, "");
        else if (way == 1)
            world_lost(&w, CLIENT, LOSS_eof, w.now);
        else if (way == 2)
            world_bytes(&w, CLIENT, SLICE_LITERAL("\x83\x80...."), SIZE_MAX);
        else if (way == 3)
            world_end(&w, CLOSE_kicked, w.now);
        else
            world_pass(&w, SEC); /* it does not answer, and has time for that as before */
        assert_said(WORKER, "Tre: first C1002:worker protocol error");
        assert_int_equal(w.t.state == TUNNEL_closing, way == 4);
        if (way == 4)
            world_says(&w, CLIENT, 0x81, "late"); /* read away */
        ended_with(CLOSE_worker_protocol, "Tfirst C1011:worker protocol error");
    }
}

static void a_worker_that_goes_behind_its_mistake_takes_nothing_from_its_client(void **state)
{
    (void)state;
    serving();
    world_says(&w, WORKER, 0x81, "first");
    world_bytes(&w, WORKER, SLICE_LITERAL("\x83\x00"), SIZE_MAX);
    world_lost(&w, WORKER, LOSS_reset, w.now);
    assert_int_equal(w.t.state, TUNNEL_closing); /* the client may not have read the last words yet */
    ended_with(CLOSE_worker_protocol, "Tfirst C1011:worker protocol error");
}

static void a_client_is_not_heard_longer_because_a_worker_does_not_take_its_words(void **state)
{
    (void)state;
    serving();
    w.ears[WORKER].room = 0;
    world_bytes(&w, WORKER, SLICE_LITERAL("\x83\x00"), SIZE_MAX);
    for (unsigned i = 0; i < 1000 && world_says(&w, CLIENT, 0x82, "0123456789abcdef0123456789abcdef"); i++)
        for (unsigned j = 0; j < 99; j++)
            world_says(&w, CLIENT, 0x82, "0123456789abcdef0123456789abcdef");
    assert_false(w.t.forward.legs[CLIENT].reading);
    assert_in_range(send_queue_len(&w.t.forward.legs[WORKER].out), 1, w.settings.buffer + LEG_SLACK);
    world_pass(&w, SEC);
    assert_int_equal(w.parted[WORKER], 1);
    assert_true(w.t.forward.legs[CLIENT].reading);
    ended_with(CLOSE_worker_protocol, "C1011:worker protocol error");
}

static void a_message_that_is_too_big_ends_the_tunnel(void **state)
{
    struct handover h = world_handover();
    (void)state;
    h.max_message = 10;
    serving_as(&h);
    world_says(&w, CLIENT, 0x82, "0123456789");
    world_says(&w, CLIENT, 0x02, "012345");
    assert_int_equal(w.t.state, TUNNEL_serving);
    world_says(&w, CLIENT, 0x80, "67890");
    ended_with(CLOSE_message_too_big, "C1009:message too big");
}

static void the_clients_close_goes_end_to_end(void **state)
{
    (void)state;
    serving();
    world_closes(&w, CLIENT, 3001, "bye");
    assert_said(WORKER, "C3001:bye");
    assert_said(CLIENT, "");
    world_says(&w, WORKER, 0x82, "last words");
    world_closes(&w, WORKER, 3001, "ciao");
    assert_said(WORKER, "C3001:bye");
    ended_with(CLOSE_client_closed, "Blast words C3001:ciao");
}

static void a_worker_that_does_not_answer_a_close_is_left(void **state)
{
    (void)state;
    serving();
    world_closes(&w, CLIENT, WS_NO_CODE, "");
    world_pass(&w, 5 * SEC);
    ended_with(CLOSE_client_closed, "C1005:");
    serving();
    world_closes(&w, CLIENT, 1000, "x");
    world_lost(&w, WORKER, LOSS_reset, w.now);
    ended_with(CLOSE_client_closed, "C1000:x");
}

static void the_relay_never_repeats_a_reason_that_is_no_text(void **state)
{
    static const char surrogate[] = "\xce\xba\xed\xa0\x80";

    (void)state;
    serving();
    world_closes(&w, CLIENT, 1000, surrogate);
    assert_said(WORKER, "C1000:\xce\xba\xed\xa0\x80"); /* what the worker thinks of it is its business */
    world_lost(&w, WORKER, LOSS_eof, w.now);
    ended_with(CLOSE_client_closed, "C1007:");
    serving();
    world_lost(&w, WORKER, LOSS_reset, w.now);
    world_closes(&w, CLIENT, 1000, surrogate);
    ended_with(CLOSE_client_closed, "C1007:");
    serving();
    world_closes(&w, WORKER, 1003, surrogate);
    assert_said(WORKER, "C1007:");
    ended_with(CLOSE_data_refused, "C1003:\xce\xba\xed\xa0\x80");
    serving();
    world_closes(&w, WORKER, 1000, surrogate); /* perhaps for a move: it is answered before that is known */
    assert_said(WORKER, "C1007:");
    world_pass(&w, SEC);
    ended_with(CLOSE_session_ended, "C1000:\xce\xba\xed\xa0\x80");
}

static void a_client_that_does_not_answer_a_close_is_left(void **state)
{
    (void)state;
    serving();
    world_closes(&w, WORKER, 1003, "why");
    assert_said(WORKER, "C1003:why");
    assert_int_equal(w.t.state, TUNNEL_closing);
    world_says(&w, CLIENT, 0x89, "not answered");
    world_pass(&w, 299 * SEC); /* its network may still hold what came before the Close */
    assert_int_equal(w.t.state, TUNNEL_closing);
    world_pass(&w, 1 * SEC);
    assert_int_equal(w.t.state, TUNNEL_ended);
    ended_with(CLOSE_data_refused, "C1003:why");
}

static void a_client_that_is_lost_leaves_the_worker_a_close(void **state)
{
    (void)state;
    serving();
    world_lost(&w, CLIENT, LOSS_reset, w.now);
    assert_said(WORKER, "C1001:client lost");
    ended_with(CLOSE_client_lost, "");
}

/* ---- losing the upstream: the rows of the table ---- */
static void an_exit_frame_then_a_close_is_the_end(void **state)
{
    (void)state;
    serving_until(HANDOVER_END_EXIT_FRAME);
    world_bytes(&w, WORKER, SLICE_LITERAL("\x82\x05\x03\0\0\0\x07"), 1);
    world_closes(&w, WORKER, 1000, "");
    ended_with(CLOSE_exec_completed, "B\x03 C1000:exec completed");
    serving_until(HANDOVER_END_EXIT_FRAME);
    world_bytes(&w, WORKER, SLICE_LITERAL("\x82\x05\x03\0\0\0\x07"), SIZE_MAX);
    world_lost(&w, WORKER, LOSS_eof, w.now);
    ended_with(CLOSE_exec_completed, "B\x03 C1000:exec completed");
}

static void an_exit_message_passes_the_workers_own_close(void **state)
{
    (void)state;
    serving_until(HANDOVER_END_EXIT_JSON);
    world_says(&w, WORKER, 0x81, "{\"type\":\"exit\",\"exit_code\":0}");
    forget();
    world_closes(&w, WORKER, 1000, "process exited");
    ended_with(CLOSE_exec_completed, "C1000:process exited");
}

static void a_close_without_an_exit_is_a_release_where_exits_are_said(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 4; i++) {
        serving_until(i & 1 ? HANDOVER_END_EXIT_FRAME : HANDOVER_END_EXIT_JSON);
        world_says(&w, WORKER, 0x82, "\x03hi"); /* nearly one */
        world_closes(&w, WORKER, i & 2 ? 1000 : WS_NO_CODE, "");
        assert_int_equal(w.t.state, TUNNEL_redialling);
        forget();
        resumes(1);
        assert_said(CLIENT, "");
        assert_int_equal(w.resumes, 1);
        world_close(&w);
    }
}

static void a_close_that_settles_without_a_change_is_the_end(void **state)
{
    static const unsigned codes[] = {1000, WS_NO_CODE, 3000, 4999};
    (void)state;
    for (size_t i = 0; i < sizeof codes / sizeof codes[0]; i++) {
        char want[32];
        serving();
        world_closes(&w, WORKER, codes[i], codes[i] == WS_NO_CODE ? "" : "bye");
        assert_int_equal(w.t.state, TUNNEL_grace);
        assert_true(w.asking && w.watching);
        world_answers(&w, ANSWER_RUNNING, 1, 1);
        world_pass(&w, 499 * MS);
        assert_int_equal(w.t.state, TUNNEL_grace);
        world_pass(&w, 1 * MS);
        snprintf(want, sizeof want, "C%u:%s", codes[i], codes[i] == WS_NO_CODE ? "" : "bye");
        ended_with(CLOSE_session_ended, want);
    }
}

static void a_close_that_settles_with_a_change_is_a_loss(void **state)
{
    (void)state;
    serving();
    world_closes(&w, WORKER, 1000, "");
    world_answers(&w, ANSWER_RUNNING, 2, 2);
    assert_int_equal(w.dialled_port, 2);
    world_dialled(&w, DIAL_OPEN, 101);
    assert_int_equal(w.t.state, TUNNEL_serving);
    world_close(&w);

    serving(); /* told by the watch, later */
    world_closes(&w, WORKER, 4000, "x");
    world_answers(&w, ANSWER_RUNNING, 1, 1);
    world_pass(&w, 400 * MS);
    world_tells(&w, ANSWER_MIGRATING, 0, 2);
    assert_int_equal(w.t.state, TUNNEL_redialling);
    world_tells(&w, ANSWER_RUNNING, 3, 3);
    assert_int_equal(w.dialled_port, 3);
    world_dialled(&w, DIAL_OPEN, 101);
    assert_said(CLIENT, "");
    world_close(&w);
}

/* The watch's time was over, or it was told of something that moves nobody. */
static void news_that_changes_nothing_does_not_stand_for_the_fresh_answer(void **state)
{
    (void)state;
    for (unsigned epoch = 1; epoch < 3; epoch++) {
        serving();
        world_closes(&w, WORKER, 1000, "released");
        world_tells(&w, ANSWER_RUNNING, 1, epoch);
        assert_int_equal(w.t.state, TUNNEL_grace);
        world_answers(&w, ANSWER_RUNNING, 2, 3);
        assert_int_equal(w.dialled_port, 2);
        world_dialled(&w, DIAL_OPEN, 101);
        assert_int_equal(w.t.state, TUNNEL_serving);
        world_close(&w);
    }
}

static void a_take_over_is_final(void **state)
{
    (void)state;
    serving();
    world_closes(&w, WORKER, 4001, "taken over");
    ended_with(CLOSE_taken_over, "C4001:taken over");
}

static void losses_are_redialled(void **state)
{
    static const unsigned codes[] = {1001, 1011, 1012, 1013, 1014, 0, 1};
    (void)state;
    for (size_t i = 0; i < sizeof codes / sizeof codes[0]; i++) {
        serving();
        if (codes[i] > 1)
            world_closes(&w, WORKER, codes[i], "");
        else
            world_lost(&w, WORKER, codes[i] ? LOSS_eof : LOSS_reset, w.now);
        assert_int_equal(w.t.state, TUNNEL_redialling);
        assert_true(w.asking);
        w.now += 70 * MS;
        resumes(1);
        assert_int_equal(w.gap, 70 * MS);
        assert_said(CLIENT, "");
        world_says(&w, CLIENT, 0x82, "on");
        assert_said(WORKER, "Bon");
        world_close(&w);
    }
}

static void a_worker_that_blames_the_data_ends_the_tunnel(void **state)
{
    static const unsigned codes[] = {1002, 1003, 1007, 1008, 1009, 1010};
    (void)state;
    for (size_t i = 0; i < sizeof codes / sizeof codes[0]; i++) {
        char want[32];
        serving();
        world_closes(&w, WORKER, codes[i], "no");
        snprintf(want, sizeof want, "C%u:no", codes[i]);
        ended_with(CLOSE_data_refused, want);
    }
}

static void what_a_redial_is_refused_with_decides(void **state)
{
    static const struct {
        unsigned status;
        enum close_reason reason;
        const char *client;
    } rows[] = {{404, CLOSE_session_not_found, "C1000:session not found"},
                {410, CLOSE_session_not_found, "C1000:session not found"},
                {401, CLOSE_worker_refused, "C1011:worker refused"},
                {403, CLOSE_worker_refused, "C1011:worker refused"},
                {400, CLOSE_worker_refused, "C1011:worker refused"},
                {405, CLOSE_worker_refused, "C1011:worker refused"},
                {426, CLOSE_worker_refused, "C1011:worker refused"},
                {431, CLOSE_worker_refused, "C1011:worker refused"},
                {499, CLOSE_worker_refused, "C1011:worker refused"}};
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        serving();
        world_lost(&w, WORKER, LOSS_eof, w.now);
        world_answers(&w, ANSWER_RUNNING, 1, 1);
        world_dialled(&w, DIAL_STATUS, rows[i].status);
        ended_with(rows[i].reason, rows[i].client);
    }
}

/* ---- `redial: false` ---- */
static struct handover of_one_leg(void)
{
    struct handover h = world_handover();
    h.one_leg = h.waits = true;
    h.hold = 30000;
    return h;
}

static void without_redial_a_tunnel_ends_with_its_worker(void **state)
{
    static const struct {
        unsigned code;
        enum close_reason reason;
        const char *client;
    } rows[] = {{0, CLOSE_not_redialled, "C1012:worker lost"},
                {1001, CLOSE_not_redialled, "C1012:worker lost"},
                {1011, CLOSE_session_ended, "C1011:its own words"}};
    struct handover h = of_one_leg();
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        serving_as(&h);
        world_says(&w, WORKER, 0x01, "cut"); /* a message */
        w.ears[CLIENT].said[0] = '\0';
        if (rows[i].code)
            world_closes(&w, WORKER, rows[i].code, "its own words");
        else
            world_lost(&w, WORKER, LOSS_eof, w.now);
        ended_with(rows[i].reason, rows[i].client);
    }
}

static void without_redial_a_tunnel_ends_where_the_sandbox_moves(void **state)
{
    struct handover h = of_one_leg();
    (void)state;
    serving_as(&h);
    world_tells(&w, ANSWER_RUNNING, 2, 2);
    assert_said(WORKER, "C1000:moved");
    ended_with(CLOSE_not_redialled, "C1012:worker lost");
}

static void without_redial_a_workers_goodbye_waits_for_one_answer(void **state)
{
    struct handover h = of_one_leg();
    (void)state;
    for (unsigned moved = 0; moved < 3; moved++) {
        serving_as(&h);
        world_closes(&w, WORKER, moved == 2 ? 4321 : 1000, "bye");
        assert_true(w.asking);
        if (moved == 1)
            world_answers(&w, ANSWER_RUNNING, 2, 2);
        else
            world_answers(&w, ANSWER_RUNNING, 1, 1);
        ended_with(moved == 1 ? CLOSE_not_redialled : CLOSE_session_ended, moved == 0   ? "C1000:bye"
                                                                           : moved == 1 ? "C1012:worker lost"
                                                                                        : "C4321:bye");
    }
    serving_as(&h);
    world_closes(&w, WORKER, 1000, "bye");
    world_pass(&w, 500 * MS); /* the agent does not answer */
    ended_with(CLOSE_session_ended, "C1000:bye");
}

static void without_redial_the_next_client_waits_for_a_worker(void **state)
{
    struct handover h = of_one_leg();
    (void)state;
    for (unsigned comes = 0; comes < 2; comes++) {
        world_open(&w, &h);
        uint64_t began = w.now;
        do {
            if (w.asking)
                world_answers(&w, ANSWER_RUNNING, 1, 1);
            if (comes && w.now - began > 20 * SEC)
                world_dialled(&w, DIAL_OPEN, 101);
            else
                world_dialled(&w, DIAL_UNREACHABLE, 0);
            world_pass(&w, 100 * MS);
        } while (w.t.state == TUNNEL_opening && w.now - began < 60 * SEC);
        assert_int_equal(w.t.state, comes ? TUNNEL_serving : TUNNEL_ended);
        assert_in_range(w.now - began, 20 * SEC, 31 * SEC);
        world_close(&w);
    }
}

/* ---- to the outside ---- */
static struct handover of_egress(void)
{
    struct handover h = world_handover();
    h.egress = SLICE_LITERAL("a.example.org:443");
    h.inspect = 1;
    h.one_leg = true;
    return h;
}

static void a_destination_is_dialled_once(void **state)
{
    static const struct {
        enum dial_outcome outcome;
        unsigned status;
        enum refusal refusal;
    } rows[] = {{DIAL_UNREACHABLE, 0, REFUSAL_destination_unreachable},
                {DIAL_INVALID, 0, REFUSAL_destination_unreachable},
                {DIAL_TIMEOUT, 0, REFUSAL_destination_timeout},
                {DIAL_NO_SOCKET, 0, REFUSAL_relay_unavailable},
                {DIAL_STATUS, 401, REFUSAL_NONE},
                {DIAL_STATUS, 409, REFUSAL_NONE}};
    struct handover h = of_egress();
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        assert_true(world_open(&w, &h));
        assert_int_equal(w.dials, 1);
        world_dialled(&w, rows[i].outcome, rows[i].status);
        assert_int_equal(w.t.state, TUNNEL_ended);
        assert_int_equal(w.refusals, 1);
        assert_int_equal(w.refusal, rows[i].refusal);
        assert_int_equal(w.dials, 1);
        assert_int_equal(w.asks, 0);
        world_close(&w);
    }
}

static void the_close_of_a_destination_is_passed_on(void **state)
{
    static const unsigned codes[] = {1000, 1001, 1011, 1012, 4001, 4321};
    struct handover h = of_egress();
    char said[32];
    (void)state;
    for (size_t i = 0; i < sizeof codes / sizeof codes[0]; i++) {
        serving_as(&h);
        world_closes(&w, WORKER, codes[i], "bye");
        assert_false(w.asking);
        snprintf(said, sizeof said, "C%u:bye", codes[i]);
        assert_said(CLIENT, said);
        world_closes(&w, CLIENT, 3000, "mine");
        assert_said(WORKER, "C3000:mine");
        assert_int_equal(w.t.reason, CLOSE_session_ended);
        assert_int_equal(w.t.state, TUNNEL_ended);
        assert_int_equal(w.dials, 1);
        world_close(&w);
    }
}

static void a_destination_stays_the_one_that_was_checked(void **state)
{
    struct handover h = of_egress();
    (void)state;
    serving_as(&h);
    world_tells(&w, ANSWER_RUNNING, 2, 2); /* another one */
    assert_int_equal(w.t.state, TUNNEL_serving);
    assert_int_equal(w.dials, 1);
    world_lost(&w, WORKER, LOSS_eof, w.now);
    ended_with(CLOSE_not_redialled, "C1012:worker lost");
}

/* A dial has just failed for the n-th time. */
static void held(unsigned times)
{
    struct handover h = of_one_leg();

    assert_true(world_open(&w, &h));
    for (unsigned i = 0; i < times; i++) {
        if (w.t.connector.phase == CONNECTOR_PAUSING)
            world_pass(&w, w.t.connector.pause_until - w.now);
        if (w.asking)
            world_answers(&w, ANSWER_RUNNING, 1, 1);
        assert_true(w.dialling);
        world_dialled(&w, DIAL_UNREACHABLE, 0);
    }
    assert_int_equal(w.t.state, TUNNEL_opening);
    assert_int_equal(w.t.connector.phase, CONNECTOR_PAUSING);
}

static void who_is_held_does_not_wait_longer_than_a_second_for_a_worker_that_is_back(void **state)
{
    (void)state;
    for (unsigned times = 4; times < 20; times++) {
        held(times);
        assert_in_range(w.t.connector.pause_until - w.now, times > 4 ? 640 * MS : 0, 960 * MS);
        world_pass(&w, w.t.connector.pause_until - w.now);
        resumes(1);
        assert_int_equal(w.accepts, 1);
        world_close(&w);
    }
}

static void who_is_held_is_told_of_another_worker_at_once(void **state)
{
    (void)state;
    held(6);
    world_pass(&w, MS);
    assert_true(w.watching);
    world_tells(&w, ANSWER_RUNNING, 1, 2); /* nothing new */
    assert_int_equal(w.t.connector.phase, CONNECTOR_PAUSING);
    world_pass(&w, MS);
    world_tells(&w, ANSWER_RUNNING, 2, 3);
    assert_true(w.dialling);
    assert_int_equal(w.dialled_port, 2);
    world_dialled(&w, DIAL_OPEN, 101);
    assert_int_equal(w.accepts, 1);
    world_close(&w);
    held(6);
    world_pass(&w, MS);
    world_tells(&w, ANSWER_STOPPED, 0, 2);
    refused_with(REFUSAL_sandbox_stopped);
}

static void other_refusals_are_tried_again(void **state)
{
    static const unsigned statuses[] = {408, 409, 425, 429, 500, 502, 503, 301, 200};
    (void)state;
    for (size_t i = 0; i < sizeof statuses / sizeof statuses[0]; i++) {
        serving();
        world_lost(&w, WORKER, LOSS_eof, w.now);
        world_answers(&w, ANSWER_RUNNING, 1, 1);
        world_dialled(&w, DIAL_STATUS, statuses[i]);
        world_pass(&w, 121 * MS);
        resumes(1);
        world_close(&w);
    }
}

static void an_absent_session_is_asked_for_once_more_after_a_move(void **state)
{
    (void)state;
    serving();
    world_lost(&w, WORKER, LOSS_eof, w.now);
    world_answers(&w, ANSWER_RUNNING, 2, 2);
    world_dialled(&w, DIAL_STATUS, 404);
    assert_int_equal(w.t.state, TUNNEL_redialling);
    world_pass(&w, 121 * MS);
    world_answers(&w, ANSWER_RUNNING, 2, 2);
    world_dialled(&w, DIAL_STATUS, 404);
    ended_with(CLOSE_session_not_found, "C1000:session not found");
}

static void the_watch_ends_a_tunnel_at_once(void **state)
{
    (void)state;
    serving();
    world_tells(&w, ANSWER_STOPPED, 0, 2);
    assert_said(WORKER, "C1001:sandbox stopped");
    ended_with(CLOSE_sandbox_stopped, "C1000:sandbox stopped");
    serving();
    world_tells(&w, ANSWER_ABSENT, 0, 2);
    ended_with(CLOSE_sandbox_not_found, "C1000:sandbox not found");
    serving();
    struct answer answer = world_answer(ANSWER_RUNNING, 1, 2);
    answer.refused = REFUSAL_token_revoked;
    world_answered(&w, &answer, true, w.now);
    ended_with(CLOSE_token_revoked, "C1008:token revoked");
}

static void a_plain_terminal_leaves_the_old_worker_first(void **state)
{
    (void)state;
    serving();
    world_tells(&w, ANSWER_RUNNING, 2, 2);
    assert_said(WORKER, "C1000:moved");
    assert_int_equal(w.parted[WORKER], 1);
    assert_int_equal(w.dialled_port, 2);
    assert_true(w.watching);
    world_dialled(&w, DIAL_OPEN, 101);
    assert_int_equal(w.loss, LOSS_moved);
    assert_said(CLIENT, "");
    world_close(&w);
}

static void with_overlap_the_old_worker_serves_until_the_new_one_is_there(void **state)
{
    struct handover h = world_handover();
    (void)state;
    h.overlap = true;
    serving_as(&h);
    world_tells(&w, ANSWER_RUNNING, 2, 2);
    assert_int_equal(w.dialled_port, 2);
    world_says(&w, CLIENT, 0x82, "in");
    world_says(&w, WORKER, 0x82, "out");
    assert_said(WORKER, "Bin");
    assert_said(CLIENT, "Bout");
    world_dialled(&w, DIAL_OPEN, 101);
    assert_int_equal(w.parted[WORKER], 1);
    assert_int_equal(w.gap, 0);
    assert_int_equal(w.t.state, TUNNEL_serving);
    world_says(&w, CLIENT, 0x82, "new");
    assert_said(WORKER, "Bnew");
    world_close(&w);
}

static void what_the_old_worker_says_while_it_is_replaced_is_not_judged(void **state)
{
    struct handover h = world_handover();
    (void)state;
    h.overlap = true;
    serving_as(&h);
    world_tells(&w, ANSWER_RUNNING, 2, 2);
    world_closes(&w, WORKER, 4001, "taken over");
    assert_int_equal(w.t.state, TUNNEL_redialling);
    assert_true(w.dialling);
    assert_int_equal(w.asks, 0);
    world_dialled(&w, DIAL_OPEN, 101);
    assert_int_equal(w.t.state, TUNNEL_serving);
    assert_said(CLIENT, "");
    world_close(&w);
}

static void a_worker_that_gets_to_an_abandoned_dial_late_takes_the_session_from_ourselves(void **state)
{
    struct handover h = world_handover();
    (void)state;
    h.overlap = true;
    for (unsigned late = 0; late < 2; late++) {
        serving_as(&h);
        world_tells(&w, ANSWER_RUNNING, 2, 2);
        world_tells(&w, ANSWER_RUNNING, 3, 3); /* before worker 2 has answered */
        assert_int_equal(w.dialled_port, 3);
        world_dialled(&w, DIAL_OPEN, 101);
        world_pass(&w, late ? 10 * SEC : 9 * SEC);
        world_closes(&w, WORKER, 4001, "taken over");
        if (!late) {
            assert_int_equal(w.t.state, TUNNEL_redialling);
            world_answers(&w, ANSWER_RUNNING, 3, 3);
            world_dialled(&w, DIAL_OPEN, 101);
            assert_int_equal(w.t.state, TUNNEL_serving);
            assert_said(CLIENT, "");
            world_closes(&w, WORKER, 4001, "taken over");
        }
        ended_with(CLOSE_taken_over, "C4001:taken over");
    }
}

static void a_worker_that_did_not_answer_in_time_may_take_the_session_late(void **state)
{
    static const enum dial_outcome outcomes[] = {DIAL_TIMEOUT, DIAL_INVALID};
    (void)state;
    for (unsigned i = 0; i < 2; i++) {
        serving();
        world_lost(&w, WORKER, LOSS_eof, w.now);
        world_answers(&w, ANSWER_RUNNING, 2, 2);
        world_dialled(&w, outcomes[i], 0);
        world_tells(&w, ANSWER_RUNNING, 3, 3);
        if (w.asking)
            world_answers(&w, ANSWER_RUNNING, 3, 3);
        world_dialled(&w, DIAL_OPEN, 101);
        assert_int_equal(w.t.state, TUNNEL_serving);
        world_closes(&w, WORKER, 4001, "taken over");
        assert_int_equal(w.t.state, TUNNEL_redialling);
        world_close(&w);
    }
}

/* The next worker's answer was on its way: its session has let go of the old one, who says so. */
static void a_client_that_leaves_while_its_worker_is_replaced_gets_its_own_close(void **state)
{
    struct handover h = world_handover();
    (void)state;
    h.overlap = true;
    for (unsigned moves = 0; moves < 2; moves++) {
        serving_as(&h);
        if (moves)
            world_tells(&w, ANSWER_RUNNING, 2, 2);
        world_closes(&w, CLIENT, 1000, "bye");
        assert_int_equal(w.hang_ups, moves);
        world_closes(&w, WORKER, 4001, "taken over");
        ended_with(CLOSE_client_closed, moves ? "C1000:bye" : "C4001:taken over");
    }
}

/* The session leaves the old worker when the new one has it, and its goodbye may be here first. */
static void workers_that_are_left_in_favour_of_another_do_not_flap(void **state)
{
    struct handover h = world_handover();
    (void)state;
    h.overlap = true;
    serving_as(&h);
    for (unsigned i = 0; i < 10; i++) {
        world_pass(&w, 600 * MS);
        world_tells(&w, ANSWER_RUNNING, (uint16_t)(2 + i), 2 + i);
        if (i % 2)
            world_closes(&w, WORKER, 4001, "taken over");
        else
            world_lost(&w, WORKER, LOSS_eof, w.now);
        world_dialled(&w, DIAL_OPEN, 101);
        assert_int_equal(w.t.state, TUNNEL_serving);
        assert_int_equal(w.loss, LOSS_moved);
    }
    world_close(&w);
}

static void a_replacement_that_cannot_be_reached_leaves_the_old_worker(void **state)
{
    struct handover h = world_handover();
    (void)state;
    h.overlap = true;
    serving_as(&h);
    world_tells(&w, ANSWER_RUNNING, 2, 2);
    for (unsigned i = 0; w.t.connector.phase != CONNECTOR_IDLE; i++) {
        assert_true(i < 20);
        world_dialled(&w, DIAL_UNREACHABLE, 0);
        world_says(&w, WORKER, 0x8a, "alive");
        world_pass(&w, 5 * SEC);
        if (w.asking)
            world_answers(&w, ANSWER_RUNNING, 2, 2);
    }
    assert_int_equal(w.t.state, TUNNEL_serving);
    assert_int_equal(tunnel_target(&w.t)->port, 1);
    /* and is tried again when the agent says the same once more: the old one may serve for ever */
    w.dialled_port = 0;
    world_tells(&w, ANSWER_RUNNING, 2, 2);
    assert_int_equal(w.dialled_port, 2);
    world_dialled(&w, DIAL_OPEN, 101);
    assert_int_equal(w.t.state, TUNNEL_serving);
    assert_int_equal(tunnel_target(&w.t)->port, 2);
    assert_int_equal(w.parted[WORKER], 1);
    world_close(&w);
}

/* Told while the other one is dialled; by an answer, when that has failed; when that does not know the session. */
static void a_sandbox_that_comes_back_stays_with_the_worker_that_serves(void **state)
{
    static const enum dial_outcome outcomes[] = {DIAL_OPEN, DIAL_INVALID, DIAL_STATUS};
    struct handover h = world_handover();
    (void)state;
    h.overlap = true;
    for (unsigned i = 0; i < 3; i++) {
        serving_as(&h);
        world_tells(&w, ANSWER_RUNNING, 2, 2);
        if (outcomes[i] != DIAL_OPEN) {
            world_dialled(&w, outcomes[i], 404);
            world_pass(&w, 200 * MS);
            world_answers(&w, ANSWER_RUNNING, outcomes[i] == DIAL_STATUS ? 2 : 1, 3);
        }
        if (outcomes[i] == DIAL_STATUS)
            world_dialled(&w, DIAL_STATUS, 404);
        unsigned dials = w.dials;
        world_tells(&w, ANSWER_RUNNING, 1, 3);
        assert_int_equal(w.dials, dials);
        assert_int_equal(w.t.connector.phase, CONNECTOR_IDLE);
        assert_int_equal(w.t.state, TUNNEL_serving);
        assert_said(WORKER, "");
        world_tells(&w, ANSWER_RUNNING, 2, 4);
        assert_int_equal(w.dials, dials + 1);
        world_tells(&w, ANSWER_RUNNING, 1, 5);
        world_closes(&w, WORKER, 4001, "taken over"); /* the other had got to it all the same */
        assert_int_equal(w.t.state, TUNNEL_redialling);
        world_close(&w);
    }
}

static void a_message_cut_on_a_terminal_is_ended(void **state)
{
    struct handover h = world_handover();
    (void)state;
    h.stream = true;
    serving_as(&h);
    world_says(&w, WORKER, 0x02, "half");
    world_lost(&w, WORKER, LOSS_reset, w.now);
    assert_said(CLIENT, "bhalf .");
    resumes(1);
    world_says(&w, WORKER, 0x82, "new");
    assert_said(CLIENT, "bhalf . Bnew");
    assert_false(w.ears[CLIENT].broken);
    world_close(&w);
}

static void a_message_cut_elsewhere_ends_the_tunnel(void **state)
{
    (void)state;
    serving();
    world_says(&w, WORKER, 0x02, "half");
    world_lost(&w, WORKER, LOSS_reset, w.now);
    ended_with(CLOSE_message_cut, "bhalf C1012:message cut");
}

static void a_frame_that_was_not_passed_yet_cuts_no_message(void **state)
{
    (void)state;
    serving();
    world_bytes(&w, WORKER,
                SLICE_LITERAL("\x82\x05"
                              "abc"),
                SIZE_MAX);
    world_lost(&w, WORKER, LOSS_reset, w.now);
    resumes(1);
    world_says(&w, WORKER, 0x81, "x");
    assert_said(CLIENT, "Tx");
    world_close(&w);
}

/* ---- redials ---- */
static void redials_wait_longer_each_time_and_give_up(void **state)
{
    static const uint64_t waits[] = {0, 100, 250, 500, 1000, 2000, 4000, 4000, 4000};
    uint64_t last = 0;
    unsigned dials = 1;
    (void)state;
    serving();
    w.settings.keepalive = 3600 * SEC;
    world_lost(&w, WORKER, LOSS_eof, w.now);
    last = w.now;
    while (w.t.state == TUNNEL_redialling) {
        if (dials <= sizeof waits / sizeof waits[0] && last - 1000 * SEC < 25 * SEC)
            assert_in_range((w.now - last) / MS, waits[dials - 1] * 8 / 10, waits[dials - 1] * 12 / 10);
        last = w.now;
        world_answers(&w, ANSWER_RUNNING, 1, 1);
        assert_int_equal(w.dials, ++dials);
        world_dialled(&w, DIAL_UNREACHABLE, 0);
        while (w.t.state == TUNNEL_redialling && !w.asking)
            world_pass(&w, 10 * MS);
    }
    assert_in_range(w.now - 1000 * SEC, 30 * SEC, 30 * SEC + 10 * MS); /* the last one at its end */
    ended_with(CLOSE_unrecoverable, "C1011:upstream unrecoverable");
}

static void an_agent_that_cannot_say_is_as_a_lost_dial(void **state)
{
    (void)state;
    serving();
    world_lost(&w, WORKER, LOSS_eof, w.now);
    world_answers(&w, ANSWER_UNAVAILABLE, 0, 0);
    assert_false(w.dialling);
    world_pass(&w, 121 * MS);
    resumes(1);
    world_close(&w);
}

static void an_agent_that_is_away_does_not_spend_the_budget(void **state)
{
    struct answer away = world_answer(ANSWER_UNAVAILABLE, 0, 0);
    (void)state;
    away.agent_lost = true;
    serving();
    w.settings.keepalive = 3600 * SEC;
    world_lost(&w, WORKER, LOSS_eof, w.now);
    for (unsigned i = 0; i < 20; i++) {
        world_pass(&w, 5 * SEC);
        assert_true(w.asking);
        w.asking = false;
        world_answered(&w, &away, false, w.now);
        world_pass(&w, 5 * SEC);
    }
    assert_int_equal(w.t.state, TUNNEL_redialling);
    resumes(1);
    world_close(&w);
}

static void an_agent_that_does_not_come_back_is_given_up(void **state)
{
    struct answer away = world_answer(ANSWER_UNAVAILABLE, 0, 0);
    (void)state;
    away.agent_lost = true;
    serving();
    w.settings.keepalive = 3600 * SEC;
    world_lost(&w, WORKER, LOSS_eof, w.now);
    for (unsigned i = 0; i < 70 && w.t.state == TUNNEL_redialling; i++) {
        world_pass(&w, 5 * SEC);
        w.asking = false;
        world_answered(&w, &away, false, w.now);
        world_pass(&w, 5 * SEC);
    }
    assert_in_range(w.now, 1600 * SEC, 1610 * SEC);
    ended_with(CLOSE_unrecoverable, "C1011:upstream unrecoverable");
}

static void a_migration_stops_the_clock_of_attempts(void **state)
{
    (void)state;
    serving();
    world_lost(&w, WORKER, LOSS_eof, w.now);
    world_answers(&w, ANSWER_MIGRATING, 0, 2);
    for (unsigned i = 0; i < 590; i += 10) {
        world_pass(&w, 10 * SEC);
        world_says(&w, CLIENT, 0x8a, "alive");
    }
    assert_int_equal(w.t.state, TUNNEL_redialling);
    world_tells(&w, ANSWER_RUNNING, 2, 3);
    world_dialled(&w, DIAL_UNREACHABLE, 0);
    world_pass(&w, 121 * MS);
    resumes(2);
    world_close(&w);
}

static void a_migration_that_does_not_end_is_given_up(void **state)
{
    (void)state;
    serving();
    world_lost(&w, WORKER, LOSS_eof, w.now);
    world_answers(&w, ANSWER_MIGRATING, 0, 2);
    for (unsigned i = 0; i < 600 && w.t.state == TUNNEL_redialling; i += 10) {
        world_says(&w, CLIENT, 0x8a, "alive");
        world_pass(&w, 10 * SEC);
    }
    assert_int_equal(w.now, 1600 * SEC);
    assert_int_equal(w.t.reason, CLOSE_unrecoverable);
    world_close(&w);
}

static void a_migrating_sandbox_with_a_worker_is_dialled(void **state)
{
    (void)state;
    serving();
    world_lost(&w, WORKER, LOSS_eof, w.now);
    world_answers(&w, ANSWER_MIGRATING, 1, 2);
    assert_true(w.dialling);
    world_dialled(&w, DIAL_UNREACHABLE, 0);
    world_tells(&w, ANSWER_RUNNING, 2, 3); /* and goes where the watch says */
    assert_int_equal(w.dialled_port, 2);
    world_close(&w);
}

static void a_change_while_dialling_redirects_the_dial(void **state)
{
    (void)state;
    serving();
    world_lost(&w, WORKER, LOSS_eof, w.now);
    world_answers(&w, ANSWER_RUNNING, 1, 1);
    world_tells(&w, ANSWER_RUNNING, 2, 2);
    assert_int_equal(w.hang_ups, 1);
    assert_int_equal(w.dialled_port, 2);
    world_close(&w);
}

static void a_worker_that_is_lost_too_often_ends_the_tunnel(void **state)
{
    (void)state;
    serving();
    for (unsigned i = 0; i < 3; i++) {
        world_pass(&w, 5 * SEC);
        world_lost(&w, WORKER, LOSS_eof, w.now);
        resumes(1);
    }
    world_lost(&w, WORKER, LOSS_eof, w.now);
    ended_with(CLOSE_flapping, "C1011:upstream flapping");
}

static void losses_of_workers_that_lived_do_not_flap(void **state)
{
    (void)state;
    serving();
    for (unsigned i = 0; i < 8; i++) {
        world_pass(&w, 10 * SEC);
        world_lost(&w, WORKER, LOSS_eof, w.now);
        resumes(1);
    }
    assert_int_equal(w.t.redials, 8);
    world_close(&w);
}

static void four_migrations_in_a_minute_do_not_flap_but_eleven_do(void **state)
{
    (void)state;
    serving();
    for (unsigned i = 0; i < 10; i++) {
        world_pass(&w, 5 * SEC);
        world_tells(&w, ANSWER_RUNNING, (uint16_t)(2 + i), 2 + i);
        world_dialled(&w, DIAL_OPEN, 101);
        assert_int_equal(w.t.state, TUNNEL_serving);
    }
    world_tells(&w, ANSWER_RUNNING, 99, 99);
    assert_int_equal(w.t.reason, CLOSE_flapping);
    world_close(&w);
}

static void eleven_changes_before_there_is_a_tunnel_are_refused(void **state)
{
    struct handover h = world_handover();
    (void)state;
    h.addr.family = 0;
    world_open(&w, &h);
    world_answers(&w, ANSWER_WAKING, 0, 1);
    for (unsigned i = 0; w.t.state == TUNNEL_opening; i++) {
        assert_true(i < 12);
        world_tells(&w, ANSWER_RUNNING, (uint16_t)(2 + i), 2 + i);
    }
    assert_said(CLIENT, "");
    refused_with(REFUSAL_worker_unreachable);
}

/* ---- input that may be lost ---- */
static void input_that_a_lost_worker_has_not_proved_to_have_read_is_counted(void **state)
{
    (void)state;
    serving();
    world_says(&w, CLIENT, 0x82, "read");
    world_pass(&w, 24 * SEC);
    world_says(&w, WORKER, 0x82, "echo");
    world_pass(&w, 2 * SEC);
    forget();
    world_says(&w, CLIENT, 0x82, "this");
    assert_said(WORKER, "Bthis PINGown"); /* the worker was asked at last 25 s ago */
    world_says(&w, CLIENT, 0x82, "or this");
    world_pongs(&w, WORKER, 1);
    world_lost(&w, WORKER, LOSS_reset, w.now);
    assert_int_equal(w.unconfirmed, strlen("or this"));
    world_says(&w, CLIENT, 0x82, "held");
    resumes(1);
    assert_int_equal(w.unconfirmed, strlen("or this"));
    world_lost(&w, WORKER, LOSS_reset, w.now);
    assert_int_equal(w.unconfirmed, strlen("or this") + strlen("held"));
    world_close(&w);
}

static void a_pong_to_a_ping_that_was_not_sent_yet_takes_nothing_from_the_count(void **state)
{
    (void)state;
    for (unsigned redials = 0; redials < 2; redials++) {
        serving();
        w.ears[WORKER].room = 0;
        world_says(&w, CLIENT, 0x82, "held");
        world_pass(&w, 26 * SEC);
        world_pongs(&w, WORKER, 1);
        if (redials)
            world_lost(&w, WORKER, LOSS_reset, w.now);
        else
            world_tells(&w, ANSWER_RUNNING, 2, 2);
        assert_int_equal(w.unconfirmed, 0); /* it is for the next worker */
        assert_int_equal(w.unread, 0);
        world_close(&w);
    }
}

static void input_is_counted_when_nobody_will_get_it(void **state)
{
    (void)state;
    serving();
    world_lost(&w, WORKER, LOSS_reset, w.now);
    world_says(&w, CLIENT, 0x82, "held");
    world_lost(&w, CLIENT, LOSS_eof, w.now);
    assert_int_equal(w.unconfirmed, 4);
    world_close(&w);

    serving();
    world_says(&w, CLIENT, 0x82, "said");
    world_closes(&w, CLIENT, 1000, "");
    world_lost(&w, WORKER, LOSS_reset, w.now); /* it has not answered the Close */
    assert_int_equal(w.unconfirmed, 4);
    world_close(&w);

    serving();
    world_says(&w, CLIENT, 0x82, "said");
    world_tells(&w, ANSWER_RUNNING, 2, 2); /* it may still read; the port will see */
    assert_int_equal(w.unconfirmed, 0);
    assert_int_equal(w.unread, 4);
    world_close(&w);
}

static void tagged_input_is_never_cut(void **state)
{
    static const char *const words[] = {"B0one", "B0two", "B0three"};
    struct handover h = world_handover();
    (void)state;
    h.resume = HANDOVER_RESUME_SCROLLBACK;
    for (size_t step = 1; step < 40; step++) {
        uint8_t memory[3][64], bytes[100];
        struct slice parts[] = {world_frame(memory[0], CLIENT, 0x02, SLICE_LITERAL("\0one")),
                                world_frame(memory[1], CLIENT, 0x00, SLICE_LITERAL("two")),
                                world_frame(memory[2], CLIENT, 0x80, SLICE_LITERAL("three"))};
        size_t len = 0;
        serving_as(&h);
        for (unsigned i = 0; i < 3; i++) {
            memcpy(bytes + len, parts[i].at, parts[i].len);
            len += parts[i].len;
        }
        struct tunnel_host deaf = world_host;
        deaf.send = deaf_send;
        w.t.forward.place.host = &deaf;
        world_bytes(&w, CLIENT, slice_of(bytes, len), step);
        struct slice in = buffer_slice(&w.ears[WORKER].bytes);
        struct ws_decoder d = ws_decoder_of(WS_CLIENT, LEG_FRAME_WHOLE);
        struct ws_piece piece;
        unsigned heard = 0;
        for (enum ws_event event; (event = ws_decode(&d, &in, &piece)) != WS_MORE;) {
            uint8_t plain[64] = {0};
            assert_int_not_equal(event, WS_BAD);
            if (event != WS_PIECE)
                continue;
            assert_true(d.frame.fin && d.frame.opcode == WS_BINARY && heard < 3);
            ws_mask(plain, piece.bytes.at, piece.bytes.len, d.frame.mask, piece.offset);
            assert_int_equal(plain[0], 0);
            assert_string_equal((const char *)plain + 1, words[heard++] + 2);
        }
        assert_int_equal(heard, 3);
        world_close(&w);
    }
}

/* ---- while there is no upstream ---- */
static void pings_are_answered_while_there_is_no_worker(void **state)
{
    (void)state;
    serving();
    world_says(&w, CLIENT, 0x89, "answered");
    world_says(&w, CLIENT, 0x89, "open1");
    world_says(&w, CLIENT, 0x89, "open2");
    world_says(&w, WORKER, 0x8a, "answered");
    forget();
    world_lost(&w, WORKER, LOSS_reset, w.now);
    world_says(&w, CLIENT, 0x89, "during");
    assert_said(CLIENT, "PONGopen2 PONGduring");
    resumes(1);
    assert_said(WORKER, "");
    world_close(&w);
}

/* CPU time in which many Pongs pass that answer none of the client's Pings. */
static clock_t pass_foreign_pongs(void)
{
    static uint8_t pongs[LEG_PAUSE];
    const size_t len = sizeof pongs / 3 * 3;
    for (size_t i = 0; i < len; i += 3)
        memcpy(pongs + i, (const uint8_t[]){0x8a, 1, 'x'}, 3);
    clock_t before = clock();
    for (unsigned i = 0; i < 4; i++)
        assert_true(world_bytes(&w, WORKER, slice_of(pongs, len), SIZE_MAX));
    return clock() - before;
}

static void a_pong_that_answers_nothing_costs_the_same_however_many_pings_are_open(void **state)
{
    (void)state;
    serving();
    clock_t alone = pass_foreign_pongs();
    for (unsigned i = 0; i < 2000; i++)
        world_says(&w, CLIENT, 0x89, "");
    clock_t beside = pass_foreign_pongs();
    if (beside > 5 * alone + CLOCKS_PER_SEC / 100)
        fail_msg("%ld us, and with open Pings %ld us", (long)alone, (long)beside);
    world_close(&w);
}

static void a_client_that_does_not_read_the_answers_to_its_pings_is_not_read(void **state)
{
    (void)state;
    serving();
    world_lost(&w, WORKER, LOSS_reset, w.now);
    w.ears[CLIENT].room = 0;
    for (size_t pings = 0; w.t.forward.legs[CLIENT].reading; pings++) {
        assert_true(pings < LEG_PAUSE);
        world_says(&w, CLIENT, 0x89, "ping");
    }
    assert_int_equal(w.t.state, TUNNEL_redialling);
    assert_in_range(send_queue_len(&w.t.forward.legs[CLIENT].out), LEG_PAUSE,
                    LEG_PAUSE + WS_CONTROL_FRAME_MAX);
    w.ears[CLIENT].room = SIZE_MAX;
    world_writable(&w, CLIENT, w.now);
    assert_true(w.t.forward.legs[CLIENT].reading);
    w.ears[CLIENT].room = 0;
    while (w.t.forward.legs[CLIENT].reading)
        world_says(&w, CLIENT, 0x89, "ping");
    resumes(1); /* what it has to say to a worker is read however slow it is */
    assert_true(w.t.forward.legs[CLIENT].reading);
    world_close(&w);
}

static void a_paste_of_a_mebibyte_is_held_and_delivered(void **state)
{
    static uint8_t paste[1 << 20], frame[sizeof paste + 14], got[sizeof paste];
    struct slice bytes;
    size_t given = 0, room;
    (void)state;
    for (size_t i = 0; i < sizeof paste; i++)
        paste[i] = (uint8_t)(i * 31 + i / 253);
    serving();
    world_lost(&w, WORKER, LOSS_reset, w.now);
    bytes = world_frame(frame, CLIENT, 0x82, slice_of(paste, sizeof paste));
    while (w.t.forward.legs[CLIENT].reading) {
        room = forward_room(&w.t.forward, CLIENT);
        room = room < 65536 ? room : 65536;
        world_bytes(&w, CLIENT, slice_sub(bytes, given, room), SIZE_MAX);
        given += room;
    }
    assert_in_range(send_queue_len(&w.t.forward.legs[WORKER].out), 250 << 10, 260 << 10);
    struct tunnel_host deaf = world_host;
    deaf.send = deaf_send;
    w.t.forward.place.host = &deaf;
    resumes(1);
    assert_true(world_bytes(&w, CLIENT, slice_from(bytes, given), 65536));

    struct slice in = buffer_slice(&w.ears[WORKER].bytes);
    struct ws_decoder d = ws_decoder_of(WS_CLIENT, 0);
    struct ws_piece piece;
    size_t len = 0;
    for (enum ws_event event; (event = ws_decode(&d, &in, &piece)) != WS_MORE;) {
        assert_int_not_equal(event, WS_BAD);
        if (event != WS_PIECE)
            continue;
        ws_mask(got + len, piece.bytes.at, piece.bytes.len, d.frame.mask, piece.offset);
        len += piece.bytes.len;
    }
    assert_int_equal(len, sizeof paste);
    assert_memory_equal(got, paste, sizeof paste);
    world_close(&w);
}

static void held_data_is_not_read_beyond_the_memory_of_the_process(void **state)
{
    (void)state;
    serving();
    world_lost(&w, WORKER, LOSS_reset, w.now);
    w.full = true;
    assert_true(world_says(&w, CLIENT, 0x82, "first"));
    assert_false(w.t.forward.legs[CLIENT].reading);
    resumes(1);
    assert_true(w.t.forward.legs[CLIENT].reading);
    assert_said(WORKER, "Bfirst");
    world_close(&w);
}

/* Of all that wait for a worker each may read once more. */
static void without_memory_that_others_have_taken_no_more_than_a_little_is_read(void **state)
{
    (void)state;
    for (unsigned holds = 0; holds < 2; holds++) {
        serving();
        world_lost(&w, WORKER, LOSS_reset, w.now);
        if (holds)
            world_says(&w, CLIENT, 0x82, "first");
        assert_true(forward_room(&w.t.forward, CLIENT) >= LEG_PAUSE);
        w.full = true;
        assert_true(w.t.forward.legs[CLIENT].reading);
        assert_in_range(forward_room(&w.t.forward, CLIENT), 1, 4096);
        resumes(1);
        assert_in_range(forward_room(&w.t.forward, CLIENT), 1, 4096);
        w.full = false;
        assert_int_equal(forward_room(&w.t.forward, CLIENT), LEG_PAUSE);
        world_close(&w);
    }
}

/* One that holds nothing of a side goes on with it, however short memory is. */
static void without_memory_a_side_is_read_when_nothing_of_it_is_held(void **state)
{
    static uint8_t payload[20000];
    (void)state;
    for (enum side from = CLIENT; from <= WORKER; from++) {
        enum side to = from == CLIENT ? WORKER : CLIENT;
        serving();
        w.full = true;
        w.ears[to].room = 0;
        assert_true(w.t.forward.legs[from].reading);
        world_says(&w, from, 0x82, "held");
        assert_false(w.t.forward.legs[from].reading);
        assert_true(w.t.forward.legs[to].reading);
        w.ears[to].room = SIZE_MAX;
        world_writable(&w, to, w.now);
        assert_true(w.t.forward.legs[from].reading);
        /* what is not whole yet is not waited for, but what is small is */
        uint8_t frame[sizeof payload + WS_HEAD_MAX];
        struct slice large = world_frame(frame, from, 0x82, slice_of(payload, 10000));
        world_bytes(&w, from, slice_sub(large, 0, 4000), SIZE_MAX);
        assert_int_equal(buffer_len(&w.t.forward.legs[from].partial), 4000 - (from == CLIENT ? 8 : 4));
        world_bytes(&w, from, slice_sub(slice_from(large, 4000), 0, 4000), SIZE_MAX);
        assert_int_equal(buffer_len(&w.t.forward.legs[from].partial), 0);
        world_bytes(&w, from, slice_from(large, 8000), SIZE_MAX);
        assert_int_equal(w.t.forward.legs[to].message_out, 0);
        assert_false(w.ears[to].broken);
        world_close(&w);
    }
}

static void a_frame_partly_sent_to_the_lost_worker_is_sent_again_whole(void **state)
{
    (void)state;
    serving();
    world_says(&w, CLIENT, 0x01, "one");
    w.ears[WORKER].room = 4;
    world_says(&w, CLIENT, 0x00, "two");
    world_says(&w, CLIENT, 0x89, "ping");
    world_says(&w, CLIENT, 0x80, "three");
    world_lost(&w, WORKER, LOSS_reset, w.now);
    forget();
    resumes(1);
    assert_said(WORKER, "ttwo .three");
    world_close(&w);
}

static void a_message_goes_on_with_the_next_worker(void **state)
{
    (void)state;
    serving();
    world_says(&w, CLIENT, 0x01, "one");
    world_lost(&w, WORKER, LOSS_reset, w.now);
    resumes(1);
    forget();
    world_says(&w, CLIENT, 0x00, "two");
    world_says(&w, CLIENT, 0x80, "three");
    assert_said(WORKER, "ttwo .three");
    world_close(&w);
}

static void a_worker_that_is_left_in_the_middle_of_a_frame_is_cut_off(void **state)
{
    (void)state;
    serving();
    w.ears[WORKER].room = 3;
    world_says(&w, CLIENT, 0x82, "abcdef");
    world_tells(&w, ANSWER_RUNNING, 2, 2);
    assert_int_equal(w.dropped[WORKER], 1);
    assert_int_equal(w.parted[WORKER], 0);
    world_dialled(&w, DIAL_OPEN, 101);
    assert_said(WORKER, "Babcdef");
    world_close(&w);
}

static void a_client_that_closes_during_a_redial_is_answered(void **state)
{
    (void)state;
    serving();
    world_lost(&w, WORKER, LOSS_reset, w.now);
    world_answers(&w, ANSWER_RUNNING, 1, 1);
    world_closes(&w, CLIENT, 1000, "bye");
    assert_int_equal(w.hang_ups, 1);
    ended_with(CLOSE_client_closed, "C1000:bye");
}

/* ---- flow ---- */
static void a_slow_client_stops_its_worker(void **state)
{
    static uint8_t frame[20000], payload[16000];
    (void)state;
    serving();
    w.ears[CLIENT].room = 10;
    for (unsigned i = 0; w.t.forward.legs[WORKER].reading; i++) {
        assert_true(i < 10);
        world_bytes(&w, WORKER, world_frame(frame, WORKER, 0x82, slice_of(payload, sizeof payload)),
                    SIZE_MAX);
    }
    assert_in_range(send_queue_len(&w.t.forward.legs[CLIENT].out), LEG_PAUSE, 2 * LEG_PAUSE);
    assert_true(w.t.forward.legs[CLIENT].reading);
    world_pass(&w, 299 * SEC); /* neither is judged by its silence */
    assert_int_equal(w.t.state, TUNNEL_serving);
    w.ears[CLIENT].room = 1 << 20;
    world_writable(&w, CLIENT, w.now);
    assert_true(w.t.forward.legs[WORKER].reading);
    world_close(&w);
}

static void a_client_without_progress_is_too_slow(void **state)
{
    (void)state;
    serving();
    w.ears[CLIENT].room = 0;
    world_says(&w, WORKER, 0x82, "x");
    for (unsigned i = 0; i < 300 && w.t.state == TUNNEL_serving; i += 10) {
        world_says(&w, WORKER, 0x8a, "alive");
        world_pass(&w, 10 * SEC);
    }
    assert_int_equal(w.t.reason, CLOSE_client_too_slow);
    w.ears[CLIENT].room = SIZE_MAX;
    world_writable(&w, CLIENT, w.now);
    assert_non_null(strstr(w.ears[CLIENT].said, "C1013:too slow"));
    world_close(&w);
}

static void ends_while_its_client_is_slow(void)
{
    serving();
    w.ears[CLIENT].room = 0;
    world_says(&w, WORKER, 0x82, "the last words of this session");
    world_closes(&w, WORKER, 1000, "done");
    world_pass(&w, 500 * MS);
    assert_int_equal(w.t.state, TUNNEL_closing);
}

static void a_slow_client_gets_the_end_of_the_output(void **state)
{
    struct ear *client = &w.ears[CLIENT];
    (void)state;
    ends_while_its_client_is_slow();
    for (client->room = 5; !strstr(client->said, "C1000:done"); client->room = 5) {
        world_pass(&w, 200 * SEC);
        assert_int_equal(w.t.state, TUNNEL_closing);
        world_writable(&w, CLIENT, w.now);
    }
    assert_said(CLIENT, "Bthe last words of this session C1000:done");
    world_close(&w);
}

/* The kernel has taken all of it, which says nothing of the client: it has it when it answers the Close. */
static void a_client_that_types_before_it_has_read_the_end_is_not_cut_off(void **state)
{
    (void)state;
    ends_while_its_client_is_slow();
    w.ears[CLIENT].room = SIZE_MAX;
    world_writable(&w, CLIENT, w.now);
    assert_said(CLIENT, "Bthe last words of this session C1000:done");
    world_pass(&w, 200 * SEC);
    world_says(&w, CLIENT, 0x82, "nobody reads this");
    assert_int_equal(w.t.state, TUNNEL_closing);
    assert_true(w.t.forward.legs[CLIENT].reading);
    world_closes(&w, CLIENT, 1000, "done");
    assert_int_equal(w.t.state, TUNNEL_ended);
    world_close(&w);
}

/* However the relay learns that there is no session any more. */
static void a_slow_client_gets_the_end_of_the_output_of_what_is_gone(void **state)
{
    static const struct {
        enum answer_state state;
        unsigned status;
        const char *said;
    } rows[] = {{ANSWER_STOPPED, 0, "Blast words C1000:sandbox stopped"},
                {ANSWER_ABSENT, 0, "Blast words C1000:sandbox not found"},
                {ANSWER_RUNNING, 404, "Blast words C1000:session not found"},
                {ANSWER_RUNNING, 0, "Blast words C1000:process exited"}};
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        serving();
        w.ears[CLIENT].room = 0;
        world_says(&w, WORKER, 0x82, "last words");
        if (rows[i].state == ANSWER_RUNNING)
            world_lost(&w, WORKER, LOSS_eof, w.now);
        if (w.asking)
            world_answers(&w, ANSWER_RUNNING, 1, 1);
        if (rows[i].state != ANSWER_RUNNING)
            world_tells(&w, rows[i].state, 0, 2);
        else
            world_dialled(&w, rows[i].status ? DIAL_STATUS : DIAL_ENDED, rows[i].status);
        world_pass(&w, 200 * SEC);
        assert_int_equal(w.t.state, TUNNEL_closing);
        w.ears[CLIENT].room = SIZE_MAX;
        world_writable(&w, CLIENT, w.now);
        assert_said(CLIENT, rows[i].said);
        world_close(&w);
    }
}

static void a_client_that_types_much_behind_the_end_may_answer_it(void **state)
{
    (void)state;
    ends_while_its_client_is_slow();
    w.t.forward.max_message = 10;
    world_says(&w, CLIENT, 0x82, "more than ten bytes");
    assert_int_equal(w.t.state, TUNNEL_closing);
    world_closes(&w, CLIENT, 1000, "done");
    assert_int_equal(w.t.state, TUNNEL_ended);
    world_close(&w);
}

static void a_client_that_breaks_the_protocol_behind_the_end_is_left(void **state)
{
    (void)state;
    ends_while_its_client_is_slow();
    world_says(&w, CLIENT, 0xf3, "no such frame");
    assert_int_equal(w.t.state, TUNNEL_ended);
    world_close(&w);
}

static void a_client_that_does_not_take_the_end_of_the_output_is_given_up(void **state)
{
    (void)state;
    ends_while_its_client_is_slow();
    world_pass(&w, 299 * SEC);
    assert_int_equal(w.t.state, TUNNEL_closing);
    world_pass(&w, 1 * SEC);
    assert_int_equal(w.t.state, TUNNEL_ended);
    world_close(&w);

    ends_while_its_client_is_slow();
    world_pass(&w, 20 * SEC);
    w.ears[CLIENT].room = SIZE_MAX;
    world_writable(&w, CLIENT, w.now); /* from here on only its answer is waited for */
    world_pass(&w, 299 * SEC);
    assert_int_equal(w.t.state, TUNNEL_closing);
    world_pass(&w, 1 * SEC);
    assert_int_equal(w.t.state, TUNNEL_ended);
    world_close(&w);

    ends_while_its_client_is_slow();
    world_end(&w, CLOSE_kicked, w.now);
    assert_int_equal(w.t.reason, CLOSE_session_ended);
    assert_int_equal(w.t.state, TUNNEL_ended);
    world_close(&w);
}

static void who_has_to_leave_is_not_waited_for(void **state)
{
    (void)state;
    serving();
    w.ears[CLIENT].room = 0;
    world_says(&w, WORKER, 0x82, "the last words of this session");
    world_end(&w, CLOSE_kicked, w.now);
    w.ears[CLIENT].room = 5;
    world_pass(&w, 4 * SEC);
    world_writable(&w, CLIENT, w.now);
    world_pass(&w, 1 * SEC);
    assert_int_equal(w.t.state, TUNNEL_ended);
    world_close(&w);
}

/* Whoever says it, and although it was read together with what is too much. */
static void what_came_before_a_message_that_is_too_big_passes(void **state)
{
    static const uint8_t much[1001];
    (void)state;
    for (enum side from = CLIENT; from <= WORKER; from++) {
        struct handover h = world_handover();
        uint8_t both[2048];
        h.max_message = 1000;
        serving_as(&h);
        size_t len = world_frame(both, from, 0x82, SLICE_LITERAL("before")).len;
        len += world_frame(both + len, from, 0x82, slice_of(much, sizeof much)).len;
        world_bytes(&w, from, slice_of(both, len), SIZE_MAX);
        assert_int_equal(w.t.reason, CLOSE_message_too_big);
        assert_said(CLIENT, from == CLIENT ? "C1009:message too big" : "Bbefore C1009:message too big");
        assert_said(WORKER, from == WORKER ? "C1009:message too big" : "Bbefore C1009:message too big");
        world_close(&w);
    }
}

/* ---- keepalive ---- */
static void silence_is_met_with_a_ping_and_its_pong_is_swallowed(void **state)
{
    (void)state;
    serving();
    world_pass(&w, 24999 * MS);
    assert_said(CLIENT, "");
    world_pass(&w, 1 * MS);
    assert_said(CLIENT, "PINGown");
    assert_said(WORKER, "PINGown");
    forget();
    world_pongs(&w, CLIENT, 1);
    world_pongs(&w, WORKER, 1);
    assert_said(CLIENT, "");
    assert_said(WORKER, "");
    world_pongs(&w, WORKER, 2); /* never asked */
    assert_said(CLIENT, "PONGown");
    world_pass(&w, 25 * SEC);
    assert_int_equal(w.t.state, TUNNEL_serving);
    world_close(&w);
}

/* Its own Ping the worker answers, and it is this client that waits for the answer. */
static void a_ping_that_looks_like_one_of_the_relays_is_answered(void **state)
{
    (void)state;
    serving();
    world_pass(&w, 25 * SEC);
    world_pongs(&w, CLIENT, 1);
    world_pongs(&w, WORKER, 1);
    uint32_t seen = w.t.forward.legs[CLIENT].mark;
    assert_int_not_equal(seen, w.t.forward.legs[WORKER].mark);
    forget();
    world_says_own(&w, CLIENT, 0x89, seen, 1);
    assert_said(WORKER, "PINGown");
    world_says_own(&w, WORKER, 0x8a, seen, 1);
    assert_said(CLIENT, "PONGown");
    world_close(&w);
}

/* Or its timer would fire at once, for nothing. */
static void nothing_is_overdue_when_a_client_with_a_ping_is_not_read_any_more(void **state)
{
    (void)state;
    serving();
    w.ears[WORKER].room = 0;
    world_says(&w, CLIENT, 0x82, "is not taken");
    for (unsigned i = 0; i < 10; i++) {
        world_pass(&w, 6 * SEC);
        world_says(&w, WORKER, 0x8a, "alive");
    }
    assert_true(w.t.forward.legs[CLIENT].pinged && w.t.forward.legs[CLIENT].reading);
    w.tight = true;
    world_tick(&w, w.now);
    assert_false(w.t.forward.legs[CLIENT].reading);
    assert_int_equal(w.t.state, TUNNEL_serving);
    assert_true(tunnel_due(&w.t) > w.now);
    world_close(&w);
}

static void a_silent_worker_is_redialled(void **state)
{
    (void)state;
    serving();
    for (unsigned i = 0; i < 17; i++) {
        world_pass(&w, 5 * SEC - (i == 16 ? MS : 0));
        world_says(&w, CLIENT, 0x8a, "alive");
    }
    assert_int_equal(w.t.state, TUNNEL_serving);
    world_pass(&w, MS);
    assert_int_equal(w.t.state, TUNNEL_redialling);
    assert_int_equal(w.t.loss, LOSS_silent);
    world_close(&w);
}

static void a_silent_client_is_torn_down(void **state)
{
    (void)state;
    serving();
    for (unsigned i = 0; i < 17; i++) {
        world_pass(&w, 5 * SEC);
        world_says(&w, WORKER, 0x8a, "alive");
    }
    assert_int_equal(w.t.reason, CLOSE_client_silent);
    assert_int_equal(w.dropped[CLIENT], 1);
    world_close(&w);
}

/* It reads one thing after the other: what stands behind the Ping, or in front of it, held up its answer. */
static void who_was_slow_has_time_to_answer_a_ping(void **state)
{
    (void)state;
    for (enum side slow = CLIENT; slow <= WORKER; slow++) {
        enum side quick = slow == CLIENT ? WORKER : CLIENT;
        serving();
        for (unsigned i = 0; i < 6; i++) {
            world_pass(&w, 20 * SEC);
            world_says(&w, quick, 0x8a, "alive");
            w.ears[slow].room = i < 2 ? 0 : 1;
            if (i == 1)
                world_says(&w, quick, 0x82, "is read slowly");
            world_writable(&w, slow, w.now);
        }
        w.ears[slow].room = SIZE_MAX;
        world_writable(&w, slow, w.now);
        assert_non_null(strstr(w.ears[slow].said, "PINGown"));
        assert_non_null(strstr(w.ears[slow].said, "Bis read slowly"));
        world_tick(&w, w.now);
        assert_int_equal(w.t.state, TUNNEL_serving);
        world_pass(&w, 20 * SEC);
        world_says(&w, quick, 0x8a, "alive");
        world_pass(&w, 40 * SEC - MS);
        assert_int_equal(w.t.state, TUNNEL_serving);
        world_pass(&w, MS);
        assert_int_equal(w.t.state, slow == CLIENT ? TUNNEL_ended : TUNNEL_redialling);
        world_close(&w);
    }
}

static void an_empty_frame_keeps_the_clients_of_others_alive(void **state)
{
    struct handover h = world_handover();
    (void)state;
    h.keepalive = HANDOVER_KEEPALIVE_EMPTY_FRAME;
    serving_as(&h);
    for (unsigned i = 0; i < 4; i++) {
        world_pass(&w, 25 * SEC);
        world_says(&w, WORKER, 0x8a, "");
    }
    assert_int_equal(w.t.state, TUNNEL_serving);
    assert_said(CLIENT, "B PONG B PONG B PONG B PONG");
    forget();
    world_says(&w, WORKER, 0x02, "half");
    world_pass(&w, 25 * SEC);
    assert_said(CLIENT, "bhalf PINGown");
    world_close(&w);
}

/* ---- bounds ---- */
static void keepalive_does_not_count_as_use(void **state)
{
    struct handover h = world_handover();
    (void)state;
    h.idle = 60000;
    serving_as(&h);
    for (unsigned i = 0; i < 6; i++) {
        assert_int_equal(w.t.state, TUNNEL_serving);
        world_pass(&w, 10 * SEC);
        world_says(&w, CLIENT, 0x89, "");
        world_says(&w, WORKER, 0x8a, "");
    }
    assert_int_equal(w.t.reason, CLOSE_idle);
    assert_non_null(strstr(w.ears[CLIENT].said, "C1001:idle"));
    world_close(&w);
}

static void a_tunnel_ends_at_its_greatest_age(void **state)
{
    struct handover h = world_handover();
    (void)state;
    h.max_age = 20000;
    serving_as(&h);
    world_pass(&w, 20 * SEC);
    ended_with(CLOSE_max_age, "C1001:max age");
}

static void a_tunnel_ends_when_the_token_that_binds_it_expires(void **state)
{
    (void)state;
    serving();
    w.t.expires = w.now + 20 * SEC;
    world_pass(&w, 19 * SEC);
    assert_int_equal(w.t.state, TUNNEL_serving);
    assert_true(tunnel_due(&w.t) <= w.t.expires);
    world_pass(&w, SEC);
    ended_with(CLOSE_token_expired, "C1008:token expired");
}

static void a_drain_closes_with_service_restart(void **state)
{
    (void)state;
    serving();
    world_end(&w, CLOSE_restarting, w.now);
    ended_with(CLOSE_restarting, "C1012:relay restarting");
}

static void a_watch_that_tells_nothing_is_repeated_after_a_pause(void **state)
{
    (void)state;
    serving();
    world_tells(&w, ANSWER_RUNNING, 1, 1);
    assert_false(w.watching);
    world_pass(&w, SEC);
    assert_true(w.watching);
    world_tells(&w, ANSWER_RUNNING, 1, 2); /* news, though none for this tunnel */
    assert_true(w.watching);
    assert_int_equal(w.t.state, TUNNEL_serving);
    world_close(&w);
}

static void a_watch_that_tells_what_an_answer_has_told_is_repeated_at_once(void **state)
{
    (void)state;
    serving();
    world_lost(&w, WORKER, LOSS_reset, w.now);
    world_answers(&w, ANSWER_MIGRATING, 0, 2);
    world_tells(&w, ANSWER_MIGRATING, 0, 2); /* it knew of 1 */
    assert_true(w.watching);
    world_tells(&w, ANSWER_MIGRATING, 0, 2);
    assert_false(w.watching);
    world_close(&w);
}

static void who_waits_for_a_change_watches_at_once(void **state)
{
    (void)state;
    for (unsigned settles = 0; settles < 2; settles++) {
        serving();
        world_tells(&w, ANSWER_RUNNING, 1, 1);
        assert_false(w.watching);
        world_pass(&w, 100 * MS);
        if (settles)
            world_closes(&w, WORKER, 1000, "released");
        else
            world_lost(&w, WORKER, LOSS_eof, w.now);
        world_answers(&w, settles ? ANSWER_RUNNING : ANSWER_MIGRATING, settles ? 1 : 0, 1);
        assert_true(w.watching);
        world_tells(&w, ANSWER_RUNNING, 2, 2);
        assert_int_equal(w.dialled_port, 2);
        world_close(&w);
    }
}

static void a_tunnel_without_memory_ends(void **state)
{
    (void)state;
    for (unsigned n = 1; n < 12; n++) {
        struct handover h = world_handover();
        h.end = HANDOVER_END_EXIT_JSON;
        alloc_fail_at(n);
        bool opened = world_open(&w, &h);
        if (!opened) {
            alloc_fail_at(0);
            continue;
        }
        world_dialled(&w, w.dialling ? DIAL_OPEN : DIAL_UNREACHABLE, 101);
        alloc_fail_at(0);
        if (w.t.state == TUNNEL_serving) {
            w.ears[CLIENT].room = w.ears[WORKER].room = 2;
            alloc_fail_at(n);
            world_read(&w, WORKER, slice_of((uint8_t[20]){[14] = 0x82, 3, 1, 2, 3} + 14, 5), w.now);
            alloc_fail_at(0);
        }
        world_close(&w);
    }
}

/* There is none for what the socket has not taken, and then there is again. */
static size_t send_and_run_short(void *io, enum side to, const struct slice *runs, size_t count)
{
    size_t taken = world_send(io, to, runs, count);
    alloc_fail_at(taken ? 1 : 0);
    return taken;
}

static void nothing_follows_the_beginning_of_a_frame_whose_rest_is_lost(void **state)
{
    struct tunnel_host actions = world_host;
    (void)state;
    actions.send = send_and_run_short;
    for (enum side to = CLIENT; to <= WORKER; to++) {
        uint8_t memory[FORWARD_FRONT + 64];
        enum side from = to == CLIENT ? WORKER : CLIENT;
        serving();
        w.t.forward.place.host = &actions;
        w.ears[to].room = 10;
        struct slice frame = world_frame(memory + FORWARD_FRONT, from, 0x82, SLICE_LITERAL("a long message"));
        world_read(&w, from, frame, w.now);
        alloc_fail_at(0);
        w.ears[to].room = SIZE_MAX;
        world_writable(&w, to, w.now);
        world_pass(&w, 5 * SEC);
        assert_int_equal(w.t.reason, CLOSE_no_memory);
        assert_int_equal(w.t.state, TUNNEL_ended);
        assert_said(to, "");
        assert_int_equal(buffer_len(&w.ears[to].bytes), to == CLIENT ? 8 : 4); /* 10 but for the head */
        world_close(&w);
    }
}

/* What is held for a worker that is just attached is sent at once: that the client waits for it is not so for a moment, and its
 * silence counts from when it was last heard. */
static void a_new_worker_is_no_sign_of_life_of_the_client(void **state)
{
    static char typed[70000];
    static uint8_t frame[70100];
    (void)state;
    memset(typed, 'x', sizeof typed - 1);
    serving();
    world_lost(&w, WORKER, LOSS_eof, w.now);
    world_bytes(&w, CLIENT, world_frame(frame, CLIENT, 0x82, slice_text(typed)), SIZE_MAX);
    uint64_t heard = w.t.forward.legs[CLIENT].heard;
    w.now += 5 * SEC;
    resumes(2);
    assert_true(w.t.forward.legs[CLIENT].reading);
    assert_int_equal(w.t.forward.legs[CLIENT].heard, heard);
    world_close(&w);
}

/* ---- another process ---- */
static void cut_to(struct buffer *image, void *context)
{
    size_t len = *(const size_t *)context;
    if (len < buffer_len(image))
        buffer_cut(image, len);
}

static void a_tunnel_goes_on_in_another_process(void **state)
{
    (void)state;
    serving();
    world_bytes(&w, WORKER, SLICE_LITERAL("\x02\x05ha"), SIZE_MAX); /* cut in a frame */
    w.ears[CLIENT].room = 0;
    world_says(&w, CLIENT, 0x82, "input");
    assert_true(world_hands_over(&w, NULL, NULL));
    assert_int_equal(w.t.state, TUNNEL_serving);
    assert_true(w.watching); /* asked anew */
    w.ears[CLIENT].room = SIZE_MAX;
    world_bytes(&w, WORKER, SLICE_LITERAL("lf!"), SIZE_MAX);
    world_says(&w, WORKER, 0x80, "rest");
    assert_string_equal(w.ears[CLIENT].said, "bhalf! .rest");
    world_lost(&w, WORKER, LOSS_eof, w.now);
    assert_int_equal(w.t.state, TUNNEL_redialling);
    assert_true(world_hands_over(&w, NULL, NULL));
    assert_true(w.asking);
    resumes(2);
    world_close(&w);
}

static void an_image_that_is_cut_is_not_loaded(void **state)
{
    (void)state;
    serving();
    world_says(&w, WORKER, 0x82, "output");
    struct buffer whole = buffer_with_limit(3000);
    assert_true(tunnel_save(&w.t, &whole, w.now));
    for (size_t len = 0; len <= buffer_len(&whole); len++) {
        if (world_hands_over(&w, cut_to, &len)) {
            assert_int_equal(len, buffer_len(&whole));
            break;
        }
        assert_int_equal(w.t.state, TUNNEL_serving); /* goes on here */
    }
    buffer_free(&whole);
    world_says(&w, WORKER, 0x82, "more");
    assert_string_equal(w.ears[CLIENT].said, "Boutput Bmore");
    world_close(&w);
}

/* Its client has no 101 yet: the dial is begun anew. */
static void a_tunnel_that_opens_goes_on_in_another_process(void **state)
{
    struct handover h = world_handover();
    (void)state;
    assert_true(world_open(&w, &h));
    assert_true(w.dialling);
    assert_true(world_hands_over(&w, NULL, NULL));
    assert_int_equal(w.t.state, TUNNEL_opening);
    assert_true(w.asking && !w.dialling);
    world_answers(&w, ANSWER_RUNNING, 2, 2);
    assert_true(w.dialling);
    world_dialled(&w, DIAL_OPEN, 101);
    assert_true(w.accepts == 1 && w.t.state == TUNNEL_serving);
    world_says(&w, WORKER, 0x82, "output");
    world_says(&w, CLIENT, 0x82, "input");
    assert_string_equal(w.ears[CLIENT].said, "Boutput");
    assert_string_equal(w.ears[WORKER].said, "Binput");
    world_close(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_worker_is_dialled_before_the_client_is_accepted),
        cmocka_unit_test(a_refusal_of_the_worker_is_passed_on),
        cmocka_unit_test(a_first_dial_without_an_answer_is_a_timeout),
        cmocka_unit_test(a_first_dial_without_memory_is_not_the_workers_fault),
        cmocka_unit_test(a_first_dial_without_a_descriptor_is_repeated_and_not_the_workers_fault),
        cmocka_unit_test(a_first_dial_with_a_wrong_answer_is_refused),
        cmocka_unit_test(a_first_dial_is_repeated_within_the_connect_budget),
        cmocka_unit_test(without_redial_a_tunnel_ends_with_its_worker),
        cmocka_unit_test(without_redial_a_tunnel_ends_where_the_sandbox_moves),
        cmocka_unit_test(a_new_worker_is_no_sign_of_life_of_the_client),
        cmocka_unit_test(a_tunnel_goes_on_in_another_process),
        cmocka_unit_test(a_tunnel_that_opens_goes_on_in_another_process),
        cmocka_unit_test(an_image_that_is_cut_is_not_loaded),
        cmocka_unit_test(without_redial_a_workers_goodbye_waits_for_one_answer),
        cmocka_unit_test(without_redial_the_next_client_waits_for_a_worker),
        cmocka_unit_test(first_dials_that_are_repeated_without_an_answer_are_a_timeout),
        cmocka_unit_test(a_first_dial_succeeds_at_a_fresh_address),
        cmocka_unit_test(a_record_with_secrets_is_asked_for_first),
        cmocka_unit_test(a_waking_sandbox_is_waited_for),
        cmocka_unit_test(a_sandbox_that_does_not_wake_within_hold_is_refused),
        cmocka_unit_test(an_answer_that_is_final_refuses),
        cmocka_unit_test(a_refusal_is_told_by_a_close),
        cmocka_unit_test(a_client_that_leaves_while_it_is_opened_ends_the_dial),
        cmocka_unit_test(everything_passes_unchanged),
        cmocka_unit_test(a_conversation_passes_however_it_is_split),
        cmocka_unit_test(a_long_frame_is_never_half_sent),
        cmocka_unit_test(protocol_errors_end_the_tunnel),
        cmocka_unit_test(behind_a_workers_mistake_the_clients_words_come_first),
        cmocka_unit_test(a_worker_that_goes_behind_its_mistake_takes_nothing_from_its_client),
        cmocka_unit_test(a_client_is_not_heard_longer_because_a_worker_does_not_take_its_words),
        cmocka_unit_test(behind_a_clients_mistake_the_workers_words_come_first),
        cmocka_unit_test(a_message_that_is_too_big_ends_the_tunnel),
        cmocka_unit_test(the_clients_close_goes_end_to_end),
        cmocka_unit_test(a_worker_that_does_not_answer_a_close_is_left),
        cmocka_unit_test(the_relay_never_repeats_a_reason_that_is_no_text),
        cmocka_unit_test(a_client_that_does_not_answer_a_close_is_left),
        cmocka_unit_test(a_client_that_is_lost_leaves_the_worker_a_close),
        cmocka_unit_test(an_exit_frame_then_a_close_is_the_end),
        cmocka_unit_test(an_exit_message_passes_the_workers_own_close),
        cmocka_unit_test(a_close_without_an_exit_is_a_release_where_exits_are_said),
        cmocka_unit_test(a_close_that_settles_without_a_change_is_the_end),
        cmocka_unit_test(a_close_that_settles_with_a_change_is_a_loss),
        cmocka_unit_test(news_that_changes_nothing_does_not_stand_for_the_fresh_answer),
        cmocka_unit_test(a_take_over_is_final),
        cmocka_unit_test(losses_are_redialled),
        cmocka_unit_test(a_worker_that_blames_the_data_ends_the_tunnel),
        cmocka_unit_test(what_a_redial_is_refused_with_decides),
        cmocka_unit_test(who_is_held_does_not_wait_longer_than_a_second_for_a_worker_that_is_back),
        cmocka_unit_test(who_is_held_is_told_of_another_worker_at_once),
        cmocka_unit_test(other_refusals_are_tried_again),
        cmocka_unit_test(an_absent_session_is_asked_for_once_more_after_a_move),
        cmocka_unit_test(the_watch_ends_a_tunnel_at_once),
        cmocka_unit_test(a_plain_terminal_leaves_the_old_worker_first),
        cmocka_unit_test(with_overlap_the_old_worker_serves_until_the_new_one_is_there),
        cmocka_unit_test(what_the_old_worker_says_while_it_is_replaced_is_not_judged),
        cmocka_unit_test(a_worker_that_gets_to_an_abandoned_dial_late_takes_the_session_from_ourselves),
        cmocka_unit_test(a_worker_that_did_not_answer_in_time_may_take_the_session_late),
        cmocka_unit_test(a_client_that_leaves_while_its_worker_is_replaced_gets_its_own_close),
        cmocka_unit_test(workers_that_are_left_in_favour_of_another_do_not_flap),
        cmocka_unit_test(a_replacement_that_cannot_be_reached_leaves_the_old_worker),
        cmocka_unit_test(a_sandbox_that_comes_back_stays_with_the_worker_that_serves),
        cmocka_unit_test(a_message_cut_on_a_terminal_is_ended),
        cmocka_unit_test(a_message_cut_elsewhere_ends_the_tunnel),
        cmocka_unit_test(a_frame_that_was_not_passed_yet_cuts_no_message),
        cmocka_unit_test(redials_wait_longer_each_time_and_give_up),
        cmocka_unit_test(an_agent_that_cannot_say_is_as_a_lost_dial),
        cmocka_unit_test(an_agent_that_is_away_does_not_spend_the_budget),
        cmocka_unit_test(an_agent_that_does_not_come_back_is_given_up),
        cmocka_unit_test(a_migration_stops_the_clock_of_attempts),
        cmocka_unit_test(a_migration_that_does_not_end_is_given_up),
        cmocka_unit_test(a_migrating_sandbox_with_a_worker_is_dialled),
        cmocka_unit_test(a_change_while_dialling_redirects_the_dial),
        cmocka_unit_test(a_worker_that_is_lost_too_often_ends_the_tunnel),
        cmocka_unit_test(losses_of_workers_that_lived_do_not_flap),
        cmocka_unit_test(four_migrations_in_a_minute_do_not_flap_but_eleven_do),
        cmocka_unit_test(eleven_changes_before_there_is_a_tunnel_are_refused),
        cmocka_unit_test(input_that_a_lost_worker_has_not_proved_to_have_read_is_counted),
        cmocka_unit_test(a_pong_to_a_ping_that_was_not_sent_yet_takes_nothing_from_the_count),
        cmocka_unit_test(input_is_counted_when_nobody_will_get_it),
        cmocka_unit_test(tagged_input_is_never_cut),
        cmocka_unit_test(pings_are_answered_while_there_is_no_worker),
        cmocka_unit_test(a_pong_that_answers_nothing_costs_the_same_however_many_pings_are_open),
        cmocka_unit_test(a_client_that_does_not_read_the_answers_to_its_pings_is_not_read),
        cmocka_unit_test(a_paste_of_a_mebibyte_is_held_and_delivered),
        cmocka_unit_test(held_data_is_not_read_beyond_the_memory_of_the_process),
        cmocka_unit_test(without_memory_that_others_have_taken_no_more_than_a_little_is_read),
        cmocka_unit_test(without_memory_a_side_is_read_when_nothing_of_it_is_held),
        cmocka_unit_test(a_frame_partly_sent_to_the_lost_worker_is_sent_again_whole),
        cmocka_unit_test(a_message_goes_on_with_the_next_worker),
        cmocka_unit_test(a_worker_that_is_left_in_the_middle_of_a_frame_is_cut_off),
        cmocka_unit_test(a_client_that_closes_during_a_redial_is_answered),
        cmocka_unit_test(a_slow_client_stops_its_worker),
        cmocka_unit_test(a_client_without_progress_is_too_slow),
        cmocka_unit_test(a_slow_client_gets_the_end_of_the_output),
        cmocka_unit_test(a_client_that_types_before_it_has_read_the_end_is_not_cut_off),
        cmocka_unit_test(a_client_that_types_much_behind_the_end_may_answer_it),
        cmocka_unit_test(a_client_that_breaks_the_protocol_behind_the_end_is_left),
        cmocka_unit_test(a_slow_client_gets_the_end_of_the_output_of_what_is_gone),
        cmocka_unit_test(a_client_that_does_not_take_the_end_of_the_output_is_given_up),
        cmocka_unit_test(who_has_to_leave_is_not_waited_for),
        cmocka_unit_test(what_came_before_a_message_that_is_too_big_passes),
        cmocka_unit_test(silence_is_met_with_a_ping_and_its_pong_is_swallowed),
        cmocka_unit_test(a_ping_that_looks_like_one_of_the_relays_is_answered),
        cmocka_unit_test(nothing_is_overdue_when_a_client_with_a_ping_is_not_read_any_more),
        cmocka_unit_test(a_silent_worker_is_redialled),
        cmocka_unit_test(a_silent_client_is_torn_down),
        cmocka_unit_test(who_was_slow_has_time_to_answer_a_ping),
        cmocka_unit_test(an_empty_frame_keeps_the_clients_of_others_alive),
        cmocka_unit_test(keepalive_does_not_count_as_use),
        cmocka_unit_test(a_tunnel_ends_at_its_greatest_age),
        cmocka_unit_test(a_tunnel_ends_when_the_token_that_binds_it_expires),
        cmocka_unit_test(a_drain_closes_with_service_restart),
        cmocka_unit_test(a_watch_that_tells_nothing_is_repeated_after_a_pause),
        cmocka_unit_test(a_watch_that_tells_what_an_answer_has_told_is_repeated_at_once),
        cmocka_unit_test(who_waits_for_a_change_watches_at_once),
        cmocka_unit_test(a_destination_is_dialled_once),
        cmocka_unit_test(the_close_of_a_destination_is_passed_on),
        cmocka_unit_test(a_destination_stays_the_one_that_was_checked),
        cmocka_unit_test(a_tunnel_without_memory_ends),
        cmocka_unit_test(nothing_follows_the_beginning_of_a_frame_whose_rest_is_lost),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
