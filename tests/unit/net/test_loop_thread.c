/* SPDX-License-Identifier: MIT */
#include "tests/unit/support.h"

#include <pthread.h>

#include "spoa/net/loop_thread.h"

struct seen {
    struct loop_thread *thread;
    struct loop_task task;
    pthread_t runner;
    unsigned posted, called;
};

static void on_task(void *context)
{
    ((struct seen *)context)->posted++;
}

static void on_call(void *context)
{
    struct seen *s = context;
    s->runner = pthread_self();
    s->called++;
}

static void a_call_has_run_on_the_thread_when_it_returns(void **state)
{
    struct seen s = {.called = 0};
    struct fail why;
    (void)state;
    s.thread = loop_thread_start(&why);
    assert_non_null(s.thread);
    s.task = (struct loop_task){.run = on_task, .context = &s};
    for (unsigned i = 1; i <= 1000; i++) {
        loop_post(loop_thread_loop(s.thread), &s.task);
        loop_thread_call(s.thread, on_call, &s);
        assert_int_equal(s.called, i);
        assert_int_equal(s.posted, i); /* in order */
    }
    assert_false(pthread_equal(s.runner, pthread_self()));
    loop_thread_stop(s.thread);
}

static void the_last_posted_task_runs(void **state)
{
    struct seen s = {.called = 0};
    struct fail why;
    (void)state;
    s.thread = loop_thread_start(&why);
    assert_non_null(s.thread);
    s.task = (struct loop_task){.run = on_task, .context = &s};
    loop_post(loop_thread_loop(s.thread), &s.task);
    loop_thread_stop(s.thread);
    assert_int_equal(s.posted, 1);
    loop_thread_stop(NULL);
}

static void without_memory_there_is_none(void **state)
{
    struct fail why = {""};
    (void)state;
    alloc_fail_at(1);
    struct loop_thread *none = loop_thread_start(&why);
    alloc_fail_at(0);
    assert_null(none);
    assert_true(why.text[0]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_call_has_run_on_the_thread_when_it_returns),
        cmocka_unit_test(the_last_posted_task_runs),
        cmocka_unit_test(without_memory_there_is_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
