/* SPDX-License-Identifier: MIT */
/* The library runs over a Unix socket: the agent on a thread of its own, and the test plays HAProxy. */
#include "tests/unit/support.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "spoa/spop/hello.h"
#include "spoa/spop/spop_agent.h"

#define ALLOCATIONS_MAX 200

static char folder[] = "/tmp/test_spop_agent.XXXXXX";
static char path[64], address[80];
static struct spop_agent *agent;
static pthread_t thread;
static bool running;
static uint8_t memory[128 * 1024];

/* ---- HAProxy's end ---- */
static int dial(void)
{
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    snprintf(to.sun_path, sizeof to.sun_path, "%s", path);
    assert_int_equal(connect(fd, (struct sockaddr *)&to, sizeof to), 0);
    return fd;
}

static void say(int fd, const struct writer *w)
{
    assert_false(w->full);
    assert_int_equal(send(fd, w->at, w->len, MSG_NOSIGNAL), w->len);
}

static void hear_all(int fd, uint8_t *at, size_t len)
{
    assert_int_equal(recv(fd, at, len, MSG_WAITALL), len);
}

static struct spop_frame hear(int fd)
{
    struct spop_frame frame;
    size_t size;
    hear_all(fd, memory, SPOP_LENGTH_BYTES);
    assert_int_equal(spop_frame_read(slice_of(memory, SPOP_LENGTH_BYTES), SPOP_FRAME_MAX, &frame, &size),
                     SPOP_STEP_MORE);
    hear_all(fd, memory + SPOP_LENGTH_BYTES, size - SPOP_LENGTH_BYTES);
    assert_int_equal(spop_frame_read(slice_of(memory, size), SPOP_FRAME_MAX, &frame, &size), SPOP_STEP_FRAME);
    return frame;
}

static int dial_and_greet(void)
{
    uint8_t bytes[SPOP_HELLO_MAX];
    struct writer w = writer_of(bytes, sizeof bytes);
    int fd = dial();
    spop_offer_write(&w, &(struct spop_offer){.frame_size = SPOP_FRAME_USUAL, .pipelining = true});
    say(fd, &w);
    assert_int_equal(hear(fd).type, SPOP_TYPE_AGENT_HELLO);
    return fd;
}

struct arg {
    const char *name;
    struct spop_value value;
};

static void ask(int fd, const char *message, const struct arg *args, size_t count)
{
    uint8_t bytes[SPOP_FRAME_USUAL];
    struct writer w = writer_of(bytes, sizeof bytes);
    size_t frame = spop_frame_begin(&w, SPOP_TYPE_NOTIFY, 7, 9);
    size_t at = spop_message_begin(&w, slice_text(message));
    for (size_t i = 0; i < count; i++)
        spop_arg_write(&w, at, slice_text(args[i].name), args[i].value);
    assert_true(spop_frame_end(&w, frame, SPOP_FRAME_USUAL));
    say(fd, &w);
}

/* Returns the actions of the ACK to ask(). */
static struct reader answer_of(int fd)
{
    struct spop_frame frame = hear(fd);
    assert_int_equal(frame.type, SPOP_TYPE_ACK);
    assert_int_equal(frame.stream_id, 7);
    assert_int_equal(frame.frame_id, 9);
    return reader_of(frame.payload);
}

static void assert_text(int fd, const char *name, const char *text)
{
    struct reader answer = answer_of(fd);
    struct spop_action action;
    assert_true(spop_action_next(&answer, &action));
    assert_int_equal(action.scope, SPOP_TRANSACTION);
    assert_true(slice_is(action.name, name));
    assert_true(slice_is(action.value.bytes, text));
    assert_true(reader_done(&answer));
}

/* ---- the agent ---- */
/* cmocka's assertions work on the test's own thread only, so the agent's thread records failures, and teardown reports them. */
static int wrong;

static void expect(bool right)
{
    wrong += !right;
}

static void *run(void *context)
{
    (void)context;
    expect(spop_agent_run(agent));
    return NULL;
}

static void start(void)
{
    assert_true(spop_agent_listen(agent, address, 0600));
    assert_int_equal(pthread_create(&thread, NULL, run, NULL), 0);
    running = true;
}

static void join(void)
{
    assert_int_equal(pthread_join(thread, NULL), 0);
    running = false;
}

static int setup(void **state)
{
    (void)state;
    snprintf(path, sizeof path, "%s/agent.sock", folder);
    snprintf(address, sizeof address, "unix@%s", path);
    wrong = 0;
    agent = spop_agent_new("list");
    return agent ? 0 : -1;
}

static int teardown(void **state)
{
    (void)state;
    alloc_fail_at(0);
    if (running) {
        spop_agent_stop(agent);
        join();
    }
    spop_agent_free(agent);
    agent = NULL;
    return wrong ? -1 : 0;
}

static void say_name(void *context, struct spop_agent_message *message, struct spop_agent_answer *answer)
{
    const struct spop_agent_bytes name = spop_agent_name(message);
    char text[64];
    snprintf(text, sizeof text, "%s %.*s", (const char *)context, (int)name.len, name.at);
    expect(spop_agent_set_text(answer, SPOP_AGENT_TXN, "who", text));
}

static void messages_go_to_the_handler_of_their_name(void **state)
{
    (void)state;
    assert_true(spop_agent_on(agent, "one", say_name, "none"));
    assert_true(spop_agent_on(agent, "two", say_name, "second"));
    assert_true(spop_agent_on(agent, "one", say_name, "first"));
    start();
    int fd = dial_and_greet();
    ask(fd, "one", NULL, 0);
    assert_text(fd, "who", "first one");
    ask(fd, "two", NULL, 0);
    assert_text(fd, "who", "second two");
    ask(fd, "three", NULL, 0);
    assert_text(fd, "error", "no_answer");
    close(fd);
}

static void a_handler_of_no_name_gets_the_others(void **state)
{
    (void)state;
    assert_true(spop_agent_on(agent, NULL, say_name, "none"));
    assert_true(spop_agent_on(agent, "one", say_name, "first"));
    assert_true(spop_agent_on(agent, NULL, say_name, "other"));
    start();
    int fd = dial_and_greet();
    ask(fd, "one", NULL, 0);
    assert_text(fd, "who", "first one");
    ask(fd, "", NULL, 0);
    assert_text(fd, "who", "other ");
    close(fd);
}

static void messages_of_one_frame_share_an_answer(void **state)
{
    (void)state;
    uint8_t bytes[256];
    struct writer w = writer_of(bytes, sizeof bytes);
    struct spop_action action;
    assert_true(spop_agent_on(agent, "one", say_name, "first"));
    assert_true(spop_agent_on(agent, "three", say_name, "third"));
    start();
    int fd = dial_and_greet();
    size_t frame = spop_frame_begin(&w, SPOP_TYPE_NOTIFY, 7, 9);
    spop_message_begin(&w, SLICE_LITERAL("one"));
    spop_message_begin(&w, SLICE_LITERAL("two"));
    spop_message_begin(&w, SLICE_LITERAL("three"));
    assert_true(spop_frame_end(&w, frame, sizeof bytes));
    say(fd, &w);
    struct reader answer = answer_of(fd);
    assert_true(spop_action_next(&answer, &action));
    assert_true(slice_is(action.value.bytes, "first one"));
    assert_true(spop_action_next(&answer, &action));
    assert_true(slice_is(action.value.bytes, "third three"));
    assert_true(reader_done(&answer));
    close(fd);
}

/* Sets a variable for each argument, with the argument's value. */
static void echo(void *context, struct spop_agent_message *message, struct spop_agent_answer *answer)
{
    (void)context;
    struct spop_agent_bytes name;
    struct spop_agent_value value, first;
    char text[64];
    expect(!spop_agent_arg(message, "no such", &value));
    while (spop_agent_next_arg(message, &name, &value)) {
        snprintf(text, sizeof text, "%.*s", (int)name.len, name.at);
        expect(spop_agent_arg(message, text, &first));
        expect(first.kind == value.kind);
        expect(spop_agent_set(answer, SPOP_AGENT_RES, text, &value));
    }
    expect(spop_agent_unset(answer, SPOP_AGENT_PROC, "gone"));
}

static void values_of_every_kind_go_both_ways(void **state)
{
    (void)state;
    const struct arg args[] = {
        {"n", spop_null()},
        {"t", spop_bool(true)},
        {"f", spop_bool(false)},
        {"i", {.kind = SPOP_INT32, .number = -3}},
        {"u", {.kind = SPOP_UINT32, .number = 4000000000}},
        {"l", spop_int(INT64_MIN)},
        {"m", {.kind = SPOP_UINT64, .number = -1}},
        {"v4", spop_address(slice_of("\x7f\0\0\1", 4))},
        {"v6", spop_address(slice_of("0123456789abcdef", 16))},
        {"s", spop_text(slice_of("a\0b", 3))},
        {"e", spop_text(SLICE_LITERAL(""))},
        {"b", spop_binary(slice_of("\0\xff", 2))},
    };
    const size_t count = sizeof args / sizeof *args;
    assert_true(spop_agent_on(agent, "echo", echo, NULL));
    start();
    int fd = dial_and_greet();
    ask(fd, "echo", args, count);
    struct reader answer = answer_of(fd);
    struct spop_action action;
    for (size_t i = 0; i < count; i++) {
        assert_true(spop_action_next(&answer, &action));
        assert_int_equal(action.scope, SPOP_RESPONSE);
        assert_true(slice_is(action.name, args[i].name));
        assert_int_equal(action.value.kind, args[i].value.kind);
        assert_int_equal(action.value.truth, args[i].value.truth);
        assert_int_equal(action.value.number, args[i].value.number);
        assert_true(slice_equal(action.value.bytes, args[i].value.bytes));
    }
    assert_true(spop_action_next(&answer, &action));
    assert_int_equal(action.type, SPOP_UNSET_VAR);
    assert_int_equal(action.scope, SPOP_PROCESS);
    assert_true(reader_done(&answer));
    close(fd);
}

static uint8_t filler[SPOP_FRAME_MAX];

/* The number in the first argument selects the mistake. */
static void set_wrong(void *context, struct spop_agent_message *message, struct spop_agent_answer *answer)
{
    (void)context;
    struct spop_agent_value value = {.kind = SPOP_AGENT_NULL}, which;
    expect(spop_agent_arg(message, "which", &which));
    expect(spop_agent_set_int(answer, SPOP_AGENT_TXN, "fine", 1));
    switch (which.number) {
    case 0:
        expect(!spop_agent_set_bool(answer, SPOP_AGENT_TXN, "no such name", true));
        break;
    case 1:
        expect(!spop_agent_set(answer, (enum spop_agent_scope)5, "v", &value));
        break;
    case 2:
        value.kind = (enum spop_agent_kind)10;
        expect(!spop_agent_set(answer, SPOP_AGENT_TXN, "v", &value));
        break;
    case 3:
        value.kind = SPOP_AGENT_IPV4;
        value.bytes = (struct spop_agent_bytes){"12345", 5};
        expect(!spop_agent_set(answer, SPOP_AGENT_TXN, "v", &value));
        break;
    case 4:
        value.kind = SPOP_AGENT_BINARY;
        value.bytes = (struct spop_agent_bytes){(const char *)filler, sizeof filler};
        expect(!spop_agent_set(answer, SPOP_AGENT_TXN, "v", &value));
        break;
    case 5:
        expect(!spop_agent_set_text(answer, SPOP_AGENT_TXN, NULL, "no name"));
        break;
    case 6: /* "txn.list." has 9 of the 63 */
        expect(!spop_agent_set_int(answer, SPOP_AGENT_TXN,
                                   "a234567890123456789012345678901234567890123456789012345", 1));
        break;
    case 7:
        expect(!spop_agent_unset(answer, (enum spop_agent_scope) - 1, "v"));
        break;
    default:
        break;
    }
}

static void an_answer_that_haproxy_could_not_take_is_the_fallback(void **state)
{
    (void)state;
    assert_true(spop_agent_on(agent, "wrong", set_wrong, NULL));
    assert_true(spop_agent_fallback(agent, "why", "none of it"));
    start();
    int fd = dial_and_greet();
    for (int which = 0; which < 8; which++) {
        ask(fd, "wrong", &(struct arg){"which", spop_int(which)}, 1);
        assert_text(fd, "why", "none of it");
    }
    close(fd);
}

/* ---- later ---- */
static struct {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct spop_agent_ticket ticket;
    int tickets, posts, voids;
} later = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

static void count(int *what)
{
    pthread_mutex_lock(&later.lock);
    ++*what;
    pthread_cond_signal(&later.changed);
    pthread_mutex_unlock(&later.lock);
}

static void await(const int *what, int wanted)
{
    pthread_mutex_lock(&later.lock);
    while (*what < wanted)
        pthread_cond_wait(&later.changed, &later.lock);
    pthread_mutex_unlock(&later.lock);
}

static void put_off(void *context, struct spop_agent_message *message, struct spop_agent_answer *answer)
{
    (void)context, (void)message;
    spop_agent_set_text(answer, SPOP_AGENT_TXN, "dropped", "yes");
    later.ticket = spop_agent_later(answer);
    count(&later.tickets);
}

static void answer_now(void *context)
{
    struct spop_agent_answer *answer = spop_agent_answer_begin(agent, &later.ticket);
    if (answer) {
        expect(!spop_agent_answer_begin(agent, &later.ticket)); /* one at a time */
        spop_agent_set_text(answer, SPOP_AGENT_TXN, "late", context);
        spop_agent_answer_end(answer);
    } else {
        later.voids++;
    }
    count(&later.posts);
}

static void begin_later(void)
{
    later.tickets = later.posts = later.voids = 0;
    assert_true(spop_agent_on(agent, "later", put_off, NULL));
    start();
}

static void another_thread_answers_by_ticket(void **state)
{
    (void)state;
    begin_later();
    int fd = dial_and_greet();
    ask(fd, "later", NULL, 0);
    await(&later.tickets, 1);
    assert_true(spop_agent_post(agent, answer_now, "now"));
    assert_text(fd, "late", "now");
    close(fd);
}

static void a_ticket_is_void_when_its_connection_is_gone(void **state)
{
    (void)state;
    begin_later();
    int fd = dial_and_greet();
    ask(fd, "later", NULL, 0);
    await(&later.tickets, 1);
    close(fd);
    const char *name, *help;
    uint64_t connections = 1;
    while (connections) { /* the first counter */
        assert_true(spop_agent_counter(agent, 0, &name, &help, &connections));
        assert_string_equal(name, "connections");
    }
    assert_true(spop_agent_post(agent, answer_now, "now"));
    await(&later.posts, 1);
    assert_int_equal(later.voids, 1);
}

static void a_call_posted_after_the_end_runs_when_the_agent_is_freed(void **state)
{
    (void)state;
    begin_later();
    int fd = dial_and_greet();
    ask(fd, "later", NULL, 0);
    await(&later.tickets, 1);
    spop_agent_stop(agent);
    assert_int_equal(poll(&(struct pollfd){.fd = fd, .events = POLLIN}, 1, 50),
                     0); /* five seconds by default */
    assert_true(spop_agent_post(agent, answer_now, "in time"));
    assert_text(fd, "late", "in time");
    join();
    assert_true(spop_agent_post(agent, answer_now, "too late"));
    assert_int_equal(later.posts, 1);
    spop_agent_free(agent);
    agent = NULL;
    assert_int_equal(later.posts, 2);
    assert_int_equal(later.voids, 1);
    close(fd);
}

/* ---- life cycle ---- */
static void on_signal(int signal)
{
    (void)signal;
    spop_agent_stop(agent);
}

static void a_signal_handler_stops_it_and_says_goodbye(void **state)
{
    (void)state;
    struct stat there;
    start();
    int fd = dial_and_greet();
    assert_int_equal(stat(path, &there), 0);
    assert_int_equal(there.st_mode & 0777, 0600);
    signal(SIGUSR1, on_signal);
    raise(SIGUSR1);
    struct spop_frame frame = hear(fd);
    uint64_t status;
    struct slice message;
    assert_int_equal(frame.type, SPOP_TYPE_AGENT_DISCONNECT);
    assert_true(spop_disconnect_read(frame.payload, &status, &message));
    assert_int_equal(status, SPOP_STATUS_NORMAL);
    close(fd);
    join();
    signal(SIGUSR1, SIG_DFL);
    assert_int_equal(stat(path, &there), -1);
    assert_false(spop_agent_run(agent));
    assert_string_equal(spop_agent_error(agent), "the agent has run already");
}

static void a_stop_before_it_runs_ends_it_at_once(void **state)
{
    (void)state;
    spop_agent_stop(agent);
    spop_agent_stop(agent);
    start();
    join();
}

static void every_failure_has_a_reason(void **state)
{
    (void)state;
    assert_false(spop_agent_run(agent));
    assert_string_equal(spop_agent_error(agent), "the agent listens nowhere");
    assert_false(spop_agent_listen(agent, "localhost:80", 0));
    assert_non_null(strstr(spop_agent_error(agent), "not an address"));
    assert_false(spop_agent_listen(agent, "unix@/no/such/folder/x", 0600));
    assert_non_null(strstr(spop_agent_error(agent), "/no/such/folder/x"));
    assert_false(spop_agent_listen(agent, address, 010777));
    assert_non_null(strstr(spop_agent_error(agent), "mode"));
    assert_false(spop_agent_fallback(agent, "no name", "x"));
    char text[130];
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    assert_false(spop_agent_fallback(agent, text, "x"));
    assert_false(spop_agent_fallback(agent, "x", text));
    text[128] = '\0';
    assert_true(spop_agent_fallback(agent, "x", text));
    assert_true(spop_agent_listen(agent, address, 0600));
    assert_false(spop_agent_listen(agent, address, 0600));
    assert_false(spop_agent_fallback(agent, "x", "y"));
    assert_false(spop_agent_limit(agent, SPOP_AGENT_CONNECTIONS, 1));
    assert_non_null(strstr(spop_agent_error(NULL), "memory"));
}

static void a_prefix_that_leaves_no_room_is_refused(void **state)
{
    (void)state;
    struct spop_agent *other = spop_agent_new("a23456789012345678901234567890123456789012345678901234567890");
    assert_non_null(other);
    assert_false(spop_agent_listen(other, address, 0600));
    assert_non_null(strstr(spop_agent_error(other), "63"));
    assert_int_equal(access(path, F_OK), -1);
    spop_agent_free(other);
}

static void limits_are_within_their_bounds(void **state)
{
    (void)state;
    const struct {
        enum spop_agent_limit limit;
        double value;
        bool good;
    } cases[] = {
        {SPOP_AGENT_CONNECTIONS, 0, false},       {SPOP_AGENT_CONNECTIONS, 1, true},
        {SPOP_AGENT_CONNECTIONS, 65535, true},    {SPOP_AGENT_CONNECTIONS, 65536, false},
        {SPOP_AGENT_OUTPUT_BYTES, 0, false},      {SPOP_AGENT_OUTPUT_BYTES, 1 << 30, true},
        {SPOP_AGENT_HELLO_SECONDS, 0, false},     {SPOP_AGENT_FRAME_SECONDS, -1, false},
        {SPOP_AGENT_WRITE_SECONDS, 86401, false}, {SPOP_AGENT_IDLE_SECONDS, 0, true},
        {SPOP_AGENT_GRACE_SECONDS, 0, true},      {SPOP_AGENT_GRACE_SECONDS, 0.0 / 0.0, false},
        {(enum spop_agent_limit)7, 1, false},     {(enum spop_agent_limit) - 1, 1, false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_int_equal(spop_agent_limit(agent, cases[i].limit, cases[i].value), cases[i].good);
}

static void a_limit_is_kept(void **state)
{
    (void)state;
    assert_true(spop_agent_limit(agent, SPOP_AGENT_HELLO_SECONDS, 0.05));
    start();
    int fd = dial();
    struct spop_frame frame = hear(fd); /* the client has sent no HELLO */
    uint64_t status;
    struct slice message;
    assert_true(spop_disconnect_read(frame.payload, &status, &message));
    assert_int_equal(status, SPOP_STATUS_TIMEOUT);
    close(fd);
}

static void agents_share_a_listener(void **state)
{
    (void)state;
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    snprintf(at.sun_path, sizeof at.sun_path, "%s", path);
    int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    assert_int_equal(bind(listener, (struct sockaddr *)&at, sizeof at), 0);
    assert_int_equal(listen(listener, 8), 0);
    struct spop_agent *other = spop_agent_new("list");
    assert_true(spop_agent_listen_on(other, listener));
    assert_true(spop_agent_on(agent, NULL, say_name, "shared"));
    assert_true(spop_agent_listen_on(agent, listener));
    spop_agent_free(other);
    assert_int_equal(pthread_create(&thread, NULL, run, NULL), 0);
    running = true;
    int fd = dial_and_greet();
    ask(fd, "m", NULL, 0);
    assert_text(fd, "who", "shared m");
    spop_agent_stop(agent);
    close(fd);
    join();
    assert_int_equal(access(path, F_OK), 0); /* the agent must not remove this file */
    unlink(path);
    close(listener);
}

static void counters_count(void **state)
{
    (void)state;
    const char *name, *help;
    uint64_t value;
    unsigned index = 0, acks = 0;
    for (; spop_agent_counter(agent, index, &name, &help, &value); index++)
        assert_int_equal(value, 0);
    assert_true(index > 10);
    start();
    int fd = dial_and_greet();
    ask(fd, "m", NULL, 0);
    assert_text(fd, "error", "no_answer");
    for (index = 0; spop_agent_counter(agent, index, &name, &help, &value); index++)
        acks += strcmp(name, "acks") == 0 && value == 1;
    assert_int_equal(acks, 1);
    close(fd);
}

static bool make(struct spop_agent **made)
{
    *made = spop_agent_new("list");
    return *made && spop_agent_on(*made, "one", say_name, "x") && spop_agent_on(*made, NULL, say_name, "y") &&
           spop_agent_listen(*made, address, 0600) && spop_agent_post(*made, answer_now, NULL);
}

static void no_memory_at_any_point_is_said(void **state)
{
    (void)state;
    bool made = false;
    later.ticket = (struct spop_agent_ticket){0, 0, 0};
    for (unsigned at = 1; at < ALLOCATIONS_MAX && !made; at++) {
        struct spop_agent *other;
        alloc_fail_at(at);
        made = make(&other);
        alloc_fail_at(0);
        if (!made)
            assert_true(strlen(spop_agent_error(other)) > 0 || other);
        spop_agent_free(other);
    }
    assert_true(made);
}

static int make_folder(void **state)
{
    (void)state;
    return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state)
{
    (void)state;
    return rmdir(folder);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(messages_go_to_the_handler_of_their_name),
        TEST(a_handler_of_no_name_gets_the_others),
        TEST(messages_of_one_frame_share_an_answer),
        TEST(values_of_every_kind_go_both_ways),
        TEST(an_answer_that_haproxy_could_not_take_is_the_fallback),
        TEST(another_thread_answers_by_ticket),
        TEST(a_ticket_is_void_when_its_connection_is_gone),
        TEST(a_call_posted_after_the_end_runs_when_the_agent_is_freed),
        TEST(a_signal_handler_stops_it_and_says_goodbye),
        TEST(a_stop_before_it_runs_ends_it_at_once),
        TEST(every_failure_has_a_reason),
        TEST(a_prefix_that_leaves_no_room_is_refused),
        TEST(limits_are_within_their_bounds),
        TEST(a_limit_is_kept),
        TEST(agents_share_a_listener),
        TEST(counters_count),
        TEST(no_memory_at_any_point_is_said),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
