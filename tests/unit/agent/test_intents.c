/* SPDX-License-Identifier: MIT */
#include "tests/unit/support.h"

#include <pthread.h>
#include <stdio.h>

#include "spoa/agent/state/intents.h"

enum { ROOM = 4 };
#define EVERY MINUTE
#define BEGIN (1000 * SECOND)

static const struct intent box = {
    .sandbox = SLICE_LITERAL("sb-1"), .port = 8080, .path = SLICE_LITERAL("/a\"b")};

static bool note(struct intents *i, const char *space, const char *sandbox, uint64_t now)
{
    const struct intent intent = {.space = slice_text(space), .sandbox = slice_text(sandbox)};
    return intents_note(i, &intent, now);
}

/* The text of the next one, or "". */
static const char *taken(struct intents *i, uint64_t since)
{
    static char text[1024];
    struct buffer to = buffer_with_limit(1000);
    bool good = intents_take(i, since, BEGIN, 2000000000123, &to);
    snprintf(text, sizeof text, "%.*s", SLICE_PRINTF(buffer_slice(&to)));
    assert_true(good == (text[0] != 0));
    buffer_free(&to);
    return text;
}

static void an_intent_is_what_the_consumers_read(void **state)
{
    struct intents *i = intents_new(EVERY, ROOM);
    (void)state;
    assert_true(intents_note(i, &box, BEGIN - 2 * SECOND - 23000));
    assert_false(note(i, NULL, "sb-2", BEGIN));
    assert_string_equal(taken(i, 0), "{\"sandbox_id\":\"sb-1\",\"observed_at\":\"2033-05-18T03:33:18.100Z\","
                                     "\"port\":8080,\"request_uri\":\"/a\\\"b\"}");
    assert_string_equal(taken(i, 0),
                        "{\"sandbox_id\":\"sb-2\",\"observed_at\":\"2033-05-18T03:33:20.123Z\"}");
    assert_string_equal(taken(i, 0), "");
    assert_int_equal(intents_lost(i), 0);
    intents_free(i);
}

static void a_long_path_is_left_out_and_a_long_name_is_none(void **state)
{
    struct intents *i = intents_new(EVERY, ROOM);
    static char text[INTENTS_KEY_MOST];
    struct intent intent = box;
    (void)state;
    memset(text, 'a', sizeof text);
    intent.path = slice_of(text, INTENTS_PATH_MOST + 1);
    assert_true(intents_note(i, &intent, BEGIN));
    assert_null(strstr(taken(i, 0), "request_uri"));
    intent.sandbox = slice_of(text, sizeof text);
    assert_false(intents_note(i, &intent, BEGIN));
    intents_free(i);
}

static void a_sandbox_is_told_once_in_a_while(void **state)
{
    struct intents *i = intents_new(EVERY, ROOM);
    (void)state;
    assert_true(note(i, NULL, "a", BEGIN));
    taken(i, 0);
    assert_false(note(i, NULL, "a", BEGIN + EVERY - SECOND));
    assert_string_equal(taken(i, 0), "");
    assert_true(note(i, "ns", "a", BEGIN + 1)); /* another one */
    taken(i, 0);
    assert_true(note(i, NULL, "a", BEGIN + EVERY + SECOND));
    assert_false(note(i, NULL, "b", BEGIN + EVERY + SECOND)); /* there was something to take */
    taken(i, 0);
    taken(i, 0);
    assert_int_equal(intents_lost(i), 0);
    intents_free(i);
}

static void what_finds_no_room_or_is_old_is_let_go_and_counted(void **state)
{
    struct intents *i = intents_new(EVERY, ROOM);
    (void)state;
    for (int n = 0; n < ROOM + 2; n++) {
        char name[8];
        snprintf(name, sizeof name, "sb-%d", n);
        assert_int_equal(note(i, NULL, name, BEGIN + (uint64_t)n), n == 0);
    }
    assert_int_equal(intents_lost(i), 2);
    assert_non_null(strstr(taken(i, BEGIN + 3), "\"sb-3\""));
    assert_int_equal(intents_lost(i), 3);
    assert_int_equal(intents_lost(i), 0);
    assert_true(note(i, NULL, "sb-9", BEGIN));
    intents_free(i);
}

static void many_sandboxes_are_each_told_once(void **state)
{
    enum { MANY = 20000 };
    struct intents *i = intents_new(EVERY, MANY * 2);
    int again = 0;
    (void)state;
    for (int round = 0; round < 3; round++)
        for (int n = 0; n < MANY; n++) {
            char name[16];
            snprintf(name, sizeof name, "sb-%d", n);
            note(i, NULL, name, BEGIN + (uint64_t)round * SECOND);
        }
    while (taken(i, 0)[0])
        again++;
    assert_in_range(again, MANY, MANY + MANY / 50);
    intents_free(i);
}

static void *note_all(void *context)
{
    for (int n = 0; n < 1000; n++) {
        char name[16];
        snprintf(name, sizeof name, "sb-%d", n);
        note(context, NULL, name, BEGIN);
    }
    return NULL;
}

static void of_several_threads_one_tells(void **state)
{
    struct intents *i = intents_new(EVERY, 4000);
    pthread_t threads[3];
    int told = 0;
    (void)state;
    for (size_t n = 0; n < 3; n++)
        assert_int_equal(pthread_create(&threads[n], NULL, note_all, i), 0);
    for (size_t n = 0; n < 3; n++)
        pthread_join(threads[n], NULL);
    while (taken(i, 0)[0])
        told++;
    assert_int_equal(told, 1000);
    intents_free(i);
}

static void without_memory_there_is_none(void **state)
{
    (void)state;
    alloc_fail_at(1);
    assert_null(intents_new(EVERY, ROOM));
    alloc_fail_at(0);
    struct intents *i = intents_new(EVERY, ROOM);
    struct buffer to = buffer_with_limit(1000);
    assert_true(intents_note(i, &box, BEGIN));
    alloc_fail_at(1);
    assert_false(intents_take(i, 0, BEGIN, 0, &to));
    alloc_fail_at(0);
    assert_int_equal(intents_lost(i), 1);
    buffer_free(&to);
    intents_free(i);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_intent_is_what_the_consumers_read),
        cmocka_unit_test(a_long_path_is_left_out_and_a_long_name_is_none),
        cmocka_unit_test(a_sandbox_is_told_once_in_a_while),
        cmocka_unit_test(what_finds_no_room_or_is_old_is_let_go_and_counted),
        cmocka_unit_test(many_sandboxes_are_each_told_once),
        cmocka_unit_test(of_several_threads_one_tells),
        cmocka_unit_test(without_memory_there_is_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
