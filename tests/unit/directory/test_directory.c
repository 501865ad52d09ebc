/* SPDX-License-Identifier: MIT */
#include "tests/unit/support.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "spoa/agent/directory/directory.h"
#include "spoa/agent/state/snapshot.h"

/* ---- a kind of the test's own ---- */

struct test_options {
    struct directory_common common;
    struct kind_seen *seen;
};

struct kind_seen {
    struct directory_questions questions;
    unsigned asked, woken, stopped;
    bool refuses_to_start;
};

static void *kind_start(const void *options, struct directory *directory, struct loop *loop, struct log *log,
                        struct fail *why)
{
    struct kind_seen *seen = ((const struct test_options *)options)->seen;
    (void)directory, (void)loop, (void)log;
    if (seen->refuses_to_start)
        fail(why, "no");
    return seen->refuses_to_start ? NULL : seen;
}

static void kind_ask(void *self, struct directory_question *q)
{
    struct kind_seen *seen = self;
    assert_int_equal(seen->stopped, 0);
    seen->asked += !q->wake;
    seen->woken += q->wake;
    if (q->wake)
        directory_answer(q, LOOKUP_UNAVAILABLE, NULL, 0);
    else
        directory_questions_put(&seen->questions, q);
}

static void kind_stop(void *self)
{
    struct kind_seen *seen = self;
    seen->stopped++;
    for (struct directory_question *q; (q = directory_questions_take(&seen->questions));)
        directory_answer(q, LOOKUP_UNAVAILABLE, NULL, 0);
}

static const struct directory_kind kind = {.name = "test",
                                           .start = kind_start,
                                           .question_size = sizeof(struct directory_question),
                                           .ask = kind_ask,
                                           .wakes = true,
                                           .stop = kind_stop};

/* ---- its owner ---- */

struct world {
    struct kind_seen seen;
    struct test_options own;
    struct directory_options options;
    struct loop *loop;
    struct directory *directory;
    unsigned learned, answered, news, health;
    int64_t not_before;
};

static bool on_revoked(void *context, int64_t not_before)
{
    ((struct world *)context)->not_before = not_before;
    return not_before > 0;
}

static void on_health(void *context, bool answering, bool pushing, const char *why)
{
    struct world *w = context;
    assert_true(answering || *why);
    (void)pushing;
    w->health++;
}

static void on_learned(void *context, const struct record *record)
{
    assert_int_equal(record->state, RECORD_RUNNING);
    ((struct world *)context)->learned++;
}

static void on_answered(void *context, enum lookup outcome, uint64_t took)
{
    (void)outcome;
    assert_true(took < MINUTE);
    ((struct world *)context)->answered++;
}

static void on_notified(void *context, struct slice key, uint64_t waiters)
{
    (void)key;
    assert_int_equal(waiters, 1);
    ((struct world *)context)->news++;
}

static const struct directory_owner *owner_of(struct world *w)
{
    static struct directory_owner owner;
    owner = (struct directory_owner){.revoked = on_revoked,
                                     .health = on_health,
                                     .learned = on_learned,
                                     .answered = on_answered,
                                     .notify = on_notified,
                                     .context = w};
    return &owner;
}

static int setup(void **state)
{
    struct world *w = calloc(1, sizeof *w);
    struct fail why;
    w->own =
        (struct test_options){.common = {.ttl = 3000, .stale = 600000, .entries = 100}, .seen = &w->seen};
    w->options = (struct directory_options){.kind = &kind, .own = &w->own.common, .references = 1};
    w->loop = loop_new(&why);
    assert_non_null(w->loop);
    w->directory = directory_start(&w->options, owner_of(w), 200000, w->loop, NULL, &why);
    assert_non_null(w->directory);
    *state = w;
    return 0;
}

static int teardown(void **state)
{
    struct world *w = *state;
    directory_stop(w->directory);
    directory_release(w->directory);
    loop_free(w->loop);
    assert_int_equal(w->options.references, 1);
    free(w);
    return 0;
}

/* "found", "absent", ... of a decision's view */
static enum lookup find(struct world *w, const char *space, const char *sandbox, bool last)
{
    struct policy policy = {.references = 2};
    struct settings settings = {.open = true};
    struct record record;
    policy.settings = &settings;
    const struct snapshot_parts parts = {.policy = &policy, .directory = w->directory};
    struct snapshot *snapshot = snapshot_new(&parts);
    struct snapshot_finder finder = {.last = last, .wakes = true, .waiter = 1};
    struct decide_view view = snapshot_view(snapshot, &finder, NULL, 0);
    enum lookup found = view.find(view.directory, slice_text(space), slice_text(sandbox), &record);
    if (found == LOOKUP_FOUND) {
        assert_int_equal(record.epoch, 7);
        assert_true(view.wake(view.directory, slice_text(space), slice_text(sandbox)));
    }
    snapshot_finder_done(&finder);
    snapshot_release(snapshot);
    loop_turn(w->loop, false); /* the question comes to the kind */
    return found;
}

/* Of the question that came first. */
static void answer(struct world *w, const char *key, enum lookup outcome, const struct record *record)
{
    struct directory_question *q = directory_questions_take(&w->seen.questions);
    assert_true(q && !q->wake && slice_is(q->key, key));
    directory_answer(q, outcome, record, 0);
}

static const struct record running = {
    .state = RECORD_RUNNING,
    .epoch = 7,
    .worker = {.kind = WORKER_HTTP, .host = {(const uint8_t *)"w", 1}, .port = 80},
};

static void what_the_kind_says_is_what_decisions_find(void **state)
{
    struct world *w = *state;
    assert_int_equal(find(w, NULL, "a", false), LOOKUP_PENDING);
    answer(w, "a", LOOKUP_FOUND, &running);
    assert_int_equal(find(w, NULL, "a", false), LOOKUP_FOUND);
    assert_int_equal(find(w, "default", "a", false), LOOKUP_FOUND);
    assert_int_equal(find(w, "other", "a", false), LOOKUP_PENDING);
    answer(w, "other/a", LOOKUP_ABSENT, NULL);
    assert_int_equal(find(w, "other", "a", false), LOOKUP_ABSENT);
    directory_removed(w->directory, SLICE_LITERAL("a"));
    assert_int_equal(find(w, NULL, "a", false), LOOKUP_ABSENT);
    directory_changed(w->directory, SLICE_LITERAL("a"), &running);
    assert_int_equal(find(w, NULL, "a", false), LOOKUP_FOUND);
    directory_announced(w->directory, SLICE_LITERAL("a"));
    assert_int_equal(find(w, NULL, "a", false), LOOKUP_PENDING);
    assert_int_equal(find(w, NULL, "a", true), LOOKUP_FOUND);
    assert_int_equal(w->seen.asked, 3);
    assert_int_equal(w->learned, 2);
    assert_int_equal(w->answered, 2);
    assert_int_equal(w->news, 2);
    assert_false(directory_revoked(w->directory, 0));
    assert_true(directory_revoked(w->directory, 17));
    assert_int_equal(w->not_before, 17);
}

/* A control plane may push whatever changes in the whole cell. */
static void what_is_pushed_of_others_is_not_learned(void **state)
{
    struct world *w = *state;
    directory_changed(w->directory, SLICE_LITERAL("other"), &running);
    assert_int_equal(w->learned, 0);
    assert_int_equal(find(w, NULL, "sb", false), LOOKUP_PENDING);
    directory_changed(w->directory, SLICE_LITERAL("sb"), &running);
    assert_int_equal(w->learned, 1);
    assert_int_equal(find(w, NULL, "sb", false), LOOKUP_FOUND);
}

static void a_key_that_is_too_long_is_absent(void **state)
{
    struct world *w = *state;
    char name[200];
    memset(name, 'n', sizeof name);
    name[199] = '\0';
    assert_int_equal(find(w, NULL, name, false), LOOKUP_PENDING);
    assert_int_equal(find(w, name, name, false), LOOKUP_ABSENT);
    assert_int_equal(w->seen.asked, 1);
}

static void its_health_decides_whether_anybody_waits(void **state)
{
    struct world *w = *state;
    find(w, NULL, "a", false);
    answer(w, "a", LOOKUP_FOUND, &running);
    directory_announced(w->directory, SLICE_LITERAL("a"));
    directory_health(w->directory, false, false, "it is away");
    assert_int_equal(w->health, 1);
    assert_int_equal(find(w, NULL, "a", false), LOOKUP_FOUND);
    directory_missed(w->directory);
}

static void many_decisions_wake_a_sandbox_once(void **state)
{
    struct world *w = *state;
    assert_true(directory_can_wake(w->directory));
    find(w, NULL, "a", false);
    answer(w, "a", LOOKUP_FOUND, &running);
    for (int i = 0; i < 10; i++)
        assert_int_equal(find(w, NULL, "a", false), LOOKUP_FOUND);
    assert_int_equal(w->seen.woken, 1);
}

static void *ask_all_the_time(void *context)
{
    struct world *w = context;
    for (int i = 0; i < 20000; i++) {
        struct shared_record *box;
        char key[16];
        int len = snprintf(key, sizeof key, "%d", i);
        directory_cache_find(directory_cache(w->directory), slice_of(key, (size_t)len), false, 1,
                             (struct fair_owner){0}, &box);
        shared_record_release(box);
    }
    return NULL;
}

/* As at a reload: decision threads still have the old one. */
static void once_stopped_it_is_not_asked_any_more_and_may_still_be_read(void **state)
{
    struct world *w = *state;
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, ask_all_the_time, w), 0);
    while (w->seen.asked < 100)
        loop_turn(w->loop, false);
    directory_stop(w->directory);
    pthread_join(thread, NULL);
    assert_int_equal(w->seen.stopped, 1);
    assert_int_equal(find(w, NULL, "another", false), LOOKUP_UNAVAILABLE);
    directory_wake(w->directory, SLICE_LITERAL("a"), (struct fair_owner){0});
    loop_turn(w->loop, false);
    assert_int_equal(w->seen.woken, 0);
    assert_int_equal(w->answered, 0);
}

/* Records in use are looked up again by the directory itself. */
static void what_is_in_use_is_looked_up_when_it_is_announced(void **state)
{
    struct world *w = *state;
    assert_int_equal(find(w, NULL, "a", false), LOOKUP_PENDING);
    answer(w, "a", LOOKUP_FOUND, &running);
    assert_true(directory_cache_pin(directory_cache(w->directory), SLICE_LITERAL("a"), 1));
    directory_announced(w->directory, SLICE_LITERAL("a"));
    directory_announced(w->directory, SLICE_LITERAL("a"));
    for (int i = 0; i < 3; i++)
        loop_turn(w->loop, false);
    assert_int_equal(w->seen.asked, 2);
    answer(w, "a", LOOKUP_FOUND, &running);
    assert_int_equal(w->answered, 2);
    directory_cache_unpin(directory_cache(w->directory), SLICE_LITERAL("a"));
}

/* One more question is refused, however many there are. */
static void questions_are_bounded(void **state)
{
    struct world *w = *state;
    struct test_options own = w->own;
    struct fail why;
    own.common.entries = 1000000;
    struct directory_options options = {.kind = &kind, .own = &own.common, .references = 1};
    struct directory *many = directory_start(&options, owner_of(w), 200000, w->loop, NULL, &why);
    assert_non_null(many);
    unsigned begun = 0;
    for (int i = 0; i < 70000; i++) {
        struct shared_record *box;
        char key[16];
        int len = snprintf(key, sizeof key, "%d", i);
        begun += directory_cache_find(directory_cache(many), slice_of(key, (size_t)len), false, 1,
                                      (struct fair_owner){0}, &box) == LOOKUP_PENDING;
    }
    assert_in_range(begun, 65000, 65536); /* who has some leaves as many to others */
    loop_turn(w->loop, false);
    assert_int_equal(w->seen.asked, begun);
    directory_stop(many);
    w->seen.stopped = 0;
    directory_release(many);
}

static enum lookup ask_as(struct world *w, const char *key, struct fair_owner owner)
{
    struct shared_record *box;
    enum lookup found =
        directory_cache_find(directory_cache(w->directory), slice_text(key), false, 1, owner, &box);
    shared_record_release(box);
    return found;
}

static const struct fair_owner greedy = {.hash = 1000, .rank = FAIR_VERIFIED};

/* Returns the number of questions that it has asked. */
static unsigned ask_many(struct world *w, unsigned count)
{
    unsigned begun = 0;
    char key[16];
    for (unsigned i = 0; i < count; i++) {
        snprintf(key, sizeof key, "greedy-%u", i);
        begun += ask_as(w, key, greedy) == LOOKUP_PENDING;
    }
    return begun;
}

static void a_greedy_owner_is_refused_alone(void **state)
{
    struct world *w = *state;
    char key[16];
    assert_in_range(ask_many(w, 400), 1, 399);
    for (unsigned i = 0; i < 30; i++) {
        snprintf(key, sizeof key, "other-%u", i);
        assert_int_equal(ask_as(w, key, (struct fair_owner){i, FAIR_VERIFIED}), LOOKUP_PENDING);
    }
    assert_int_equal(ask_as(w, "greedy-399", greedy), LOOKUP_UNAVAILABLE);
    /* that was for who asked, and nothing that others who ask for the same have to do with */
    assert_int_equal(ask_as(w, "greedy-399", (struct fair_owner){1, FAIR_VERIFIED}), LOOKUP_PENDING);
}

/* Two at a time, of which the greedy one has one. What both ask for is asked once. */
static void what_another_owner_waits_for_is_not_behind_all_of_the_greedy_one(void **state)
{
    struct world *w = *state;
    struct directory_kind few = kind;
    struct fail why;
    few.look_ups_at_once = 2;
    directory_stop(w->directory);
    directory_release(w->directory);
    w->seen.stopped = 0;
    w->options.kind = &few;
    w->directory = directory_start(&w->options, owner_of(w), MINUTE, w->loop, NULL, &why);
    assert_non_null(w->directory);
    assert_int_equal(ask_many(w, 50), 50);
    loop_turn(w->loop, false);
    assert_int_equal(w->seen.asked, 1);
    for (unsigned i = 0; i < 2; i++) {
        assert_int_equal(ask_as(w, "greedy-49", (struct fair_owner){1, FAIR_VERIFIED}), LOOKUP_PENDING);
        loop_turn(w->loop, false);
        assert_int_equal(w->seen.asked, 2);
        assert_true(slice_is(w->seen.questions.last->key, "greedy-49"));
    }
    directory_stop(w->directory);
    directory_release(w->directory);
    w->seen.stopped = 0;
    w->options.kind = &kind;
    w->directory = directory_start(&w->options, owner_of(w), 200000, w->loop, NULL, &why);
}

static void one_that_cannot_start_leaves_nothing(void **state)
{
    struct world *w = *state;
    struct fail why;
    w->seen.refuses_to_start = true;
    assert_null(directory_start(&w->options, owner_of(w), 1, w->loop, NULL, &why));
    assert_string_equal(why.text, "no");
    w->seen.refuses_to_start = false;
    alloc_fail_at(1);
    assert_null(directory_start(&w->options, owner_of(w), 1, w->loop, NULL, &why));
    alloc_fail_at(2);
    assert_null(directory_start(&w->options, owner_of(w), 1, w->loop, NULL, &why));
    alloc_fail_at(0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(what_the_kind_says_is_what_decisions_find),
        TEST(what_is_pushed_of_others_is_not_learned),
        TEST(a_key_that_is_too_long_is_absent),
        TEST(its_health_decides_whether_anybody_waits),
        TEST(many_decisions_wake_a_sandbox_once),
        TEST(once_stopped_it_is_not_asked_any_more_and_may_still_be_read),
        TEST(what_is_in_use_is_looked_up_when_it_is_announced),
        TEST(questions_are_bounded),
        TEST(a_greedy_owner_is_refused_alone),
        TEST(what_another_owner_waits_for_is_not_behind_all_of_the_greedy_one),
        TEST(one_that_cannot_start_leaves_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
