/* SPDX-License-Identifier: MIT */
#include "tests/unit/support.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "spoa/agent/file_watch.h"

struct world {
    char folder[64], key[96], other[96];
    struct loop *loop;
    struct file_watch *watch;
    struct loop_timer patience;
    unsigned changes;
};

static void put(const char *path, const char *text)
{
    FILE *out = fopen(path, "w");
    assert_non_null(out);
    fputs(text, out);
    assert_int_equal(fclose(out), 0);
}

static void on_changed(void *context)
{
    struct world *w = context;
    w->changes++;
    loop_stop(w->loop);
}

static void on_patience(void *context)
{
    loop_stop(((struct world *)context)->loop);
}

static int setup(void **state)
{
    struct world *w = calloc(1, sizeof *w);
    struct fail why;
    strcpy(w->folder, "/tmp/cellgate-test-XXXXXX");
    assert_non_null(mkdtemp(w->folder));
    snprintf(w->key, sizeof w->key, "%s/k1", w->folder);
    snprintf(w->other, sizeof w->other, "%s/other", w->folder);
    put(w->key, "1");
    w->loop = loop_new(&why);
    assert_non_null(w->loop);
    w->watch = file_watch_new(w->loop, on_changed, w, &why);
    assert_non_null(w->watch);
    assert_true(file_watch_add(w->watch, w->key));
    loop_timer_open(&w->patience, w->loop, on_patience, w);
    *state = w;
    return 0;
}

static int teardown(void **state)
{
    struct world *w = *state;
    file_watch_free(w->watch);
    loop_timer_close(&w->patience);
    loop_free(w->loop);
    unlink(w->key);
    unlink(w->other);
    rmdir(w->folder);
    free(w);
    return 0;
}

/* Whether a change was told within the time. */
static bool told(struct world *w, double seconds)
{
    unsigned before = w->changes;
    loop_timer_set(&w->patience, seconds);
    loop_run(w->loop);
    loop_timer_stop(&w->patience);
    return w->changes == before + 1;
}

static void a_rewritten_file_is_told_once(void **state)
{
    struct world *w = *state;
    put(w->key, "2");
    put(w->key, "3");
    assert_true(told(w, 5));
    assert_false(told(w, 0.15));
}

static void a_replaced_file_is_told(void **state)
{
    struct world *w = *state;
    put(w->other, "2");
    assert_int_equal(rename(w->other, w->key), 0);
    assert_true(told(w, 5));
}

static void a_file_beside_it_is_not_told_until_it_is_watched_too(void **state)
{
    struct world *w = *state;
    put(w->other, "2");
    assert_false(told(w, 0.15));
    assert_true(file_watch_add(w->watch, w->other));
    put(w->other, "3");
    assert_true(told(w, 5));
}

/* What kubectl does with a folder of keys: their names stay, the folder behind `..data` is another. */
static void a_folder_swapped_by_a_link_is_told(void **state)
{
    struct world *w = *state;
    char link[128], fresh[128];
    snprintf(link, sizeof link, "%s/..data", w->folder);
    snprintf(fresh, sizeof fresh, "%s/..new", w->folder);
    assert_int_equal(symlink("/tmp", fresh), 0);
    assert_int_equal(rename(fresh, link), 0);
    assert_true(told(w, 5));
    unlink(link);
}

/* The kernel forgets events when too many wait (16384 by default): then any file may have changed. */
static void a_change_that_the_kernel_forgot_is_told(void **state)
{
    struct world *w = *state;
    unsigned most = 0;
    FILE *limit = fopen("/proc/sys/fs/inotify/max_queued_events", "r");
    if (!limit || fscanf(limit, "%u", &most) != 1 || most > 100000)
        skip();
    fclose(limit);
    char name[128];
    put(w->other, "");
    snprintf(name, sizeof name, "%s/third", w->folder);
    for (unsigned i = 0; i <= most; i++) /* to and fro: equal events in a row would be one */
        assert_int_equal(i % 2 ? rename(name, w->other) : rename(w->other, name), 0);
    unlink(name);
    put(w->key, "2");
    assert_true(told(w, 5));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_rewritten_file_is_told_once, setup, teardown),
        cmocka_unit_test_setup_teardown(a_replaced_file_is_told, setup, teardown),
        cmocka_unit_test_setup_teardown(a_file_beside_it_is_not_told_until_it_is_watched_too, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(a_folder_swapped_by_a_link_is_told, setup, teardown),
        cmocka_unit_test_setup_teardown(a_change_that_the_kernel_forgot_is_told, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
