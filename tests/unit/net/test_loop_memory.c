/* SPDX-License-Identifier: MIT */
#include "tests/unit/support.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "spoa/net/loop.h"
#include "spoa/net/loop_memory.h"
#include "spoa/net/net.h"

#define MANY 700

static void nothing(void *owner)
{
    (void)owner;
}

static void no_event(void *owner, int events)
{
    (void)owner, (void)events;
}

/* libev's default allocator would end the process at the first failure. */
static void a_loop_grows_without_memory_and_nobody_new_is_let_in(void **state)
{
    static struct loop_timer timers[MANY];
    static struct loop_io ios[MANY];
    struct fail why;
    int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0);
    (void)state;
    struct loop *loop = loop_new(&why);
    assert_non_null(loop);
    assert_true(loop_memory_whole());
    for (int i = 0; i < MANY; i++)
        loop_io_open(&ios[i], loop, dup(listener), no_event, NULL);

    alloc_fail_at(1);
    int more = 8; /* descriptors of connections that are open when no new one is accepted */
    for (int i = 0; i < MANY && (loop_memory_whole() || more--); i++) {
        loop_timer_open(&timers[i], loop, nothing, NULL);
        loop_timer_set(&timers[i], 100 * SECOND);
        loop_io_want(&ios[i], LOOP_READ);
    }
    loop_turn(loop, false);
    assert_int_equal(more, -1);
    assert_true(net_accept(listener) < 0 && errno == ENOMEM);
    alloc_fail_at(0);

    assert_true(net_accept(listener) < 0 && errno != ENOMEM);
    assert_true(loop_memory_whole());
    for (int i = 0; i < MANY; i++) {
        if (timers[i].loop)
            loop_timer_close(&timers[i]);
        loop_io_close(&ios[i]);
    }
    loop_free(loop);
    close(listener);
}

static void without_memory_for_it_no_loop_begins(void **state)
{
    struct fail why;
    (void)state;
    alloc_fail_at(1);
    struct loop *loop = loop_new(&why);
    alloc_fail_at(0);
    assert_null(loop);
    loop = loop_new(&why);
    assert_non_null(loop);
    loop_free(loop);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_memory_for_it_no_loop_begins),
        cmocka_unit_test(a_loop_grows_without_memory_and_nobody_new_is_let_in),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
