/* SPDX-License-Identifier: MIT */
#include "tests/unit/support.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include "spoa/agent/decision_thread/decision_thread.h"
#include "spoa/agent/token/ticket.h"
#include "spoa/net/loop_thread.h"
#include "spoa/spop/client.h"

static struct policy *make_policy(const char *network)
{
    char config[300];
    snprintf(config, sizeof config,
             "{\"open\": true, \"tokens\": [], \"systems\": [\"opencomputer\", \"opensandbox\"], "
             "\"worker_networks\": [\"%s\"], \"directory\": {\"kind\": \"file\", \"path\": \"/nowhere\"}}",
             network);
    char path[] = "/tmp/cellgate-test-XXXXXX";
    struct fail why = {""};
    int file = mkstemp(path);
    assert_int_equal(write(file, config, strlen(config)), strlen(config));
    close(file);
    struct policy *policy = policy_load(path, NULL, 0, &why);
    unlink(path);
    if (!policy)
        fail_msg("%s", why.text);
    return policy;
}

static struct key *ticket_key;
static struct pending_quota subscriptions;

static int make_key(void **state)
{
    struct fail why;
    (void)state;
    ticket_key = key_secret(SLICE_LITERAL("0123456789abcdef0123456789abcdef"), TICKET_SECRET, "test", &why);
    return ticket_key ? 0 : -1;
}

static int free_key(void **state)
{
    (void)state;
    key_free(ticket_key);
    return 0;
}

static struct decision_thread *start(int listener, int relay_listener, const struct snapshot_parts *parts,
                                     struct snapshot **snapshot)
{
    const struct decision_thread_options options = {.waiter = 4,
                                                    .listener = listener,
                                                    .relay_listener = relay_listener,
                                                    .token_cache = 4,
                                                    .lookup = 200 * MILLISECOND,
                                                    .ticket_key = ticket_key,
                                                    .subscriptions = &subscriptions};
    subscriptions.most = 1000;
    struct fail why;
    *snapshot = snapshot_new(parts);
    struct decision_thread *thread = decision_thread_start(&options, *snapshot, &why);
    if (!thread)
        fail_msg("%s", why.text);
    return thread;
}

/* At the end of the agent others still notify a decision thread whose thread is gone: what they post is run, if at
 * all, when its memory is. A sanitizer sees what is used too late. */
static void what_comes_when_its_thread_is_gone_is_let_be(void **state)
{
    int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct policy *policy = make_policy("127.0.0.0/8");
    struct snapshot *snapshot;
    struct decision_thread *thread =
        start(listener, listener, &(struct snapshot_parts){.policy = policy}, &snapshot);
    decision_thread_stop(thread);
    decision_thread_hand_over(thread, snapshot);
    decision_thread_take(thread);
    decision_thread_notify(thread, SLICE_LITERAL("sb-1"));
    decision_thread_free(thread);
    snapshot_release(snapshot);
    policy_release(policy);
    close(listener);
    (void)state;
}

/* ---- a directory whose record changes at each look-up, before that has returned ---- */

struct world {
    struct directory *directory;
    struct decision_thread *thread;
    _Atomic int64_t epoch;
    bool steady; /* the epoch is the same at each look-up */
    int silent;  /* 0: it answers; else it says here that it was asked, and no more */
    struct directory_questions questions; /* that are not answered */
};

struct own {
    struct directory_common common;
    struct world *world;
};

static void *kind_start(const void *options, struct directory *directory, struct loop *loop, struct log *log,
                        struct fail *why)
{
    (void)directory, (void)loop, (void)log, (void)why;
    return ((const struct own *)options)->world;
}

static void kind_ask(void *self, struct directory_question *q)
{
    struct world *w = self;
    assert_true(slice_is(q->key, "sb-1"));
    if (w->silent) {
        directory_questions_put(&w->questions, q);
        assert_int_equal(write(w->silent, "", 1), 1);
        return;
    }
    const int64_t step = !w->steady;
    const struct record record = {.epoch = atomic_fetch_add(&w->epoch, step) + step,
                                  .worker = {.kind = WORKER_HTTP,
                                             .host = SLICE_LITERAL("127.0.0.1"),
                                             .port = 9001,
                                             .addr = {.family = 4, .bytes = {127, 0, 0, 1}}}};
    directory_answer(q, LOOKUP_FOUND, &record, 1);
}

static void kind_stop(void *self)
{
    struct world *w = self;
    for (struct directory_question *q; (q = directory_questions_take(&w->questions));)
        directory_answer(q, LOOKUP_UNAVAILABLE, NULL, 0);
}

static void on_learned(void *context, const struct record *record)
{
    (void)context, (void)record;
}

static void on_answered(void *context, enum lookup outcome, uint64_t took)
{
    (void)context, (void)outcome, (void)took;
}

static void on_notified(void *context, struct slice key, uint64_t waiters)
{
    assert_int_equal(waiters, 4);
    decision_thread_notify(((struct world *)context)->thread, key);
}

/* ---- a relay ---- */

struct relay {
    int fd;
    struct spop_client *client;
    uint8_t bytes[4096];
    size_t len, taken; /* of them, what the last event was in */
};

static void send_all(int fd, const struct writer *w)
{
    assert_int_equal(send(fd, w->at, w->len, MSG_NOSIGNAL), w->len);
}

/* Within the time that the socket has; what it is. */
static enum spop_client_step next(struct relay *r, struct spop_client_event *event)
{
    for (;;) {
        uint8_t memory[SPOP_HELLO_MAX];
        struct writer out = writer_of(memory, sizeof memory);
        memmove(r->bytes, r->bytes + r->taken, r->len -= r->taken);
        struct slice in = slice_of(r->bytes, r->len);
        enum spop_client_step step = spop_client_next(r->client, &in, event, &out);
        r->taken = r->len - in.len;
        if (step != SPOP_CLIENT_MORE)
            return step;
        ssize_t got = recv(r->fd, r->bytes + r->len, sizeof r->bytes - r->len, 0);
        assert_true(got > 0);
        r->len += (size_t)got;
    }
}

static void connect_relay(struct relay *r, const struct sockaddr_un *address)
{
    const struct timeval patience = {.tv_sec = 5};
    const struct spop_offer offer = {16380, SLICE_LITERAL("test"), false, true};
    uint8_t memory[SPOP_HELLO_MAX];
    struct writer out = writer_of(memory, sizeof memory);
    struct spop_client_event event;
    *r = (struct relay){.fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0), .client = spop_client_new(4)};
    setsockopt(r->fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    assert_int_equal(connect(r->fd, (const struct sockaddr *)address, sizeof *address), 0);
    spop_client_hello(r->client, &offer, &out);
    send_all(r->fd, &out);
    assert_int_equal(next(r, &event), SPOP_CLIENT_READY);
}

struct argument {
    const char *name;
    struct spop_value value;
};

/* The stream-id of the question. */
static uint64_t put(struct relay *r, const char *message, const struct argument *arguments, size_t count)
{
    uint8_t memory[1024];
    struct writer out = writer_of(memory, sizeof memory);
    struct spop_ask ask;
    assert_true(spop_client_ask_begin(r->client, slice_text(message), r, &out, &ask));
    for (size_t i = 0; i < count; i++)
        spop_client_ask_arg(&ask, slice_text(arguments[i].name), arguments[i].value);
    assert_true(spop_client_ask_end(r->client, &ask));
    send_all(r->fd, &out);
    return ask.id;
}

static uint64_t put_question(struct relay *r, const char *message, int64_t epoch)
{
    struct handover h = handover_none();
    uint8_t memory[TICKET_BYTES * 2];
    struct writer ticket = writer_of(memory, sizeof memory);
    h.route = SLICE_LITERAL("opencomputer-pty");
    h.sandbox = SLICE_LITERAL("sb-1");
    const struct argument arguments[] = {{"route", spop_text(h.route)},
                                         {"sandbox", spop_text(h.sandbox)},
                                         {"epoch", spop_int(epoch)},
                                         {"ticket", spop_text(ticket_write(ticket_key, &h, &ticket))}};
    return put(r, message, arguments, sizeof arguments / sizeof *arguments);
}

/* Whether the answer says so. */
static bool hear(struct relay *r, const char *name, const char *text, int64_t *number)
{
    struct spop_client_event event;
    struct spop_action action;
    bool said = false;
    assert_int_equal(next(r, &event), SPOP_CLIENT_ANSWER);
    while (spop_action_next(&event.actions, &action))
        if (slice_is(action.name, name)) {
            *number = action.value.number;
            said = !text || slice_is(action.value.bytes, text);
        }
    return said;
}

/* The epoch that the agent says then. */
static int64_t ask(struct relay *r, const char *message, int64_t epoch)
{
    int64_t said;
    put_question(r, message, epoch);
    return hear(r, "epoch", NULL, &said) ? said : -1;
}

static int listen_at(struct sockaddr_un *address, const char *name)
{
    *address = (struct sockaddr_un){.sun_family = AF_UNIX};
    snprintf(address->sun_path, sizeof address->sun_path, "/tmp/cellgate-test-%d-%s.sock", (int)getpid(),
             name);
    int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    assert_int_equal(bind(listener, (const struct sockaddr *)address, sizeof *address), 0);
    assert_int_equal(listen(listener, 4), 0);
    return listener;
}

static void end_relay(struct relay *r)
{
    spop_client_free(r->client);
    close(r->fd);
}

/* An agent of one thread with that directory. */
struct stage {
    struct world world;
    struct own own;
    struct directory_options options;
    struct directory_owner owner;
    struct sockaddr_un address, relay_address;
    int listener, relay_listener;
    struct policy *policy;
    struct loop_thread *io;
    struct snapshot *snapshot;
};

static void start_directory(void *context)
{
    struct stage *s = context;
    struct fail why;
    s->world.directory = directory_start(&s->options, &s->owner, 200000, loop_thread_loop(s->io), NULL, &why);
    assert_non_null(s->world.directory);
}

static void stop_directory(void *context)
{
    directory_stop(((struct stage *)context)->world.directory);
}

static void begin(struct stage *s, int silent)
{
    static const struct directory_kind kind = {.name = "test",
                                               .start = kind_start,
                                               .question_size = sizeof(struct directory_question),
                                               .ask = kind_ask,
                                               .stop = kind_stop};
    struct fail why;
    *s = (struct stage){
        .world = {.silent = silent},
        .own = {.common = {.ttl = 3000, .stale = 600000, .entries = 100}},
        .options = {.kind = &kind, .references = 1},
        .owner = {
            .learned = on_learned, .answered = on_answered, .notify = on_notified, .context = &s->world}};
    s->own.world = &s->world;
    s->options.own = &s->own.common;
    s->listener = listen_at(&s->address, "haproxy");
    s->relay_listener = listen_at(&s->relay_address, "relay");
    s->io = loop_thread_start(&why);
    assert_non_null(s->io);
    loop_thread_call(s->io, start_directory, s);
    s->policy = make_policy("127.0.0.0/8");
    s->world.thread =
        start(s->listener, s->relay_listener,
              &(struct snapshot_parts){.policy = s->policy, .directory = s->world.directory}, &s->snapshot);
}

static void finish(struct stage *s)
{
    decision_thread_stop(s->world.thread);
    loop_thread_call(s->io, stop_directory, s);
    loop_thread_stop(s->io);
    decision_thread_free(s->world.thread);
    assert_int_equal(subscriptions.used, 0);
    snapshot_release(s->snapshot);
    directory_release(s->world.directory);
    policy_release(s->policy);
    close(s->listener);
    close(s->relay_listener);
    unlink(s->address.sun_path);
    unlink(s->relay_address.sun_path);
}

static void a_watch_is_told_what_changes_while_it_begins(void **state)
{
    struct stage s;
    struct relay relay;
    begin(&s, 0);
    connect_relay(&relay, &s.relay_address);
    assert_int_equal(ask(&relay, "cell-resolve", -1), 1);
    /* of the last look-up; the watch begins one more */
    int64_t known = atomic_load(&s.world.epoch);
    assert_int_equal(ask(&relay, "cell-watch", known), known + 1);
    end_relay(&relay);
    finish(&s);
    (void)state;
}

static void a_watch_that_is_taken_back_is_over(void **state)
{
    struct stage s;
    struct relay relay, other;
    int64_t said;
    begin(&s, 0);
    s.world.steady = true;
    s.world.epoch = 5;
    connect_relay(&relay, &s.relay_address);
    connect_relay(&other, &s.relay_address);
    int64_t known = ask(&relay, "cell-resolve", -1);
    const int64_t watch = (int64_t)put_question(&relay, "cell-watch", known);
    const struct argument of_it[] = {{"watch", spop_int(watch)}},
                          of_none[] = {{"watch", spop_int(watch + 9)}};
    put(&other, "cell-unwatch", of_it, 1); /* that stream-id is another one there */
    assert_true(hear(&other, "watch", NULL, &said));
    put(&relay, "cell-unwatch", of_none, 1);
    assert_true(hear(&relay, "watch", NULL, &said)); /* not the watch, which goes on */
    put(&relay, "cell-unwatch", of_it, 1);
    assert_true(hear(&relay, "epoch", NULL, &said));
    assert_int_equal(said, known);
    assert_true(hear(&relay, "watch", NULL, &said));
    put(&relay, "cell-unwatch", NULL, 0);
    assert_true(hear(&relay, "state", "unavailable", &said));
    end_relay(&relay);
    end_relay(&other);
    finish(&s);
    (void)state;
}

/* Whether there is such a sandbox, and what it is, is for those who were let in to it: the look-up is not even begun. */
static void who_was_not_admitted_is_told_nothing(void **state)
{
    struct stage s;
    struct relay relay;
    static const char *const messages[] = {"cell-resolve", "cell-watch"},
                             *const sandboxes[] = {"sb-1", "nobody-knows"},
                             *const tickets[] = {NULL, "", "0123456789012345678901", "012345678901234567890"};
    begin(&s, 0);
    connect_relay(&relay, &s.relay_address);
    for (size_t i = 0; i < 2 * 2 * 4; i++) {
        const char *ticket = tickets[i / 4];
        const struct argument arguments[] = {{"route", spop_text(SLICE_LITERAL("opencomputer-pty"))},
                                             {"sandbox", spop_text(slice_text(sandboxes[i / 2 % 2]))},
                                             {"ticket", spop_text(slice_text(ticket))}};
        struct spop_client_event event;
        struct spop_action action;
        put(&relay, messages[i % 2], arguments, ticket ? 3 : 2);
        assert_int_equal(next(&relay, &event), SPOP_CLIENT_ANSWER);
        assert_true(spop_action_next(&event.actions, &action));
        assert_true(slice_is(action.name, "state") && slice_is(action.value.bytes, "not_admitted"));
        assert_false(spop_action_next(&event.actions, &action));
    }
    assert_int_equal(atomic_load(&s.world.epoch), 0);
    end_relay(&relay);
    finish(&s);
    (void)state;
}

/* Both are told when their own time is up: pending_add asserts that nobody waits behind one who came later. */
static void a_request_does_not_wait_behind_a_redial_that_came_later(void **state)
{
    const struct argument request[] = {{"method", spop_text(SLICE_LITERAL("GET"))},
                                       {"version", spop_text(SLICE_LITERAL("1.1"))},
                                       {"path", spop_text(SLICE_LITERAL("/api/sandboxes/sb-1/x"))},
                                       {"headers", spop_text(SLICE_LITERAL("host: h\r\n\r\n"))}};
    struct stage s;
    struct relay haproxy, relay;
    int asked[2];
    char byte;
    assert_int_equal(pipe(asked), 0);
    begin(&s, asked[1]);
    connect_relay(&haproxy, &s.address);
    connect_relay(&relay, &s.relay_address);
    put(&haproxy, "cell-route", request, sizeof request / sizeof *request);
    assert_int_equal(read(asked[0], &byte, 1), 1); /* it waits, for half of its time */
    put_question(&relay, "cell-resolve", -1);
    assert_true(hear(&haproxy, "error", "directory_unavailable", &(int64_t){0}));
    assert_true(hear(&relay, "state", "unavailable", &(int64_t){0}));
    end_relay(&haproxy);
    end_relay(&relay);
    finish(&s);
    close(asked[0]);
    close(asked[1]);
    (void)state;
}

static bool is_admitted(struct relay *haproxy)
{
    const struct argument request[] = {{"method", spop_text(SLICE_LITERAL("GET"))},
                                       {"version", spop_text(SLICE_LITERAL("1.1"))},
                                       {"path", spop_text(SLICE_LITERAL("/api/sandboxes/sb-1/x"))},
                                       {"headers", spop_text(SLICE_LITERAL("host: h\r\n\r\n"))}};
    int64_t unused;
    put(haproxy, "cell-route", request, sizeof request / sizeof *request);
    return hear(haproxy, "verdict", "direct", &unused);
}

/* An answer that was given again and again under another policy: no question behind the change is answered by the old one. */
static void another_policy_answers_anew(void **state)
{
    struct stage s;
    struct relay haproxy;
    begin(&s, 0);
    s.world.steady = true;
    connect_relay(&haproxy, &s.address);
    for (int i = 0; i < 5; i++)
        assert_true(is_admitted(&haproxy));
    struct policy *other = make_policy("10.0.0.0/8");
    struct snapshot *next =
        snapshot_new(&(struct snapshot_parts){.policy = other, .directory = s.world.directory});
    for (int i = 0; i < 5; i++) {
        decision_thread_hand_over(s.world.thread, next);
        assert_false(is_admitted(&haproxy));
        decision_thread_take(s.world.thread);
        assert_false(is_admitted(&haproxy));
        decision_thread_hand_over(s.world.thread, s.snapshot);
        assert_true(is_admitted(&haproxy));
        decision_thread_take(s.world.thread);
        assert_true(is_admitted(&haproxy));
    }
    end_relay(&haproxy);
    finish(&s);
    snapshot_release(next);
    policy_release(other);
    (void)state;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_comes_when_its_thread_is_gone_is_let_be),
        cmocka_unit_test(a_watch_is_told_what_changes_while_it_begins),
        cmocka_unit_test(a_watch_that_is_taken_back_is_over),
        cmocka_unit_test(who_was_not_admitted_is_told_nothing),
        cmocka_unit_test(a_request_does_not_wait_behind_a_redial_that_came_later),
        cmocka_unit_test(another_policy_answers_anew)};
    return cmocka_run_group_tests(tests, make_key, free_key);
}
