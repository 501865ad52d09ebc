/* SPDX-License-Identifier: MIT */
#include "tests/unit/support.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include "spoa/agent/decider.h"
#include "spoa/lib/spop_client.h"

static struct policy *make_policy(void)
{
    static const char config[] =
        "{\"open\": true, \"tokens\": [], \"directory\": {\"kind\": \"file\", \"path\": \"/nowhere\"}}";
    char path[] = "/tmp/cellgate-test-XXXXXX";
    struct fail why = {""};
    int file = mkstemp(path);
    assert_int_equal(write(file, config, sizeof config - 1), sizeof config - 1);
    close(file);
    struct policy *policy = policy_load(path, NULL, 0, &why);
    unlink(path);
    if (!policy)
        fail_msg("%s", why.text);
    return policy;
}

static struct decider *start(int listener, const struct snapshot_parts *parts, struct snapshot **snapshot)
{
    const struct decider_options options = {
        .listener = listener, .relay_listener = listener, .token_cache = 4, .lookup = 0.2};
    struct fail why;
    *snapshot = snapshot_new(parts);
    struct decider *decider = decider_start(&options, *snapshot, &why);
    if (!decider)
        fail_msg("%s", why.text);
    return decider;
}

/* At the end of the agent others still have news for a decider whose thread is gone: what they post is run, if at
 * all, when its memory is. A sanitizer sees what is used too late. */
static void what_comes_when_its_thread_is_gone_is_let_be(void **state)
{
    int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct policy *policy = make_policy();
    struct snapshot *snapshot;
    struct decider *decider = start(listener, &(struct snapshot_parts){.policy = policy}, &snapshot);
    decider_stop(decider);
    decider_use(decider, snapshot);
    decider_news(decider, SLICE_LITERAL("sb-1"));
    decider_free(decider);
    snapshot_release(snapshot);
    policy_release(policy);
    close(listener);
    (void)state;
}

/* ---- a directory whose record changes at each look-up, before that has returned ---- */

struct world {
    const struct directory_sink *sink;
    struct decider *decider;
    int64_t epoch; /* atomic */
};

struct own {
    struct directory_common common;
    struct world *world;
};

static void *kind_start(const void *options, const struct directory_sink *sink, struct log *log,
                        struct fail *why)
{
    struct world *w = ((const struct own *)options)->world;
    (void)log, (void)why;
    w->sink = sink;
    return w;
}

static void *answer(void *context)
{
    struct world *w = context;
    const struct record record = {.epoch = __atomic_add_fetch(&w->epoch, 1, __ATOMIC_SEQ_CST),
                                  .worker = {.kind = WORKER_HTTP,
                                             .host = SLICE_LITERAL("127.0.0.1"),
                                             .port = 9001,
                                             .addr = {.family = 4, .bytes = {127, 0, 0, 1}}}};
    w->sink->answered(w->sink->context, SLICE_LITERAL("sb-1"), LOOKUP_FOUND, &record, 0);
    return NULL;
}

static bool kind_look_up(void *self, struct slice key)
{
    pthread_t thread;
    assert_true(slice_is(key, "sb-1"));
    return pthread_create(&thread, NULL, answer, self) == 0 && pthread_join(thread, NULL) == 0;
}

static void kind_stop(void *self)
{
    (void)self;
}

static void on_learned(void *context, const struct record *record)
{
    (void)context, (void)record;
}

static void on_answered(void *context, enum lookup outcome, double seconds)
{
    (void)context, (void)outcome, (void)seconds;
}

static void on_news(void *context, struct slice key)
{
    decider_news(((struct world *)context)->decider, key);
}

static void on_work(void *context)
{
    (void)context;
}

/* ---- a relay ---- */

struct relay {
    int fd;
    struct spop_client *client;
    uint8_t bytes[4096];
    size_t len;
};

static void send_all(int fd, const struct writer *w)
{
    assert_int_equal(send(fd, w->at, w->len, MSG_NOSIGNAL), w->len);
}

/* Within the time that the socket has; what it is. */
static enum spop_client_step next(struct relay *r, struct spop_client_event *event)
{
    for (;;) {
        uint8_t memory[SPOP_HELLO_MOST];
        struct writer out = writer_of(memory, sizeof memory);
        struct slice in = slice_of(r->bytes, r->len);
        enum spop_client_step step = spop_client_next(r->client, &in, event, &out);
        memmove(r->bytes, in.at, in.len);
        r->len = in.len;
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
    uint8_t memory[SPOP_HELLO_MOST];
    struct writer out = writer_of(memory, sizeof memory);
    struct spop_client_event event;
    *r = (struct relay){.fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0), .client = spop_client_new(4)};
    setsockopt(r->fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    assert_int_equal(connect(r->fd, (const struct sockaddr *)address, sizeof *address), 0);
    spop_client_hello(r->client, &offer, &out);
    send_all(r->fd, &out);
    assert_int_equal(next(r, &event), SPOP_CLIENT_READY);
}

/* The epoch that the agent says then. */
static int64_t ask(struct relay *r, const char *message, int64_t epoch)
{
    uint8_t memory[1024];
    struct writer out = writer_of(memory, sizeof memory);
    struct spop_ask ask;
    struct spop_client_event event;
    struct spop_action action;
    int64_t said = -1;
    assert_true(spop_client_ask_begin(r->client, slice_text(message), r, &out, &ask));
    spop_client_ask_arg(&ask, SLICE_LITERAL("route"), spop_text(SLICE_LITERAL("any")));
    spop_client_ask_arg(&ask, SLICE_LITERAL("sandbox"), spop_text(SLICE_LITERAL("sb-1")));
    spop_client_ask_arg(&ask, SLICE_LITERAL("epoch"), spop_int(epoch));
    assert_true(spop_client_ask_end(r->client, &ask));
    send_all(r->fd, &out);
    assert_int_equal(next(r, &event), SPOP_CLIENT_ANSWER);
    while (spop_action_next(&event.actions, &action))
        if (slice_is(action.name, "epoch"))
            said = action.value.number;
    return said;
}

static void a_watch_is_told_what_changes_while_it_begins(void **state)
{
    static const struct directory_kind kind = {
        .name = "test", .start = kind_start, .look_up = kind_look_up, .stop = kind_stop};
    struct world w = {0};
    struct own own = {.common = {.ttl = 3000, .stale = 600000, .entries = 100}, .world = &w};
    struct directory_options options = {.kind = &kind, .own = &own.common, .references = 1};
    const struct directory_owner owner = {
        .learned = on_learned, .answered = on_answered, .news = on_news, .work = on_work, .context = &w};
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    struct fail why;
    struct snapshot *snapshot;
    struct relay relay;
    snprintf(address.sun_path, sizeof address.sun_path, "/tmp/cellgate-test-%d.sock", (int)getpid());
    int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    assert_int_equal(bind(listener, (const struct sockaddr *)&address, sizeof address), 0);
    assert_int_equal(listen(listener, 4), 0);
    struct directory *directory = directory_start(&options, &owner, 200000, NULL, &why);
    struct policy *policy = make_policy();
    w.decider =
        start(listener, &(struct snapshot_parts){.policy = policy, .directory = directory}, &snapshot);
    connect_relay(&relay, &address);
    assert_int_equal(ask(&relay, "cell-resolve", -1), 1);
    /* of the last look-up; the watch begins one more */
    int64_t known = __atomic_load_n(&w.epoch, __ATOMIC_SEQ_CST);
    assert_int_equal(ask(&relay, "cell-watch", known), known + 1);
    spop_client_free(relay.client);
    close(relay.fd);
    decider_stop(w.decider);
    directory_stop(directory);
    decider_free(w.decider);
    snapshot_release(snapshot);
    directory_release(directory);
    policy_release(policy);
    close(listener);
    unlink(address.sun_path);
    (void)state;
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(what_comes_when_its_thread_is_gone_is_let_be),
                                       cmocka_unit_test(a_watch_is_told_what_changes_while_it_begins)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
