/* SPDX-License-Identifier: MIT */
#include "tests/unit/support.h"

#include <stdio.h>
#include <stdlib.h>

#include "spoa/agent/decision_thread/mailbox.h"
#include "spoa/agent/decision_thread/pending.h"

struct world {
    struct loop *loop;
    struct pending_table *table;
    struct pending *pending;
    struct pending_quota *quota;
    struct fair *fair, *payers;
    struct fair_owner owner; /* of what is added */
    uint64_t payer;
    bool full;        /* the connection takes no answers */
    bool one_is_full; /* that of slot 1 */
    bool wanted;      /* there is work */
    unsigned due, gone, looked;
    uint64_t last;   /* stream of the question seen last */
    uint64_t answer; /* stream of the one that there is news for; UINT64_MAX: for all */
};

static void on_due(void *context, const struct pending_request *request)
{
    struct world *w = context;
    w->due++;
    w->last = request->ticket.stream_id;
}

static void on_gone(void *context, const struct pending_request *request)
{
    (void)request;
    ((struct world *)context)->gone++;
}

static bool on_look(void *context, struct pending_request *request)
{
    struct world *w = context;
    struct spop_value value;
    struct slice name;
    struct spop_args args = request->args;
    w->looked++;
    w->last = request->ticket.stream_id;
    assert_true(spop_arg_next(&args, &name, &value)); /* a copy: the frame is gone */
    assert_true(slice_is(name, "sandbox"));
    assert_true(slice_equal(value.bytes, request->key));
    assert_false(spop_arg_next(&args, &name, &value));
    return w->answer == UINT64_MAX || w->answer == request->ticket.stream_id;
}

static bool has_room(void *context, const struct pending_request *request)
{
    const struct world *w = context;
    return !w->full && !(w->one_is_full && request->ticket.slot == 1);
}

static void on_work(void *context)
{
    struct world *w = context;
    w->wanted = true;
}

/* All that there is to do. */
static void work(struct world *w)
{
    while (w->wanted) {
        w->wanted = false;
        if (pending_work(w->table, 0))
            w->wanted = true;
    }
}

/* Until they are all gone. */
static void run(struct world *w)
{
    while (pending_count(w->pending)) {
        loop_turn(w->loop, true);
        work(w);
    }
}

static void start(struct world *w, uint64_t patience, size_t most, size_t most_bytes)
{
    const struct pending_options options = {.loop = w->loop,
                                            .patience = patience,
                                            .most = most,
                                            .most_bytes = most_bytes,
                                            .quota = w->quota,
                                            .fair = w->fair,
                                            .payers = w->payers,
                                            .due = on_due,
                                            .notify = on_look,
                                            .room = has_room,
                                            .gone = on_gone,
                                            .context = w};
    pending_table_free(w->table);
    w->table = pending_table_new(on_work, w);
    assert_non_null(w->table);
    w->pending = pending_new(w->table, &options);
    assert_non_null(w->pending);
}

static int setup(void **state)
{
    struct world *w = calloc(1, sizeof *w);
    struct fail why;
    w->loop = loop_new(&why);
    assert_non_null(w->loop);
    start(w, MINUTE, 10000, (size_t)1 << 22);
    *state = w;
    return 0;
}

static int teardown(void **state)
{
    struct world *w = *state;
    pending_table_free(w->table);
    loop_free(w->loop);
    free(w);
    return 0;
}

static void look_at(struct world *w, struct slice key)
{
    pending_notify(w->table, key);
    work(w);
}

static void look(struct world *w)
{
    pending_notify_all(w->pending);
    while (!w->wanted) /* another look rests for as long as the last one took */
        loop_turn(w->loop, true);
    work(w);
}

static bool add_of(struct world *w, uint32_t slot, uint64_t stream, const char *key)
{
    uint8_t memory[512];
    struct writer out = writer_of(memory, sizeof memory);
    size_t frame = spop_frame_begin(&out, SPOP_TYPE_NOTIFY, stream, 1);
    size_t begin = spop_message_begin(&out, SLICE_LITERAL("cell-watch"));
    spop_arg_write(&out, begin, SLICE_LITERAL("sandbox"), spop_text(slice_text(key)));
    assert_true(spop_frame_end(&out, frame, sizeof memory));
    struct spop_frame in;
    size_t size;
    assert_int_equal(spop_frame_read(writer_slice(&out), sizeof memory, &in, &size), SPOP_STEP_FRAME);
    struct reader payload = reader_of(in.payload);
    struct spop_message message;
    assert_true(spop_message_next(&payload, &message));
    char text[300];
    snprintf(text, sizeof text, "%s", key);
    const struct pending_request request = {.ticket = {.slot = slot, .stream_id = stream},
                                            .key = slice_text(text),
                                            .args = message.args,
                                            .owner = w->owner,
                                            .payer = w->payer,
                                            .begun = loop_clock()};
    bool room = pending_has_room(w->pending, &request), kept = pending_add(w->pending, &request);
    assert_true(room || !kept);
    memset(memory, 0, sizeof memory);
    memset(text, 0, sizeof text);
    return kept;
}

static bool add(struct world *w, uint64_t stream, const char *key)
{
    return add_of(w, 0, stream, key);
}

static void a_notification_of_a_key_reaches_its_questions_alone(void **state)
{
    struct world *w = *state;
    char key[16];
    for (uint64_t i = 0; i < 500; i++) {
        snprintf(key, sizeof key, "sb-%u", (unsigned)i % 100);
        assert_true(add(w, i, key));
    }
    look_at(w, SLICE_LITERAL("sb-7"));
    assert_int_equal(w->looked, 5);
    w->answer = 107;
    look_at(w, SLICE_LITERAL("sb-7"));
    assert_int_equal(pending_count(w->pending), 499);
    assert_int_equal(w->gone, 1);
    w->looked = 0;
    look_at(w, SLICE_LITERAL("sb-7"));
    assert_int_equal(w->looked, 4);
    look_at(w, SLICE_LITERAL("sb"));
    assert_int_equal(w->looked, 4);
    w->answer = UINT64_MAX;
    look(w);
    assert_int_equal(pending_count(w->pending), 0);
    assert_int_equal(w->gone, 500);
    look_at(w, SLICE_LITERAL("sb-7"));
    assert_int_equal(w->looked, 4 + 499);
}

static void the_time_of_each_is_over_in_order(void **state)
{
    struct world *w = *state;
    start(w, 20 * MILLISECOND, 10, 100000);
    uint64_t begun = loop_clock();
    assert_true(add(w, 1, "a"));
    assert_true(add(w, 2, "b"));
    assert_true(add(w, 3, "a"));
    run(w);
    assert_true(loop_clock() - begun >= 20000);
    assert_int_equal(w->due, 3);
    assert_int_equal(w->last, 3);
    assert_int_equal(w->gone, 3);
    assert_int_equal(pending_count(w->pending), 0);
    assert_true(add(w, 4, "a")); /* and again */
    run(w);
    assert_int_equal(w->due, 4);
}

static void one_ends_by_its_ticket(void **state)
{
    struct world *w = *state;
    struct server_ticket ticket = {.stream_id = 4097};
    for (uint64_t i = 0; i < 9000; i++) /* more than buckets, all of one key */
        assert_true(add(w, i, "a"));
    assert_true(pending_end(w->pending, &ticket));
    assert_int_equal(w->last, 4097);
    assert_false(pending_end(w->pending, &ticket));
    ticket.stream_id = 9000; /* whose bucket has others */
    assert_false(pending_end(w->pending, &ticket));
    ticket = (struct server_ticket){.stream_id = 1, .generation = 1}; /* another connection's */
    assert_false(pending_end(w->pending, &ticket));
    ticket = (struct server_ticket){.slot = 1, .stream_id = 1};
    assert_false(pending_end(w->pending, &ticket));
    assert_int_equal(w->due, 1);
    assert_int_equal(w->gone, 1);
    for (uint64_t i = 0; i < 9000; i++) {
        ticket = (struct server_ticket){.stream_id = i * 7 % 9000};
        assert_int_equal(pending_end(w->pending, &ticket), ticket.stream_id != 4097);
    }
    assert_int_equal(pending_count(w->pending), 0);
    look_at(w, SLICE_LITERAL("a"));
    assert_int_equal(w->looked, 0);
}

static void they_are_bounded(void **state)
{
    struct world *w = *state;
    start(w, MINUTE, 3, 100000);
    assert_true(add(w, 1, "a") && add(w, 2, "b") && add(w, 3, "c"));
    assert_false(add(w, 4, "d"));
    w->answer = 2;
    look(w);
    assert_true(add(w, 4, "d"));
    start(w, MINUTE, 1000, 4000);
    uint64_t kept = 0;
    while (kept < 1000 && add(w, kept, "a"))
        kept++;
    assert_in_range(kept, 5, 40);
    w->answer = 0;
    look(w);
    assert_true(add(w, 0, "a"));
    alloc_fail_at(1);
    w->answer = 0;
    look(w);
    assert_false(add(w, 0, "a"));
    alloc_fail_at(0);
}

/* Who is told of in a row is looked at once, in pieces of any size, and those that come and go meanwhile do no harm. */
static void notifications_in_a_row_are_looked_at_once(void **state)
{
    struct world *w = *state;
    w->answer = 99999;
    for (uint64_t i = 0; i < 1000; i++)
        assert_true(add(w, i, i % 2 ? "odd" : "even"));
    for (int i = 0; i < 1000; i++) {
        pending_notify(w->table, SLICE_LITERAL("odd"));
        pending_notify_all(w->pending);
    }
    work(w);
    assert_int_equal(w->looked, 1500);
    w->looked = 0;
    pending_notify(w->table, SLICE_LITERAL("odd"));
    assert_true(pending_work(w->table, 0)); /* one of them */
    assert_int_equal(w->looked, 1);
    pending_notify(w->table, SLICE_LITERAL("odd")); /* has the first one seen that? */
    pending_notify(w->table, SLICE_LITERAL("odd"));
    const struct server_ticket next = {.stream_id = 3};
    assert_true(pending_end(w->pending, &next)); /* which is next */
    work(w);
    assert_int_equal(w->looked, 499 + 499);
}

static void a_key_of_many_is_looked_at_beside_others(void **state)
{
    struct world *w = *state;
    w->answer = 99999;
    for (uint64_t i = 0; i < 1000; i++)
        assert_true(add(w, i, "many"));
    assert_true(add(w, 1000, "one"));
    pending_notify(w->table, SLICE_LITERAL("many"));
    pending_notify(w->table, SLICE_LITERAL("one"));
    for (int i = 0; i < 2; i++)
        assert_true(pending_work(w->table, 0));
    assert_int_equal(w->last, 1000);
    work(w);
    assert_int_equal(w->looked, 1001);
}

static void what_is_answered_in_a_look_at_all_ends_it_nowhere(void **state)
{
    struct world *w = *state;
    for (uint64_t i = 0; i < 100; i++)
        assert_true(add(w, i, "a"));
    w->answer = 50;
    pending_notify_all(w->pending);
    for (int i = 0; i < 10; i++)
        assert_true(pending_work(w->table, 0));
    const struct server_ticket next = {.stream_id = 10};
    assert_true(pending_end(w->pending, &next)); /* which is next */
    assert_true(add(w, 100, "b"));
    work(w);
    assert_int_equal(w->looked, 100);
    assert_int_equal(pending_count(w->pending), 99);
}

static void the_questions_of_a_connection_go_with_it(void **state)
{
    struct world *w = *state;
    for (uint64_t i = 0; i < 1000; i++)
        assert_true(add_of(w, i % 2, i, "a"));
    pending_notify(w->table, SLICE_LITERAL("a")); /* and nobody there is looked at any more */
    pending_drop(w->pending, 1, 0);
    pending_drop(w->pending, 1, 0);
    pending_drop(w->pending, 2, 0);
    pending_drop(w->pending, 0, 1);
    w->answer = 99999;
    work(w);
    assert_int_equal(w->due, 0);
    assert_int_equal(w->gone, 500);
    assert_int_equal(w->looked, 500);
    assert_int_equal(pending_count(w->pending), 500);
    pending_drop(w->pending, 0, 0);
    assert_true(pending_work(w->table, 0)); /* freed in the middle of it */
}

static void a_connection_leaves_room_for_others(void **state)
{
    struct pending_quota quota = {.most = 1000};
    struct world *w = *state;
    uint64_t kept[3] = {0}, stream = 0;
    w->quota = &quota;
    start(w, MINUTE, SIZE_MAX, SIZE_MAX);
    for (uint32_t slot = 0; slot < 3; slot++)
        while (add_of(w, slot, stream++, "a"))
            kept[slot]++;
    assert_int_equal(kept[0], 500); /* half, half of the rest, and so on */
    assert_int_equal(kept[1], 250);
    assert_int_equal(kept[2], 125);
    assert_int_equal(quota.used, 875);
    pending_drop(w->pending, 0, 0);
    work(w);
    assert_int_equal(quota.used, 375);
    assert_true(add_of(w, 1, stream++, "a"));
    pending_table_free(w->table);
    w->table = NULL;
    assert_int_equal(quota.used, 0);
    w->quota = NULL;
}

/* Else one that reads nothing would keep the thread busy with all the others. */
static void behind_who_takes_no_answer_others_are_not_looked_at_again(void **state)
{
    struct world *w = *state;
    for (uint64_t i = 0; i < 100; i++)
        assert_true(add_of(w, 0, i, "a"));
    assert_true(add_of(w, 1, 100, "b"));
    w->answer = 100;
    w->one_is_full = true;
    pending_notify(w->table, SLICE_LITERAL("b"));
    for (int i = 0; i < 3; i++) {
        work(w);
        assert_int_equal(w->looked, 0);
        loop_turn(w->loop, true); /* it is time to look again */
    }
    pending_notify_all(w->pending); /* that means them, too */
    for (work(w); !w->looked; work(w))
        loop_turn(w->loop, true);
    assert_int_equal(w->looked, 100);
    w->one_is_full = false;
    while (pending_count(w->pending) == 101) {
        loop_turn(w->loop, true);
        work(w);
    }
    assert_int_equal(w->looked, 101);
    assert_int_equal(w->last, 100);
}

/* It is put behind all others, where the look that was at it goes on. */
static void who_is_due_without_room_is_not_missed_by_a_look(void **state)
{
    struct world *w = *state;
    start(w, SECOND, 10, 100000);
    assert_true(add(w, 1, "a"));
    w->full = true;
    w->answer = UINT64_MAX;
    for (uint64_t due = loop_clock() + SECOND; loop_clock() <= due;)
        ;
    pending_notify_all(w->pending);
    work(w);
    w->full = false;
    run(w);
    assert_int_equal(w->looked, 1);
    assert_int_equal(w->due, 0);
}

static void who_takes_no_answer_waits_and_is_looked_at_again(void **state)
{
    struct world *w = *state;
    assert_true(add(w, 1, "a"));
    w->full = true;
    w->answer = UINT64_MAX;
    pending_notify(w->table, SLICE_LITERAL("a"));
    work(w);
    assert_int_equal(w->looked, 0);
    w->full = false;
    run(w);
    assert_int_equal(w->looked, 1);
    start(w, 20 * MILLISECOND, 10, 100000);
    assert_true(add(w, 1, "a"));
    w->full = true;
    uint64_t begun = loop_clock();
    loop_turn(w->loop, true);
    work(w);
    assert_int_equal(pending_count(w->pending), 1);
    w->full = false;
    run(w);
    assert_int_equal(w->due, 1);
    assert_true(loop_clock() - begun >= 40000);
}

static void an_owner_leaves_room_for_others(void **state)
{
    const struct fair_limits limits = {.places = 1000};
    struct world *w = *state;
    uint64_t stream = 0;
    w->fair = fair_new(&limits);
    assert_non_null(w->fair);
    start(w, MINUTE, 1000, (size_t)1 << 22);
    w->owner = (struct fair_owner){1000, FAIR_VERIFIED};
    while (add(w, stream, "greedy"))
        stream++;
    assert_int_equal(stream, 437); /* half of what is not spared */
    for (uint64_t i = 0; i < 99; i++) {
        w->owner = (struct fair_owner){i, FAIR_VERIFIED};
        assert_true(add(w, stream++, "other"));
    }
    assert_int_equal(fair_used(w->fair), 437 + 99);
    w->answer = UINT64_MAX;
    look_at(w, SLICE_LITERAL("greedy"));
    assert_int_equal(fair_used(w->fair), 99);
    pending_table_free(w->table);
    w->table = NULL;
    assert_int_equal(fair_used(w->fair), 0);
    free(w->fair);
}

/* Sandboxes of one organisation, one behind the other, each as many as it may have. */
static void many_owners_have_no_more_than_their_payer(void **state)
{
    const struct fair_limits limits = {.places = 1000, .each = 50};
    struct world *w = *state;
    uint64_t stream = 0;
    w->fair = fair_new(&limits);
    w->payers = fair_new(&(struct fair_limits){.places = 1000, .each = 250});
    assert_true(w->fair && w->payers);
    start(w, MINUTE, 2000, (size_t)1 << 22);
    w->payer = 7;
    for (uint64_t i = 0; i < 30; i++) {
        w->owner = (struct fair_owner){i, FAIR_VERIFIED};
        while (add(w, stream, "greedy"))
            stream++;
    }
    assert_int_equal(stream, 250);
    assert_int_equal(fair_used(w->fair), 250); /* who is refused by the one holds nothing of the other */
    w->owner = (struct fair_owner){100, FAIR_VERIFIED};
    w->payer = 100;
    assert_true(add(w, stream, "other"));
    pending_table_free(w->table);
    w->table = NULL;
    assert_int_equal(fair_used(w->fair) + fair_used(w->payers), 0);
    free(w->fair);
    free(w->payers);
}

static void adding_takes_memory_or_nothing(void **state)
{
    struct world *w = *state;
    for (unsigned n = 1; n < 8; n++) {
        alloc_fail_at(n);
        bool kept = add(w, n, "a");
        alloc_fail_at(0);
        assert_int_equal(pending_count(w->pending), kept);
        if (kept)
            return;
    }
    fail_msg("it is never kept");
}

/* ---- mailbox ---- */

static unsigned take_all(struct mailbox *inbox, char last[16])
{
    uint8_t memory[MAILBOX_KEY];
    struct slice key;
    unsigned count = 0;
    for (; mailbox_take(inbox, memory, &key); count++)
        snprintf(last, 16, "%.*s", SLICE_PRINTF(key));
    return count;
}

static void an_inbox_says_when_its_thread_has_to_be_woken(void **state)
{
    (void)state;
    struct mailbox *inbox = mailbox_new();
    char last[16] = "";
    assert_true(mailbox_put(inbox, SLICE_LITERAL("a")));
    assert_false(mailbox_put(inbox, SLICE_LITERAL("b")));
    assert_false(mailbox_lost(inbox));
    assert_int_equal(take_all(inbox, last), 2);
    assert_string_equal(last, "b");
    assert_int_equal(take_all(inbox, last), 0);
    assert_true(mailbox_put(inbox, SLICE_LITERAL("c")));
    mailbox_free(inbox);
}

static void a_key_is_in_an_inbox_once(void **state)
{
    (void)state;
    struct mailbox *inbox = mailbox_new();
    char last[16] = "", key[16];
    for (int i = 0; i < 100000; i++) {
        snprintf(key, sizeof key, "sb-%d", i % 10);
        assert_int_equal(mailbox_put(inbox, slice_text(key)), i == 0);
    }
    assert_false(mailbox_lost(inbox));
    assert_int_equal(take_all(inbox, last), 10);
    assert_string_equal(last, "sb-9");
    assert_true(mailbox_put(inbox, slice_text(key)));
    assert_int_equal(take_all(inbox, last), 1);
    mailbox_free(inbox);
}

static void what_does_not_fit_into_an_inbox_means_all(void **state)
{
    (void)state;
    struct mailbox *inbox = mailbox_new();
    char last[16] = "", key[16];
    for (int i = 0; i < 20000; i++) {
        snprintf(key, sizeof key, "sb-%d", i);
        assert_int_equal(mailbox_put(inbox, slice_text(key)), i == 0);
    }
    assert_true(mailbox_lost(inbox));
    assert_false(mailbox_lost(inbox));
    assert_int_equal(take_all(inbox, last), 0);
    alloc_fail_at(1);
    assert_true(mailbox_put(inbox, SLICE_LITERAL("a")));
    assert_false(mailbox_put(inbox, SLICE_LITERAL("a")));
    alloc_fail_at(0);
    assert_true(mailbox_lost(inbox));
    assert_true(mailbox_put(inbox, SLICE_LITERAL("a")));
    assert_int_equal(take_all(inbox, last), 1);
    mailbox_free(inbox);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

/* A thread is told of a key once, and all who wait for it, for whatever, are looked at. */
static void all_who_wait_for_a_key_are_found_by_it(void **state)
{
    struct world *w = *state;
    const struct pending_options options = {.loop = w->loop,
                                            .patience = MINUTE,
                                            .most = 10,
                                            .most_bytes = SIZE_MAX,
                                            .due = on_due,
                                            .notify = on_look,
                                            .gone = on_gone,
                                            .context = w};
    struct pending *first = w->pending, *second = pending_new(w->table, &options);
    assert_non_null(second);
    assert_true(add(w, 1, "a") && add(w, 2, "b"));
    w->pending = second;
    assert_true(add(w, 1, "a") && add(w, 3, "a"));
    const struct server_ticket ticket = {.stream_id = 1};
    w->answer = 1; /* of both */
    look_at(w, SLICE_LITERAL("a"));
    assert_int_equal(w->looked, 3);
    assert_int_equal(pending_count(first), 1);
    assert_int_equal(pending_count(second), 1);
    assert_false(pending_end(first, &ticket));
    look_at(w, SLICE_LITERAL("b"));
    assert_int_equal(w->looked, 4);
    pending_notify_all(first); /* not the second's */
    work(w);
    assert_int_equal(w->looked, 5);
    assert_int_equal(w->last, 2);
    pending_drop(second, 0, 0);
    work(w);
    assert_int_equal(pending_count(first), 1);
    assert_int_equal(pending_count(second), 0);
    w->pending = first;
}

/* ---- sorts ---- */
struct fairness {
    unsigned subscriptions, before;
    bool answered;
};

static bool on_subscription(void *context, struct pending_request *request)
{
    (void)request;
    ((struct fairness *)context)->subscriptions++;
    return false;
}

static bool on_decision(void *context, struct pending_request *request)
{
    struct fairness *f = context;
    (void)request;
    f->answered = true;
    f->before = f->subscriptions;
    return true;
}

/* A decision has 200 ms (agent.lookup); subscriptions of other keys, however many were notified before, are no reason to
 * refuse it. */
static void a_decision_does_not_wait_behind_all_subscriptions(void **state)
{
    struct world *w = *state;
    struct fairness f = {0};
    struct pending_options options = {.loop = w->loop,
                                      .patience = MINUTE,
                                      .most = 10000,
                                      .most_bytes = (size_t)1 << 24,
                                      .due = on_due,
                                      .notify = on_decision,
                                      .context = &f};
    char key[16];
    struct pending *decisions = pending_new(w->table, &options);
    options.notify = on_subscription;
    struct pending *subscriptions = pending_new(w->table, &options);
    struct pending_request request = {.begun = loop_clock(), .args.reader = reader_of(slice_of("", 0))};
    for (unsigned i = 0; i < 1000; i++) {
        snprintf(key, sizeof key, "sb-%u", i);
        request.key = slice_text(key);
        request.ticket.stream_id = i;
        assert_true(pending_add(subscriptions, &request));
        pending_notify(w->table, request.key);
    }
    request.key = SLICE_LITERAL("new");
    request.ticket.stream_id = 1000;
    assert_true(pending_add(decisions, &request));
    pending_notify(w->table, request.key);
    while (!f.answered)
        assert_true(pending_work(w->table, 0) || f.answered);
    assert_true(f.before < 10);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(all_who_wait_for_a_key_are_found_by_it),
        TEST(a_notification_of_a_key_reaches_its_questions_alone),
        TEST(the_time_of_each_is_over_in_order),
        TEST(one_ends_by_its_ticket),
        TEST(they_are_bounded),
        TEST(notifications_in_a_row_are_looked_at_once),
        TEST(a_key_of_many_is_looked_at_beside_others),
        TEST(a_decision_does_not_wait_behind_all_subscriptions),
        TEST(what_is_answered_in_a_look_at_all_ends_it_nowhere),
        TEST(the_questions_of_a_connection_go_with_it),
        TEST(a_connection_leaves_room_for_others),
        TEST(who_is_due_without_room_is_not_missed_by_a_look),
        TEST(behind_who_takes_no_answer_others_are_not_looked_at_again),
        TEST(who_takes_no_answer_waits_and_is_looked_at_again),
        TEST(an_owner_leaves_room_for_others),
        TEST(many_owners_have_no_more_than_their_payer),
        TEST(adding_takes_memory_or_nothing),
        cmocka_unit_test(an_inbox_says_when_its_thread_has_to_be_woken),
        cmocka_unit_test(a_key_is_in_an_inbox_once),
        cmocka_unit_test(what_does_not_fit_into_an_inbox_means_all),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
