/* SPDX-License-Identifier: MIT */
#include "tests/unit/support.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "spoa/net/loop.h"

static struct loop *loop;

static int start(void **state)
{
    (void)state;
    struct fail why;
    loop = loop_new(&why);
    return loop ? 0 : -1;
}

static int stop(void **state)
{
    (void)state;
    loop_free(loop);
    return 0;
}

struct counted {
    struct loop_task task;
    unsigned runs, again;
};

static void count(void *context)
{
    struct counted *c = context;
    c->runs++;
    if (c->again-- > 0)
        loop_defer(loop, &c->task);
    else
        c->again = 0;
}

static void deferred_tasks_run_at_the_end_of_the_turn_once(void **state)
{
    (void)state;
    struct counted c = {.task = {.run = count, .context = &c}};
    loop_defer(loop, &c.task);
    loop_defer(loop, &c.task);
    assert_int_equal(c.runs, 0);
    loop_turn(loop, false);
    assert_int_equal(c.runs, 1);
    loop_turn(loop, false);
    assert_int_equal(c.runs, 1);
}

static void a_task_that_defers_itself_does_not_hold_up_the_loop_nor_sleep(void **state)
{
    (void)state;
    struct counted c = {.task = {.run = count, .context = &c}, .again = 3};
    loop_defer(loop, &c.task);
    for (unsigned i = 0; i < 10 && c.runs < 4; i++)
        loop_turn(loop, true); /* would block for ever if nothing woke the loop */
    assert_int_equal(c.runs, 4);
}

static void free_task(void *context)
{
    free(context);
}

static void a_task_may_free_itself(void **state)
{
    (void)state;
    for (int i = 0; i < 3; i++) {
        struct loop_task *task = calloc(1, sizeof *task);
        *task = (struct loop_task){.run = free_task, .context = task};
        loop_defer(loop, task);
    }
    loop_turn(loop, false); /* Valgrind and AddressSanitizer check each access */
}

#define POSTS 20000u

struct posted {
    struct loop_task task;
    unsigned *next, number;
};

static void in_order(void *context)
{
    struct posted *p = context;
    assert_int_equal(*p->next, p->number);
    if (++*p->next == POSTS)
        loop_stop(loop);
}

static void *post_all(void *context)
{
    struct posted *posts = context;
    for (unsigned i = 0; i < POSTS; i++)
        loop_post(loop, &posts[i].task);
    return NULL;
}

static void tasks_of_another_thread_run_here_in_order(void **state)
{
    (void)state;
    struct posted *posts = calloc(POSTS, sizeof *posts);
    unsigned next = 0;
    pthread_t thread;
    for (unsigned i = 0; i < POSTS; i++)
        posts[i] = (struct posted){{.run = in_order, .context = &posts[i]}, &next, i};
    assert_int_equal(pthread_create(&thread, NULL, post_all, posts), 0);
    loop_run(loop);
    pthread_join(thread, NULL);
    assert_int_equal(next, POSTS);
    free(posts);
}

static void *post_again_and_again(void *context)
{
    for (unsigned i = 0; i < POSTS; i++)
        loop_post(loop, context);
    return NULL;
}

static void only_count(void *context)
{
    (*(unsigned *)context)++;
}

static void a_task_may_be_posted_again_while_it_runs(void **state)
{
    (void)state;
    unsigned runs = 0;
    struct loop_task task = {.run = only_count, .context = &runs};
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, post_again_and_again, &task), 0);
    for (unsigned i = 0; i < 1000; i++)
        loop_turn(loop, false);
    pthread_join(thread, NULL);
    loop_turn(loop, false);
    assert_in_range(runs, 1, POSTS);
}

/* A task in both queues at once would never leave them, and run in every turn. */
static void a_task_may_be_deferred_and_posted_at_once(void **state)
{
    (void)state;
    unsigned runs = 0;
    struct loop_task task = {.run = only_count, .context = &runs};
    for (unsigned round = 0; round < 100; round++) {
        pthread_t thread;
        assert_int_equal(pthread_create(&thread, NULL, post_again_and_again, &task), 0);
        for (unsigned i = 0; i < 1000; i++) {
            loop_defer(loop, &task);
            loop_turn(loop, false);
        }
        pthread_join(thread, NULL);
        loop_turn(loop, false);
        loop_turn(loop, false);
        runs = 0;
        loop_turn(loop, false);
        assert_int_equal(runs, 0);
    }
}

static void tasks_left_at_the_end_are_run_by_loop_free(void **state)
{
    (void)state;
    struct fail why;
    struct loop *own = loop_new(&why);
    unsigned runs = 0;
    struct loop_task a = {.run = only_count, .context = &runs}, b = a;
    loop_defer(own, &a);
    loop_post(own, &b);
    loop_free(own);
    assert_int_equal(runs, 2);
    loop_free(NULL);
}

/* ---- descriptors ---- */
struct ends {
    struct loop_io io[2];
    int fds[2];
    unsigned ready;
    int events;
};

static void close_both(void *owner, int events)
{
    struct ends *e = owner;
    e->ready++;
    e->events = events;
    loop_io_close(&e->io[0]);
    loop_io_close(&e->io[1]);
}

static void a_closed_descriptor_gets_no_event_that_was_already_seen(void **state)
{
    (void)state;
    struct ends e = {.ready = 0};
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, e.fds), 0);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(write(e.fds[i], "x", 1), 1);
        loop_io_open(&e.io[i], loop, e.fds[i], close_both, &e);
    }
    for (int i = 0; i < 2; i++)
        loop_io_want(&e.io[i], LOOP_READ);
    loop_turn(loop, false);
    assert_int_equal(e.ready, 1); /* both were readable in that turn, and the first closed the second */
    assert_int_equal(e.events, LOOP_READ);
    assert_int_equal(loop_io_fd(&e.io[0]), -1);
    loop_io_want(&e.io[0], LOOP_READ | LOOP_WRITE); /* has no effect on a closed loop_io */
    loop_io_close(&e.io[0]);
    loop_turn(loop, false);
    assert_int_equal(e.ready, 1);
}

static void note(void *owner, int events)
{
    *(int *)owner |= events;
}

static void only_what_is_wanted_is_told(void **state)
{
    (void)state;
    int fds[2], seen = 0;
    struct loop_io io;
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
    assert_int_equal(write(fds[1], "x", 1), 1);
    loop_io_open(&io, loop, fds[0], note, &seen);
    loop_turn(loop, false);
    assert_int_equal(seen, 0);
    loop_io_want(&io, LOOP_WRITE);
    loop_turn(loop, false);
    assert_int_equal(seen, LOOP_WRITE);
    seen = 0;
    loop_io_want(&io, LOOP_READ | LOOP_WRITE);
    loop_turn(loop, false);
    assert_int_equal(seen, LOOP_READ | LOOP_WRITE);
    seen = 0;
    loop_io_want(&io, 0);
    loop_turn(loop, false);
    assert_int_equal(seen, 0);
    loop_io_close(&io);
    close(fds[1]);
}

/* ---- many ready descriptors at once ---- */
enum { MANY = 200 };

/* Each end notes that it was announced, and that it was handled. */
struct many {
    struct end {
        struct loop_io io;
        struct many *all;
        unsigned soon, ready;
    } ends[MANY];
    unsigned announced; /* ends that are announced and not handled */
    unsigned most;      /* the largest number of these at any time */
    void (*act)(struct end *e);
};

static struct many *many;

static void announce(const struct loop_io *io)
{
    struct end *e = loop_io_owner(io);
    e->soon++;
    assert_int_equal(e->ready, 0);
    if (++many->announced > many->most)
        many->most = many->announced;
}

static void handle(void *owner, int events)
{
    struct end *e = owner;
    assert_int_equal(events, LOOP_WRITE);
    many->announced -= e->soon;
    e->ready++;
    loop_io_want(&e->io, 0);
    if (many->act)
        many->act(e);
}

/* Opens `count` ends, all of which are writable. */
static void many_open(unsigned count, void (*act)(struct end *e))
{
    many = calloc(1, sizeof *many);
    many->act = act;
    loop_set_soon(loop, announce);
    for (unsigned i = 0; i < count; i++) {
        int fds[2];
        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
        close(fds[1]);
        loop_io_open(&many->ends[i].io, loop, fds[0], handle, &many->ends[i]);
        loop_io_want(&many->ends[i].io, LOOP_WRITE);
    }
}

static unsigned many_handled(void)
{
    unsigned sum = 0;
    for (unsigned i = 0; i < MANY; i++)
        sum += many->ends[i].ready;
    return sum;
}

static void many_close(void)
{
    for (unsigned i = 0; i < MANY; i++)
        loop_io_close(&many->ends[i].io);
    loop_set_soon(loop, NULL);
    free(many);
}

static void each_of_many_is_handled_once_and_announced_before(void **state)
{
    (void)state;
    unsigned soon = 0;
    many_open(MANY, NULL);
    for (unsigned turns = 0; turns < 10 && many_handled() < MANY; turns++)
        loop_turn(loop, false);
    for (unsigned i = 0; i < MANY; i++) {
        assert_int_equal(many->ends[i].ready, 1);
        soon += many->ends[i].soon;
    }
    assert_in_range(soon, MANY - 20, MANY - 1); /* all but the first of each turn, and one in 64 */
    assert_int_equal(many->announced, 0);
    assert_in_range(many->most, 32, 63);
    many_close();
}

static void a_single_ready_descriptor_is_not_announced(void **state)
{
    (void)state;
    many_open(1, NULL);
    loop_turn(loop, false);
    assert_int_equal(many_handled(), 1);
    assert_int_equal(many->ends[0].soon, 0);
    many_close();
}

static void want_nothing_of_others(struct end *e)
{
    for (unsigned i = 0; i < MANY; i++)
        if (&many->ends[i] != e)
            loop_io_want(&many->ends[i].io, LOOP_READ);
}

static void a_change_of_the_wanted_events_drops_events_already_seen(void **state)
{
    (void)state;
    many_open(10, want_nothing_of_others);
    loop_turn(loop, false);
    assert_int_equal(many_handled(), 1);
    many_close();
}

static void close_others_and_open_them_again(struct end *e)
{
    for (unsigned i = 0; i < 10; i++) {
        struct end *other = &many->ends[i];
        if (other == e)
            continue;
        int fd = loop_io_release(&other->io);
        memset(&other->io, 0xff, sizeof other->io); /* its memory may have another use in between */
        loop_io_open(&other->io, loop, fd, handle, other);
    }
}

static void a_reopened_descriptor_gets_no_earlier_event(void **state)
{
    (void)state;
    many_open(10, close_others_and_open_them_again);
    loop_turn(loop, false);
    assert_int_equal(many_handled(), 1);
    many_close();
}

static void run_a_turn(struct end *e)
{
    (void)e;
    many->act = NULL;
    loop_turn(loop, false);
}

static void a_turn_within_a_turn_handles_what_is_left(void **state)
{
    (void)state;
    many_open(10, run_a_turn);
    loop_turn(loop, false);
    assert_int_equal(many_handled(), 10);
    many_close();
}

static void stop_loop(void *owner)
{
    (void)owner;
    loop_stop(loop);
}

/* ---- descriptors that the kernel does not watch for a while ---- */
static bool full; /* epoll accepts no further descriptor; the test replaces the function that libev calls */
static unsigned refusals;

int epoll_ctl(int set, int what, int fd, struct epoll_event *event)
{
    if (full && what == EPOLL_CTL_ADD) {
        refusals++;
        errno = ENOSPC; /* of fs.epoll.max_user_watches */
        return -1;
    }
    return (int)syscall(SYS_epoll_ctl, set, what, fd, event);
}

/* A readable descriptor whose watch was refused. */
struct refused {
    struct loop_io io;
    int fds[2];
    unsigned ready;
};

static void count_ready(void *owner, int events)
{
    struct refused *r = owner;
    r->ready++;
    assert_int_equal(events, LOOP_READ);
    loop_io_want(&r->io, 0);
}

static struct refused *refused_new(void)
{
    struct refused *r = calloc(1, sizeof *r);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, r->fds), 0);
    assert_int_equal(write(r->fds[1], "x", 1), 1);
    loop_io_open(&r->io, loop, r->fds[0], count_ready, r);
    full = true;
    refusals = 0;
    loop_io_want(&r->io, LOOP_READ);
    loop_turn(loop, false);
    assert_true(refusals > 0);
    assert_int_equal(r->ready, 0);
    return r;
}

static void refused_free(struct refused *r)
{
    loop_io_close(&r->io);
    close(r->fds[1]);
    free(r);
}

/* Returns true if the descriptor is reported as readable within some time. */
static bool comes(struct refused *r)
{
    struct loop_timer patience;
    loop_timer_open(&patience, loop, stop_loop, NULL);
    loop_timer_set(&patience, 10 * SECOND);
    while (!r->ready && loop_timer_active(&patience))
        loop_turn(loop, true);
    loop_timer_close(&patience);
    return r->ready == 1;
}

static void a_refused_watch_is_retried_until_the_kernel_accepts_it(void **state)
{
    (void)state;
    struct refused *r = refused_new(), *other = refused_new();
    while (refusals < 10)
        loop_turn(loop, true);
    assert_int_equal(r->ready + other->ready, 0);
    full = false;
    assert_true(comes(r));
    assert_true(comes(other));
    refused_free(r);
    refused_free(other);
}

static void want_no_more(void *owner)
{
    loop_io_want(&((struct refused *)owner)->io, 0);
}

static void a_refused_watch_that_is_not_wanted_any_more_is_not_retried(void **state)
{
    (void)state;
    struct refused *r = refused_new(), *closed = refused_new(), *last = refused_new();
    struct loop_timer timer;
    loop_timer_open(&timer, loop, want_no_more, r);
    loop_timer_set(&timer, 0);
    loop_turn(loop, false); /* the watch is refused once more, and is stopped before the loop reports it */
    loop_timer_close(&timer);
    refused_free(closed);
    full = false;
    assert_true(comes(last)); /* all watches are tried again together */
    assert_int_equal(r->ready, 0);
    loop_io_want(&r->io, LOOP_READ);
    assert_true(comes(r));
    refused_free(r);
    refused_free(last);
}

static void a_refused_watch_can_be_dropped_and_wanted_again(void **state)
{
    (void)state;
    struct refused *r = refused_new();
    for (int i = 0; i < 3; i++) {
        loop_io_want(&r->io, 0);
        loop_io_want(&r->io, LOOP_READ);
        loop_turn(loop, false);
    }
    assert_int_equal(refusals, 4);
    full = false;
    assert_true(comes(r));
    refused_free(r);
}

/* ---- times ---- */
static void a_timer_fires_once_and_not_too_early(void **state)
{
    (void)state;
    struct loop_timer timer;
    loop_timer_open(&timer, loop, stop_loop, NULL);
    usleep(30000); /* makes libev's time old */
    uint64_t from = loop_clock();
    loop_timer_set(&timer, 5 * SECOND);
    loop_timer_set(&timer, 20 * MILLISECOND);
    assert_true(loop_timer_active(&timer));
    loop_run(loop);
    assert_in_range(loop_clock() - from, 19000, 2000000);
    assert_false(loop_timer_active(&timer));
    from = loop_clock();
    loop_timer_set_at(&timer, from + 20 * MILLISECOND);
    loop_run(loop);
    assert_in_range(loop_clock() - from, 19000, 2000000);
    loop_timer_set_at(&timer, from); /* is over */
    loop_run(loop);
    assert_false(loop_timer_active(&timer));
    loop_timer_close(&timer);
    loop_timer_set(&timer, 0); /* closed: nothing */
    assert_false(loop_timer_active(&timer));
}

static void the_environment_does_not_choose_the_back_end(void **state)
{
    (void)state;
    struct fail why;
    setenv("LIBEV_FLAGS", "2", 1); /* poll */
    struct loop *own = loop_new(&why);
    unsetenv("LIBEV_FLAGS");
    assert_non_null(own);
    loop_free(own);
    alloc_fail_at(1);
    assert_null(loop_new(&why));
    alloc_fail_at(0);
    assert_non_null(strstr(why.text, "epoll"));
}

/* ---- shares ---- */
struct burner {
    struct loop_io io;
    uint64_t work; /* time of each event, in µs */
    unsigned events;
    uint64_t last, longest; /* time of the last event; longest time between two events */
};

static void burn(void *owner, int events)
{
    struct burner *b = owner;
    uint64_t now = loop_clock();
    (void)events;
    if (b->events++ && now - b->last > b->longest)
        b->longest = now - b->last;
    b->last = now;
    while (loop_clock() < now + b->work)
        ;
}

/* Opens a descriptor that is always writable, and so always ready. */
static void burner_open(struct burner *b, struct loop_share *share, uint64_t work)
{
    int fds[2];
    *b = (struct burner){.work = work};
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
    close(fds[1]);
    loop_io_open(&b->io, loop, fds[0], burn, b);
    loop_io_join(&b->io, share);
    loop_io_want(&b->io, LOOP_WRITE);
}

static void stop_running(void *owner)
{
    (void)owner;
    loop_stop(loop);
}

static void run_for(uint64_t time)
{
    struct loop_timer timer;
    loop_timer_open(&timer, loop, stop_running, NULL);
    loop_timer_set(&timer, time);
    loop_run(loop);
    loop_timer_close(&timer);
}

/* Shares are measured by the clock: other load of the machine slows both owners. */
static void an_owner_of_many_gets_little_more_time_than_an_owner_of_one(void **state)
{
    (void)state;
    enum { COUNT = 64 };
    static struct burner greedy[COUNT], other;
    struct loop_share shares[2];
    unsigned events = 0, most = 0, least = UINT32_MAX;
    loop_share_open(&shares[0], loop);
    loop_share_open(&shares[1], loop);
    for (unsigned i = 0; i < COUNT; i++)
        burner_open(&greedy[i], &shares[0], 200);
    burner_open(&other, &shares[1], 200);
    run_for(300 * MILLISECOND);
    for (unsigned i = 0; i < COUNT; i++) {
        events += greedy[i].events;
        most = greedy[i].events > most ? greedy[i].events : most;
        least = greedy[i].events < least ? greedy[i].events : least;
        loop_io_close(&greedy[i].io);
    }
    loop_io_close(&other.io);
    loop_share_close(&shares[0]);
    loop_share_close(&shares[1]);
    assert_in_range(other.events, events / 4, events * 2);
    /* And of the owner of many nobody is left out. It is no more than that: of two that a turn has handled, the one that was a round
     * ahead may be told of first by the next look, and gain another. */
    assert_true(least >= most / 2);
}

static void a_share_that_used_too_much_is_served_later(void **state)
{
    (void)state;
    static struct burner slow, quick;
    struct loop_share shares[2];
    loop_share_open(&shares[0], loop);
    loop_share_open(&shares[1], loop);
    burner_open(&slow, &shares[0], 2000);
    burner_open(&quick, &shares[1], 20);
    run_for(200 * MILLISECOND);
    loop_io_close(&slow.io);
    loop_io_close(&quick.io);
    loop_share_close(&shares[0]);
    loop_share_close(&shares[1]);
    assert_true(quick.events > 5 * slow.events); /* about a hundred times as many on an idle machine */
}

static void shares_of_a_group_are_one_to_others(void **state)
{
    (void)state;
    enum { COUNT = 64 };
    static struct burner in[COUNT], other;
    struct loop_share group, own, shares[COUNT];
    unsigned events = 0, least = UINT32_MAX;
    loop_share_open(&group, loop);
    loop_share_open(&own, loop);
    for (unsigned i = 0; i < COUNT; i++) {
        loop_share_open_in(&shares[i], &group);
        burner_open(&in[i], &shares[i], 200);
    }
    burner_open(&other, &own, 200);
    run_for(300 * MILLISECOND);
    for (unsigned i = 0; i < COUNT; i++) {
        events += in[i].events;
        least = in[i].events < least ? in[i].events : least;
        loop_io_close(&in[i].io);
        loop_share_close(&shares[i]);
    }
    loop_io_close(&other.io);
    loop_share_close(&own);
    loop_share_close(&group);
    assert_in_range(other.events, events / 4, events * 2);
    assert_true(least > 0); /* a share that the machine has interrupted may have very few */
}

static void a_group_is_served_while_its_shares_come_and_go(void **state)
{
    (void)state;
    static struct burner in[2];
    struct loop_share group, elsewhere, shares[2];
    loop_share_open(&group, loop);
    loop_share_open(&elsewhere, loop);
    for (unsigned i = 0; i < 2; i++) {
        loop_share_open_in(&shares[i], &group);
        burner_open(&in[i], &shares[i], 0);
    }
    run_for(5 * MILLISECOND);
    assert_true(in[0].events > 1 && in[1].events > 1);
    loop_io_close(&in[0].io);
    loop_share_close(&shares[0]);
    run_for(5 * MILLISECOND);
    loop_io_join(&in[1].io, &elsewhere); /* the last share of the group becomes empty */
    loop_share_close(&shares[1]);
    unsigned before = in[1].events;
    run_for(5 * MILLISECOND);
    assert_true(in[1].events > before);
    loop_io_close(&in[1].io);
    loop_share_close(&elsewhere);
    loop_share_close(&group);
}

static void loop_io_again_calls_back_in_another_turn(void **state)
{
    (void)state;
    struct burner b = {0};
    struct loop_share share;
    loop_share_open(&share, loop);
    int fds[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
    loop_io_open(&b.io, loop, fds[0], burn, &b);
    loop_io_join(&b.io, &share);
    loop_io_again(&b.io, LOOP_READ); /* no event is wanted */
    loop_turn(loop, false);
    assert_int_equal(b.events, 0);
    loop_io_want(&b.io, LOOP_READ);
    loop_io_again(&b.io, LOOP_READ);
    loop_io_again(&b.io, LOOP_READ);
    assert_int_equal(b.events, 0);
    loop_turn(loop, true); /* does not sleep */
    assert_int_equal(b.events, 1);
    loop_turn(loop, false);
    assert_int_equal(b.events, 1);
    loop_io_again(&b.io, LOOP_READ);
    loop_io_close(&b.io);
    loop_turn(loop, false);
    assert_int_equal(b.events, 1);
    loop_share_close(&share);
    close(fds[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(deferred_tasks_run_at_the_end_of_the_turn_once),
        cmocka_unit_test(a_task_that_defers_itself_does_not_hold_up_the_loop_nor_sleep),
        cmocka_unit_test(a_task_may_free_itself),
        cmocka_unit_test(tasks_of_another_thread_run_here_in_order),
        cmocka_unit_test(a_task_may_be_posted_again_while_it_runs),
        cmocka_unit_test(a_task_may_be_deferred_and_posted_at_once),
        cmocka_unit_test(tasks_left_at_the_end_are_run_by_loop_free),
        cmocka_unit_test(a_closed_descriptor_gets_no_event_that_was_already_seen),
        cmocka_unit_test(only_what_is_wanted_is_told),
        cmocka_unit_test(each_of_many_is_handled_once_and_announced_before),
        cmocka_unit_test(a_single_ready_descriptor_is_not_announced),
        cmocka_unit_test(a_change_of_the_wanted_events_drops_events_already_seen),
        cmocka_unit_test(a_reopened_descriptor_gets_no_earlier_event),
        cmocka_unit_test(a_turn_within_a_turn_handles_what_is_left),
        cmocka_unit_test(a_refused_watch_is_retried_until_the_kernel_accepts_it),
        cmocka_unit_test(a_refused_watch_that_is_not_wanted_any_more_is_not_retried),
        cmocka_unit_test(a_refused_watch_can_be_dropped_and_wanted_again),
        cmocka_unit_test(a_timer_fires_once_and_not_too_early),
        cmocka_unit_test(the_environment_does_not_choose_the_back_end),
        cmocka_unit_test(an_owner_of_many_gets_little_more_time_than_an_owner_of_one),
        cmocka_unit_test(a_share_that_used_too_much_is_served_later),
        cmocka_unit_test(shares_of_a_group_are_one_to_others),
        cmocka_unit_test(a_group_is_served_while_its_shares_come_and_go),
        cmocka_unit_test(loop_io_again_calls_back_in_another_turn),
    };
    return cmocka_run_group_tests(tests, start, stop);
}
