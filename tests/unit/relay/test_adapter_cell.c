/* SPDX-License-Identifier: MIT */
/* The caller's side of docs/resume-protocol.md; sections are named as there. */
#include "tests/unit/support.h"

#include "tests/unit/relay/adapter_talk.h"

#define SEC UINT64_C(1000000)

static struct talk t;

/* ---- handshake ---- */
static enum adapter_answer answers(const char *fields)
{
    char text[512];
    struct http_head head;
    struct http_reader r = http_reader_of(HTTP_RESPONSE, HTTP_HEAD_MAX);

    snprintf(text, sizeof text, "HTTP/1.1 101 Switching Protocols\r\n%s\r\n", fields);
    struct slice copy = guarded(slice_text(text));
    assert_int_equal(http_read(&r, copy, &head), HTTP_DONE);
    enum adapter_answer answer = t.adapter->answered(t.state, &head);
    guarded_free(copy);
    return answer;
}

static void begin(void)
{
    talk_begin(&t, &adapter_cell, "/terminal");
    talk_request(&t);
    assert_int_equal(answers("Cell-Resume: 1; recv=0; next=1\r\n"), ADAPTER_GOES_ON);
    talk_join(&t);
}

/* The client has said this, and it was given to the worker. */
static void client_says(const char *frames, size_t len, uint64_t message)
{
    assert_true(send_queue_put(&t.kept, slice_of(frames, len)));
    send_queue_sent(&t.kept, len);
    t.adapter->numbers->from_client(t.state, message);
}

#define CLIENT_SAYS(frames, message) client_says(frames, sizeof(frames) - 1, message)

static enum adapter_verdict pong(const char *payload, size_t len)
{
    struct slice copy = guarded(slice_of(payload, len));
    enum adapter_verdict verdict = t.adapter->numbers->pong(t.state, copy, &t.kept);
    guarded_free(copy);
    return verdict;
}

#define PONG(payload) pong(payload, sizeof(payload) - 1)

static void a_request_names_tunnel_attempt_and_what_was_received(void **state)
{
    (void)state;
    talk_begin(&t, &adapter_cell, "/terminal");
    assert_string_equal(talk_request(&t),
                        "|Cell-Resume: 1; tunnel=10000000200000003000000040000000; attempt=1; "
                        "buffer=262144\r\n");
    assert_string_equal(talk_request(&t),
                        "|Cell-Resume: 1; tunnel=10000000200000003000000040000000; attempt=2; "
                        "buffer=262144\r\n");
    assert_int_equal(answers("Cell-Resume: 1; recv=0; next=1\r\n"), ADAPTER_GOES_ON);
    talk_join(&t);
    talk_says(&t, 0x82, slice_text("one"));
    talk_says(&t, 0x81, slice_text("two"));
    talk_says(&t, 0x02, slice_text("thr"));
    assert_string_equal(talk_request(&t),
                        "|Cell-Resume: 1; tunnel=10000000200000003000000040000000; attempt=3; "
                        "recv=2; buffer=262144\r\n");
    talk_end(&t);
}

static void answers_are_judged_as_the_table_says(void **state)
{
    static const struct {
        const char *fields;
        enum adapter_answer first, later; /* later: 2 items received, 2 messages sent, 1 acknowledged */
    } rows[] = {
        {"", ADAPTER_PLAIN, ADAPTER_EXPIRED},
        {"Cell-Resume: 2; recv=0; next=1\r\n", ADAPTER_PLAIN, ADAPTER_EXPIRED},
        {"Cell-Resume: 1\r\n", ADAPTER_BROKEN, ADAPTER_BROKEN},
        {"Cell-Resume: 1;\r\n", ADAPTER_BROKEN, ADAPTER_BROKEN},
        {"Cell-Resume: 1; recv=1\r\n", ADAPTER_BROKEN, ADAPTER_BROKEN},
        {"Cell-Resume: 1; next=1\r\n", ADAPTER_BROKEN, ADAPTER_BROKEN},
        {"Cell-Resume: 1; recv=1; next=0\r\n", ADAPTER_BROKEN, ADAPTER_BROKEN},
        {"Cell-Resume: 1; recv=01; next=1\r\n", ADAPTER_BROKEN, ADAPTER_BROKEN},
        {"Cell-Resume: 1; recv=1; next=1; recv=1\r\n", ADAPTER_BROKEN, ADAPTER_BROKEN},
        {"Cell-Resume: 1; recv=1; next=1; buffer=4095\r\n", ADAPTER_BROKEN, ADAPTER_BROKEN},
        {"Cell-Resume: 1; recv=9007199254740992; next=1\r\n", ADAPTER_BROKEN, ADAPTER_BROKEN},
        {"Cell-Resume: 1; recv=0; next=1\r\nCell-Resume: 1; recv=0; next=1\r\n", ADAPTER_BROKEN,
         ADAPTER_BROKEN},
        {"Cell-Resume: 1; recv=0; next=1\r\n", ADAPTER_GOES_ON, ADAPTER_EXPIRED},
        {"Cell-Resume: 1; recv=1; next=3\r\n", ADAPTER_EXPIRED, ADAPTER_GOES_ON},
        {"Cell-Resume: 1; recv=2; next=1\r\n", ADAPTER_BROKEN, ADAPTER_GOES_ON},
        {"Cell-Resume: 1; recv=2; next=4\r\n", ADAPTER_EXPIRED, ADAPTER_EXPIRED},
        {"Cell-Resume: 1; recv=3; next=3\r\n", ADAPTER_EXPIRED, ADAPTER_BROKEN},
        {"cell-resume:1;x=y;recv=1;z ;next=2;attempt=7;buffer=4096\r\n", ADAPTER_EXPIRED, ADAPTER_GOES_ON},
    };
    (void)state;
    for (unsigned i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        talk_begin(&t, &adapter_cell, "/terminal");
        talk_request(&t);
        assert_int_equal(answers(rows[i].fields), rows[i].first);
        talk_end(&t);
        begin();
        talk_says(&t, 0x82, slice_text("one"));
        talk_says(&t, 0x82, slice_text("two"));
        CLIENT_SAYS("\x82\x80....", 0);
        CLIENT_SAYS("\x82\x81....x", 1);
        assert_int_equal(PONG("cr\0\0\0\0\0\0\0\1"), ADAPTER_DROP);
        talk_request(&t);
        assert_int_equal(answers(rows[i].fields), rows[i].later);
        talk_end(&t);
    }
}

/* ---- swap ---- */
static void what_was_received_is_dropped_and_what_was_cut_goes_on(void **state)
{
    uint8_t memory[64];
    (void)state;
    for (size_t step = 1; step < 12; step++)
        for (size_t had = 0; had <= 5; had++) {
            begin();
            talk_says(&t, 0x82, slice_text("one"));
            talk_says(&t, 0x01, slice_sub(slice_text("abcde"), 0, had));
            talk_request(&t);
            assert_int_equal(answers("Cell-Resume: 1; recv=0; next=1\r\n"), ADAPTER_GOES_ON);
            talk_join(&t);
            talk_bytes(&t, talk_frame(memory, 0x82, slice_text("one")), step);
            talk_bytes(&t, talk_frame(memory, 0x01, slice_text("abc")), step);
            talk_bytes(&t, talk_frame(memory, 0x80, slice_text("de")), step);
            talk_bytes(&t, talk_frame(memory, 0x82, slice_text("")), step);
            assert_string_equal(t.said, "Bone Tabcde B");
            assert_int_equal(t.exact, 1);
            talk_end(&t);
        }
}

static void an_item_that_has_changed_is_wrong(void **state)
{
    static const struct {
        unsigned start;
        const char *text;
    } rows[] = {{0x81, "abc"}, {0x82, "ab"}};
    (void)state;
    for (unsigned i = 0; i < 2; i++) {
        begin();
        talk_says(&t, 0x02, slice_text("abc"));
        talk_request(&t);
        assert_int_equal(answers("Cell-Resume: 1; recv=0; next=1\r\n"), ADAPTER_GOES_ON);
        talk_join(&t);
        assert_false(talk_says(&t, rows[i].start, slice_text(rows[i].text)));
        assert_int_equal(t.verdict, ADAPTER_WRONG);
        talk_end(&t);
    }
}

static void what_was_not_consumed_is_sent_again_from_its_first_byte(void **state)
{
    (void)state;
    for (size_t sent = 0; sent <= 23; sent++) {
        begin();
        assert_true(
            send_queue_put(&t.kept, SLICE_LITERAL("\x82\x81....1\x01\x81....2\x89\x80....\x80\x80....")));
        send_queue_sent(&t.kept, sent);
        t.adapter->numbers->from_client(t.state, 1);
        t.adapter->numbers->from_client(t.state, 1);
        talk_request(&t);
        assert_int_equal(answers("Cell-Resume: 1; recv=1; next=1\r\n"), ADAPTER_GOES_ON);
        talk_join(&t);
        struct slice again = send_queue_unsent(&t.kept);
        assert_true(slice_equal(again, SLICE_LITERAL("\x01\x81....2\x80\x80....")));
        assert_int_equal(t.adapter->numbers->unacknowledged(t.state), 1);
        talk_end(&t);
    }
}

/* ---- acknowledgement ---- */
static void output_is_acknowledged_after_a_fifth_of_a_second(void **state)
{
    uint8_t payload[WS_CONTROL_MAX];
    const struct adapter_numbers *numbers = adapter_cell.numbers;
    (void)state;
    begin();
    assert_int_equal(numbers->due_pong(t.state, SEC, payload), 0);
    talk_says(&t, 0x02, slice_text("half"));
    assert_int_equal(numbers->due_pong(t.state, SEC, payload), 0);
    assert_true(numbers->due(t.state) == UINT64_MAX);
    talk_says(&t, 0x80, slice_text("whole"));
    assert_int_equal(numbers->due_pong(t.state, SEC, payload), 0);
    assert_int_equal(numbers->due(t.state), SEC + 200000);
    assert_int_equal(numbers->due_pong(t.state, SEC + 199999, payload), 0);
    assert_int_equal(numbers->due_pong(t.state, SEC + 200000, payload), 10);
    assert_memory_equal(payload, "cr\0\0\0\0\0\0\0\1", 10);
    assert_true(numbers->due(t.state) == UINT64_MAX);
    talk_end(&t);
}

static void output_is_acknowledged_at_a_quarter_of_the_window(void **state)
{
    static const uint8_t kibibyte[1024];
    uint8_t payload[WS_CONTROL_MAX];
    (void)state;
    talk_begin(&t, &adapter_cell, "/terminal");
    talk_request(&t);
    assert_int_equal(answers("Cell-Resume: 1; recv=0; next=1; buffer=8192\r\n"), ADAPTER_GOES_ON);
    talk_join(&t);
    talk_says(&t, 0x82, slice_of(kibibyte, 1024));
    assert_int_equal(adapter_cell.numbers->due_pong(t.state, SEC, payload), 0);
    talk_says(&t, 0x82, slice_of(kibibyte, 1024));
    assert_int_equal(adapter_cell.numbers->due_pong(t.state, SEC, payload), 10);
    /* more than the window without an acknowledgement is too much */
    bool fine = true;
    for (unsigned i = 0; i < 8 && fine; i++)
        fine = talk_says(&t, 0x82, slice_of(kibibyte, 1024));
    assert_int_equal(t.verdict, ADAPTER_TOO_MUCH);
    talk_end(&t);
}

static void what_came_since_the_request_is_acknowledged_at_once(void **state)
{
    uint8_t payload[WS_CONTROL_MAX];
    (void)state;
    begin();
    talk_request(&t);
    talk_says(&t, 0x82, slice_text("one"));
    assert_int_equal(answers("Cell-Resume: 1; recv=0; next=1\r\n"), ADAPTER_GOES_ON);
    talk_join(&t);
    assert_int_equal(adapter_cell.numbers->due_pong(t.state, 1000 * SEC, payload), 10);
    assert_int_equal(payload[9], 1);
    talk_end(&t);
}

static void acknowledgements_of_the_worker_are_checked(void **state)
{
    (void)state;
    begin();
    CLIENT_SAYS("\x82\x81....1", 1);
    CLIENT_SAYS("\x82\x81....2", 1);
    assert_int_equal(PONG("cr\0\0\0\0\0\0\0\1"), ADAPTER_DROP);
    assert_int_equal(send_queue_len(&t.kept), 7);
    assert_int_equal(PONG("cr\0\0\0\0\0\0\0\0"), ADAPTER_DROP); /* older */
    assert_int_equal(PONG("cr"), ADAPTER_DROP);
    assert_int_equal(PONG("crx"), ADAPTER_DROP);
    assert_int_equal(PONG("cr\0\0\0\0\0\0\0\2more"), ADAPTER_DROP);
    assert_int_equal(send_queue_len(&t.kept), 7);
    assert_int_equal(PONG("cr\0\0\0\0\0\0\0\3"), ADAPTER_WRONG);
    assert_int_equal(PONG("cr\0\0\0\0\0\0\0\2"), ADAPTER_DROP);
    assert_int_equal(send_queue_len(&t.kept), 0);
    send_queue_trim(&t.kept);
    assert_null(t.kept.frames.memory);
    talk_end(&t);
}

static void what_was_not_sent_cannot_be_acknowledged(void **state)
{
    (void)state;
    begin();
    assert_true(send_queue_put(&t.kept, SLICE_LITERAL("\x82\x81....1")));
    send_queue_sent(&t.kept, 6);
    t.adapter->numbers->from_client(t.state, 1);
    assert_int_equal(PONG("cr\0\0\0\0\0\0\0\1"), ADAPTER_WRONG);
    talk_end(&t);
}

static void the_window_counts_bytes_and_messages(void **state)
{
    size_t window;
    (void)state;
    begin();
    CLIENT_SAYS("\x82\x83....abc", 3);
    CLIENT_SAYS("\x82\x80....", 0);
    assert_int_equal(adapter_cell.numbers->room(t.state, &window), (1 << 18) - 35);
    assert_int_equal(window, 1 << 18);
    PONG("cr\0\0\0\0\0\0\0\1");
    assert_int_equal(adapter_cell.numbers->room(t.state, &window), (1 << 18) - 16);
    talk_end(&t);
}

/* ---- end ---- */
static void only_a_marked_close_is_the_end(void **state)
{
    uint8_t payload[WS_CONTROL_MAX];
    static const unsigned codes[] = {1000, 1001, 1005, 1011, 1012, 3000, 4999};
    (void)state;
    for (unsigned i = 0; i < sizeof codes / sizeof codes[0]; i++) {
        begin();
        talk_says(&t, 0x82, slice_text("one"));
        assert_int_equal(adapter_cell.numbers->closed(t.state, codes[i]), ADAPTER_LOSS);
        assert_int_equal(PONG("cr\0\0\0\0\0\0\0\3end"), ADAPTER_WRONG);
        assert_int_equal(PONG("cr\0\0\0\0\0\0\0\2end"), ADAPTER_DROP);
        assert_int_equal(adapter_cell.numbers->closed(t.state, codes[i]), ADAPTER_END);
        assert_int_equal(adapter_cell.numbers->due_pong(t.state, 1, payload), 10);
        assert_int_equal(payload[9], 2);
        talk_end(&t);
    }
}

static void a_message_behind_a_mark_takes_it_back(void **state)
{
    (void)state;
    begin();
    PONG("cr\0\0\0\0\0\0\0\1end");
    talk_says(&t, 0x82, slice_text("one"));
    assert_int_equal(adapter_cell.numbers->closed(t.state, 1000), ADAPTER_LOSS);
    talk_end(&t);
}

static void a_take_over_is_final_on_the_highest_attempt_only(void **state)
{
    (void)state;
    begin();
    assert_int_equal(adapter_cell.numbers->closed(t.state, 4001), ADAPTER_TAKEN);
    talk_request(&t);
    assert_int_equal(adapter_cell.numbers->closed(t.state, 4001), ADAPTER_LOSS);
    assert_int_equal(adapter_cell.numbers->closed(t.state, 1002), ADAPTER_REFUSED);
    talk_end(&t);
}

static void the_clients_end_has_the_number_behind_its_last_message(void **state)
{
    uint8_t payload[WS_CONTROL_MAX];
    (void)state;
    begin();
    CLIENT_SAYS("\x82\x81....1", 1);
    assert_int_equal(adapter_cell.numbers->mark_end(t.state, payload), 13);
    assert_memory_equal(payload, "cr\0\0\0\0\0\0\0\2end", 13);
    talk_end(&t);
}

/* ---- as an image ---- */
static void whatever_window_was_agreed_another_process_goes_on_with_it(void **state)
{
    static const struct {
        size_t relay;
        const char *answer;
    } windows[] = {{16384, "Cell-Resume: 1; recv=0; next=1\r\n"},
                   {1 << 18, "Cell-Resume: 1; recv=0; next=1\r\n"},
                   {1 << 20, "Cell-Resume: 1; recv=0; next=1\r\n"},
                   {1 << 20, "Cell-Resume: 1; recv=0; next=1; buffer=1048576\r\n"},
                   {64 << 20, "Cell-Resume: 1; recv=0; next=1; buffer=9007199254740991\r\n"}};
    (void)state;
    for (size_t i = 0; i < sizeof windows / sizeof *windows; i++) {
        struct adapter_start start = {.target = SLICE_LITERAL("/"), .buffer = windows[i].relay};
        talk_begin(&t, &adapter_cell, "/terminal");
        t.adapter->start(t.state, &start);
        assert_true(talk_state_moves(&t));
        talk_request(&t);
        assert_int_equal(answers(windows[i].answer), ADAPTER_GOES_ON);
        talk_join(&t);
        assert_true(talk_state_moves(&t));
        talk_end(&t);
    }
}

/* The id stands in the head of the next request. */
static void an_image_says_no_id_that_cannot_be(void **state)
{
    static const char bad[] = {'\r', '\n', ';', 'g', 'A', '/', ':', '\0'};
    (void)state;
    begin();
    assert_true(talk_state_moves(&t));
    for (size_t i = 0; i < sizeof bad; i++) {
        ((char *)t.state)[31] = bad[i];
        assert_false(talk_state_moves(&t));
    }
    talk_end(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(whatever_window_was_agreed_another_process_goes_on_with_it),
        cmocka_unit_test(an_image_says_no_id_that_cannot_be),
        cmocka_unit_test(a_request_names_tunnel_attempt_and_what_was_received),
        cmocka_unit_test(answers_are_judged_as_the_table_says),
        cmocka_unit_test(what_was_received_is_dropped_and_what_was_cut_goes_on),
        cmocka_unit_test(an_item_that_has_changed_is_wrong),
        cmocka_unit_test(what_was_not_consumed_is_sent_again_from_its_first_byte),
        cmocka_unit_test(output_is_acknowledged_after_a_fifth_of_a_second),
        cmocka_unit_test(output_is_acknowledged_at_a_quarter_of_the_window),
        cmocka_unit_test(what_came_since_the_request_is_acknowledged_at_once),
        cmocka_unit_test(acknowledgements_of_the_worker_are_checked),
        cmocka_unit_test(what_was_not_sent_cannot_be_acknowledged),
        cmocka_unit_test(the_window_counts_bytes_and_messages),
        cmocka_unit_test(only_a_marked_close_is_the_end),
        cmocka_unit_test(a_message_behind_a_mark_takes_it_back),
        cmocka_unit_test(a_take_over_is_final_on_the_highest_attempt_only),
        cmocka_unit_test(the_clients_end_has_the_number_behind_its_last_message),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
