/* SPDX-License-Identifier: MIT */
/* The relay's connection to the agent, with an agent of the test's own on the same loop. */
#include "tests/unit/support.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "spoa/relay/thread/agent_client.h"
#include "spoa/spop/conversation.h"

#define MANY_SECS (20 * SECOND) /* that a busy machine may take */

struct world {
    struct loop *loop;
    struct loop_timer tick; /* so that turns end */
    char folder[32];
    int listener, fd;
    struct spop_conversation agent;
    struct agent_client *client;
    unsigned notified, answered;
    char heard[32]; /* the name of the last message */
    int64_t epoch;  /* that it says is known */
};

static void on_tick(void *owner)
{
    loop_timer_set(&((struct world *)owner)->tick, 10 * MILLISECOND);
}

static void say(void *owner, bool watch, struct question_text *to)
{
    (void)owner;
    (void)watch;
    to->handover = (struct handover){.route = SLICE_LITERAL("r"), .sandbox = SLICE_LITERAL("s")};
}

static void on_answered(void *owner, bool watch, const struct answer *answer)
{
    (void)watch;
    (void)answer;
    ((struct world *)owner)->answered++;
}

static const struct question_user user_answered = {say, on_answered};

static int64_t epoch_in(struct spop_args args)
{
    struct slice name;
    struct spop_value value;
    while (spop_arg_next(&args, &name, &value))
        if (slice_is(name, "epoch"))
            return value.number;
    return -1;
}

static void take_frames(struct world *w, struct slice in)
{
    uint8_t memory[SPOP_HELLO_MAX];
    struct writer out = writer_of(memory, sizeof memory);
    struct spop_conversation_event event;
    enum spop_conversation_step step;
    while ((step = spop_conversation_next(&w->agent, &in, &event, &out)) != SPOP_CONVERSATION_MORE) {
        assert_true(step == SPOP_CONVERSATION_HELLO || step == SPOP_CONVERSATION_NOTIFY);
        if (step != SPOP_CONVERSATION_NOTIFY)
            continue;
        struct reader payload = reader_of(event.frame.payload);
        struct spop_message message;
        assert_true(spop_message_next(&payload, &message));
        snprintf(w->heard, sizeof w->heard, "%.*s", SLICE_PRINTF(message.name));
        w->epoch = epoch_in(message.args);
        w->notified++;
    }
    assert_int_equal(in.len, 0); /* the questions are short: they come whole */
    if (out.len)
        assert_int_equal(send(w->fd, memory, out.len, MSG_NOSIGNAL), out.len);
}

/* One turn of the loop and of the agent. */
static void turn(struct world *w)
{
    uint8_t memory[SPOP_FRAME_USUAL];
    loop_turn(w->loop, true);
    if (w->fd < 0)
        w->fd = net_accept(w->listener);
    ssize_t got = w->fd < 0 ? -1 : recv(w->fd, memory, sizeof memory, MSG_DONTWAIT);
    if (got > 0)
        take_frames(w, slice_of(memory, (size_t)got));
}

static bool is_late(uint64_t since)
{
    return loop_clock() - since > MANY_SECS;
}

static int setup_for(void **state, unsigned most)
{
    struct world *w = calloc(1, sizeof *w);
    struct net_address address;
    struct fail why;
    char text[64];
    snprintf(w->folder, sizeof w->folder, "/tmp/cellgate-unit.XXXXXX");
    assert_non_null(mkdtemp(w->folder));
    snprintf(text, sizeof text, "unix@%s/agent.sock", w->folder);
    assert_true(net_parse(slice_text(text), &address, &why));
    w->fd = -1;
    w->listener = net_listen(&address, 0600, &why);
    assert_true(w->listener >= 0);
    w->loop = loop_new(&why);
    assert_non_null(w->loop);
    loop_timer_open(&w->tick, w->loop, on_tick, w);
    on_tick(w);
    w->client = agent_client_new(w->loop, &address, most, NULL);
    assert_non_null(w->client);
    for (uint64_t since = loop_clock(); !agent_client_connected(w->client) && !is_late(since);)
        turn(w);
    assert_true(agent_client_connected(w->client));
    *state = w;
    return 0;
}

static int setup(void **state)
{
    return setup_for(state, 1);
}

static int setup_for_two(void **state)
{
    return setup_for(state, 2);
}

static int teardown(void **state)
{
    struct world *w = *state;
    agent_client_free(w->client);
    loop_timer_close(&w->tick);
    loop_free(w->loop);
    if (w->fd >= 0)
        close(w->fd);
    net_unlisten(w->listener);
    rmdir(w->folder);
    free(w);
    return 0;
}

/* There is room for one question at a time: none may get lost on its way. */
static void a_question_for_which_there_was_no_memory_is_asked_when_there_is(void **state)
{
    struct world *w = *state;
    struct question question = {.watch = true, .user = &user_answered, .owner = w};
    alloc_fail_at(1);
    agent_client_ask(w->client, &question);
    alloc_fail_at(0);
    for (uint64_t since = loop_clock(); !w->notified && !is_late(since);)
        turn(w);
    assert_int_equal(w->notified, 1);
    assert_int_equal(w->answered, 0);
    agent_client_drop(w->client, &question);
}

/* Nothing of a question is left with the connection when it is dropped before it could be asked. */
static void what_was_dropped_before_it_was_asked_is_not_touched_when_the_agent_goes(void **state)
{
    struct world *w = *state;
    struct question *question = calloc(1, sizeof *question);
    assert_non_null(question);
    *question = (struct question){.watch = true, .user = &user_answered, .owner = w};
    alloc_fail_at(1);
    agent_client_ask(w->client, question);
    alloc_fail_at(0);
    agent_client_drop(w->client, question);
    free(question);
    close(w->fd);
    w->fd = -1;
    for (uint64_t since = loop_clock(); agent_client_connected(w->client) && !is_late(since);)
        loop_turn(w->loop, true);
    assert_false(agent_client_connected(w->client));
    assert_int_equal(w->answered, 0);
}

static void a_watch_that_is_dropped_is_taken_back(void **state)
{
    struct world *w = *state;
    struct question watch = {.watch = true, .user = &user_answered, .owner = w};
    agent_client_ask(w->client, &watch);
    for (uint64_t since = loop_clock(); w->notified < 1 && !is_late(since);)
        turn(w);
    assert_string_equal(w->heard, "cell-watch");
    agent_client_drop(w->client, &watch);
    for (uint64_t since = loop_clock(); w->notified < 2 && !is_late(since);)
        turn(w);
    assert_string_equal(w->heard, "cell-unwatch");
    assert_int_equal(w->answered, 0);
}

struct knowing {
    struct world *w;
    int64_t epoch;
};

static void say_what_is_known(void *owner, bool watch, struct question_text *to)
{
    assert_true(watch);
    assert_int_equal(to->epoch, -1);
    assert_int_equal(to->idle, -1);
    assert_int_equal(to->addr.family, 0);
    to->handover = (struct handover){.route = SLICE_LITERAL("r"), .sandbox = SLICE_LITERAL("s")};
    to->epoch = ((struct knowing *)owner)->epoch;
}

static const struct question_user user_knowing = {say_what_is_known, on_answered};

static void await_message(struct world *w, unsigned count)
{
    for (uint64_t since = loop_clock(); w->notified < count && !is_late(since);)
        turn(w);
    assert_int_equal(w->notified, count);
}

static void an_agent_that_comes_back_is_told_what_is_known_by_then(void **state)
{
    struct world *w = *state;
    struct knowing knowing = {w, 3};
    struct question watch = {.watch = true, .user = &user_knowing, .owner = &knowing};
    agent_client_ask(w->client, &watch);
    await_message(w, 1);
    assert_int_equal(w->epoch, 3);
    knowing.epoch = 4;
    close(w->fd);
    w->fd = -1;
    w->agent = (struct spop_conversation){0};
    await_message(w, 2);
    assert_string_equal(w->heard, "cell-watch");
    assert_int_equal(w->epoch, 4);
    agent_client_drop(w->client, &watch);
}

struct patient {
    struct world *w;
    struct question question;
    struct patient *drops; /* when it is told */
    unsigned told;
};

static void on_told(void *owner, bool watch, const struct answer *answer)
{
    struct patient *p = owner;
    assert_false(watch);
    assert_int_equal(answer->state, ANSWER_UNAVAILABLE);
    p->told++;
    p->w->answered++;
    if (!p->drops)
        return;
    agent_client_drop(p->w->client, &p->drops->question);
    agent_client_ask(p->w->client, &p->question); /* again */
    p->drops = NULL;
}

static const struct question_user user_told = {say, on_told};

/* One of them is with the agent, which says nothing, and there is no room for the others. */
static void who_is_told_that_it_takes_too_long_may_ask_again_and_drop_others(void **state)
{
    struct world *w = *state;
    struct patient patients[4] = {0};
    for (size_t i = 0; i < 4; i++) {
        patients[i] = (struct patient){.w = w, .question = {.user = &user_told}};
        patients[i].question.owner = &patients[i];
        agent_client_ask(w->client, &patients[i].question);
    }
    /* whichever of the two is told first, the other one is not */
    patients[1].drops = &patients[2];
    patients[2].drops = &patients[1];
    for (uint64_t since = loop_clock(); w->answered < 3 && !is_late(since);)
        turn(w);
    assert_int_equal(patients[0].told, 1);
    assert_int_equal(patients[1].told + patients[2].told, 1);
    assert_int_equal(patients[3].told, 1);
    for (uint64_t since = loop_clock(); w->answered < 4 && !is_late(since);)
        turn(w);
    assert_int_equal(patients[1].told + patients[2].told, 2); /* the one that has asked again */
    assert_true(patients[1].told == 0 || patients[2].told == 0);
}

static void on_answer_in_time(void *owner, bool watch, const struct answer *answer)
{
    assert_false(watch);
    assert_false(answer->agent_lost);
    ((struct world *)owner)->answered++;
}

static const struct question_user user_answer_in_time = {say, on_answer_in_time};

/* As after a stop of this process: the time of the question is over, and the answer is there. */
static void an_answer_that_was_not_read_in_time_came_in_time(void **state)
{
    struct world *w = *state;
    struct question question = {.user = &user_answer_in_time, .owner = w};
    uint8_t memory[64];
    struct writer out = writer_of(memory, sizeof memory);
    agent_client_ask(w->client, &question);
    for (uint64_t since = loop_clock(); !w->notified && !is_late(since);)
        turn(w);
    assert_true(spop_frame_end(&out, spop_frame_begin(&out, SPOP_TYPE_ACK, question.id, 1), sizeof memory));
    question.due = 0;
    usleep(120000); /* the tick is due, too */
    assert_int_equal(send(w->fd, memory, out.len, MSG_NOSIGNAL), out.len);
    for (uint64_t since = loop_clock(); !w->answered && !is_late(since);)
        loop_turn(w->loop, true);
    assert_int_equal(w->answered, 1);
}

static void a_watch_is_asked_for_a_moment_later(void **state)
{
    struct world *w = *state;
    struct question watch = {.watch = true, .user = &user_answered, .owner = w};
    agent_client_ask(w->client, &watch);
    assert_int_equal(watch.state, QUESTION_QUEUED);
    for (uint64_t since = loop_clock(); !w->notified && !is_late(since);)
        turn(w);
    assert_int_equal(w->notified, 1);
    agent_client_drop(w->client, &watch);
}

static void a_watch_leaves_with_one_in_a_hurry(void **state)
{
    struct world *w = *state;
    struct question watch = {.watch = true, .user = &user_answered, .owner = w},
                    question = {.user = &user_answered, .owner = w};
    agent_client_ask(w->client, &watch);
    agent_client_ask(w->client, &question);
    assert_int_equal(watch.state, QUESTION_ASKED);
    assert_int_equal(question.state, QUESTION_ASKED);
    agent_client_drop(w->client, &watch);
    agent_client_drop(w->client, &question);
}

/* What comes from the agent meanwhile is no reason to hurry. */
static void a_watch_waits_though_an_answer_comes(void **state)
{
    struct world *w = *state;
    struct question question = {.user = &user_answered, .owner = w},
                    watch = {.watch = true, .user = &user_answered, .owner = w};
    uint8_t memory[64];
    struct writer out = writer_of(memory, sizeof memory);
    agent_client_ask(w->client, &question);
    for (uint64_t since = loop_clock(); !w->notified && !is_late(since);)
        turn(w);
    assert_true(spop_frame_end(&out, spop_frame_begin(&out, SPOP_TYPE_ACK, question.id, 1), sizeof memory));
    assert_int_equal(send(w->fd, memory, out.len, MSG_NOSIGNAL), out.len);
    agent_client_ask(w->client, &watch);
    agent_client_look(w->client);
    assert_int_equal(w->answered, 1);
    assert_int_equal(watch.state, QUESTION_QUEUED);
    agent_client_drop(w->client, &watch);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_watch_is_asked_for_a_moment_later, setup, teardown),
        cmocka_unit_test_setup_teardown(a_watch_leaves_with_one_in_a_hurry, setup_for_two, teardown),
        cmocka_unit_test_setup_teardown(a_watch_waits_though_an_answer_comes, setup, teardown),
        cmocka_unit_test_setup_teardown(a_watch_that_is_dropped_is_taken_back, setup, teardown),
        cmocka_unit_test_setup_teardown(an_agent_that_comes_back_is_told_what_is_known_by_then, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(who_is_told_that_it_takes_too_long_may_ask_again_and_drop_others,
                                        setup, teardown),
        cmocka_unit_test_setup_teardown(an_answer_that_was_not_read_in_time_came_in_time, setup, teardown),
        cmocka_unit_test_setup_teardown(a_question_for_which_there_was_no_memory_is_asked_when_there_is,
                                        setup, teardown),
        cmocka_unit_test_setup_teardown(
            what_was_dropped_before_it_was_asked_is_not_touched_when_the_agent_goes, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
