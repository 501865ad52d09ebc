/* SPDX-License-Identifier: MIT */
#include "tests/unit/support.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "spoa/agent/serve/agent.h"

struct world {
    char folder[64], config[96], directory[96], other[96], key[96];
    struct loop *loop;
    struct agent *agent;
    unsigned started, drained;
};

/* Replaces the file as a whole. */
static void put(const struct world *w, const char *path, const char *text)
{
    char part[128];
    snprintf(part, sizeof part, "%s/part", w->folder);
    FILE *out = fopen(part, "w");
    assert_non_null(out);
    fputs(text, out);
    assert_int_equal(fclose(out), 0);
    assert_int_equal(rename(part, path), 0);
}

static void put_config_with(const struct world *w, const char *directory, const char *access)
{
    char text[1024];
    snprintf(text, sizeof text,
             "{%s, \"worker_networks\": [\"127.0.0.0/8\"], \"systems\": [\"opensandbox\"],\n"
             " \"directory\": {\"kind\": \"file\", \"path\": \"%s\"},\n"
             " \"agent\": {\"listen\": \"unix@%s/a\", \"relay_listen\": \"unix@%s/r\", \"threads\": 2}}",
             access, directory, w->folder, w->folder);
    put(w, w->config, text);
}

static void put_config(const struct world *w, const char *directory)
{
    put_config_with(w, directory, "\"open\": true, \"tokens\": []");
}

/* So many sandboxes that reading them takes a while. */
static void put_sandboxes(const struct world *w, const char *path, unsigned count)
{
    size_t size = 64 + (size_t)count * 64;
    char *text = malloc(size);
    size_t len =
        (size_t)snprintf(text, size, "{\"sandboxes\": {\"sb\": {\"worker\": \"http://127.0.0.1:1\"}");
    for (unsigned i = 0; i < count; i++)
        len +=
            (size_t)snprintf(text + len, size - len, ",\n\"s%u\": {\"worker\": \"http://127.0.0.1:1\"}", i);
    snprintf(text + len, size - len, "}}");
    put(w, path, text);
    free(text);
}

static void on_started(void *context)
{
    struct world *w = context;
    w->started++;
    loop_stop(w->loop);
}

static void on_drained(void *context)
{
    struct world *w = context;
    w->drained++;
    loop_stop(w->loop);
}

static struct policy *load(const struct world *w)
{
    struct fail why = {""};
    struct policy *policy = policy_load(w->config, NULL, 0, &why);
    if (!policy)
        fail_msg("%s", why.text);
    return policy;
}

static void start_with(struct world *w, struct policy *policy)
{
    struct fail why = {""};
    const struct agent_options options = {
        .loop = w->loop, .config = w->config, .started = on_started, .drained = on_drained, .context = w};
    w->agent = agent_start(&options, policy, &why);
    if (!w->agent)
        fail_msg("%s", why.text);
}

static void start(struct world *w)
{
    start_with(w, load(w));
}

static int setup(void **state)
{
    struct world *w = calloc(1, sizeof *w);
    struct fail why;
    strcpy(w->folder, "/tmp/cellgate-test-XXXXXX");
    assert_non_null(mkdtemp(w->folder));
    snprintf(w->config, sizeof w->config, "%s/cellgate.json", w->folder);
    snprintf(w->directory, sizeof w->directory, "%s/sandboxes.json", w->folder);
    snprintf(w->other, sizeof w->other, "%s/other.json", w->folder);
    snprintf(w->key, sizeof w->key, "%s/k1", w->folder);
    put_config(w, w->directory);
    put_sandboxes(w, w->directory, 3);
    put_sandboxes(w, w->other, 7);
    w->loop = loop_new(&why);
    assert_non_null(w->loop);
    *state = w;
    return 0;
}

static int teardown(void **state)
{
    struct world *w = *state;
    loop_free(w->loop);
    unlink(w->config);
    unlink(w->directory);
    unlink(w->other);
    unlink(w->key);
    snprintf(w->config, sizeof w->config, "%s/r.key", w->folder);
    unlink(w->config);                     /* of tickets: it outlives the agent */
    assert_int_equal(rmdir(w->folder), 0); /* no socket is left either */
    free(w);
    return 0;
}

/* Whether the status comes to hold the text within some seconds. */
static bool becomes(struct world *w, const char *text)
{
    for (int i = 0; i < 500; i++) {
        struct buffer status = buffer_with_limit(4096);
        assert_true(agent_write_status(w->agent, &status));
        struct slice s = buffer_slice(&status);
        bool there = memmem(s.at, s.len, text, strlen(text));
        buffer_free(&status);
        if (there)
            return true;
        usleep(10000);
    }
    return false;
}

static void it_starts_says_so_once_the_directory_is_read_and_drains(void **state)
{
    struct world *w = *state;
    const char *why;
    start(w);
    loop_run(w->loop);
    assert_int_equal(w->started, 1);
    assert_true(agent_ready(w->agent, &why));
    agent_drain(w->agent);
    assert_false(agent_ready(w->agent, &why));
    assert_string_equal(why, "draining");
    loop_run(w->loop);
    assert_int_equal(w->drained, 1);
    agent_stop(w->agent);
}

static void one_that_ends_while_its_directory_is_read_reports_nothing_more(void **state)
{
    struct world *w = *state;
    put_sandboxes(w, w->directory, 20000);
    start(w);
    agent_stop(w->agent);
    loop_turn(w->loop, false);
    assert_int_equal(w->started, 0);
}

static void one_that_is_stopped_as_it_has_drained_reports_nothing_more(void **state)
{
    struct world *w = *state;
    start(w);
    agent_drain(w->agent);
    usleep(50000);
    agent_stop(w->agent);
    loop_turn(w->loop, false);
    assert_int_equal(w->drained, 0);
}

/* The policy is read by the main thread while the directory's puts one snapshot after the other in force. */
static void configuration_and_directory_may_change_at_the_same_time(void **state)
{
    struct world *w = *state;
    struct fail why;
    start(w);
    loop_run(w->loop);
    for (unsigned i = 0; i < 50; i++) {
        put_sandboxes(w, w->directory, i);
        assert_true(agent_reload(w->agent, &why));
    }
    assert_true(becomes(w, "\"records\":50,"));
    agent_stop(w->agent);
}

static void a_reload_changes_to_another_directory(void **state)
{
    struct world *w = *state;
    struct fail why;
    start(w);
    assert_true(becomes(w, "\"records\":4,"));
    put_config(w, w->other);
    assert_true(agent_reload(w->agent, &why));
    assert_true(becomes(w, "\"records\":8,"));
    put_sandboxes(w, w->directory, 11); /* nobody reads it any more */
    usleep(250000);
    assert_true(becomes(w, "\"records\":8,"));
    agent_stop(w->agent);
}

/* What is in force besides, its keys, say, was never meant for the sandboxes of the last. */
static void nothing_of_the_last_directory_is_left_while_the_next_cannot_be_read(void **state)
{
    struct world *w = *state;
    struct fail why;
    const char *reason;
    start(w);
    assert_true(becomes(w, "\"records\":4,"));
    unlink(w->other);
    put_config(w, w->other);
    assert_true(agent_reload(w->agent, &why));
    assert_true(becomes(w, "\"records\":0,"));
    assert_false(agent_ready(w->agent, &reason));
    put_sandboxes(w, w->other, 7);
    assert_true(becomes(w, "\"records\":8,"));
    assert_true(agent_ready(w->agent, &reason));
    agent_stop(w->agent);
}

/* A control plane whose event streams open and say nothing. */
struct plane {
    int listener;
    pthread_t thread;
};

static void *serve_streams(void *context)
{
    static const char head[] = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n: hello\n\n";
    const struct plane *p = context;
    int streams[8];
    size_t count = 0;
    char request[4096];
    while (count < 8 && (streams[count] = accept(p->listener, NULL, NULL)) >= 0) {
        if (recv(streams[count], request, sizeof request, 0) > 0)
            (void)!write(streams[count], head, sizeof head - 1);
        count++;
    }
    while (count)
        close(streams[--count]);
    return NULL;
}

static in_port_t plane_start(struct plane *p)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof at;
    p->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(p->listener, (struct sockaddr *)&at, len), 0);
    assert_int_equal(listen(p->listener, 8), 0);
    assert_int_equal(getsockname(p->listener, (struct sockaddr *)&at, &len), 0);
    assert_int_equal(pthread_create(&p->thread, NULL, serve_streams, p), 0);
    return ntohs(at.sin_port);
}

static void plane_stop(struct plane *p)
{
    shutdown(p->listener, SHUT_RDWR);
    pthread_join(p->thread, NULL);
    close(p->listener);
}

static void put_plane(const struct world *w, in_port_t port, const char *ttl)
{
    char text[1024];
    snprintf(text, sizeof text,
             "{\"open\": true, \"tokens\": [], \"systems\": [\"opensandbox\"],\n"
             " \"worker_networks\": [\"127.0.0.0/8\"],\n"
             " \"directory\": {\"kind\": \"http\", \"url\": \"http://127.0.0.1:%u\", \"ttl\": \"%s\"},\n"
             " \"agent\": {\"listen\": \"unix@%s/a\", \"relay_listen\": \"unix@%s/r\", \"threads\": 1}}",
             port, ttl, w->folder, w->folder);
    put(w, w->config, text);
}

static void end_turns(void *owner)
{
    *(bool *)owner = true;
}

/* The turns of the loop in a second. */
static unsigned turns(struct world *w)
{
    struct loop_timer timer;
    bool over = false;
    unsigned count = 0;
    loop_timer_open(&timer, w->loop, end_turns, &over);
    loop_timer_set(&timer, SECOND);
    while (!over) {
        loop_turn(w->loop, true);
        count++;
    }
    loop_timer_close(&timer);
    return count;
}

/* Both directories' streams ask the main thread for work, the first just before the reload. */
static void work_that_is_asked_for_around_a_reload_is_done_once(void **state)
{
    struct world *w = *state;
    struct plane plane;
    struct fail why;
    in_port_t port = plane_start(&plane);
    put_plane(w, port, "3s");
    start(w);
    assert_true(becomes(w, "\"pushing\":true"));
    put_plane(w, port, "4s");
    assert_true(agent_reload(w->agent, &why));
    assert_true(becomes(w, "\"pushing\":true"));
    assert_in_range(turns(w), 1, 1000); /* some for its timers */
    agent_stop(w->agent);
    plane_stop(&plane);
}

static void a_bad_configuration_changes_nothing(void **state)
{
    struct world *w = *state;
    struct fail why;
    start(w);
    assert_true(becomes(w, "\"records\":4,"));
    put(w, w->config, "{\"directory\": 7}");
    assert_false(agent_reload(w->agent, &why));
    assert_non_null(strstr(why.text, "cellgate.json:1:"));
    assert_true(becomes(w, "\"records\":4,"));
    agent_stop(w->agent);
}

static bool says(struct world *w, const char *line)
{
    struct buffer metrics = buffer_with_limit((size_t)1 << 20);
    assert_true(agent_write_metrics(w->agent, &metrics));
    struct slice s = buffer_slice(&metrics);
    bool there = memmem(s.at, s.len, line, strlen(line));
    buffer_free(&metrics);
    return there;
}

/* Whether the agent's metrics come to say so while its loop runs. */
static bool comes_to_say(struct world *w, const char *line)
{
    for (int i = 0; i < 100 && !says(w, line); i++)
        loop_turn(w->loop, true); /* the loop has timers */
    return says(w, line);
}

/* Whether it has so many records, or comes to have them while its loop runs. */
static bool comes_to_hold(struct world *w, unsigned records)
{
    char text[32];
    bool there = false;
    snprintf(text, sizeof text, "\"records\":%u,", records);
    for (int i = 0; i < 100 && !there; i++) {
        struct buffer status = buffer_with_limit(4096);
        assert_true(agent_write_status(w->agent, &status));
        struct slice s = buffer_slice(&status);
        there = memmem(s.at, s.len, text, strlen(text));
        buffer_free(&status);
        if (!there)
            loop_turn(w->loop, true); /* the loop has timers */
    }
    return there;
}

static unsigned allocations_of_a_policy(const struct world *w)
{
    alloc_fail_at(0);
    policy_release(load(w));
    return alloc_count();
}

/* The directory is the old one's then, and it is alive; or both are new. */
static void a_reload_without_memory_leaves_all_in_force_that_was(void **state)
{
    struct world *w = *state;
    struct fail why;
    bool good = false;
    start(w);
    assert_true(comes_to_hold(w, 4));
    for (unsigned n = allocations_of_a_policy(w) + 1; !good; n++) {
        put_config(w, w->other);
        alloc_fail_at(n);
        good = agent_reload(w->agent, &why);
        alloc_fail_at(0);
        put_config(w, w->directory);
        if (good) {
            assert_true(comes_to_hold(w, 8));
            assert_true(agent_reload(w->agent, &why));
        } else {
            put_sandboxes(w, w->directory, 10 + n);
        }
        assert_true(comes_to_hold(w, good ? 4 : 11 + n));
        put_sandboxes(w, w->directory, 3);
        assert_true(comes_to_hold(w, 4));
    }
    agent_stop(w->agent);
}

#define READ_AGAIN "cellgate_agent_reloads_total{outcome=\"good\"} 1\n"
#define NOT_READ   "cellgate_agent_reloads_total{outcome=\"bad\"} 1\n"

static void put_key(const struct world *w, const char *key)
{
    put(w, w->key, key);
    put_config_with(w, w->directory,
                    "\"tokens\": [{\"kind\": \"jwt\", \"alg\": \"HS256\", \"secret_file\": \"k1\"}]");
}

/* Nobody would look at it again before it changes once more, and the old key would hold. */
static void a_key_that_is_replaced_while_the_agent_starts_is_read_again(void **state)
{
    struct world *w = *state;
    put_key(w, "the old key, of more than 32 bytes, as it must be");
    struct policy *policy = load(w);
    put(w, w->key, "the new key, of more than 32 bytes, as it must be");
    start_with(w, policy);
    assert_true(comes_to_say(w, READ_AGAIN));
    agent_stop(w->agent);
}

static void a_key_that_there_is_no_descriptor_for_is_read_when_there_is(void **state)
{
    struct world *w = *state;
    struct rlimit enough, none;
    put_key(w, "the old key, of more than 32 bytes, as it must be");
    start(w);
    put(w, w->key, "the new key, of more than 32 bytes, as it must be");
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &enough), 0);
    none = (struct rlimit){.rlim_cur = 0, .rlim_max = enough.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    bool failed = comes_to_say(w, NOT_READ);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &enough), 0);
    assert_true(failed);
    assert_true(comes_to_say(w, READ_AGAIN));
    assert_true(says(w, NOT_READ)); /* it was told once */
    agent_stop(w->agent);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(it_starts_says_so_once_the_directory_is_read_and_drains, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(one_that_ends_while_its_directory_is_read_reports_nothing_more, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(one_that_is_stopped_as_it_has_drained_reports_nothing_more, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(configuration_and_directory_may_change_at_the_same_time, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(a_reload_changes_to_another_directory, setup, teardown),
        cmocka_unit_test_setup_teardown(nothing_of_the_last_directory_is_left_while_the_next_cannot_be_read,
                                        setup, teardown),
        cmocka_unit_test_setup_teardown(work_that_is_asked_for_around_a_reload_is_done_once, setup, teardown),
        cmocka_unit_test_setup_teardown(a_bad_configuration_changes_nothing, setup, teardown),
        cmocka_unit_test_setup_teardown(a_reload_without_memory_leaves_all_in_force_that_was, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(a_key_that_is_replaced_while_the_agent_starts_is_read_again, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(a_key_that_there_is_no_descriptor_for_is_read_when_there_is, setup,
                                        teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
