/* SPDX-License-Identifier: MIT */
/* All kinds on one loop, with servers that take what they are asked and say nothing: none holds up another. */
#include "tests/unit/support.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "spoa/agent/directory/directory.h"
#include "spoa/agent/directory/names.h"

enum { KINDS = 4 };

struct one {
    struct directory *directory;
    unsigned answered, told, loaded;
    bool found, away; /* of what was answered, some; of its health */
};

struct world {
    struct loop *loop;
    struct loop_timer tick;
    uint64_t ticked, longest;
    char path[32];
    int silent[KINDS]; /* descriptors of servers that say nothing */
    struct one ones[KINDS];
    struct names *names;
    bool resolved;
};

static bool on_loaded(void *context, const struct directory_load *load)
{
    ((struct one *)context)->loaded += records_count(load->records) == 1;
    return true;
}

static void on_answered(void *context, enum lookup outcome, uint64_t took)
{
    struct one *one = context;
    assert_in_range(took, 0, 2 * SECOND); /* each may take 300 ms */
    one->answered++;
    one->found = one->found || outcome != LOOKUP_UNAVAILABLE;
}

static void on_health(void *context, bool answering, bool pushing, const char *why)
{
    (void)pushing, (void)why;
    ((struct one *)context)->away = !answering;
}

static void on_notified(void *context, struct slice key, uint64_t waiters)
{
    (void)key, (void)waiters;
    ((struct one *)context)->told++;
}

static bool on_names(void *context, struct name_table *table)
{
    struct address address;
    ((struct world *)context)->resolved = name_table_find(table, SLICE_LITERAL("127.0.0.1"), &address);
    return true;
}

static void on_settled(void *context)
{
    (void)context;
}

static void on_tick(void *owner)
{
    struct world *w = owner;
    uint64_t now = loop_clock();
    if (w->ticked && now - w->ticked > w->longest)
        w->longest = now - w->ticked;
    w->ticked = now;
    loop_timer_set(&w->tick, 5 * MILLISECOND);
}

static in_port_t silent(int *fd, int type)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t len = sizeof address;
    *fd = socket(AF_INET, type | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(*fd, (struct sockaddr *)&address, len), 0);
    assert_true(type == SOCK_DGRAM || listen(*fd, 128) == 0);
    assert_int_equal(getsockname(*fd, (struct sockaddr *)&address, &len), 0);
    return ntohs(address.sin_port);
}

static struct directory_options *options_of(const char *directory)
{
    char path[] = "/tmp/cellgate-together.XXXXXX", text[512];
    struct fail why;
    int fd = mkstemp(path);
    int len =
        snprintf(text, sizeof text,
                 "{\"open\": true, \"worker_networks\": [\"10.0.0.0/8\"], \"directory\": {%s}}", directory);
    assert_true(fd >= 0 && write(fd, text, (size_t)len) == len);
    close(fd);
    struct settings *s = settings_load(path, NULL, 0, &why);
    unlink(path);
    struct directory_options *options = s ? directory_options_read(s, &why) : NULL;
    if (!options)
        fail_msg("%s", why.text);
    settings_free(s);
    return options;
}

static void begin(struct world *w, size_t i, const char *directory)
{
    struct fail why;
    const struct directory_owner owner = {.loaded = on_loaded,
                                          .answered = on_answered,
                                          .health = on_health,
                                          .notify = on_notified,
                                          .context = &w->ones[i]};
    struct directory_options *options = options_of(directory);
    struct directory *d = w->ones[i].directory =
        directory_start(options, &owner, 200000, w->loop, NULL, &why);
    if (!d)
        fail_msg("%s", why.text);
    directory_options_release(options);
    for (int n = 0; directory_cache(d) && n < 100; n++) {
        char key[16];
        struct shared_record *box;
        int len = snprintf(key, sizeof key, "sb-%d", n);
        assert_int_equal(directory_cache_find(directory_cache(d), slice_of(key, (size_t)len), false, 1,
                                              (struct fair_owner){0}, &box),
                         LOOKUP_PENDING);
    }
}

static bool are_done(const struct world *w)
{
    bool done = w->resolved && w->ones[0].loaded > 0;
    for (size_t i = 1; i < KINDS; i++)
        done = done && w->ones[i].told == 100 && w->ones[i].answered > 0 && w->ones[i].away;
    return done;
}

static void a_kind_that_hangs_holds_up_no_other(void **state)
{
    static const char text_of_file[] = "{\"sandboxes\": {\"a\": {\"state\": \"stopped\"}}}";
    struct world w = {.path = "/tmp/cellgate-together.XXXXXX"};
    struct fail why;
    char text[128];
    int file = mkstemp(w.path);
    (void)state;
    assert_int_equal(write(file, text_of_file, sizeof text_of_file - 1), sizeof text_of_file - 1);
    close(file);
    w.loop = loop_new(&why);
    assert_non_null(w.loop);
    snprintf(text, sizeof text,
             "\"kind\": \"http\", \"timeout\": \"300ms\", \"url\": \"http://127.0.0.1:%u\"",
             silent(&w.silent[1], SOCK_STREAM));
    begin(&w, 1, text);
    snprintf(text, sizeof text, "\"kind\": \"redis\", \"timeout\": \"300ms\", \"server\": \"127.0.0.1:%u\"",
             silent(&w.silent[2], SOCK_STREAM));
    begin(&w, 2, text);
    snprintf(text, sizeof text,
             "\"kind\": \"dns\", \"timeout\": \"300ms\", \"name\": \"{sandbox}.test\", \"servers\": "
             "[\"127.0.0.1:%u\"]",
             silent(&w.silent[3], SOCK_DGRAM));
    begin(&w, 3, text);
    snprintf(text, sizeof text, "\"kind\": \"file\", \"path\": \"%s\"", w.path);
    begin(&w, 0, text);
    const struct names_options names = {
        .unused = MINUTE, .max_used = 9, .changed = on_names, .settled = on_settled, .context = &w};
    w.names = names_start(w.loop, &names, &why);
    assert_true(w.names && names_use(w.names, SLICE_LITERAL("127.0.0.1"), (struct fair_owner){0}));
    loop_timer_open(&w.tick, w.loop, on_tick, &w);
    on_tick(&w);
    for (uint64_t begun = loop_clock(); !are_done(&w) && loop_clock() < begun + 20 * SECOND;)
        loop_turn(w.loop, true);
    assert_true(are_done(&w));
    assert_in_range(w.longest, 5000, 250000); /* the shortest of their timeouts is longer */
    for (size_t i = 0; i < KINDS; i++) {
        assert_false(w.ones[i].found);
        directory_stop(w.ones[i].directory);
        directory_release(w.ones[i].directory);
        if (i)
            close(w.silent[i]);
    }
    names_stop(w.names);
    loop_timer_close(&w.tick);
    loop_free(w.loop);
    unlink(w.path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_kind_that_hangs_holds_up_no_other)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
