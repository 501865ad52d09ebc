/* SPDX-License-Identifier: MIT */
#include "tests/unit/support.h"

#include "spoa/spop/client.h"

static uint8_t from_agent[64 * 1024], to_agent[64 * 1024];
static const struct spop_offer offer = {.frame_size = SPOP_FRAME_USUAL, .pipelining = true};

static struct writer agent_room(void)
{
    return writer_of(from_agent, sizeof from_agent);
}

static void put_ack(struct writer *w, uint64_t stream_id, uint64_t frame_id, const char *text)
{
    struct spop_actions actions = {.out = w};
    size_t begin = spop_frame_begin(w, SPOP_TYPE_ACK, stream_id, frame_id);
    spop_set_var(&actions, SPOP_TRANSACTION, SLICE_LITERAL("v"), spop_text(slice_text(text)));
    assert_true(spop_frame_end(w, begin, SPOP_FRAME_USUAL));
}

static enum spop_client_step feed(struct spop_client *client, struct slice in,
                                  struct spop_client_event *event, size_t *said)
{
    struct writer out = writer_of(to_agent, sizeof to_agent);
    enum spop_client_step step = spop_client_next(client, &in, event, &out);
    assert_false(out.full);
    *said = out.len;
    return step;
}

static struct spop_client *open_client(unsigned limit, size_t frame_size, bool pipelining)
{
    struct spop_client *client = spop_client_new(limit);
    struct writer out = writer_of(to_agent, sizeof to_agent), in = agent_room();
    struct spop_client_event event;
    size_t said;
    assert_non_null(client);
    assert_false(spop_client_ready(client));
    spop_client_hello(client, &offer, &out);
    assert_false(spop_client_ready(client));
    spop_agreement_write(&in, &(struct spop_agreement){.frame_size = frame_size, .pipelining = pipelining});
    assert_int_equal(feed(client, writer_slice(&in), &event, &said), SPOP_CLIENT_READY);
    assert_true(spop_client_ready(client));
    return client;
}

static bool ask(struct spop_client *client, void *context, uint64_t *id)
{
    struct writer out = writer_of(to_agent, sizeof to_agent);
    struct spop_ask question;
    if (!spop_client_ask_begin(client, SLICE_LITERAL("cell-resolve"), context, &out, &question))
        return false;
    spop_client_ask_arg(&question, SLICE_LITERAL("sandbox"), spop_text(SLICE_LITERAL("sb-1")));
    *id = question.id;
    return spop_client_ask_end(client, &question);
}

static void a_question_is_a_notify_with_one_message(void **state)
{
    (void)state;
    struct spop_client *client = open_client(4, 16380, true);
    uint64_t id;
    assert_true(ask(client, NULL, &id));
    struct spop_frame frame;
    size_t size;
    assert_int_equal(spop_frame_read(slice_of(to_agent, sizeof to_agent), 16380, &frame, &size),
                     SPOP_STEP_FRAME);
    assert_int_equal(frame.type, SPOP_TYPE_NOTIFY);
    assert_true(frame.stream_id == id && frame.frame_id == 1);
    struct reader payload = reader_of(frame.payload);
    struct spop_message message;
    assert_true(spop_message_next(&payload, &message));
    assert_true(slice_is(message.name, "cell-resolve"));
    assert_int_equal(message.args.left, 1);
    spop_client_free(client);
}

static void answers_find_their_question_in_any_order(void **state)
{
    (void)state;
    struct spop_client *client = open_client(3, 16380, true);
    int contexts[3];
    uint64_t ids[3], extra;
    for (int round = 0; round < 5; round++) {
        for (int i = 0; i < 3; i++)
            assert_true(ask(client, &contexts[i], &ids[i]));
        assert_false(ask(client, NULL, &extra)); /* the limit */
        for (int i = 2; i >= 0; i--) {
            struct writer in = agent_room();
            struct spop_client_event event;
            struct spop_action action;
            size_t said;
            put_ack(&in, ids[i], 1, "x");
            assert_int_equal(feed(client, writer_slice(&in), &event, &said), SPOP_CLIENT_ANSWER);
            assert_ptr_equal(event.context, &contexts[i]);
            assert_true(spop_action_next(&event.actions, &action));
            assert_true(slice_is(action.value.bytes, "x"));
        }
        assert_int_equal(spop_client_waiting(client), 0);
    }
    spop_client_free(client);
}

static void every_split_of_the_answers_gives_the_same_events(void **state)
{
    (void)state;
    struct writer w = agent_room();
    spop_agreement_write(&w, &(struct spop_agreement){.frame_size = 16380, .pipelining = true});
    put_ack(&w, 1, 1, "second");
    size_t begin = spop_frame_begin(&w, 200, 9, 9); /* an unknown type is skipped */
    assert_true(spop_frame_end(&w, begin, 100));
    put_ack(&w, 0, 1, "first");
    spop_disconnect_write(&w, SPOP_TYPE_AGENT_DISCONNECT, SPOP_STATUS_TIMEOUT);
    for (size_t cut = 0; cut <= w.len; cut++) {
        struct spop_client *client = spop_client_new(2);
        struct writer out = writer_of(to_agent, sizeof to_agent);
        struct slice parts[2] = {guarded(slice_of(from_agent, cut)), guarded(slice_of(from_agent, w.len))};
        struct slice in = parts[0];
        struct spop_client_event event;
        enum spop_client_step steps[8], step;
        int contexts[2];
        uint64_t id;
        size_t count = 0;
        spop_client_hello(client, &offer, &out);
        for (int part = 0; part < 2; part++) {
            while ((step = spop_client_next(client, &in, &event, &out)) != SPOP_CLIENT_MORE) {
                if (step == SPOP_CLIENT_READY)
                    assert_true(ask(client, &contexts[0], &id) && ask(client, &contexts[1], &id));
                if (step == SPOP_CLIENT_ANSWER)
                    assert_ptr_equal(event.context, &contexts[count == 1]);
                steps[count++] = step;
            }
            in = slice_from(parts[1], cut - in.len);
        }
        assert_int_equal(count, 4);
        assert_int_equal(steps[1], SPOP_CLIENT_ANSWER);
        assert_int_equal(steps[2], SPOP_CLIENT_ANSWER);
        assert_int_equal(steps[3], SPOP_CLIENT_ENDED);
        assert_int_equal(event.status, SPOP_STATUS_TIMEOUT);
        guarded_free(parts[0]);
        guarded_free(parts[1]);
        spop_client_free(client);
    }
}

static void a_forgotten_question_keeps_its_place_until_it_is_answered(void **state)
{
    (void)state;
    struct spop_client *client = open_client(1, 16380, true);
    int context;
    uint64_t id, next;
    size_t said;
    struct spop_client_event event;
    assert_true(ask(client, &context, &id));
    spop_client_forget(client, id);
    assert_false(spop_client_ready(client));
    struct writer in = agent_room();
    put_ack(&in, id, 1, "late");
    assert_int_equal(feed(client, writer_slice(&in), &event, &said), SPOP_CLIENT_MORE);
    assert_true(ask(client, &context, &next));
    assert_true(next != id);
    spop_client_forget(client, id); /* the id of an answered question has no effect */
    void *lost;
    assert_true(spop_client_lost(client, &lost));
    assert_ptr_equal(lost, &context);
    assert_false(spop_client_lost(client, &lost));
    spop_client_free(client);
}

static void lost_questions_are_handed_back_but_forgotten_ones_are_not(void **state)
{
    (void)state;
    struct spop_client *client = open_client(8, 16380, true);
    int contexts[4];
    uint64_t ids[4];
    unsigned seen = 0;
    void *lost;
    for (int i = 0; i < 4; i++)
        assert_true(ask(client, &contexts[i], &ids[i]));
    spop_client_forget(client, ids[2]);
    while (spop_client_lost(client, &lost))
        seen |= 1u << ((int *)lost - contexts);
    assert_int_equal(seen, 0xb);
    assert_int_equal(spop_client_waiting(client), 0);
    assert_false(spop_client_ready(client));
    spop_client_free(client);
}

static void a_question_too_large_was_never_asked(void **state)
{
    (void)state;
    struct spop_client *client = open_client(1, 256, true);
    struct writer out = writer_of(to_agent, sizeof to_agent);
    struct spop_ask question;
    static uint8_t bytes[300];
    uint64_t id;
    assert_true(spop_client_ask_begin(client, SLICE_LITERAL("m"), NULL, &out, &question));
    spop_client_ask_arg(&question, SLICE_LITERAL("a"), spop_binary(slice_of(bytes, sizeof bytes)));
    assert_false(spop_client_ask_end(client, &question));
    assert_int_equal(out.len, 0);
    assert_true(ask(client, NULL, &id));
    spop_client_free(client);
}

static void an_agent_without_pipelining_is_asked_one_at_a_time(void **state)
{
    (void)state;
    struct spop_client *client = open_client(8, 16380, false);
    uint64_t id;
    assert_true(ask(client, NULL, &id));
    assert_false(spop_client_ready(client));
    spop_client_free(client);
}

static void refused(struct spop_client *client, struct slice in, enum spop_status want)
{
    struct spop_client_event event;
    struct spop_frame frame;
    struct slice message;
    uint64_t status;
    size_t said, size;
    assert_int_equal(feed(client, in, &event, &said), SPOP_CLIENT_ENDED);
    assert_int_equal(event.status, want);
    assert_int_equal(spop_frame_read(slice_of(to_agent, said), 512, &frame, &size), SPOP_STEP_FRAME);
    assert_int_equal(frame.type, SPOP_TYPE_HAPROXY_DISCONNECT);
    assert_true(spop_disconnect_read(frame.payload, &status, &message) && status == want);
    assert_int_equal(feed(client, in, &event, &said), SPOP_CLIENT_MORE);
    assert_int_equal(said, 0);
    spop_client_free(client);
}

/* Writes an ACK with the id of a question plus `ids`, without its last `cut` bytes. */
static void refused_ack(uint64_t ids, uint64_t frame_id, uint8_t cut, enum spop_status want)
{
    struct spop_client *client = open_client(2, 16380, true);
    struct writer w = agent_room();
    uint64_t id;
    assert_true(ask(client, NULL, &id));
    put_ack(&w, id + ids, frame_id, "xyz");
    from_agent[3] = (uint8_t)(from_agent[3] - cut);
    refused(client, slice_of(from_agent, w.len - cut), want);
}

static void a_frame_that_an_agent_must_not_send_ends_the_connection(void **state)
{
    (void)state;
    refused_ack(1, 1, 0, SPOP_STATUS_NO_FRAME);
    refused_ack(2, 1, 0, SPOP_STATUS_NO_FRAME);
    refused_ack(0, 2, 0, SPOP_STATUS_NO_FRAME);
    refused_ack(0, 1, 1, SPOP_STATUS_INVALID);
    refused(open_client(2, 16380, true), SLICE_LITERAL("\0\0\0\x07\x00\0\0\0\x01\x00\x00"),
            SPOP_STATUS_FRAGMENTED);
    refused(open_client(2, 16380, true), SLICE_LITERAL("\0\0\0\x07\x67\0\0\0\x00\x00\x00"),
            SPOP_STATUS_FRAGMENTED);
    refused(open_client(2, 16380, true), SLICE_LITERAL("\0\0\0\x07\x03\0\0\0\x01\x00\x00"),
            SPOP_STATUS_INVALID);
    refused(open_client(2, 16380, true), SLICE_LITERAL("\0\0\0\x06"), SPOP_STATUS_INVALID);
    refused(open_client(2, 16380, true), SLICE_LITERAL("\0\0\x3f\xfd"), SPOP_STATUS_TOO_BIG);
    refused(open_client(2, 1000, true), SLICE_LITERAL("\0\0\x03\xe9"), SPOP_STATUS_TOO_BIG);
}

static void an_aborted_answer_has_no_actions(void **state)
{
    (void)state;
    struct spop_client *client = open_client(1, 16380, true);
    struct writer w = agent_room();
    struct spop_client_event event;
    struct spop_action action;
    uint64_t id;
    size_t said;
    assert_true(ask(client, NULL, &id));
    put_ack(&w, id, 1, "x");
    from_agent[8] |= SPOP_ABORT;
    assert_int_equal(feed(client, writer_slice(&w), &event, &said), SPOP_CLIENT_ANSWER);
    assert_false(spop_action_next(&event.actions, &action));
    spop_client_free(client);
}

static void limits_and_memory_are_checked(void **state)
{
    (void)state;
    assert_null(spop_client_new(0));
    assert_null(spop_client_new((1u << 20) + 1));
    alloc_fail_at(1);
    assert_null(spop_client_new(4));
    alloc_fail_at(0);
    spop_client_free(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_question_is_a_notify_with_one_message),
        cmocka_unit_test(answers_find_their_question_in_any_order),
        cmocka_unit_test(every_split_of_the_answers_gives_the_same_events),
        cmocka_unit_test(a_forgotten_question_keeps_its_place_until_it_is_answered),
        cmocka_unit_test(lost_questions_are_handed_back_but_forgotten_ones_are_not),
        cmocka_unit_test(a_question_too_large_was_never_asked),
        cmocka_unit_test(an_agent_without_pipelining_is_asked_one_at_a_time),
        cmocka_unit_test(a_frame_that_an_agent_must_not_send_ends_the_connection),
        cmocka_unit_test(an_aborted_answer_has_no_actions),
        cmocka_unit_test(limits_and_memory_are_checked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
