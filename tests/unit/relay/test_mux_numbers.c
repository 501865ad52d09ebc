/* SPDX-License-Identifier: MIT */
#include "spoa/relay/mux/numbers.h"

#include "spoa/proto/ws.h"
#include "spoa/relay/mux/frame.h"
#include "tests/unit/support.h"

static struct cell_resume_terms attempt(uint64_t number)
{
    return (struct cell_resume_terms){.attempt = number};
}

static struct cell_resume_terms again(uint64_t number, uint64_t recv)
{
    return (struct cell_resume_terms){.attempt = number, .recv = recv, .has_recv = true};
}

static void put(struct mux_numbers *r, uint32_t number, size_t len)
{
    static uint8_t bytes[MUX_FRAME_MOST];
    assert_true(mux_frame_put(&r->kept, MUX_FRAME_DATA, number, slice_of(bytes, len)));
}

/* The number in the next frame, which the leg is given; 0: there is none. */
static uint32_t give(struct mux_numbers *r)
{
    bool large;
    struct slice frame = mux_numbers_next(r, &large), payload;
    struct ws_decoder d = ws_decoder_of(WS_SERVER, 0);
    struct ws_piece piece;
    struct mux_frame message;
    assert_false(large);
    if (!frame.len)
        return 0;
    size_t all = frame.len;
    assert_int_equal(ws_decode(&d, &frame, &piece), WS_HEAD);
    assert_int_equal(ws_decode(&d, &frame, &piece), WS_PIECE);
    assert_true(piece.last && d.frame.fin && d.frame.opcode == WS_BINARY && !frame.len);
    payload = piece.bytes;
    assert_true(all >= payload.len);
    assert_true(mux_frame_read(payload, &message));
    mux_numbers_give(r);
    return message.number;
}

static void a_leg_goes_on_where_the_one_before_was(void **state)
{
    struct mux_numbers r = mux_numbers_of();
    struct cell_resume_terms greeting, first = attempt(1), second = again(3, 1), late = again(2, 1),
                                       same = again(3, 1), ahead = again(4, 4), third = again(5, 3);
    (void)state;
    assert_int_equal(mux_numbers_request(&r, &first, &greeting), MUX_NUMBERS_ACCEPTED);
    assert_true(greeting.recv == 0 && greeting.next == 1 && greeting.buffer == CELL_RESUME_WINDOW);
    assert_int_equal(mux_numbers_end(&r), 1);
    for (uint32_t i = 1; i <= 4; i++)
        put(&r, i, 100 * i);
    assert_int_equal(mux_numbers_end(&r), 0);
    assert_int_equal(give(&r), 1);
    assert_int_equal(give(&r), 2);
    assert_int_equal(give(&r), 3);
    mux_numbers_left(&r);
    assert_int_equal(mux_numbers_request(&r, &second, &greeting), MUX_NUMBERS_ACCEPTED);
    assert_int_equal(greeting.next, 2);
    assert_int_equal(give(&r), 2);
    assert_int_equal(mux_numbers_request(&r, &late, &greeting), MUX_NUMBERS_LATE);
    assert_int_equal(mux_numbers_request(&r, &same, &greeting), MUX_NUMBERS_LATE);
    assert_int_equal(mux_numbers_request(&r, &ahead, &greeting), MUX_NUMBERS_IMPOSSIBLE);
    assert_int_equal(give(&r), 3);
    assert_int_equal(give(&r), 4);
    assert_int_equal(give(&r), 0);
    assert_int_equal(mux_numbers_end(&r), 5);
    assert_int_equal(mux_numbers_request(&r, &third, &greeting), MUX_NUMBERS_ACCEPTED);
    assert_int_equal(greeting.next, 4);
    assert_true(mux_numbers_acknowledge(&r, 4)); /* on this leg it was not given yet: an older one had it */
    assert_int_equal(give(&r), 0);
    assert_int_equal(mux_numbers_end(&r), 5);
    assert_int_equal(buffer_len(&r.kept), 0);
    assert_int_equal(r.in_flight, 0);
    assert_true(mux_numbers_acknowledge(&r, 2)); /* lower than one before: ignored */
    assert_false(mux_numbers_acknowledge(&r, 5));
    mux_numbers_free(&r);
}

static void the_window_holds_both_ways(void **state)
{
    struct mux_numbers r = mux_numbers_of();
    struct cell_resume_terms greeting, small = attempt(1), first = attempt(2);
    bool now, large;
    (void)state;
    small.buffer = MUX_NUMBERS_WINDOW_LEAST - 1;
    assert_int_equal(mux_numbers_request(&r, &small, &greeting), MUX_NUMBERS_IMPOSSIBLE);
    first.buffer = MUX_NUMBERS_WINDOW_LEAST;
    assert_int_equal(mux_numbers_request(&r, &first, &greeting), MUX_NUMBERS_ACCEPTED);
    for (uint32_t i = 1; i <= 3; i++)
        put(&r, i, 60000);
    assert_int_equal(give(&r), 1);
    assert_int_equal(give(&r), 2);
    assert_int_equal(give(&r), 0);
    assert_true(mux_numbers_acknowledge(&r, 1));
    assert_int_equal(give(&r), 3);
    mux_numbers_free(&r);

    r = mux_numbers_of();
    first.buffer = MUX_NUMBERS_WINDOW_LEAST;
    assert_int_equal(mux_numbers_request(&r, &first, &greeting), MUX_NUMBERS_ACCEPTED);
    static uint8_t bytes[MUX_NUMBERS_WINDOW_LEAST];
    const struct ws_frame frame = {.opcode = WS_BINARY, .fin = true, .length = sizeof bytes};
    uint8_t head[WS_HEAD_MAX];
    assert_true(buffer_put(&r.kept, slice_of(head, ws_encode_head(head, &frame))) &&
                buffer_put(&r.kept, slice_of(bytes, sizeof bytes)));
    assert_false(slice_present(mux_numbers_next(&r, &large)));
    assert_true(large);
    mux_numbers_free(&r);

    r = mux_numbers_of();
    for (unsigned i = 0; i < 3; i++) {
        assert_int_equal(mux_numbers_put(&r, slice_of(bytes, 65536)), MUX_NUMBERS_FINE);
        assert_false(mux_numbers_owes(&r, &now));
    }
    assert_int_equal(mux_numbers_put(&r, slice_of(bytes, CELL_RESUME_WINDOW - 3 * (65536 + CELL_RESUME_COST) -
                                                             CELL_RESUME_COST)),
                     MUX_NUMBERS_FINE);
    assert_int_equal(mux_numbers_put(&r, slice_of(bytes, 0)), MUX_NUMBERS_TOO_BIG);
    assert_int_equal(mux_numbers_first(&r).len, 65536);
    mux_numbers_take(&r);
    assert_true(mux_numbers_owes(&r, &now) && now);
    assert_int_equal(mux_numbers_tell(&r), 1);
    assert_false(mux_numbers_owes(&r, &now));
    mux_numbers_free(&r);
}

static void what_was_not_taken_comes_again(void **state)
{
    struct mux_numbers r = mux_numbers_of();
    struct cell_resume_terms greeting, first = attempt(1), second = again(2, 0);
    bool now;
    (void)state;
    assert_int_equal(mux_numbers_request(&r, &first, &greeting), MUX_NUMBERS_ACCEPTED);
    assert_int_equal(mux_numbers_put(&r, slice_text("one")), MUX_NUMBERS_FINE);
    assert_int_equal(mux_numbers_put(&r, slice_text("")), MUX_NUMBERS_FINE);
    assert_int_equal(mux_numbers_put(&r, slice_text("three")), MUX_NUMBERS_FINE);
    mux_numbers_take(&r);
    assert_int_equal(mux_numbers_first(&r).len, 0);
    mux_numbers_take(&r);
    assert_false(mux_numbers_mark(&r, 3));
    assert_true(mux_numbers_mark(&r, 4));
    assert_true(r.marked);
    mux_numbers_left(&r);
    assert_false(r.marked);
    assert_false(slice_present(mux_numbers_first(&r)));
    assert_true(mux_numbers_owes(&r, &now) && !now);
    assert_int_equal(mux_numbers_request(&r, &second, &greeting), MUX_NUMBERS_ACCEPTED);
    assert_int_equal(greeting.recv, 2);
    assert_false(mux_numbers_owes(&r, &now)); /* the greeting says it */
    assert_int_equal(mux_numbers_put(&r, slice_text("three")), MUX_NUMBERS_FINE);
    assert_true(slice_is(mux_numbers_first(&r), "three"));
    mux_numbers_free(&r);
}

/* A client, a gate, and legs that are lost at any point: each message comes once, in order, in both directions. */

struct world {
    uint64_t random;
    struct mux_numbers gate;
    uint64_t attempts;
    bool leg;
    /* the client */
    uint64_t said, told; /* its messages; acknowledged to it */
    uint64_t next;       /* to be sent on this leg */
    uint64_t heard;      /* of the gate's */
    uint64_t counter;    /* the number of what comes next on this leg */
    uint64_t flight;     /* cost of what is unacknowledged on this leg */
    /* the gate */
    uint64_t spoken, taken;
    uint32_t on_way[8]; /* towards the client, of this leg */
    size_t on_way_count;
};

static uint64_t draw(struct world *w, uint64_t below)
{
    w->random ^= w->random << 13;
    w->random ^= w->random >> 7;
    w->random ^= w->random << 17;
    return w->random % below;
}

static void lose(struct world *w)
{
    if (w->leg)
        mux_numbers_left(&w->gate);
    w->leg = false;
    w->on_way_count = 0;
}

static void dial(struct world *w)
{
    struct cell_resume_terms greeting, request = again(++w->attempts, w->heard);
    w->on_way_count = 0;
    assert_int_equal(mux_numbers_request(&w->gate, &request, &greeting), MUX_NUMBERS_ACCEPTED);
    if (draw(w, 4) == 0) { /* its answer is lost */
        w->leg = true;
        lose(w);
        return;
    }
    w->leg = true;
    assert_true(greeting.recv >= w->told && greeting.recv <= w->said && greeting.next <= w->heard + 1);
    w->told = greeting.recv;
    w->next = w->told + 1;
    w->counter = greeting.next;
    w->flight = 0;
}

static void client_sends(struct world *w)
{
    uint8_t text[8];
    struct writer to = writer_of(text, sizeof text);
    if (!w->leg || w->next > w->said || w->flight + 8 + CELL_RESUME_COST > CELL_RESUME_WINDOW)
        return;
    writer_be(&to, w->next++, 8);
    w->flight += 8 + CELL_RESUME_COST;
    assert_int_equal(mux_numbers_put(&w->gate, writer_slice(&to)), MUX_NUMBERS_FINE);
}

static void gate_takes(struct world *w)
{
    struct slice message = mux_numbers_first(&w->gate);
    if (!slice_present(message))
        return;
    uint64_t number = 0;
    for (size_t i = 0; i < message.len; i++)
        number = number << 8 | message.at[i];
    assert_int_equal(number, ++w->taken);
    mux_numbers_take(&w->gate);
}

static void gate_tells(struct world *w)
{
    bool now;
    if (!w->leg || !mux_numbers_owes(&w->gate, &now))
        return;
    uint64_t number = mux_numbers_tell(&w->gate);
    assert_true(number == w->taken && number >= w->told && number < w->next);
    w->flight -= (number - w->told) * (8 + CELL_RESUME_COST);
    w->told = number;
}

static void client_hears(struct world *w)
{
    if (!w->on_way_count)
        return;
    uint64_t number = w->on_way[0];
    memmove(w->on_way, w->on_way + 1, --w->on_way_count * sizeof *w->on_way);
    assert_int_equal(number, w->counter);
    if (w->counter++ > w->heard)
        w->heard++;
    assert_true(w->heard >= number);
}

static void steps(struct world *w)
{
    switch (draw(w, 9)) {
    case 0:
        w->said++;
        break;
    case 1:
        put(&w->gate, (uint32_t)++w->spoken, draw(w, 8) ? draw(w, 300) : 65535);
        break;
    case 2:
        client_sends(w);
        break;
    case 3:
        gate_takes(w);
        break;
    case 4:
        if (w->leg && w->on_way_count < 8 && (w->on_way[w->on_way_count] = give(&w->gate)))
            w->on_way_count++;
        break;
    case 5:
        client_hears(w);
        break;
    case 6:
        if (w->leg)
            assert_true(mux_numbers_acknowledge(&w->gate, w->heard));
        break;
    case 7:
        gate_tells(w);
        break;
    default:
        if (draw(w, 3) == 0)
            lose(w);
        else if (!w->leg || draw(w, 20) == 0)
            dial(w); /* also while the gate has not seen yet that the leg is lost */
    }
}

static void finish(struct world *w)
{
    while (w->heard < w->spoken || w->taken < w->said) {
        if (!w->leg)
            dial(w);
        client_sends(w);
        gate_takes(w);
        gate_tells(w);
        if (w->leg && (w->on_way[w->on_way_count] = give(&w->gate)))
            w->on_way_count++;
        client_hears(w);
        if (w->leg)
            assert_true(mux_numbers_acknowledge(&w->gate, w->heard));
    }
    assert_int_equal(w->heard, w->spoken);
    assert_int_equal(w->taken, w->said);
    assert_int_equal(buffer_len(&w->gate.kept), 0);
    assert_int_equal(w->gate.in_flight, 0);
}

static void each_message_comes_once_in_order(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 300; seed++) {
        struct world w = {.random = seed * UINT64_C(0x9e3779b97f4a7c15), .gate = mux_numbers_of()};
        while (w.spoken < 200)
            steps(&w);
        lose(&w);
        finish(&w);
        mux_numbers_free(&w.gate);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_leg_goes_on_where_the_one_before_was),
        cmocka_unit_test(the_window_holds_both_ways),
        cmocka_unit_test(what_was_not_taken_comes_again),
        cmocka_unit_test(each_message_comes_once_in_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
