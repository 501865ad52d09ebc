/* SPDX-License-Identifier: MIT */
#include "tests/unit/support.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "spoa/agent/directory/file.h"
#include "spoa/agent/model/record_json.h"
#include "spoa/agent/model/record_pack.h"

struct folder {
    char path[64], file[96], other[96];
};

static int setup(void **state)
{
    struct folder *f = calloc(1, sizeof *f);
    strcpy(f->path, "/tmp/cellgate-test-XXXXXX");
    assert_non_null(mkdtemp(f->path));
    snprintf(f->file, sizeof f->file, "%s/sandboxes.json", f->path);
    snprintf(f->other, sizeof f->other, "%s/new", f->path);
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct folder *f = *state;
    unlink(f->file);
    unlink(f->other);
    rmdir(f->path);
    free(f);
    return 0;
}

static void put(const char *path, const char *text)
{
    FILE *out = fopen(path, "w");
    assert_non_null(out);
    fputs(text, out);
    assert_int_equal(fclose(out), 0);
}

static void replace(const struct folder *f, const char *text)
{
    put(f->other, text);
    assert_int_equal(rename(f->other, f->file), 0);
}

static const char good[] =
    "{\"not_before\": 17,\n"
    " \"sandboxes\": {\n"
    "  \"sb-1\": {\"worker\": \"http://127.0.0.1:9001\", \"epoch\": 3, \"org\": \"o\",\n"
    "    \"ports\": {\"8080\": \"http://10.0.0.5:49001\"}, \"x-region\": [1],\n"
    "    \"headers\": {\"Authorization\": \"Bearer secret\"}},\n"
    "  \"sb-2\": {\"state\": \"stopped\"}\n"
    " }\n"
    "}\n";

static void a_good_file_is_loaded(void **state)
{
    struct folder *f = *state;
    struct directory_load load;
    struct record record;
    struct worker worker;
    struct fail why = {""};
    put(f->file, good);
    if (!directory_file_load(f->file, NULL, &load, &why))
        fail_msg("%s", why.text);
    assert_int_equal(records_count(load.records), 2);
    assert_int_equal(load.not_before, 17);
    assert_int_equal(records_get(load.records, slice_text("sb-1"), &record), LOOKUP_FOUND);
    assert_int_equal(record.state, RECORD_RUNNING);
    assert_int_equal(record.epoch, 3);
    assert_true(slice_is(record.org, "o"));
    assert_true(record_port(&record, 8080, &worker));
    assert_int_equal(worker.port, 49001);
    assert_int_equal(records_get(load.records, slice_text("sb-2"), &record), LOOKUP_FOUND);
    assert_int_equal(record.state, RECORD_STOPPED);
    records_release(load.records);
}

static void a_bad_file_is_refused_with_its_position(void **state)
{
    static const struct {
        const char *text, *where;
    } cases[] = {
        {"", ":1:1"},
        {"{}", ""},
        {"[]", ":1:1"},
        {"{\"sandboxes\": []}", ":1:"},
        {"{\"sandboxes\": {}} x", ":1:19"},
        {"{\"sandboxes\":\n {\"sb-1\":\n  {\"worker\": \"http://127.0.0.1:9001\",\n   \"epoch\": 0}}}",
         ":4:"},
        {"{\"sandboxes\": {\"sb-1\": {\"worker\": \"http://127.0.0.1:9001\", \"epoch\": 1.5}}}", ":1:"},
        {"{\"sandboxes\": {\"sb-1\": {\"worker\": \"http://127.0.0.1\", \"epoch\": \"1\"}}}", ":1:"},
        {"{\"sandboxes\": {\n\"a\": {\"worker\": \"http://h:1\"},\n\"a\": {\"worker\": \"http://h:1\"}}}",
         ":3:"},
        {"{\"sandboxes\": {\"sb-1\": {\"worker\": \"nowhere\"}}}", ":1:"},
        {"{\"sandboxes\": {\"sb-1\": {}}}", ":1:24: a running sandbox needs a worker"},
        {"{\"sandboxes\": {\"sb-1\": {\"state\": \"asleep\"}}}", ":1:"},
        {"{\"sandboxes\": {\"sb-1\": {\"stat\": \"stopped\", \"worker\": \"http://h:1\"}}}", ":1:"},
        {"{\"sandboxes\": {\"sb-1\": {\"worker\": \"http://h:1\", \"ports\": {\"08\": \"http://h:1\"}}}}",
         ":1:"},
        {"{\"sandboxes\": {\"sb-1\": {\"worker\": \"http://h:1\", \"ports\": {\"0\": \"http://h:1\"}}}}",
         ":1:"},
        {"{\"sandboxes\": {\"sb-1\": {\"worker\": \"http://h:1\", \"headers\": {\"a b\": \"\"}}}}", ":1:"},
        {"{\"sandboxes\": {\"sb-1\": {\"worker\": \"http://h:1\", \"headers\": {\"Host\": \"x\"}}}}", ":1:"},
        {"{\"sandboxes\": {\"sb-1\": {\"worker\": \"http://h:1\", \"headers\": {\"a\": \"x\\r\\ny: z\"}}}}",
         ":1:"},
        {"{\"sandboxes\": {\"sb-1\": {\"worker\": \"http://h:1\", \"access\": {\"token_sha256\": \"00\"}}}}",
         ":1:"},
        {"{\"sandboxes\": {\"sb 1\": {\"worker\": \"http://h:1\"}}}", ":1:"},
        {"{\"not_before\": -1, \"sandboxes\": {}}", ":1:"},
        {"{\"workers\": {}, \"sandboxes\": {}}", ":1:"},
    };
    struct folder *f = *state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct directory_load load;
        struct fail why = {""};
        char start[128];
        put(f->file, cases[i].text);
        if (directory_file_load(f->file, NULL, &load, &why))
            fail_msg("accepted: %s", cases[i].text);
        snprintf(start, sizeof start, "%s%s", f->file, cases[i].where);
        if (strncmp(why.text, start, strlen(start)) != 0)
            fail_msg("%s: said %s", cases[i].text, why.text);
        assert_null(strstr(why.text, "secret"));
    }
}

/* `b` begins the second line, at 16. */
static char *file_with_headers_of(size_t a, size_t b)
{
    char *text = test_malloc(20000), as[8193], bs[8193];
    memset(as, 'x', sizeof as);
    memset(bs, 'x', sizeof bs);
    snprintf(text, 20000,
             "{\"sandboxes\": {\"sb-1\": {\"worker\": \"http://h:1\", \"headers\": {\"a\": \"%.*s\",\n"
             "\"name\": \"%.*s\"}}}}",
             (int)a, as, (int)b, bs);
    return text;
}

/* The relay would be told `unavailable` for good. */
static void headers_that_do_not_fit_into_a_frame_are_refused(void **state)
{
    const size_t a = 8000, b = RECORD_HEADERS_MOST - (4 + 1 + a) - (4 + 4);
    struct folder *f = *state;
    for (size_t more = 0; more < 2; more++) {
        struct directory_load load = {.records = NULL};
        struct fail why = {""};
        char *text = file_with_headers_of(a, b + more);
        put(f->file, text);
        assert_int_equal(directory_file_load(f->file, NULL, &load, &why), more == 0);
        if (more && (!strstr(why.text, ":2:9: headers are over 12288 bytes") || strstr(why.text, "xxx")))
            fail_msg("said %s", why.text);
        if (!more)
            records_release(load.records);
        test_free(text);
    }
}

static void a_pipe_or_a_folder_is_refused_at_once(void **state)
{
    struct folder *f = *state;
    struct directory_load load;
    struct fail why;
    assert_int_equal(mkfifo(f->file, 0600), 0);
    assert_false(directory_file_load(f->file, NULL, &load, &why));
    assert_false(directory_file_load(f->path, NULL, &load, &why));
}

static void a_file_cut_anywhere_is_refused(void **state)
{
    struct folder *f = *state;
    char text[sizeof good];
    for (size_t len = 0; len < sizeof good - 3; len++) {
        struct directory_load load;
        struct fail why;
        memcpy(text, good, len);
        text[len] = '\0';
        put(f->file, text);
        assert_false(directory_file_load(f->file, NULL, &load, &why));
    }
}

static void an_epoch_that_goes_back_keeps_the_older_record(void **state)
{
    struct folder *f = *state;
    struct directory_load first, second;
    struct record record;
    struct fail why;
    put(f->file, "{\"sandboxes\": {\"a\": {\"worker\": \"http://127.0.0.1:1\", \"epoch\": 5},"
                 " \"b\": {\"worker\": \"http://127.0.0.1:2\", \"epoch\": 5}}}");
    assert_true(directory_file_load(f->file, NULL, &first, &why));
    put(f->file, "{\"sandboxes\": {\"a\": {\"worker\": \"http://127.0.0.1:3\", \"epoch\": 4},"
                 " \"b\": {\"worker\": \"http://127.0.0.1:4\", \"epoch\": 6}}}");
    assert_true(directory_file_load(f->file, first.records, &second, &why));
    records_release(first.records);
    assert_int_equal(second.epochs_behind, 1);
    records_get(second.records, slice_text("a"), &record);
    assert_int_equal(record.worker.port, 1);
    assert_int_equal(record.epoch, 5);
    records_get(second.records, slice_text("b"), &record);
    assert_int_equal(record.worker.port, 4);
    records_release(second.records);
}

static void without_memory_a_load_is_refused(void **state)
{
    struct folder *f = *state;
    put(f->file, good);
    for (unsigned n = 1;; n++) {
        struct directory_load load;
        struct fail why;
        alloc_fail_at(n);
        bool loaded = directory_file_load(f->file, NULL, &load, &why);
        unsigned asked = alloc_count();
        alloc_fail_at(0);
        if (loaded) {
            assert_true(asked < n);
            records_release(load.records);
            break;
        }
        assert_null(load.records);
    }
}

/* ---- watching it ---- */

struct seen {
    struct loop *loop;
    unsigned loads, failures;
    unsigned refuses; /* so many loads, as if there were no memory for them */
    int64_t epoch;    /* of sandbox "a" in the newest table */
    unsigned hosts;
};

static struct seen *seen_by(struct directory *directory)
{
    return (struct seen *)(void *)directory;
}

/* As of directory/kind.h: here they stand for the directory itself. */
bool directory_loaded(struct directory *directory, const struct directory_load *load)
{
    struct seen *seen = seen_by(directory);
    struct record record;
    bool taken = ++seen->loads > seen->refuses;
    if (taken && records_get(load->records, slice_text("a"), &record) == LOOKUP_FOUND)
        seen->epoch = record.epoch;
    seen->hosts = (unsigned)load->host_count;
    return taken;
}

void directory_health(struct directory *directory, bool answering, bool pushing, const char *why)
{
    assert_false(answering);
    assert_true(pushing);
    assert_non_null(why);
    seen_by(directory)->failures++;
}

static void *start(struct seen *seen, const struct directory_file_options *options)
{
    struct fail why;
    seen->loop = loop_new(&why);
    assert_non_null(seen->loop);
    void *kind = directory_kind_file.start(options, (struct directory *)(void *)seen, seen->loop, NULL, &why);
    assert_non_null(kind);
    return kind;
}

static void end(struct seen *seen, void *kind)
{
    directory_kind_file.stop(kind);
    loop_free(seen->loop);
}

/* Waits until sandbox "a" has that epoch and at least so many loads failed; false after five seconds. */
static bool await(struct seen *seen, int64_t epoch, unsigned failures)
{
    uint64_t begun = loop_clock();
    while ((seen->epoch != epoch || seen->failures < failures) && loop_clock() < begun + 5000000)
        loop_turn(seen->loop, true); /* it has timers */
    return seen->epoch == epoch && seen->failures >= failures;
}

static void replaced_rewritten_removed_and_broken_files_are_noticed(void **state)
{
    struct folder *f = *state;
    struct seen seen = {.loop = NULL};
    const struct directory_file_options options = {.path = (char *)f->file};
    void *kind = start(&seen, &options);
    assert_true(await(&seen, 0, 1)); /* there is no file yet */
    replace(f, "{\"sandboxes\": {\"a\": {\"worker\": \"http://127.0.0.1:1\", \"epoch\": 1}}}");
    assert_true(await(&seen, 1, 1));
    put(f->file, "{\"sandboxes\": {\"a\": {\"worker\": \"http://127.0.0.1:1\", \"epoch\": 2}}}");
    assert_true(await(&seen, 2, 1));
    unsigned failures = seen.failures;
    replace(f, "{\"sandboxes\": {\"a\": ");
    assert_true(await(&seen, 2, failures + 1));
    replace(f, "{\"sandboxes\": {\"a\": {\"worker\": \"http://127.0.0.1:1\", \"epoch\": 3}}}");
    assert_true(await(&seen, 3, failures + 1));
    failures = seen.failures;
    unlink(f->file);
    assert_true(await(&seen, 3, failures + 1));
    replace(f, "{\"sandboxes\": {\"a\": {\"worker\": \"http://127.0.0.1:1\", \"epoch\": 4}}}");
    assert_true(await(&seen, 4, failures + 1));
    end(&seen, kind);
}

static void what_could_not_be_taken_is_read_again(void **state)
{
    struct folder *f = *state;
    struct seen seen = {.refuses = 1};
    const struct directory_file_options options = {.path = (char *)f->file};
    put(f->file, "{\"sandboxes\": {\"a\": {\"worker\": \"http://127.0.0.1:1\", \"epoch\": 1}}}");
    void *kind = start(&seen, &options);
    bool taken = await(&seen, 1, 0);
    end(&seen, kind);
    assert_true(taken);
    assert_int_equal(seen.loads, 2);
}

static void without_descriptors_it_is_read_when_there_are_some_again(void **state)
{
    struct folder *f = *state;
    struct seen seen = {.loop = NULL};
    const struct directory_file_options options = {.path = (char *)f->file};
    struct rlimit limit;
    put(f->file, "{\"sandboxes\": {\"a\": {\"worker\": \"http://127.0.0.1:1\", \"epoch\": 1}}}");
    put(f->other, "{\"sandboxes\": {\"a\": {\"worker\": \"http://127.0.0.1:1\", \"epoch\": 2}}}");
    void *kind = start(&seen, &options);
    assert_true(await(&seen, 1, 0));
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &(struct rlimit){3, limit.rlim_max}), 0);
    assert_int_equal(rename(f->other, f->file), 0);
    bool failed = await(&seen, 1, 1);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
    assert_true(failed);
    assert_true(await(&seen, 2, 1));
    assert_int_equal(seen.failures, 1); /* told once */
    end(&seen, kind);
}

struct ticks {
    struct loop_timer timer;
    unsigned count;
};

static void on_tick(void *owner)
{
    struct ticks *t = owner;
    t->count++;
    loop_timer_set(&t->timer, MILLISECOND);
}

static void others_on_the_loop_are_heard_while_a_large_file_is_read(void **state)
{
    struct folder *f = *state;
    struct seen seen = {.loop = NULL};
    struct ticks ticks = {.count = 0};
    const struct directory_file_options options = {.path = (char *)f->file};
    FILE *out = fopen(f->file, "w");
    assert_non_null(out);
    fputs("{\"sandboxes\": {\"a\": {\"worker\": \"http://127.0.0.1:1\", \"epoch\": 1}", out);
    for (int i = 0; i < 50000; i++)
        fprintf(out, ",\n\"sb-%d\": {\"worker\": \"http://w-%d.test:1\"}", i, i % 7);
    fputs("}}", out);
    fclose(out);
    void *kind = start(&seen, &options);
    loop_timer_open(&ticks.timer, seen.loop, on_tick, &ticks);
    on_tick(&ticks);
    assert_true(await(&seen, 1, 0));
    assert_in_range(ticks.count, 5, UINT32_MAX);
    assert_int_equal(seen.hosts, 7);
    replace(f, "{\"sandboxes\": {}}");
    replace(f, "{\"sandboxes\": {\"a\": {\"worker\": \"http://127.0.0.1:1\", \"epoch\": 2}}}");
    assert_true(await(&seen, 2, 0));
    assert_int_equal(seen.hosts, 0);
    loop_timer_close(&ticks.timer);
    end(&seen, kind);
}

/* Whoever stops it does not wait for what is of no use any more. */
static void a_file_is_not_read_to_its_end_when_it_is_stopped(void **state)
{
    struct folder *f = *state;
    struct seen seen = {.loop = NULL};
    const struct directory_file_options options = {.path = (char *)f->file};
    put(f->file, "{\"sandboxes\": {\"a\": {\"worker\": \"http://127.0.0.1:1\", \"epoch\": 1}}}");
    for (int i = 0; i < 20; i++) {
        void *kind = start(&seen, &options);
        for (int turns = 0; turns < i % 4; turns++)
            loop_turn(seen.loop, false);
        end(&seen, kind); /* a sanitizer sees what is left, or used too late */
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_good_file_is_loaded, setup, teardown),
        cmocka_unit_test_setup_teardown(a_bad_file_is_refused_with_its_position, setup, teardown),
        cmocka_unit_test_setup_teardown(headers_that_do_not_fit_into_a_frame_are_refused, setup, teardown),
        cmocka_unit_test_setup_teardown(a_pipe_or_a_folder_is_refused_at_once, setup, teardown),
        cmocka_unit_test_setup_teardown(a_file_cut_anywhere_is_refused, setup, teardown),
        cmocka_unit_test_setup_teardown(an_epoch_that_goes_back_keeps_the_older_record, setup, teardown),
        cmocka_unit_test_setup_teardown(without_memory_a_load_is_refused, setup, teardown),
        cmocka_unit_test_setup_teardown(replaced_rewritten_removed_and_broken_files_are_noticed, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(what_could_not_be_taken_is_read_again, setup, teardown),
        cmocka_unit_test_setup_teardown(others_on_the_loop_are_heard_while_a_large_file_is_read, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(a_file_is_not_read_to_its_end_when_it_is_stopped, setup, teardown),
        cmocka_unit_test_setup_teardown(without_descriptors_it_is_read_when_there_are_some_again, setup,
                                        teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
