/* SPDX-License-Identifier: MIT */
/* The small parts of the relay: queue, pings, redial, end, target, close reasons, limits, upgrade. */
#include "tests/unit/support.h"

#include <stdio.h>

#include <stdlib.h>
#include <unistd.h>

#include "spoa/relay/leg/pings.h"
#include "spoa/relay/leg/send_queue.h"
#include "spoa/relay/thread/limits.h"
#include "spoa/relay/tunnel/close_reason.h"
#include "spoa/relay/tunnel/redial.h"
#include "spoa/relay/tunnel/session_end.h"
#include "spoa/relay/tunnel/upgrade.h"

#define MS  UINT64_C(1000)
#define SEC (1000 * MS)

/* ---- queue ---- */
static void assert_held(const struct send_queue *o, struct slice want)
{
    struct slice held = send_queue_unsent(o);
    assert_int_equal(held.len, want.len);
    assert_memory_equal(held.at, want.at, want.len);
}

static void a_send_queue_sends_in_any_steps(void **state)
{
    struct slice frames = SLICE_LITERAL("\x81\x03one\x89\x01?\x82\x00\x82\x02xy");
    (void)state;
    for (size_t step = 1; step <= frames.len; step++) {
        struct send_queue o = send_queue_with_limit(100);
        assert_true(send_queue_put(&o, frames));
        for (size_t sent = 0; sent < frames.len; sent += step) {
            assert_held(&o, slice_from(frames, sent));
            size_t left = frames.len - sent;
            send_queue_sent(&o, step < left ? step : left);
        }
        assert_true(send_queue_empty(&o));
        assert_null(o.frames.memory);
    }
}

/* All that is put is whole in the end; memory is not touched beyond it even if it is not. */
static void a_send_queue_whose_last_frame_is_not_whole_is_salvaged_within_its_memory(void **state)
{
    static const struct slice cut[] = {SLICE_LITERAL("\x89\x01?\x82\x05hel"),
                                       SLICE_LITERAL("\x89\0\x82\x7f\0\0"),
                                       SLICE_LITERAL("\x89\0\x82\x7e\xff\xff...")};
    (void)state;
    for (unsigned i = 0; i < sizeof cut / sizeof *cut; i++) {
        struct send_queue o = send_queue_with_limit(cut[i].len);
        assert_true(send_queue_put(&o, cut[i]));
        assert_true(send_queue_salvage(&o));
        assert_held(&o, slice_from(cut[i], i == 0 ? 3 : 2));
        send_queue_free(&o);
    }
}

/* A length near 2^64 does not make a frame of no length, which nobody would get past. */
static void a_send_queue_gets_past_a_frame_of_any_length(void **state)
{
    static const struct slice frame = SLICE_LITERAL("\x82\x7f\xff\xff\xff\xff\xff\xff\xff\xf6....");
    uint64_t payload;
    (void)state;
    for (int keeps = 0; keeps < 2; keeps++) {
        struct send_queue o = send_queue_with_limit(100);
        o.keeps = keeps;
        assert_true(send_queue_put(&o, frame));
        alarm(5);
        send_queue_payload(&o);
        send_queue_sent(&o, 5);
        assert_true(send_queue_cut(&o));
        assert_false(send_queue_release(&o, 1, true, &payload));
        assert_true(send_queue_salvage(&o));
        alarm(0);
        assert_held(&o, frame);
        send_queue_free(&o);
    }
}

static void a_send_queue_knows_how_much_data_it_holds(void **state)
{
    struct send_queue o = send_queue_with_limit(100);
    (void)state;
    assert_int_equal(send_queue_payload(&o), 0);
    assert_true(send_queue_put(&o, SLICE_LITERAL("\x01\x03one\x89\x01?\x80\x05three")));
    assert_int_equal(send_queue_payload(&o), 8);
    send_queue_sent(&o, 3); /* it can be sent again whole */
    assert_int_equal(send_queue_payload(&o), 8);
    send_queue_sent(&o, 2);
    assert_int_equal(send_queue_payload(&o), 5);
    send_queue_free(&o);
}

static void a_send_queue_that_keeps_sends_again_what_was_not_released(void **state)
{
    struct slice frames = SLICE_LITERAL("\x81\x03one\x89\x01?\x02\x01t\x80\x02wo\x82\x00");
    static const size_t bounds[] = {0, 5, 8, 11, 15, 17};
    (void)state;
    for (size_t sent = 0; sent <= frames.len; sent++) {
        struct send_queue o = send_queue_with_limit(100);
        bool cut = true;
        uint64_t payload;
        o.keeps = true;
        assert_true(send_queue_put(&o, frames));
        send_queue_sent(&o, sent);
        for (size_t i = 0; i < 6; i++)
            cut = cut && sent != bounds[i];
        assert_int_equal(send_queue_cut(&o), cut);
        assert_held(&o, slice_from(frames, sent));
        assert_int_equal(send_queue_empty(&o), sent == frames.len);
        assert_int_equal(send_queue_release(&o, 2, false, &payload), sent >= 15);
        assert_false(send_queue_release(&o, 4, true, &payload));
        if (sent >= 15) {
            assert_held(&o, slice_from(frames, sent));
            assert_int_equal(send_queue_len(&o), 2);
        } else {
            assert_true(send_queue_release(&o, 1, true, &payload));
            assert_int_equal(payload, 3);
            assert_true(send_queue_salvage(&o));
            assert_held(&o, SLICE_LITERAL("\x02\x01t\x80\x02wo\x82\x00"));
        }
        send_queue_free(&o);
    }
}

static void a_frame_that_was_partly_sent_is_salvaged_whole(void **state)
{
    struct slice frames = SLICE_LITERAL("\x81\x03one\x82\x03two\x89\x01?\x82\x05three");
    (void)state;
    for (size_t sent = 0; sent < frames.len; sent++) {
        struct send_queue o = send_queue_with_limit(100);
        assert_true(send_queue_put(&o, frames));
        send_queue_sent(&o, sent);
        assert_true(send_queue_salvage(&o));
        if (sent < 5)
            assert_held(&o, SLICE_LITERAL("\x81\x03one\x82\x03two\x82\x05three"));
        else if (sent < 10)
            assert_held(&o, SLICE_LITERAL("\x82\x03two\x82\x05three"));
        else
            assert_held(&o, SLICE_LITERAL("\x82\x05three"));
        send_queue_free(&o);
    }
}

static void a_message_whose_beginning_is_gone_begins_anew(void **state)
{
    struct send_queue o = send_queue_with_limit(200);
    (void)state;
    assert_true(send_queue_put(&o, SLICE_LITERAL("\x01\x03one\x00\x03two\x89\x00\x80\x05three\x82\x01x")));
    send_queue_sent(&o, 6);
    assert_true(send_queue_salvage(&o));
    assert_held(&o, SLICE_LITERAL("\x01\x03two\x80\x05three\x82\x01x"));
    send_queue_free(&o);
}

static void nothing_is_left_of_control_frames(void **state)
{
    struct send_queue o = send_queue_with_limit(100);
    (void)state;
    assert_true(send_queue_put(&o, SLICE_LITERAL("\x89\x01?\x8a\x00\x88\x02\x03\xe8")));
    assert_false(send_queue_salvage(&o));
    assert_true(send_queue_empty(&o));
    assert_false(send_queue_put(&o, slice_of("", 101)));
}

static void long_frames_are_known_by_their_length(void **state)
{
    static uint8_t frames[4 + 300 + 14 + 70000] = {0x82, 126, 1, 44};
    struct send_queue o = send_queue_with_limit(100000);
    (void)state;
    frames[304] = 0x82;
    frames[305] = 0xff;
    frames[311] = 1; /* 65536 + 4464 */
    frames[312] = 0x11;
    frames[313] = 0x70;
    assert_true(send_queue_put(&o, slice_of(frames, sizeof frames)));
    send_queue_sent(&o, 304 + 100);
    assert_int_equal(o.sent, 100);
    send_queue_sent(&o, 70014 - 100);
    assert_true(send_queue_empty(&o));
}

/* ---- pings ---- */
static void a_pong_answers_its_ping_and_older_ones(void **state)
{
    struct pings p = {0};
    uint8_t payload[PINGS_PAYLOAD_MAX];
    size_t len;
    (void)state;
    pings_answered(&p, SLICE_LITERAL(""));
    assert_false(pings_take(&p, payload, &len));
    pings_put(&p, SLICE_LITERAL("a"));
    pings_put(&p, SLICE_LITERAL("c"));
    pings_answered(&p, SLICE_LITERAL("unknown"));
    pings_answered(&p, SLICE_LITERAL("a"));
    assert_true(pings_take(&p, payload, &len));
    assert_int_equal(len, 1);
    assert_int_equal(payload[0], 'c');
    assert_false(pings_take(&p, payload, &len));
    pings_put(&p, SLICE_LITERAL(""));
    pings_answered(&p, SLICE_LITERAL(""));
    assert_false(pings_take(&p, payload, &len));
}

static void the_newest_ping_is_remembered_whatever_its_length(void **state)
{
    struct pings p = {0};
    uint8_t payload[PINGS_PAYLOAD_MAX] = {0}, last[PINGS_PAYLOAD_MAX];
    size_t len;
    (void)state;
    for (unsigned i = 0; i < 50; i++) {
        payload[0] = (uint8_t)i;
        pings_put(&p, slice_of(payload, sizeof payload));
    }
    assert_true(pings_take(&p, last, &len));
    assert_int_equal(len, sizeof payload);
    assert_int_equal(last[0], 49);
}

/* ---- redial ---- */
static const struct redial_settings settings = {
    .backoff = {100 * MS, 200 * MS}, .backoff_count = 2, .flap_window = 60 * SEC, .flap_limit = 3};

static void pauses_grow_and_vary_by_a_fifth(void **state)
{
    struct redial r = {0};
    uint64_t at;
    (void)state;
    redial_begin(&r, 10 * SEC, 5 * SEC);
    assert_true(redial_next(&r, &settings, UINT64_MAX, 7, 5 * SEC, &at));
    assert_int_equal(at, 5 * SEC);
    assert_true(redial_next(&r, &settings, UINT64_MAX, 0, 5 * SEC, &at));
    assert_int_equal(at, 5 * SEC + 80 * MS);
    assert_true(redial_next(&r, &settings, UINT64_MAX, 400, 5 * SEC, &at));
    assert_int_equal(at, 5 * SEC + 240 * MS);
    assert_true(redial_next(&r, &settings, UINT64_MAX, 200, 5 * SEC, &at));
    assert_int_equal(at, 5 * SEC + 200 * MS);
    assert_true(redial_next(&r, &settings, UINT64_MAX, 200, 15 * SEC - 199 * MS, &at));
    assert_int_equal(at, 15 * SEC); /* the last attempt stands at the end of the budget */
    assert_false(redial_next(&r, &settings, UINT64_MAX, 200, 15 * SEC, &at));
}

static void many_that_are_held_come_spread(void **state)
{
    enum { HELD = 1000, STEP = 100 };
    static unsigned dials[20 * 1000 / STEP];
    struct redial_settings usual = {
        .backoff = {1 * MS, 3 * MS, 10 * MS, 30 * MS, 100 * MS, 250 * MS, 500 * MS, SEC, 2 * SEC, 4 * SEC},
        .backoff_count = 10};
    uint32_t seed = 1;
    (void)state;
    for (unsigned i = 0; i < HELD; i++) {
        struct redial r = {0};
        uint64_t now = 0, at = 0;
        redial_begin(&r, 30 * SEC, 0);
        while (at < 20 * SEC) {
            dials[at / (STEP * MS)]++;
            seed = seed * 1664525 + 1013904223;
            assert_true(redial_next(&r, &usual, 800 * MS, seed >> 8, now = at, &at));
            assert_in_range(at - now, 0, 960 * MS);
        }
    }
    for (unsigned i = 50; i < sizeof dials / sizeof dials[0]; i++)
        assert_in_range(dials[i], HELD / 16,
                        HELD / 4); /* an eighth of them, more or less, in each tenth of a second */
}

static void who_flaps_and_gets_on_waits_longer_each_time(void **state)
{
    struct redial r = {0};
    uint64_t at;
    (void)state;
    for (unsigned i = 0; i < 7; i++) {
        uint64_t now = 100 * SEC + i * SEC;
        bool many = redial_lost(&r, &settings, SEC, now);
        assert_int_equal(many, i >= 3);
        if (!many)
            continue;
        redial_begin_slowly(&r, 10 * SEC, now);
        assert_true(redial_next(&r, &settings, UINT64_MAX, 200, now, &at));
        assert_int_equal(at, now + (i == 3 ? 100 : 200) * MS);
    }
    assert_false(redial_lost(&r, &settings, SEC, 200 * SEC));
    redial_begin_slowly(&r, 10 * SEC, 200 * SEC);
    assert_true(redial_next(&r, &settings, UINT64_MAX, 200, 200 * SEC, &at));
    assert_int_equal(at, 200 * SEC);
    redial_free(&r);
}

static void waiting_costs_no_budget(void **state)
{
    struct redial r = {0};
    uint64_t at;
    (void)state;
    redial_begin(&r, SEC, 0);
    assert_true(redial_next(&r, &settings, UINT64_MAX, 0, 0, &at));
    redial_wait(&r, 500 * MS);
    redial_wait(&r, 900 * MS); /* still */
    redial_found(&r, 60 * SEC);
    assert_true(redial_next(&r, &settings, UINT64_MAX, 200, 60 * SEC + 400 * MS, &at));
    assert_true(redial_next(&r, &settings, UINT64_MAX, 200, 60 * SEC + 400 * MS, &at));
    assert_int_equal(at, 60 * SEC + 500 * MS);
    assert_false(redial_next(&r, &settings, UINT64_MAX, 200, 60 * SEC + 500 * MS, &at));
}

static void the_fourth_loss_in_the_window_flaps(void **state)
{
    struct redial r = {0};
    (void)state;
    for (unsigned i = 0; i < 3; i++)
        assert_false(redial_lost(&r, &settings, SEC, 100 * SEC + i * SEC));
    assert_false(redial_lost(&r, &settings, 10 * SEC, 103 * SEC)); /* it lived */
    assert_false(redial_lost(&r, &settings, SEC, 160 * SEC));      /* the first is a minute ago */
    assert_true(redial_lost(&r, &settings, SEC, 160 * SEC + 1));
    redial_free(&r);
}

/* ---- end ---- */
static void ends_are_recognised_exactly(void **state)
{
    static const struct {
        enum handover_end kind;
        enum ws_opcode opcode;
        const char *text;
        size_t len;
        bool said;
    } rows[] = {
        {HANDOVER_END_EXIT_FRAME, WS_BINARY, "\3\0\0\0\7", 5, true},
        {HANDOVER_END_EXIT_FRAME, WS_TEXT, "\3\0\0\0\7", 5, false},
        {HANDOVER_END_EXIT_FRAME, WS_BINARY, "\3\0\0\0", 4, false},
        {HANDOVER_END_EXIT_FRAME, WS_BINARY, "\3\0\0\0\7\7", 6, false},
        {HANDOVER_END_EXIT_FRAME, WS_BINARY, "\1\0\0\0\7", 5, false},
        {HANDOVER_END_CLOSE, WS_BINARY, "\3\0\0\0\7", 5, false},
        {HANDOVER_END_EXIT_JSON, WS_TEXT, "{\"type\":\"exit\",\"exit_code\":0}", 29, true},
        {HANDOVER_END_EXIT_JSON, WS_TEXT, " { \"exit_code\" : -1 , \"type\" : \"exit\" } ", 40, true},
        {HANDOVER_END_EXIT_JSON, WS_TEXT, "{\"type\":\"exited\",\"data\":\"exit\"}", 31, false},
        {HANDOVER_END_EXIT_JSON, WS_TEXT, "{\"data\":{\"type\":\"exit\"}}", 24, false},
        {HANDOVER_END_EXIT_JSON, WS_TEXT, "{\"type\":\"exit\"", 14, false},
        {HANDOVER_END_EXIT_JSON, WS_BINARY, "{\"type\":\"exit\"}", 15, false},
        {HANDOVER_END_EXIT_JSON, WS_TEXT, "{\"type\":\"error\",\"cursor\":\"a\"}", 29, true},
        {HANDOVER_END_EXIT_JSON, WS_TEXT, "{\"type\":\"error\",\"error\":\"no\"}", 29, false},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct slice payload = guarded(slice_of(rows[i].text, rows[i].len));
        if (session_end_said(rows[i].kind, rows[i].opcode, payload) != rows[i].said)
            fail_msg("row %zu", i);
        guarded_free(payload);
    }
}

/* ---- the table of close reasons ---- */
static void close_reasons_are_legal_on_the_wire(void **state)
{
    (void)state;
    for (unsigned i = 0; i < CLOSE_REASON_COUNT; i++) {
        const struct close_reason_info *info = close_reason_info((enum close_reason)i);
        assert_string_equal(info->name, close_reason_names[i]);
        assert_true(info->client_code <= CLOSE_NONE || ws_close_code_legal(info->client_code));
        assert_true(info->worker_code <= CLOSE_NONE || ws_close_code_legal(info->worker_code));
        assert_true(strlen(info->text) <= WS_CONTROL_MAX - 2);
    }
    assert_null(close_reason_names[CLOSE_REASON_COUNT]);
}

/* ---- limits ---- */
static const struct slice none = {NULL, 0};

static void limits_hold_for_sandbox_organisation_token_and_all(void **state)
{
    struct limits_settings most = {.tunnels = 5,
                                   .most = {[LIMIT_sandbox] = 2,
                                            [LIMIT_org] = 3,
                                            [LIMIT_token] = 2,
                                            [LIMIT_refused] = 1,
                                            [LIMIT_egress] = 1},
                                   .memory = 100};
    struct limits *l = limits_new(&most);
    struct slice s1 = SLICE_LITERAL("s1"), s2 = SLICE_LITERAL("s2"), o = SLICE_LITERAL("o"),
                 k = SLICE_LITERAL("k");
    struct limits_owner one = {.sandbox = s1, .org = o}, free1 = {.sandbox = s1}, refused = {.refused = true},
                        other = {.space = SLICE_LITERAL("other"), .sandbox = s1, .org = o, .token = k},
                        second = {.sandbox = s2, .org = o}, third = {.sandbox = s2, .token = k},
                        nobody = {.refused = false}, outside = {.sandbox = s1, .org = o, .egress = true};
    (void)state;
    assert_int_equal(limits_enter(l, &one), LIMIT_NONE);
    assert_int_equal(limits_enter(l, &free1), LIMIT_NONE);
    assert_int_equal(limits_enter(l, &free1), LIMIT_sandbox);
    assert_int_equal(limits_enter(l, &other), LIMIT_NONE);
    assert_int_equal(limits_enter(l, &third), LIMIT_NONE);
    assert_int_equal(limits_enter(l, &third), LIMIT_token); /* and s2 was not counted */
    assert_int_equal(limits_enter(l, &refused), LIMIT_NONE);
    assert_int_equal(limits_enter(l, &nobody), LIMIT_tunnels);
    limits_leave(l, &free1);
    assert_int_equal(limits_enter(l, &refused), LIMIT_refused);
    assert_int_equal(limits_enter(l, &second), LIMIT_NONE);
    limits_leave(l, &refused);
    assert_int_equal(limits_enter(l, &one), LIMIT_org);
    assert_int_equal(limits_tunnels(l), 4);
    /* what programs in sandboxes open counts apart, and leaves room for tunnels */
    assert_int_equal(limits_enter(l, &outside), LIMIT_NONE);
    assert_int_equal(limits_enter(l, &outside), LIMIT_tunnels);
    limits_leave(l, &second);
    assert_int_equal(limits_enter(l, &outside), LIMIT_egress);
    limits_leave(l, &outside);
    assert_int_equal(limits_enter(l, &second), LIMIT_NONE);
    limits_hold(l, 100);
    assert_int_equal(limits_held(l), 100);
    limits_hold(l, -100);
    assert_int_equal(limits_held(l), 0);
    limits_leave(l, &one);
    limits_leave(l, &other);
    limits_leave(l, &second);
    limits_leave(l, &third);
    assert_int_equal(limits_tunnels(l), 0);
    limits_free(l);
}

/* Collects as many replays for the owner as it may, of `room` tunnels, and returns their number. */
static size_t collect(struct limits *l, const struct limits_owner *owner, struct limits_use *uses, size_t room)
{
    size_t count = 0;
    for (; count < room; count++) {
        uses[count] = limits_use_begin(l, owner);
        if (!limits_replay_begin(l, &uses[count])) {
            limits_use_end(l, &uses[count]);
            break;
        }
    }
    return count;
}

/* The sandboxes of an organisation, however many, are one owner; so are all clients without a token. */
static void replays_of_one_owner_leave_some_to_others(void **state)
{
    struct limits_settings most = {.memory = 16 * (uint64_t)LIMITS_REPLAY_LEN};
    (void)state;
    for (unsigned kind = 0; kind < 2; kind++) {
        struct limits *l = limits_new(&most);
        struct limits_use uses[32], first;
        size_t count = 0;
        for (unsigned i = 0; i < 16; i++) {
            char memory[4];
            snprintf(memory, sizeof memory, "s%u", i);
            const struct slice name = slice_text(memory);
            const struct limits_owner owner =
                kind ? (struct limits_owner){.client = name}
                     : (struct limits_owner){.sandbox = name, .org = SLICE_LITERAL("greedy")};
            count += collect(l, &owner, uses + count, 16 - count);
        }
        assert_in_range(count, 2, 8);
        const struct limits_owner other = {.sandbox = SLICE_LITERAL("s"), .org = SLICE_LITERAL("other")};
        assert_int_equal(collect(l, &other, &first, 1), 1);
        assert_true(limits_replay_begin(l, &first)); /* it has one */
        while (count)
            limits_use_end(l, &uses[--count]);
        assert_true(limits_replay_alone(l));
        limits_use_end(l, &first);
        limits_free(l);
    }
}

static void replays_are_as_many_as_memory_has_room_for(void **state)
{
    struct limits_settings most = {.memory = 16 * (uint64_t)LIMITS_REPLAY_LEN};
    struct limits *l = limits_new(&most);
    struct limits_use uses[32], late;
    (void)state;
    for (unsigned i = 0; i < 16; i++) {
        char name[4];
        snprintf(name, sizeof name, "o%u", i);
        assert_int_equal(collect(l, &(struct limits_owner){.org = slice_text(name)}, &uses[i], 1), 1);
    }
    const struct limits_owner none_left = {.org = SLICE_LITERAL("late")};
    assert_int_equal(collect(l, &none_left, &late, 1), 0);
    limits_replay_end(l, &uses[0]);
    limits_replay_end(l, &uses[0]); /* it has none any more */
    assert_int_equal(collect(l, &none_left, &late, 1), 1);
    /* an owner that is named later takes the permit along */
    limits_use_move(l, &late, &(struct limits_owner){.org = SLICE_LITERAL("named")});
    assert_false(limits_replay_begin(l, &uses[0]));
    limits_use_end(l, &late);
    assert_true(limits_replay_begin(l, &uses[0]));
    most.memory = 1;
    limits_set(l, &most);
    late = limits_use_begin(l, &none_left);
    for (unsigned i = 0; i < 16; i++) {
        assert_false(limits_replay_begin(l, &late));
        limits_use_end(l, &uses[i]);
    }
    assert_true(limits_replay_begin(l, &late)); /* one, however little there is */
    assert_true(limits_replay_alone(l));
    limits_use_end(l, &late);
    limits_free(l);
}

static void limits_without_memory_refuse(void **state)
{
    struct limits_settings most = {.tunnels = 3};
    struct limits *l = limits_new(&most);
    struct limits_owner owner = {.sandbox = SLICE_LITERAL("s"), .org = SLICE_LITERAL("o")};
    (void)state;
    for (unsigned n = 1; n <= 2; n++) {
        alloc_fail_at(n);
        assert_int_equal(limits_enter(l, &owner), LIMIT_MEMORY);
        alloc_fail_at(0);
        assert_int_equal(limits_tunnels(l), 0);
    }
    limits_free(l);
}

/* ---- upgrade ---- */
#define KEY "dGhlIHNhbXBsZSBub25jZQ=="
static const char request[] =
    "GET /a?b=c HTTP/1.1\r\nhost:x.example\r\nUpgrade:websocket\r\nConnection:Upgrade\r\n"
    "Sec-WebSocket-Version:13\r\nSec-WebSocket-Key:" KEY "\r\nSec-WebSocket-Protocol:p\r\n"
    "Sec-WebSocket-Protocol:q\r\nSec-WebSocket-Extensions:permessage-deflate\r\n"
    "X-Cell-Handover:route=r;sandbox=s;org=%41\r\nX-Cell-Other:1\r\nX-A:1\r\nX-A:2\r\n"
    "Authorization:client\r\nTE:trailers\r\n\r\n";

static struct upgrade *upgrade_of(const char *text, struct slice *guard)
{
    static struct http_head head;
    struct http_reader reader = http_reader_of(HTTP_REQUEST, HTTP_HEAD_MAX);
    enum refusal refusal;
    struct fail why;
    *guard = guarded(slice_text(text));
    assert_int_equal(http_read(&reader, *guard, &head), HTTP_DONE);
    return upgrade_new(&head, &refusal, &why);
}

static void a_request_goes_on_without_what_is_the_connections_own(void **state)
{
    struct slice guard;
    struct upgrade *u = upgrade_of(request, &guard);
    static const char headers[] = "\0\x0d"
                                  "authorization\0\6record\0\1X\0\1y";
    struct target to = {.host = SLICE_LITERAL("worker:1"), .headers = slice_of(headers, sizeof headers - 1)};
    uint8_t memory[4096];
    struct writer w = writer_of(memory, sizeof memory);
    (void)state;
    guarded_free(guard); /* it keeps copies */
    assert_non_null(u);
    assert_true(slice_is(u->handover.org, "A"));
    upgrade_request(u, &to, SLICE_LITERAL("KEY"), SLICE_LITERAL("since=1"),
                    SLICE_LITERAL("Cell-Resume: 1\r\n"), &w);
    assert_true(slice_is(
        writer_slice(&w),
        "GET /a?b=c&since=1 HTTP/1.1\r\nHost: worker:1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: KEY\r\nSec-WebSocket-Protocol: p, q\r\n"
        "X-A: 1\r\nX-A: 2\r\nauthorization: record\r\nX: y\r\nCell-Resume: 1\r\n\r\n"));
    for (size_t size = 0; size < w.len; size++) {
        struct writer small = writer_of(memory, size);
        upgrade_request(u, &to, SLICE_LITERAL("KEY"), none, none, &small);
        assert_true(small.full || size > w.len - 40);
    }
    free(u);
}

#define PLAIN(target, more)                                                            \
    "GET " target " HTTP/1.1\r\nhost:h\r\nUpgrade:websocket\r\nConnection:Upgrade\r\n" \
    "Sec-WebSocket-Version:13\r\nSec-WebSocket-Key:" KEY "\r\n" more "\r\n"

static void parameters_of_an_adapter_replace_those_of_the_client(void **state)
{
    static const struct {
        const char *request, *line;
    } rows[] = {
        {PLAIN("/p", "X-Cell-Handover:route=r;sandbox=s\r\n"), "GET /p?since=7&takeover=1 HTTP/1.1\r\n"},
        {PLAIN("/p?since=1&a=since&since&&sincex=2", "X-Cell-Handover:route=r;sandbox=s\r\n"),
         "GET /p?a=since&sincex=2&since=7&takeover=1 HTTP/1.1\r\n"},
        {PLAIN("/p?takeover=0", "X-Cell-Handover:route=r;sandbox=s\r\n"),
         "GET /p?since=7&takeover=1 HTTP/1.1\r\n"},
    };
    uint8_t memory[1024];
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct slice guard;
        struct upgrade *u = upgrade_of(rows[i].request, &guard);
        struct target to = {.port = 1};
        struct writer w = writer_of(memory, sizeof memory);
        guarded_free(guard);
        assert_non_null(u);
        upgrade_request(u, &to, SLICE_LITERAL("KEY"), SLICE_LITERAL("since=7&takeover=1"), none, &w);
        assert_true(slice_starts(writer_slice(&w), rows[i].line));
        free(u);
    }
}

static void a_request_without_a_whole_handover_is_refused(void **state)
{
    static const struct {
        const char *request, *why;
    } rows[] = {
        {PLAIN("/p", ""), "no X-Cell-Handover, or several"},
        {PLAIN("/p", "X-Cell-Handover:route=r;sandbox=s\r\nX-Cell-Handover:route=r;sandbox=s\r\n"),
         "no X-Cell-Handover, or several"},
        {PLAIN("/p", "X-Cell-Handover:route=%\r\n"), NULL},
        {PLAIN("/p", "X-Cell-Handover:route=r\r\n"), "X-Cell-Handover has no route or no sandbox"},
        {PLAIN("/p", "X-Cell-Handover:sandbox=s\r\n"), "X-Cell-Handover has no route or no sandbox"},
    };
    static struct http_head head;
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct http_reader reader = http_reader_of(HTTP_REQUEST, HTTP_HEAD_MAX);
        enum refusal refusal = REFUSAL_NONE;
        struct fail why;
        assert_int_equal(http_read(&reader, slice_text(rows[i].request), &head), HTTP_DONE);
        assert_null(upgrade_new(&head, &refusal, &why));
        assert_int_equal(refusal, REFUSAL_bad_request);
        assert_true(!rows[i].why || strcmp(rows[i].why, why.text) == 0);
    }
}

static void an_upgrade_without_memory_is_refused(void **state)
{
    struct slice guard;
    (void)state;
    alloc_fail_at(1);
    assert_null(upgrade_of(request, &guard));
    alloc_fail_at(0);
    guarded_free(guard);
}

static void a_browser_whose_token_was_a_subprotocol_gets_cellgates(void **state)
{
    struct slice guard;
    struct upgrade *u =
        upgrade_of(PLAIN("/p", "X-Cell-Handover:route=r;sandbox=s;select_cellgate=1\r\n"
                               "Sec-WebSocket-Protocol: cellgate.bearer.secret, other, cellgate\r\n"),
                   &guard);
    uint8_t memory[512];
    (void)state;
    guarded_free(guard);
    assert_non_null(u);
    for (size_t size = sizeof memory; size > 0; size--) {
        struct writer w = writer_of(memory, size);
        bool whole = upgrade_accept(u, NULL, NULL, &w);
        assert_int_equal(whole, !w.full);
        assert_true(!whole || memmem(memory, w.len, "Sec-WebSocket-Protocol: cellgate\r\n", 34));
    }
    free(u);
}

/* Whether the worker is shown the client's header, and the client the worker's. */
static void a_client_that_resumes_is_known_by_header_or_binding(void **state)
{
#define HAS_HEADER "Cell-Resume:1; tunnel=x\r\n"
#define HAS_CELL   "X-Cell-Handover:route=r;sandbox=s;resume=cell\r\n"
#define HAS_NONE   "X-Cell-Handover:route=r;sandbox=s;resume=none\r\n"
#define HAS_OFFER  "Sec-WebSocket-Protocol:a, cell-resume.1\r\n"
    static const struct {
        const char *request;
        bool resumes;
    } rows[] = {
        {PLAIN("/p", HAS_CELL HAS_HEADER), true},
        {PLAIN("/p", HAS_NONE HAS_HEADER), false},
        {PLAIN("/p", HAS_NONE "cell_resume:1; tunnel=x\r\n"), false},
        {PLAIN("/p", HAS_CELL), false},
        {PLAIN("/p?cr_tunnel=x", HAS_CELL HAS_OFFER), true},
        {PLAIN("/p?cr_tunnel=x", HAS_CELL), false},
        {PLAIN("/p", HAS_CELL HAS_OFFER), false},
    };
    uint8_t memory[1024];
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct slice guard;
        struct upgrade *u = upgrade_of(rows[i].request, &guard);
        struct target to = {.port = 1};
        struct writer w = writer_of(memory, sizeof memory);
        guarded_free(guard);
        assert_non_null(u);
        assert_int_equal(u->client_resumes, rows[i].resumes);
        upgrade_request(u, &to, SLICE_LITERAL("KEY"), none, none, &w);
        bool shown =
            memmem(w.at, w.len, "Cell-Resume", 11) != NULL || memmem(w.at, w.len, "cell_resume", 11) != NULL;
        assert_int_equal(shown, rows[i].resumes && i == 0);
        static struct http_head head;
        static const char answer[] = "HTTP/1.1 101 S\r\nCell-Resume: 1; recv=0; next=1\r\n\r\n";
        struct http_reader reader = http_reader_of(HTTP_RESPONSE, HTTP_HEAD_MAX);
        assert_int_equal(http_read(&reader, slice_text(answer), &head), HTTP_DONE);
        w = writer_of(memory, sizeof memory);
        assert_true(upgrade_accept(u, &to, &head, &w));
        assert_int_equal(memmem(w.at, w.len, "Cell-Resume", 11) != NULL, rows[i].resumes);
        free(u);
    }
}

static void what_the_route_strips_and_the_record_sets_is_not_the_clients(void **state)
{
    struct slice guard;
    struct upgrade *u = upgrade_of(PLAIN("/p", "X-Cell-Handover:route=r;sandbox=s;strip=X-A%2Corigin\r\n"
                                               "x_a: 1\r\nX-A: 2\r\nORIGIN: o\r\nX-AB: 3\r\nX+A: 4\r\n"
                                               "X_Key: forged\r\nx-key: forged\r\nX-B: 5\r\n"),
                                   &guard);
    static const char headers[] = "\0\5X-Key\0\6record";
    static const char answer[] =
        "HTTP/1.1 403 No\r\nX_KEY: record\r\nx-key: record\r\nX-B: 1\r\nX-Cell-A: b\r\nX-B: 2\r\n\r\n";
    static struct http_head head;
    struct target to = {.host = SLICE_LITERAL("w"), .headers = slice_of(headers, sizeof headers - 1)};
    struct http_reader reader = http_reader_of(HTTP_RESPONSE, HTTP_HEAD_MAX);
    uint8_t memory[1024];
    struct writer w = writer_of(memory, sizeof memory);
    (void)state;
    guarded_free(guard);
    assert_non_null(u);
    upgrade_probe(u, &to, SLICE_LITERAL("/p"), &w);
    assert_true(slice_is(writer_slice(&w), "GET /p HTTP/1.1\r\nHost: w\r\nConnection: close\r\n"
                                           "X-AB: 3\r\nX+A: 4\r\nX-B: 5\r\nX-Key: record\r\n\r\n"));
    assert_int_equal(http_read(&reader, slice_text(answer), &head), HTTP_DONE);
    w = writer_of(memory, sizeof memory);
    upgrade_pass_refusal(u, &to, &head, SLICE_LITERAL("b"), &w);
    assert_true(slice_is(writer_slice(&w), "HTTP/1.1 403 No\r\nX-B: 1\r\nX-B: 2\r\nContent-Length: 1\r\n"
                                           "Connection: close\r\n\r\nb"));
    free(u);
}

/* Written with '-' and with '_', which to many servers are the same. */
static void what_is_stripped_is_stripped_in_both_spellings(void **state)
{
    static const char *const names[] = {"keep-alive",
                                        "proxy-authenticate",
                                        "proxy-authorization",
                                        "proxy-connection",
                                        "http2-settings",
                                        "x-cell-org",
                                        "sec-websocket-extensions",
                                        "sec-websocket-protocol",
                                        "cell-resume",
                                        "proxy",
                                        "te",
                                        "trailer"};
    (void)state;
    for (size_t i = 0; i < 2 * sizeof names / sizeof *names; i++) {
        char name[64], text[512];
        snprintf(name, sizeof name, "%s", names[i / 2]);
        for (char *dash = name; i % 2 && (dash = strchr(dash, '-'));)
            *dash = '_';
        snprintf(text, sizeof text,
                 PLAIN("/p", "X-Cell-Handover:route=r;sandbox=s\r\n%s: client\r\nX-B: 1\r\n"), name);
        struct slice guard;
        struct upgrade *u = upgrade_of(text, &guard);
        guarded_free(guard);
        assert_non_null(u);
        uint8_t memory[1024];
        struct writer w = writer_of(memory, sizeof memory);
        upgrade_probe(u, &(struct target){.host = SLICE_LITERAL("w")}, SLICE_LITERAL("/p"), &w);
        if (!slice_is(writer_slice(&w), "GET /p HTTP/1.1\r\nHost: w\r\nConnection: close\r\nX-B: 1\r\n\r\n"))
            fail_msg("%s passes", name);
        free(u);
    }
}

static void of_a_referer_the_query_stays_here(void **state)
{
    struct slice guard;
    struct upgrade *u =
        upgrade_of(PLAIN("/p", "X-Cell-Handover:route=r;sandbox=s\r\n"
                               "Referer: https://a/b?cellgate_token=x#y\r\nreferer: /c#d?e\r\n"),
                   &guard);
    uint8_t memory[1024];
    struct writer w = writer_of(memory, sizeof memory);
    (void)state;
    guarded_free(guard);
    assert_non_null(u);
    upgrade_probe(u, &(struct target){.host = SLICE_LITERAL("w")}, SLICE_LITERAL("/p"), &w);
    assert_true(slice_is(writer_slice(&w), "GET /p HTTP/1.1\r\nHost: w\r\nConnection: close\r\n"
                                           "Referer: https://a/b\r\nreferer: /c\r\n\r\n"));
    free(u);
}

/* The subprotocol in the 101, then the Close that follows it, as "4503 code". */
static void assert_closed(struct slice out, const char *protocol, const char *close)
{
    const uint8_t *end = memmem(out.at, out.len, "\r\n\r\n", 4);
    char selected[128], told[160];
    assert_non_null(end);
    struct slice head = slice_sub(out, 0, (size_t)(end - out.at) + 4), frame = slice_from(out, head.len);
    assert_true(slice_starts(head, "HTTP/1.1 101 "));
    snprintf(selected, sizeof selected, "Sec-WebSocket-Protocol: %s\r\n", protocol);
    assert_int_equal(memmem(head.at, head.len, selected, strlen(selected)) != NULL, protocol[0] != 0);
    assert_true(protocol[0] || !memmem(head.at, head.len, "Sec-WebSocket-Protocol", 22));
    assert_true(frame.len > 4 && frame.at[0] == 0x88 && frame.at[1] == frame.len - 2);
    snprintf(told, sizeof told, "%u %.*s", frame.at[2] << 8 | frame.at[3],
             SLICE_PRINTF(slice_from(frame, 4)));
    assert_string_equal(told, close);
}

static void a_refusal_can_be_a_close_that_a_browser_reads(void **state)
{
    static const struct {
        const char *request, *selected;
    } rows[] = {
        {PLAIN("/p", "X-Cell-Handover:route=r;sandbox=s;close=1\r\n"), ""},
        {PLAIN("/p", "X-Cell-Handover:route=r;sandbox=s;close=1\r\nSec-WebSocket-Protocol: a,b\r\n"), "a"},
        {PLAIN("/p", "X-Cell-Handover:route=r;sandbox=s;close=1\r\n"
                     "Sec-WebSocket-Protocol: cellgate.bearer.secret, b\r\n"),
         "b"},
        {PLAIN("/p", "X-Cell-Handover:route=r;sandbox=s;close=1\r\n"
                     "Sec-WebSocket-Protocol: cellgate.bearer.secret\r\n"),
         ""},
    };
    static const struct {
        const char *answer, *close;
    } answers[] = {{"HTTP/1.1 404 No\r\n\r\n", "4404 worker_refused"},
                   {"HTTP/1.1 302 Found\r\nLocation: /\r\n\r\n", "4502 worker_refused"},
                   {"HTTP/1.1 599 No\r\n\r\n", "4599 worker_refused"}};
    static struct http_head head;
    static uint8_t memory[UPGRADE_HEAD_MAX];
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct slice guard;
        struct upgrade *u = upgrade_of(rows[i].request, &guard);
        guarded_free(guard);
        assert_non_null(u);
        struct writer w = writer_of(memory, sizeof memory);
        upgrade_refuse(u, REFUSAL_too_many_tunnels, &w);
        assert_closed(writer_slice(&w), rows[i].selected, "4503 too_many_tunnels");
        for (size_t k = 0; k < sizeof answers / sizeof answers[0]; k++) {
            struct http_reader reader = http_reader_of(HTTP_RESPONSE, HTTP_HEAD_MAX);
            struct target to = {.port = 1};
            assert_int_equal(http_read(&reader, slice_text(answers[k].answer), &head), HTTP_DONE);
            w = writer_of(memory, sizeof memory);
            upgrade_pass_refusal(u, &to, &head, SLICE_LITERAL("body"), &w);
            assert_closed(writer_slice(&w), rows[i].selected, answers[k].close);
        }
        free(u);
    }
}

static void a_probe_asks_with_the_fields_of_the_client(void **state)
{
    struct slice guard;
    struct upgrade *u = upgrade_of(PLAIN("/pty/x/ws", HAS_NONE "X-EXECD-ACCESS-TOKEN:t\r\n"), &guard);
    struct target to = {.host = SLICE_LITERAL("worker:1")};
    uint8_t memory[1024];
    struct writer w = writer_of(memory, sizeof memory);
    (void)state;
    guarded_free(guard);
    assert_non_null(u);
    upgrade_probe(u, &to, SLICE_LITERAL("/pty/x"), &w);
    assert_true(slice_is(writer_slice(&w), "GET /pty/x HTTP/1.1\r\nHost: worker:1\r\nConnection: close\r\n"
                                           "X-EXECD-ACCESS-TOKEN: t\r\n\r\n"));
    free(u);
}

static void every_worker_selects_the_same_subprotocol(void **state)
{
    struct slice guard;
    struct upgrade *u = upgrade_of(request, &guard);
    static struct http_head head;
    uint8_t memory[512];
    struct fail why;
    static const char *const selected[] = {"q", "q", "p", NULL};
    (void)state;
    for (size_t i = 0; i < 4; i++) {
        struct writer w = writer_of(memory, sizeof memory);
        struct http_reader reader = http_reader_of(HTTP_RESPONSE, HTTP_HEAD_MAX);
        assert_true(ws_handshake_put_answer(&w, SLICE_LITERAL(KEY), slice_text(selected[i])));
        writer_text(&w, "\r\n");
        assert_int_equal(http_read(&reader, writer_slice(&w), &head), HTTP_DONE);
        assert_int_equal(upgrade_check(u, &head, SLICE_LITERAL(KEY), i == 0, &why), i < 2);
    }
    assert_true(slice_is(u->selected, "q"));
    guarded_free(guard);
    struct upgrade_kept *kept = upgrade_keep(u);
    struct upgrade back = upgrade_unpack(kept);
    assert_true(slice_is(back.selected, "q") && back.client_resumes == u->client_resumes);
    assert_true(slice_equal(back.target, u->target) && slice_equal(back.host, u->host) &&
                slice_equal(back.key, u->key) && slice_equal(back.protocols, u->protocols) &&
                slice_equal(back.fields, u->fields) && slice_equal(back.handover.org, u->handover.org));
    back.selected = slice_sub(back.protocols, 0, 1);
    upgrade_keep_selected(kept, &back);
    assert_true(slice_equal(upgrade_unpack(kept).selected, slice_sub(u->protocols, 0, 1)));
    free(kept);
    free(u);
}

static void an_upgrade_takes_another_handover_and_keeps_the_rest(void **state)
{
    static const char text[] =
        "GET /a HTTP/1.1\r\nHost:a\r\nUpgrade:websocket\r\nConnection:Upgrade\r\n"
        "Sec-WebSocket-Version:13\r\nSec-WebSocket-Key:" KEY "\r\n"
        "X-Cell-Handover:route=r;sandbox=s;pending=1;ports=%1F%90\r\nAuthorization:Bearer b\r\n\r\n";
    static uint8_t org[300];
    struct slice guard;
    struct upgrade *u = upgrade_of(text, &guard);
    struct upgrade_kept *kept = u ? upgrade_keep(u) : NULL;
    (void)state;
    guarded_free(guard);
    assert_non_null(kept);
    struct handover h = upgrade_handover(kept);
    h.org = slice_of(org, sizeof org);
    h.pending = -1;
    h.ticket = SLICE_LITERAL("0123456789012345678901");
    struct upgrade_kept *fresh = upgrade_with_handover(kept, &h);
    assert_non_null(fresh);
    const struct upgrade back = upgrade_unpack(fresh);
    assert_true(slice_equal(back.handover.org, h.org) && slice_equal(back.handover.ticket, h.ticket) &&
                back.handover.pending == -1 && slice_equal(back.handover.ports, SLICE_LITERAL("\x1f\x90")));
    assert_true(slice_equal(back.target, u->target) && slice_equal(back.fields, u->fields) &&
                slice_equal(back.key, u->key));
    /* Authorization goes to the worker, unless the agent says what it is */
    for (int withhold = 0; withhold < 2; withhold++) {
        uint8_t memory[1024];
        struct writer w = writer_of(memory, sizeof memory);
        const struct target to = {.withhold = withhold};
        upgrade_request(&back, &to, SLICE_LITERAL(KEY), slice_text(NULL), slice_text(NULL), &w);
        assert_int_equal(memmem(memory, w.len, "Bearer b", 8) != NULL, !withhold);
    }
    free(fresh);
    free(kept);
    free(u);
}

static bool holds(struct slice bytes, const char *text)
{
    return memmem(bytes.at, bytes.len, text, strlen(text));
}

/* Nothing of what clients say gets into the dictionary, under whatever name and however often it comes: it may be a credential, and
 * its place would be gone for others. */
static void the_image_of_an_upgrade_is_packed(void **state)
{
    static const char text[] = "GET /a?b=c HTTP/1.1\r\nHost:a\r\nUpgrade:websocket\r\nConnection:Upgrade\r\n"
                               "Sec-WebSocket-Version:13\r\nSec-WebSocket-Key:" KEY "\r\n"
                               "X-Cell-Handover:route=r;sandbox=s;org=%41\r\nUser-Agent:Zq7Wx9KvTr2\r\n"
                               "X-Api-Key:Vq8zR1mW\r\nCookie:a=pL3xT7cN\r\n\r\n";
    struct slice guard;
    struct upgrade *u = upgrade_of(text, &guard);
    struct upgrade_kept *kept = u ? upgrade_keep(u) : NULL;
    struct image_words *words = image_words_new(upgrade_words());
    struct buffer image = buffer_with_limit(1024);
    _Alignas(16) uint8_t opened[1024];
    (void)state;
    guarded_free(guard);
    assert_true(kept && words);
    for (unsigned round = 0; round < 4; round++) {
        buffer_cut(&image, 0);
        assert_true(upgrade_save(kept, words, &image));
        struct slice saved = buffer_slice(&image);
        assert_true(holds(saved, "Zq7Wx9KvTr2") && holds(saved, "Vq8zR1mW") && holds(saved, "pL3xT7cN"));
        assert_in_range(upgrade_saved_size(saved), 1, sizeof opened);
        assert_true(upgrade_load(saved, words, (struct upgrade_kept *)(void *)opened));
        struct upgrade back = upgrade_unpack((struct upgrade_kept *)(void *)opened);
        assert_true(slice_equal(back.target, u->target) && slice_equal(back.host, u->host) &&
                    slice_equal(back.key, u->key) && slice_equal(back.fields, u->fields) &&
                    !slice_present(back.protocols) && slice_equal(back.handover.org, u->handover.org));
    }
    for (unsigned round = 0; round < 2; round++) { /* again does nothing */
        assert_int_equal(upgrade_forget_key(kept), round == 0);
        struct upgrade back = upgrade_unpack(kept);
        assert_true(!slice_present(back.key) && slice_equal(back.target, u->target) &&
                    slice_equal(back.host, u->host) && slice_equal(back.fields, u->fields) &&
                    slice_equal(back.handover.org, u->handover.org));
    }
    struct buffer small = buffer_with_limit(20);
    assert_false(upgrade_save(kept, words, &small));
    buffer_free(&small);
    buffer_free(&image);
    image_words_free(words);
    free(kept);
    free(u);
}

/* What browsers, HAProxy and the agent always say stands in the dictionary: a head of 700 bytes rests in what is its own. */
static void the_image_of_a_browsers_upgrade_is_short(void **state)
{
    static const char text[] =
        "GET /echo HTTP/1.1\r\nupgrade: websocket\r\nconnection: Upgrade\r\nsec-websocket-version: "
        "13\r\nsec-websocket-key: " KEY "\r\nuser-agent: Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 "
        "(KHTML, like Gecko) Chrome/126.0.0.0 Safari/537.36\r\n"
        "accept-encoding: gzip, deflate, br, zstd\r\naccept-language: en-US,en;q=0.9\r\ncache-control: "
        "no-cache\r\n"
        "pragma: no-cache\r\nx-forwarded-for: 127.0.0.1\r\nx-forwarded-host: bench\r\nx-forwarded-proto: "
        "http\r\n"
        "x-forwarded-prefix: /r/sb-1\r\nx-request-id: 13a7d228-a13a-4c86-aa2b-8e911d357b46\r\nhost: "
        "127.0.0.1:44391\r\n"
        "x-cell-handover: "
        "id=13a7d228-a13a-4c86-aa2b-8e911d357b46;route=relay;sandbox=sb-1;epoch=1;addr=127.0.0.1;addr_port="
        "44391;"
        "host=127.0.0.1%3A44391;resume=none;end=close;keepalive=ping;one_leg=1;ticket="
        "HckRrU2hzK0hlD7jQwp5bQ\r\n\r\n";
    struct slice guard;
    struct upgrade *u = upgrade_of(text, &guard);
    struct upgrade_kept *kept = u ? upgrade_keep(u) : NULL;
    struct image_words *words = image_words_new(upgrade_words());
    struct buffer image = buffer_with_limit(1024);
    (void)state;
    guarded_free(guard);
    assert_true(kept && words && upgrade_forget_key(kept));
    assert_true(upgrade_save(kept, words, &image));
    assert_in_range(buffer_len(&image), 1, 190);
    buffer_free(&image);
    image_words_free(words);
    free(kept);
    free(u);
}

static void refusals_are_whole_answers(void **state)
{
    (void)state;
    for (enum refusal r = REFUSAL_bad_request; refusal_info(r) && r <= REFUSAL_worker_timeout; r++) {
        static struct http_head head;
        uint8_t memory[1024];
        struct writer w = writer_of(memory, sizeof memory);
        struct http_reader reader = http_reader_of(HTTP_RESPONSE, HTTP_HEAD_MAX);
        upgrade_refuse(NULL, r, &w);
        assert_false(w.full);
        assert_int_equal(http_read(&reader, writer_slice(&w), &head), HTTP_DONE);
        assert_int_equal(head.status, refusal_info(r)->status);
        assert_int_equal(head.length, w.len - head.len);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_send_queue_sends_in_any_steps),
        cmocka_unit_test(a_frame_that_was_partly_sent_is_salvaged_whole),
        cmocka_unit_test(a_send_queue_whose_last_frame_is_not_whole_is_salvaged_within_its_memory),
        cmocka_unit_test(a_send_queue_gets_past_a_frame_of_any_length),
        cmocka_unit_test(a_send_queue_knows_how_much_data_it_holds),
        cmocka_unit_test(a_send_queue_that_keeps_sends_again_what_was_not_released),
        cmocka_unit_test(a_message_whose_beginning_is_gone_begins_anew),
        cmocka_unit_test(nothing_is_left_of_control_frames),
        cmocka_unit_test(long_frames_are_known_by_their_length),
        cmocka_unit_test(a_pong_answers_its_ping_and_older_ones),
        cmocka_unit_test(the_newest_ping_is_remembered_whatever_its_length),
        cmocka_unit_test(pauses_grow_and_vary_by_a_fifth),
        cmocka_unit_test(waiting_costs_no_budget),
        cmocka_unit_test(the_fourth_loss_in_the_window_flaps),
        cmocka_unit_test(many_that_are_held_come_spread),
        cmocka_unit_test(who_flaps_and_gets_on_waits_longer_each_time),
        cmocka_unit_test(ends_are_recognised_exactly),
        cmocka_unit_test(close_reasons_are_legal_on_the_wire),
        cmocka_unit_test(limits_hold_for_sandbox_organisation_token_and_all),
        cmocka_unit_test(replays_are_as_many_as_memory_has_room_for),
        cmocka_unit_test(replays_of_one_owner_leave_some_to_others),
        cmocka_unit_test(limits_without_memory_refuse),
        cmocka_unit_test(a_request_goes_on_without_what_is_the_connections_own),
        cmocka_unit_test(a_request_without_a_whole_handover_is_refused),
        cmocka_unit_test(an_upgrade_without_memory_is_refused),
        cmocka_unit_test(a_browser_whose_token_was_a_subprotocol_gets_cellgates),
        cmocka_unit_test(parameters_of_an_adapter_replace_those_of_the_client),
        cmocka_unit_test(a_client_that_resumes_is_known_by_header_or_binding),
        cmocka_unit_test(what_the_route_strips_and_the_record_sets_is_not_the_clients),
        cmocka_unit_test(what_is_stripped_is_stripped_in_both_spellings),
        cmocka_unit_test(of_a_referer_the_query_stays_here),
        cmocka_unit_test(a_refusal_can_be_a_close_that_a_browser_reads),
        cmocka_unit_test(a_probe_asks_with_the_fields_of_the_client),
        cmocka_unit_test(every_worker_selects_the_same_subprotocol),
        cmocka_unit_test(an_upgrade_takes_another_handover_and_keeps_the_rest),
        cmocka_unit_test(the_image_of_an_upgrade_is_packed),
        cmocka_unit_test(the_image_of_a_browsers_upgrade_is_short),
        cmocka_unit_test(refusals_are_whole_answers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
