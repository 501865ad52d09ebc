/* SPDX-License-Identifier: MIT */
/* What does I/O begins whole or not at all, whichever of its allocations fails: the directory kinds, names and their
 * look-ups, links to Redis, the worker's tunnels of Cell-Resume. */
#include "tests/unit/support.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "examples/worker/resume/resume_table.h"
#include "spoa/agent/directory/directory.h"
#include "spoa/agent/directory/names.h"
#include "spoa/agent/directory/redis_link.h"
#include "spoa/net/dns.h"

enum { MOST = 500 }; /* allocations of one of these */

/* One begins with the n-th allocation and all later ones failing: whether it said that it did. */
typedef bool begin_function(void *context);

/* Until one has asked for fewer than n: with memory enough it begins, with none it does not. */
static void begins_or_says_no(begin_function *begin, void *context)
{
    bool begun = false;
    unsigned n = 0, asked = 1;

    while (asked >= n && ++n <= MOST) {
        alloc_fail_at(n);
        begun = begin(context);
        asked = alloc_count();
        alloc_fail_at(0);
        assert_true(n > 1 || !begun);
    }
    assert_true(n > 1 && n <= MOST && begun);
}

/* ---- the directory kinds ---- */

static bool on_loaded(void *context, const struct directory_load *load)
{
    (void)context;
    (void)load;
    return true;
}

static void on_answered(void *context, enum lookup outcome, uint64_t took)
{
    (void)context, (void)outcome, (void)took;
}

static void on_record(void *context, const struct record *record)
{
    (void)context, (void)record;
}

static void on_key(void *context, struct slice key, uint64_t waiters)
{
    (void)context, (void)key, (void)waiters;
}

static void on_notified(void *context)
{
    (void)context;
}

static bool on_time(void *context, int64_t not_before)
{
    (void)context;
    (void)not_before;
    return true;
}

static bool on_tokens(void *context, struct slice text, bool all, struct fail *why)
{
    (void)context;
    (void)text;
    (void)all;
    (void)why;
    return true;
}

static void on_health(void *context, bool answering, bool pushing, const char *why)
{
    (void)context;
    (void)answering;
    (void)pushing;
    (void)why;
}

struct beginning {
    struct loop *loop;
    struct settings *settings;
};

static bool begin_kind(void *context)
{
    const struct beginning *b = context;
    static const struct directory_owner owner = {.loaded = on_loaded,
                                                 .answered = on_answered,
                                                 .learned = on_record,
                                                 .notify = on_key,
                                                 .revoked = on_time,
                                                 .revoked_tokens = on_tokens,
                                                 .health = on_health};
    struct fail why = {.text = ""};
    struct directory_options *options = directory_options_read(b->settings, &why);
    struct directory *directory = options ? directory_start(options, &owner, 1, b->loop, NULL, &why) : NULL;
    struct shared_record *box;

    assert_true(directory || why.text[0]);
    if (directory && directory_cache(directory))
        (void)directory_cache_find(directory_cache(directory), SLICE_LITERAL("a"), false, 1,
                                   (struct fair_owner){0}, &box);
    for (unsigned i = 0; directory && i < 3; i++)
        loop_turn(b->loop, false);
    directory_stop(directory);
    directory_release(directory);
    loop_turn(b->loop, false);
    directory_options_release(options);
    return directory != NULL;
}

static struct settings *settings_of(const char *text)
{
    char path[] = "/tmp/cellgate-memory.XXXXXX";
    struct fail why;
    int fd = mkstemp(path);
    assert_true(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text));
    close(fd);
    struct settings *s = settings_load(path, NULL, 0, &why);
    unlink(path);
    if (!s)
        fail_msg("%s", why.text);
    return s;
}

/* Nobody listens at port 1. */
static void a_directory_without_memory_does_not_start(void **state)
{
    static const char *const kinds[] = {
        "{\"open\": true, \"worker_networks\": [\"10.0.0.0/8\"], \"directory\": {\"kind\": \"file\", "
        "\"path\": \"/tmp/none.json\"}}",
        "{\"open\": true, \"worker_networks\": [\"10.0.0.0/8\"], \"directory\": {\"kind\": \"redis\", "
        "\"server\": \"127.0.0.1:1\"}}",
        "{\"open\": true, \"worker_networks\": [\"10.0.0.0/8\"], \"directory\": {\"kind\": \"redis\", "
        "\"server\": \"redis.test:1\"}}",
        "{\"open\": true, \"worker_networks\": [\"10.0.0.0/8\"], \"directory\": {\"kind\": \"http\", "
        "\"url\": \"http://127.0.0.1:1\"}}",
        ("{\"open\": true, \"worker_networks\": [\"10.0.0.0/8\"], \"directory\": {\"kind\": \"dns\", "
         "\"name\": \"{sandbox}.test\", "
         "\"servers\": [\"127.0.0.1:1\"]}}"),
    };
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        struct beginning b = {*state, settings_of(kinds[i])};
        begins_or_says_no(begin_kind, &b);
        settings_free(b.settings);
    }
}

/* ---- names ---- */

static bool on_table(void *context, struct name_table *table)
{
    (void)context;
    (void)table;
    return true;
}

static struct names *start_names(struct loop *loop, bool (*changed)(void *context, struct name_table *table),
                                 uint64_t unused, size_t most, void *context)
{
    const struct names_options options = {.servers = {(char *[]){"127.0.0.1:1"}, 1},
                                          .unused = unused,
                                          .max_used = most,
                                          .changed = changed,
                                          .settled = on_notified,
                                          .context = context};
    struct fail why = {.text = ""};
    struct names *names = names_start(loop, &options, &why);
    assert_true(names || why.text[0]);
    return names;
}

static bool begin_names(void *context)
{
    struct names *names = start_names(context, on_table, 10 * MINUTE, 9, NULL);
    bool used = names && names_use(names, SLICE_LITERAL("worker.test"), (struct fair_owner){0});
    names_stop(names);
    loop_turn(context, false);
    return used;
}

static void names_without_memory_are_not_asked_for(void **state)
{
    begins_or_says_no(begin_names, *state);
}

/* Not the first time. */
static bool take_later(void *context, struct name_table *table)
{
    struct address address;
    assert_true(name_table_find(table, SLICE_LITERAL("localhost"), &address));
    return ++*(unsigned *)context > 1;
}

static void addresses_that_could_not_be_taken_are_told_again(void **state)
{
    unsigned told = 0;
    struct names *names = start_names(*state, take_later, 10 * MINUTE, 9, &told);
    uint64_t begun = loop_clock();

    assert_non_null(names);
    assert_true(names_use(names, SLICE_LITERAL("localhost"), (struct fair_owner){0}));
    while (told < 2 && loop_clock() < begun + 10000000)
        loop_turn(*state, true); /* it has timers */
    names_stop(names);
    assert_int_equal(told, 2);
}

struct tables_seen {
    struct loop *loop;
    struct name_table *table;
    unsigned count;
};

static bool take_table(void *context, struct name_table *table)
{
    struct tables_seen *t = context;
    name_table_release(t->table);
    t->table = name_table_retain(table);
    t->count++;
    return true;
}

/* As a decision does. */
static bool finds(struct tables_seen *t, const char *name)
{
    struct address address;
    return name_table_find(t->table, slice_text(name), &address);
}

static void run_for(struct tables_seen *t, uint64_t microseconds)
{
    for (uint64_t until = loop_clock() + microseconds; loop_clock() < until;) {
        loop_turn(t->loop, false);
        usleep(1000);
    }
}

static struct names *resolver_of(struct tables_seen *t, struct loop *loop, uint64_t unused, size_t most)
{
    *t = (struct tables_seen){.loop = loop};
    struct names *names = start_names(loop, take_table, unused, most, t);
    assert_non_null(names);
    return names;
}

static void end_resolver(struct names *names, struct tables_seen *t)
{
    names_stop(names);
    name_table_release(t->table);
}

/* What is looked up no more would be where it was for ever. Addresses are names that nobody has to be asked for. */
static void a_name_is_resolved_on_while_it_is_found_in_tables_and_no_longer(void **state)
{
    struct tables_seen t;
    struct names *names = resolver_of(&t, *state, 2 * SECOND, 9);

    assert_true(names_use(names, SLICE_LITERAL("127.0.0.1"), (struct fair_owner){0}) &&
                names_use(names, SLICE_LITERAL("127.0.0.2"), (struct fair_owner){0}));
    for (int i = 0; i < 500 && !(finds(&t, "127.0.0.1") && finds(&t, "127.0.0.2")); i++)
        run_for(&t, 10000);
    assert_true(finds(&t, "127.0.0.1") && finds(&t, "127.0.0.2"));
    for (int i = 0; i < 50; i++) {
        run_for(&t, 100000);
        assert_true(finds(&t, "127.0.0.1"));
    }
    assert_true(names_use(names, SLICE_LITERAL("127.0.0.3"), (struct fair_owner){0}));
    for (int i = 0; i < 500 && !finds(&t, "127.0.0.3"); i++)
        run_for(&t, 10000);
    bool third = finds(&t, "127.0.0.3"), used = finds(&t, "127.0.0.1"), unused = finds(&t, "127.0.0.2");
    end_resolver(names, &t);
    assert_true(third && used && !unused);
}

/* Where it was when it was looked up last may be another sandbox's worker by now. */
static void a_name_that_is_let_go_is_found_no_longer(void **state)
{
    struct tables_seen t;
    struct names *names = resolver_of(&t, *state, 100 * MILLISECOND, 9);

    assert_true(names_use(names, SLICE_LITERAL("127.0.0.1"), (struct fair_owner){0}));
    for (int i = 0; i < 500 && t.count < 2; i++) /* one with it, one without */
        run_for(&t, 10000);
    bool found = finds(&t, "127.0.0.1");
    end_resolver(names, &t);
    assert_int_equal(t.count, 2);
    assert_false(found);
}

/* It would else be let go although it is used, and be unknown until it had been looked up again. */
static void a_name_that_is_found_is_kept_where_there_is_no_room_for_others(void **state)
{
    struct tables_seen t;
    struct names *names = resolver_of(&t, *state, SECOND, 1);

    assert_true(names_use(names, SLICE_LITERAL("127.0.0.1"), (struct fair_owner){0}));
    for (int i = 0; i < 500 && !finds(&t, "127.0.0.1"); i++)
        run_for(&t, 10000);
    bool found = true;
    for (int i = 0; i < 1000 && found; i++) {
        run_for(&t, 2500);
        found = finds(&t, "127.0.0.1");
    }
    end_resolver(names, &t);
    assert_true(found);
}

static void count_answer(void *owner, const struct dns_answer *answer)
{
    assert_int_equal(answer->result, DNS_FAILED);
    ++*(unsigned *)owner;
}

/* Each question that was taken is answered, at the latest at the end. */
static bool begin_dns(void *context)
{
    struct dns_options options = {
        .servers = {(char *[]){"127.0.0.1:1"}, 1}, .exact = true, .timeout = 10 * SECOND};
    unsigned asked = 0, answered = 0;
    struct fail why = {.text = ""};
    struct dns *dns = dns_new(context, &options, &why);

    assert_true(dns || why.text[0]);
    for (unsigned i = 0; dns && i < 3; i++)
        asked += dns_ask(dns, SLICE_LITERAL("worker.test"), (struct fair_owner){0}, count_answer, &answered);
    for (unsigned i = 0; dns && i < 3; i++)
        loop_turn(context, false);
    dns_free(dns);
    assert_int_equal(answered, asked);
    return asked == 3;
}

static void a_lookup_that_was_taken_is_answered(void **state)
{
    begins_or_says_no(begin_dns, *state);
}

/* ---- Redis ---- */

static void on_lost(void *context, const char *why)
{
    (void)context;
    assert_true(why[0]);
}

static bool begin_link(void *context)
{
    struct fail why;
    struct redis_link_options options = {
        .loop = context, .timeout = SECOND, .ready = on_notified, .lost = on_lost};
    struct redis_command command = {.next = NULL};

    assert_true(redis_server_parse(SLICE_LITERAL("127.0.0.1:1"), &options.server, &why));
    struct redis_link *link = redis_link_new(&options);
    if (!link)
        return false;
    for (unsigned i = 0; i < 5; i++)
        loop_turn(context, false);
    assert_false(redis_link_send(link, (struct slice[]){SLICE_LITERAL("PING")}, 1, &command));
    redis_link_free(link);
    return true;
}

static void a_link_without_memory_is_none(void **state)
{
    begins_or_says_no(begin_link, *state);
}

/* ---- tunnels of the worker ---- */

static void on_over(void *owner, struct running *r)
{
    *(struct running **)owner = r;
}

static bool begin_tunnel(void *context)
{
    static const struct manager_message create = {.type = MANAGER_CREATE,
                                                  .kind = MANAGER_PIPES,
                                                  .scope = SLICE_LITERAL("sandbox"),
                                                  .id = SLICE_LITERAL("tunnel"),
                                                  .argv = SLICE_LITERAL("true\0"),
                                                  .ring = SESSION_RING_MIN};
    enum manager_code code;
    struct fail why;
    struct running *over = NULL, *r = running_new(context, &create, create.id, on_over, &over, &code, &why);
    struct resume_table table;

    if (!r)
        return false;
    resume_table_init(&table, context, SECOND, 1);
    struct resume_tunnel *t = resume_table_add(&table, r);
    assert_ptr_equal(resume_table_find(&table, create.scope, create.id), t);
    assert_int_equal(table.count, t ? 1 : 0);
    resume_table_free(&table);
    running_forget(r); /* as the session manager does it */
    assert_ptr_equal(over, r);
    running_free(r);
    return t != NULL;
}

static void a_tunnel_without_memory_is_not_in_the_table(void **state)
{
    begins_or_says_no(begin_tunnel, *state);
}

static int open_loop(void **state)
{
    struct fail why;
    *state = loop_new(&why);
    return *state ? 0 : -1;
}

static int close_loop(void **state)
{
    loop_free(*state);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_directory_without_memory_does_not_start, open_loop, close_loop),
        cmocka_unit_test_setup_teardown(names_without_memory_are_not_asked_for, open_loop, close_loop),
        cmocka_unit_test_setup_teardown(addresses_that_could_not_be_taken_are_told_again, open_loop,
                                        close_loop),
        cmocka_unit_test_setup_teardown(a_name_is_resolved_on_while_it_is_found_in_tables_and_no_longer,
                                        open_loop, close_loop),
        cmocka_unit_test_setup_teardown(a_name_that_is_let_go_is_found_no_longer, open_loop, close_loop),
        cmocka_unit_test_setup_teardown(a_name_that_is_found_is_kept_where_there_is_no_room_for_others,
                                        open_loop, close_loop),
        cmocka_unit_test_setup_teardown(a_lookup_that_was_taken_is_answered, open_loop, close_loop),
        cmocka_unit_test_setup_teardown(a_link_without_memory_is_none, open_loop, close_loop),
        cmocka_unit_test_setup_teardown(a_tunnel_without_memory_is_not_in_the_table, open_loop, close_loop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
