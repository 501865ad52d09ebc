/* SPDX-License-Identifier: MIT */
/* One tunnel's session side against a caller that counts: legs are lost at every step of a conversation. */
#include "examples/worker/resume/resume.h"

#include <stdlib.h>

#include "tests/unit/support.h"

static struct resume_request asks(uint64_t attempt, uint64_t recv)
{
    return (struct resume_request){.attempt = attempt, .recv = recv, .has_recv = true};
}

static enum resume_answer dial(struct resume *r, uint64_t attempt, uint64_t recv)
{
    struct resume_request request = asks(attempt, recv);
    return resume_request(r, &request);
}

static struct resume live(void)
{
    struct resume r;
    resume_init(&r);
    assert_int_equal(dial(&r, 1, 0), RESUME_ACCEPTED);
    return r;
}

static void send_items(struct resume *r, unsigned count)
{
    while (count--) {
        assert_true(resume_number(r, RESUME_BYTES, 10));
        assert_non_null(resume_to_send(r));
        resume_was_sent(r);
    }
}

static enum resume_verdict say(struct resume *r, const char *text)
{
    struct resume_message m = {0};
    return resume_piece(r, slice_text(text), &m, true);
}

/* ---- attempts ---- */

static void a_lower_or_equal_attempt_changes_nothing(void **state)
{
    struct resume r = live();
    (void)state;
    assert_int_equal(dial(&r, 7, 0), RESUME_ACCEPTED);
    send_items(&r, 3);
    for (uint64_t attempt = 1; attempt <= 7; attempt++)
        assert_int_equal(dial(&r, attempt, 2), RESUME_LATE);
    assert_int_equal(r.state, RESUME_LIVE);
    assert_int_equal(r.acknowledged, 0);
    assert_int_equal(r.next, 4);
    resume_free(&r);
}

static void what_was_never_sent_cannot_be_received(void **state)
{
    struct resume r = live();
    (void)state;
    send_items(&r, 3);
    assert_int_equal(dial(&r, 2, 4), RESUME_IMPOSSIBLE);
    assert_int_equal(r.attempt, 2);
    assert_int_equal(r.state, RESUME_LIVE);
    assert_int_equal(resume_acknowledge(&r, 4), RESUME_WRONG);
    assert_int_equal(dial(&r, 2, 3), RESUME_LATE);
    assert_int_equal(dial(&r, 3, 3), RESUME_ACCEPTED);
    assert_int_equal(r.next, 4);
    resume_free(&r);
}

static void one_that_is_over_says_so_to_higher_attempts_only(void **state)
{
    struct resume r = live();
    (void)state;
    resume_over(&r);
    assert_int_equal(dial(&r, 1, 0), RESUME_LATE);
    assert_int_equal(dial(&r, 2, 0), RESUME_EXPIRED);
    assert_int_equal(dial(&r, 2, 0), RESUME_LATE);
    resume_free(&r);
}

static void the_end_is_kept_until_it_is_acknowledged(void **state)
{
    struct resume r = live();
    (void)state;
    send_items(&r, 2);
    assert_true(resume_number(&r, RESUME_EXIT, 40) && resume_number(&r, RESUME_END, 0));
    for (uint64_t attempt = 2; attempt < 10; attempt++) {
        assert_int_equal(dial(&r, attempt, 2), RESUME_ACCEPTED);
        assert_int_equal(resume_to_send(&r)->kind, RESUME_EXIT);
        resume_was_sent(&r);
        assert_int_equal(resume_to_send(&r)->kind, RESUME_END);
        resume_was_sent(&r);
        assert_null(resume_to_send(&r));
        assert_int_equal(resume_room(&r), 0);
        resume_left(&r);
        assert_int_equal(r.state, RESUME_AWAY);
    }
    assert_int_equal(dial(&r, 10, 3), RESUME_ACCEPTED);
    assert_int_equal(resume_acknowledge(&r, 4), RESUME_FINE);
    assert_int_equal(r.state, RESUME_OVER);
    assert_int_equal(dial(&r, 11, 4), RESUME_EXPIRED);
    resume_free(&r);
}

/* ---- output ---- */

#define SOURCE 300u /* bytes that the session puts out */

struct caller {
    struct resume *r;
    uint64_t attempt, recv, counter, bytes;
    size_t piece; /* of the item that is being sent, as the session's owner counts */
    bool ended;
};

static void redial(struct caller *c)
{
    resume_left(c->r);
    assert_int_equal(dial(c->r, ++c->attempt, c->recv), RESUME_ACCEPTED);
    assert_true(c->r->next <= c->recv + 1);
    c->counter = c->r->next;
    c->piece = 0;
}

/* The caller takes one whole item; those it has are told again and dropped. */
static void receive(struct caller *c, const struct resume_item *item)
{
    uint64_t number = c->counter++;
    if (number <= c->recv)
        return;
    assert_int_equal(number, c->recv + 1);
    c->recv = number;
    if (item->kind == RESUME_END)
        c->ended = true;
    if (item->kind != RESUME_BYTES)
        return;
    assert_int_equal(item->offset, c->bytes);
    c->bytes += item->length;
}

/* One step of the owner: numbers, or sends up to three bytes. False when there is nothing to do. */
static bool step(struct caller *c, uint64_t put_out)
{
    struct resume *r = c->r;
    if (r->next > r->numbered && !r->ended) {
        size_t room = resume_room(r), left = (size_t)(put_out - r->cut);
        if (left && room)
            return resume_number(r, RESUME_BYTES, (uint32_t)(left < 7 ? left : 7));
        return put_out == SOURCE && !left && resume_number(r, RESUME_END, 0);
    }
    const struct resume_item *item = resume_to_send(r);
    if (!item)
        return false;
    c->piece += 3;
    if (c->piece < item->length)
        return true;
    struct resume_item sent = *item;
    c->piece = 0;
    resume_was_sent(r);
    receive(c, &sent);
    return true;
}

/* Legs are lost at step `first` and then every `every` steps; acknowledgements come each `acknowledges` items. */
static void converse(unsigned first, unsigned every, unsigned acknowledges)
{
    struct resume r;
    struct caller c = {.r = &r};
    resume_init(&r);
    redial(&c);
    uint64_t put_out = 0;
    for (unsigned i = 0; !c.ended; i++) {
        assert_true(i < 100000);
        put_out += i % 3 == 0 && put_out < SOURCE;
        if (i == first || (i > first && every && (i - first) % every == 0))
            redial(&c);
        step(&c, put_out);
        assert_true(resume_kept(&r) <= c.bytes || c.recv == r.acknowledged);
        if (acknowledges && c.recv % acknowledges == 0)
            assert_int_equal(resume_acknowledge(&r, c.recv), RESUME_FINE);
    }
    assert_int_equal(c.bytes, SOURCE);
    assert_int_equal(resume_acknowledge(&r, c.recv), RESUME_FINE);
    assert_int_equal(r.state, RESUME_OVER);
    resume_free(&r);
}

static void output_is_exact_wherever_a_leg_is_lost(void **state)
{
    (void)state;
    for (unsigned first = 0; first < 1000; first++)
        for (unsigned acknowledges = 0; acknowledges < 4; acknowledges++)
            converse(first, 0, acknowledges);
    for (unsigned every = 12; every < 80; every++)
        for (unsigned acknowledges = 1; acknowledges < 4; acknowledges++)
            converse(every, every, acknowledges);
}

/* Make before break: the caller went on acknowledging on the old leg. What it acknowledges early still takes its
 * place on the new one. */
static void an_item_acknowledged_before_its_turn_keeps_its_place(void **state)
{
    struct resume r = live();
    (void)state;
    send_items(&r, 5);
    assert_int_equal(dial(&r, 2, 1), RESUME_ACCEPTED);
    assert_int_equal(r.next, 2);
    assert_int_equal(resume_acknowledge(&r, 4), RESUME_FINE);
    for (uint64_t number = 2; number <= 5; number++) {
        assert_int_equal(resume_to_send(&r)->offset, (number - 1) * 10);
        assert_int_equal(resume_kept(&r), (number - 1) * 10);
        resume_was_sent(&r);
    }
    assert_int_equal(resume_kept(&r), 40);
    assert_int_equal(r.in_flight, 10 + CELL_RESUME_COST);
    assert_int_equal(resume_acknowledge(&r, 2), RESUME_FINE);
    assert_int_equal(resume_acknowledge(&r, 5), RESUME_FINE);
    assert_int_equal(r.in_flight, 0);
    assert_int_equal(resume_kept(&r), 50);
    resume_free(&r);
}

static void no_more_than_the_window_is_in_flight(void **state)
{
    struct resume r;
    struct resume_request request = {.attempt = 1, .buffer = CELL_RESUME_WINDOW_MIN};
    size_t room;
    (void)state;
    resume_init(&r);
    assert_int_equal(resume_request(&r, &request), RESUME_ACCEPTED);
    while ((room = resume_room(&r))) {
        assert_true(resume_number(&r, RESUME_BYTES, (uint32_t)room));
        assert_non_null(resume_to_send(&r));
        resume_was_sent(&r);
    }
    assert_true(r.in_flight <= CELL_RESUME_WINDOW_MIN &&
                r.in_flight > CELL_RESUME_WINDOW_MIN - 2 * CELL_RESUME_COST);
    assert_true(resume_number(&r, RESUME_EXIT, 40));
    assert_null(resume_to_send(&r));
    request = (struct resume_request){.attempt = 2, .buffer = CELL_RESUME_NUMBER_MAX};
    assert_int_equal(resume_request(&r, &request), RESUME_ACCEPTED);
    assert_int_equal(r.window, RESUME_WINDOW);
    assert_int_equal(r.in_flight, 0);
    resume_free(&r);
}

static void many_items_are_kept_and_found_again(void **state)
{
    struct resume r = live();
    (void)state;
    send_items(&r, 5000);
    assert_int_equal(resume_acknowledge(&r, 1234), RESUME_FINE);
    send_items(&r, 3000);
    assert_int_equal(dial(&r, 2, 1300), RESUME_ACCEPTED);
    for (uint64_t number = 1301; number <= 8000; number++) {
        assert_int_equal(resume_to_send(&r)->offset, (number - 1) * 10);
        resume_was_sent(&r);
    }
    assert_null(resume_to_send(&r));
    resume_free(&r);
}

static void without_memory_nothing_is_numbered(void **state)
{
    struct resume r = live();
    (void)state;
    alloc_fail_at(1);
    assert_false(resume_number(&r, RESUME_BYTES, 10));
    assert_int_equal(say(&r, "x"), RESUME_NO_MEMORY);
    alloc_fail_at(0);
    assert_int_equal(r.numbered, 0);
    assert_int_equal(resume_kept(&r), 0);
    send_items(&r, 1);
    resume_free(&r);
}

/* ---- input ---- */

static uint64_t consume_all(struct resume *r, struct buffer *to)
{
    struct resume_message m;
    struct slice bytes;
    while (resume_waiting(r, &m, &bytes)) {
        assert_true(buffer_put(to, bytes));
        resume_consume(r);
    }
    return r->consumed;
}

/* Messages of 0 to 6 bytes, sent byte by byte; the leg is lost behind byte `at`, and the reader of the input
 * takes a turn every `lazy` bytes. */
static void input_with_a_loss(const char *text, size_t at, size_t lazy)
{
    struct resume r = live();
    struct buffer got = buffer_with_limit(4096);
    size_t starts[64] = {0}, count = 0, len = strlen(text), sent = 0;
    for (size_t i = 0; i < len; i += count % 7, count++)
        starts[count] = i;
    starts[count] = len;
    bool lost = false;
    for (size_t n = 0; n < count; n++) {
        size_t size = starts[n + 1] - starts[n];
        for (size_t i = 0; i == 0 || i < size; i++) {
            struct resume_message m = {.size = (uint32_t)size};
            struct slice byte = slice_of(text + starts[n] + i, size ? 1 : 0);
            assert_int_equal(resume_piece(&r, byte, &m, i + 1 >= size), RESUME_FINE);
            if (++sent % lazy == 0)
                consume_all(&r, &got);
            if (sent != at || lost)
                continue;
            lost = true;
            assert_int_equal(dial(&r, 2, 0), RESUME_ACCEPTED);
            assert_true(r.consumed <= n + 1);
            n = (size_t)r.consumed - 1; /* goes on with the message behind, from its first byte */
            break;
        }
    }
    assert_int_equal(consume_all(&r, &got), count);
    assert_int_equal(buffer_len(&got), len);
    assert_memory_equal(buffer_slice(&got).at, text, len);
    assert_int_equal(buffer_len(&r.held), 0);
    buffer_free(&got);
    resume_free(&r);
}

static void input_is_exact_wherever_a_leg_is_lost(void **state)
{
    const char *text = "the quick brown fox jumps over the lazy dog, twice and once more";
    (void)state;
    for (size_t at = 1; at < 90; at++)
        for (size_t lazy = 1; lazy < 30; lazy++)
            input_with_a_loss(text, at, lazy);
}

static void consumed_input_is_told_in_time(void **state)
{
    struct resume r = live();
    struct buffer got = buffer_with_limit(RESUME_WINDOW);
    bool now;
    (void)state;
    assert_false(resume_owes(&r, &now));
    assert_int_equal(say(&r, "x"), RESUME_FINE);
    assert_false(resume_owes(&r, &now));
    consume_all(&r, &got);
    assert_true(resume_owes(&r, &now));
    assert_false(now);
    struct resume_message m = {.size = RESUME_WINDOW / 4};
    assert_int_equal(resume_piece(&r, SLICE_LITERAL(""), &m, true), RESUME_FINE);
    consume_all(&r, &got);
    assert_true(resume_owes(&r, &now) && now);
    resume_tell(&r);
    assert_false(resume_owes(&r, &now));
    assert_int_equal(r.pending, 0);
    buffer_free(&got);
    resume_free(&r);
}

static void more_than_the_window_is_too_big(void **state)
{
    struct resume r = live();
    struct resume_message m = {0};
    static uint8_t bytes[RESUME_WINDOW - CELL_RESUME_COST + 1];
    (void)state;
    struct slice all = slice_of(bytes, sizeof bytes);
    assert_int_equal(resume_piece(&r, all, &m, true), RESUME_TOO_BIG);
    assert_int_equal(resume_piece(&r, slice_from(all, 1), &m, true), RESUME_FINE);
    assert_int_equal(say(&r, ""), RESUME_TOO_BIG);
    assert_int_equal(resume_close(&r, 2), RESUME_FINE);
    resume_free(&r);
    r = live();
    m.size = UINT32_MAX;
    assert_int_equal(resume_piece(&r, SLICE_LITERAL("x"), &m, true), RESUME_TOO_BIG);
    resume_free(&r);
}

static void the_callers_end_takes_the_place_of_what_it_left_unfinished(void **state)
{
    struct resume r = live();
    struct resume_message m = {0};
    struct slice bytes;
    (void)state;
    assert_int_equal(say(&r, "a"), RESUME_FINE);
    assert_int_equal(resume_piece(&r, SLICE_LITERAL("b"), &m, false), RESUME_FINE);
    assert_int_equal(resume_close(&r, 3), RESUME_WRONG);
    assert_int_equal(resume_close(&r, 2), RESUME_FINE);
    assert_int_equal(resume_close(&r, 3), RESUME_WRONG);
    assert_int_equal(say(&r, "c"), RESUME_WRONG);
    assert_true(resume_waiting(&r, &m, &bytes) && !m.end && slice_is(bytes, "a"));
    resume_consume(&r);
    assert_true(resume_waiting(&r, &m, &bytes) && m.end && !bytes.len);
    resume_consume(&r);
    assert_false(resume_waiting(&r, &m, &bytes));
    assert_int_equal(r.consumed, 2);
    resume_free(&r);
}

static void what_is_not_consumed_goes_with_its_leg(void **state)
{
    struct resume r = live();
    struct buffer got = buffer_with_limit(16);
    (void)state;
    assert_int_equal(say(&r, "a"), RESUME_FINE);
    consume_all(&r, &got);
    assert_int_equal(say(&r, "b"), RESUME_FINE);
    assert_int_equal(resume_close(&r, 3), RESUME_FINE);
    resume_left(&r);
    assert_int_equal(say(&r, "ghost"), RESUME_WRONG);
    assert_int_equal(dial(&r, 2, 0), RESUME_ACCEPTED);
    assert_int_equal(r.consumed, 1);
    assert_int_equal(say(&r, "b"), RESUME_FINE);
    consume_all(&r, &got);
    assert_true(slice_is(buffer_slice(&got), "ab"));
    buffer_free(&got);
    resume_free(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_lower_or_equal_attempt_changes_nothing),
        cmocka_unit_test(what_was_never_sent_cannot_be_received),
        cmocka_unit_test(one_that_is_over_says_so_to_higher_attempts_only),
        cmocka_unit_test(the_end_is_kept_until_it_is_acknowledged),
        cmocka_unit_test(output_is_exact_wherever_a_leg_is_lost),
        cmocka_unit_test(an_item_acknowledged_before_its_turn_keeps_its_place),
        cmocka_unit_test(no_more_than_the_window_is_in_flight),
        cmocka_unit_test(many_items_are_kept_and_found_again),
        cmocka_unit_test(without_memory_nothing_is_numbered),
        cmocka_unit_test(input_is_exact_wherever_a_leg_is_lost),
        cmocka_unit_test(consumed_input_is_told_in_time),
        cmocka_unit_test(more_than_the_window_is_too_big),
        cmocka_unit_test(the_callers_end_takes_the_place_of_what_it_left_unfinished),
        cmocka_unit_test(what_is_not_consumed_goes_with_its_leg),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
