/* SPDX-License-Identifier: MIT */
#include "tests/unit/support.h"

#include "spoa/spop/conversation.h"

static uint8_t sent[256 * 1024], got[8192];

static struct slice hello_of(size_t frame_size, bool healthcheck)
{
    static uint8_t bytes[SPOP_HELLO_MAX];
    struct writer w = writer_of(bytes, sizeof bytes);
    spop_offer_write(&w, &(struct spop_offer){.frame_size = frame_size, .healthcheck = healthcheck});
    assert_false(w.full);
    return writer_slice(&w);
}

static size_t put_frame(struct writer *w, uint8_t type, uint32_t flags, uint64_t stream_id, size_t payload)
{
    size_t begin = spop_frame_begin(w, SPOP_TYPE_NOTIFY, stream_id, 1);
    for (size_t i = 0; i < payload; i++)
        writer_u8(w, 0);
    assert_true(spop_frame_end(w, begin, sizeof sent));
    w->at[begin + SPOP_LENGTH_BYTES] = type;
    w->at[begin + SPOP_LENGTH_BYTES + 4] = (uint8_t)flags;
    return begin;
}

static enum spop_conversation_step feed(struct spop_conversation *agent, struct slice in,
                                        struct spop_conversation_event *event, struct slice *answer)
{
    struct writer out = writer_of(got, sizeof got);
    enum spop_conversation_step step = spop_conversation_next(agent, &in, event, &out);
    assert_false(out.full);
    *answer = writer_slice(&out);
    return step;
}

static struct spop_frame only_frame(struct slice bytes)
{
    struct spop_frame frame;
    size_t size;
    assert_int_equal(spop_frame_read(bytes, SPOP_FRAME_USUAL, &frame, &size), SPOP_STEP_FRAME);
    assert_int_equal(size, bytes.len);
    return frame;
}

static void assert_disconnect(struct slice bytes, enum spop_status want)
{
    struct spop_frame frame = only_frame(bytes);
    uint64_t status;
    struct slice message;
    assert_int_equal(frame.type, SPOP_TYPE_AGENT_DISCONNECT);
    assert_true(spop_disconnect_read(frame.payload, &status, &message));
    assert_int_equal(status, want);
}

static struct spop_conversation open_agent(size_t frame_size)
{
    struct spop_conversation agent = {.agreed = 0};
    struct spop_conversation_event event;
    struct slice answer;
    assert_int_equal(feed(&agent, hello_of(frame_size, false), &event, &answer), SPOP_CONVERSATION_HELLO);
    return agent;
}

static void a_hello_is_answered_with_pipelining_and_nothing_else(void **state)
{
    (void)state;
    struct spop_conversation agent = {.agreed = 0};
    struct spop_conversation_event event;
    struct slice answer;
    struct spop_agreement agreement;
    assert_int_equal(feed(&agent, hello_of(16380, true), &event, &answer), SPOP_CONVERSATION_HELLO);
    assert_true(event.offer.healthcheck);
    struct spop_frame frame = only_frame(answer);
    assert_int_equal(frame.type, SPOP_TYPE_AGENT_HELLO);
    assert_int_equal(spop_agreement_read(frame.payload, 16380, &agreement), SPOP_STATUS_NORMAL);
    assert_int_equal(agreement.frame_size, 16380);
    static const char want[] = "\x07version\x08\x03"
                               "2.0\x0emax-frame-size\x03\xfc\xf0\x06\x0c"
                               "capabilities\x08\x0apipelining";
    assert_true(slice_equal(frame.payload, slice_of(want, sizeof want - 1)));
}

static void every_split_of_a_conversation_gives_the_same_events(void **state)
{
    (void)state;
    struct writer w = writer_of(sent, sizeof sent);
    writer_put(&w, hello_of(16380, false));
    put_frame(&w, SPOP_TYPE_NOTIFY, SPOP_FIN, 0, 20);
    put_frame(&w, 77, SPOP_FIN, 5, 3); /* a type of another protocol version is skipped */
    put_frame(&w, SPOP_TYPE_NOTIFY, SPOP_FIN, UINT64_MAX, 0);
    spop_disconnect_write(&w, SPOP_TYPE_HAPROXY_DISCONNECT, SPOP_STATUS_TIMEOUT);
    for (size_t cut = 0; cut <= w.len; cut++) {
        struct spop_conversation agent = {.agreed = 0};
        struct slice parts[2] = {guarded(slice_of(sent, cut)), guarded(slice_of(sent, w.len))};
        struct slice in = parts[0];
        struct spop_conversation_event event;
        struct writer out = writer_of(got, sizeof got);
        enum spop_conversation_step steps[8], step;
        uint64_t streams = 0;
        size_t count = 0;
        for (int part = 0; part < 2; part++) {
            while ((step = spop_conversation_next(&agent, &in, &event, &out)) != SPOP_CONVERSATION_MORE) {
                streams += step == SPOP_CONVERSATION_NOTIFY ? event.frame.stream_id + 2 : 0;
                steps[count++] = step;
            }
            in = slice_from(parts[1], cut - in.len); /* the bytes that were not taken, and the rest */
        }
        assert_int_equal(count, 4);
        assert_int_equal(steps[0], SPOP_CONVERSATION_HELLO);
        assert_int_equal(steps[1], SPOP_CONVERSATION_NOTIFY);
        assert_int_equal(steps[2], SPOP_CONVERSATION_NOTIFY);
        assert_int_equal(steps[3], SPOP_CONVERSATION_DISCONNECT);
        assert_true(streams == 3);
        assert_int_equal(event.status, SPOP_STATUS_TIMEOUT);
        guarded_free(parts[0]);
        guarded_free(parts[1]);
    }
}

static void a_disconnect_is_answered_and_ends_all(void **state)
{
    (void)state;
    struct spop_conversation agent = open_agent(16380);
    struct writer w = writer_of(sent, sizeof sent);
    struct spop_conversation_event event;
    struct slice answer;
    spop_disconnect_write(&w, SPOP_TYPE_HAPROXY_DISCONNECT, SPOP_STATUS_NORMAL);
    assert_int_equal(feed(&agent, writer_slice(&w), &event, &answer), SPOP_CONVERSATION_DISCONNECT);
    assert_disconnect(answer, SPOP_STATUS_NORMAL);
    assert_int_equal(feed(&agent, writer_slice(&w), &event, &answer), SPOP_CONVERSATION_MORE);
    assert_int_equal(answer.len, 0);
}

static void a_disconnect_that_says_nothing_is_one_too(void **state)
{
    (void)state;
    struct spop_conversation agent = open_agent(16380);
    struct writer w = writer_of(sent, sizeof sent);
    struct spop_conversation_event event;
    struct slice answer;
    put_frame(&w, SPOP_TYPE_HAPROXY_DISCONNECT, SPOP_FIN, 0, 0);
    assert_int_equal(feed(&agent, writer_slice(&w), &event, &answer), SPOP_CONVERSATION_DISCONNECT);
    assert_int_equal(event.status, SPOP_STATUS_UNKNOWN);
}

static void refused(bool greeted, uint8_t type, uint32_t flags, enum spop_status want)
{
    struct spop_conversation agent = greeted ? open_agent(16380) : (struct spop_conversation){.agreed = 0};
    struct writer w = writer_of(sent, sizeof sent);
    struct spop_conversation_event event;
    struct slice answer;
    put_frame(&w, type, flags, 1, 2);
    assert_int_equal(feed(&agent, writer_slice(&w), &event, &answer), SPOP_CONVERSATION_REFUSED);
    assert_int_equal(event.status, want);
    assert_disconnect(answer, want);
    assert_int_equal(feed(&agent, writer_slice(&w), &event, &answer), SPOP_CONVERSATION_MORE);
    assert_int_equal(answer.len, 0); /* said once */
}

static void frames_that_the_protocol_forbids_are_refused(void **state)
{
    (void)state;
    refused(false, SPOP_TYPE_NOTIFY, SPOP_FIN, SPOP_STATUS_INVALID);
    refused(false, SPOP_TYPE_ACK, SPOP_FIN, SPOP_STATUS_INVALID);
    refused(true, SPOP_TYPE_HAPROXY_HELLO, SPOP_FIN, SPOP_STATUS_INVALID);
    refused(true, SPOP_TYPE_AGENT_HELLO, SPOP_FIN, SPOP_STATUS_INVALID);
    refused(true, SPOP_TYPE_AGENT_DISCONNECT, SPOP_FIN, SPOP_STATUS_INVALID);
    refused(true, SPOP_TYPE_ACK, SPOP_FIN, SPOP_STATUS_INVALID);
    refused(true, SPOP_TYPE_NOTIFY, 0, SPOP_STATUS_FRAGMENTED);
    refused(true, SPOP_TYPE_UNSET, SPOP_FIN, SPOP_STATUS_FRAGMENTED);
    refused(true, SPOP_TYPE_UNSET, SPOP_FIN | SPOP_ABORT, SPOP_STATUS_FRAGMENTED);
    refused(true, SPOP_TYPE_NOTIFY, SPOP_FIN | SPOP_ABORT, SPOP_STATUS_FRAGMENTED);
    refused(false, SPOP_TYPE_HAPROXY_HELLO, SPOP_FIN, SPOP_STATUS_NO_VERSION);
    refused(false, SPOP_TYPE_HAPROXY_HELLO, 0, SPOP_STATUS_FRAGMENTED);
}

static void lengths_over_and_under_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *length;
        enum spop_status want;
    } cases[] = {{"\0\0\0\x06", SPOP_STATUS_INVALID},
                 {"\0\0\0\0", SPOP_STATUS_INVALID},
                 {"\0\0\x3f\xfd", SPOP_STATUS_TOO_BIG},
                 {"\xff\xff\xff\xff", SPOP_STATUS_TOO_BIG}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int greeted = 0; greeted < 2; greeted++) {
            struct spop_conversation agent =
                greeted ? open_agent(16380) : (struct spop_conversation){.agreed = 0};
            struct spop_conversation_event event;
            struct slice answer;
            assert_int_equal(feed(&agent, slice_of(cases[i].length, 4), &event, &answer),
                             SPOP_CONVERSATION_REFUSED);
            assert_disconnect(answer, cases[i].want);
        }
}

/* HAProxy 3.1.0 sends frames up to its own max-frame-size, whatever was agreed. */
static void frames_of_haproxys_size_are_taken_even_if_less_was_agreed(void **state)
{
    (void)state;
    static const size_t offered[] = {256, 16380, 32764, 200000};
    static const size_t taken[] = {16380, 16380, 32764, SPOP_FRAME_MAX};
    for (size_t i = 0; i < 4; i++) {
        struct spop_conversation agent = open_agent(offered[i]);
        struct writer w = writer_of(sent, sizeof sent);
        struct spop_conversation_event event;
        struct slice answer;
        put_frame(&w, SPOP_TYPE_NOTIFY, SPOP_FIN, 1, taken[i] - SPOP_FRAME_MIN);
        assert_int_equal(feed(&agent, writer_slice(&w), &event, &answer), SPOP_CONVERSATION_NOTIFY);
        w.len = 0;
        put_frame(&w, SPOP_TYPE_NOTIFY, SPOP_FIN, 1, taken[i] + 1 - SPOP_FRAME_MIN);
        assert_int_equal(feed(&agent, writer_slice(&w), &event, &answer), SPOP_CONVERSATION_REFUSED);
        assert_disconnect(answer, SPOP_STATUS_TOO_BIG);
        assert_true(agent.agreed <= offered[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_hello_is_answered_with_pipelining_and_nothing_else),
        cmocka_unit_test(every_split_of_a_conversation_gives_the_same_events),
        cmocka_unit_test(a_disconnect_is_answered_and_ends_all),
        cmocka_unit_test(a_disconnect_that_says_nothing_is_one_too),
        cmocka_unit_test(frames_that_the_protocol_forbids_are_refused),
        cmocka_unit_test(lengths_over_and_under_are_refused),
        cmocka_unit_test(frames_of_haproxys_size_are_taken_even_if_less_was_agreed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
