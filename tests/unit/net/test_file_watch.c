/* SPDX-License-Identifier: MIT */
#include "tests/unit/support.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "spoa/net/file_watch.h"

struct world {
    char folder[64], key[96], other[96];
    struct loop *loop;
    struct file_watch *watch;
    struct loop_timer patience;
    unsigned changes;
    bool refuses;
};

static void put(const char *path, const char *text)
{
    FILE *out = fopen(path, "w");
    assert_non_null(out);
    fputs(text, out);
    assert_int_equal(fclose(out), 0);
}

static bool on_changed(void *context)
{
    struct world *w = context;
    w->changes++;
    loop_stop(w->loop);
    return !w->refuses;
}

static void on_patience(void *context)
{
    loop_stop(((struct world *)context)->loop);
}

static bool watch(struct world *w, const char *path)
{
    struct stat seen;
    if (stat(path, &seen) != 0)
        memset(&seen, 0, sizeof seen);
    return file_watch_add(w->watch, path, &seen);
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
    w->watch = file_watch_new(w->loop, on_changed, w);
    assert_non_null(w->watch);
    assert_true(watch(w, w->key));
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

/* Returns true if a change was reported within the time. */
static bool told(struct world *w, uint64_t time)
{
    unsigned before = w->changes;
    loop_timer_set(&w->patience, time);
    loop_run(w->loop);
    loop_timer_stop(&w->patience);
    return w->changes == before + 1;
}

static void a_rewritten_file_is_told_once(void **state)
{
    struct world *w = *state;
    put(w->key, "2");
    put(w->key, "3");
    assert_true(told(w, 5 * SECOND));
    assert_false(told(w, 700 * MILLISECOND));
}

static void a_replaced_file_is_told(void **state)
{
    struct world *w = *state;
    put(w->other, "2");
    assert_int_equal(rename(w->other, w->key), 0);
    assert_true(told(w, 5 * SECOND));
}

/* `cp -p`, `rsync -t` and `tar x` keep a file's size and age. They cannot set the time of the last change, but a clock of 4 ms may miss it. */
static void a_file_of_the_same_size_and_age_is_told(void **state)
{
    struct world *w = *state;
    struct stat before, now;
    assert_int_equal(stat(w->key, &before), 0);
    const struct timespec times[] = {before.st_atim, before.st_mtim};
    do {
        put(w->key, "2");
        assert_int_equal(utimensat(AT_FDCWD, w->key, times, 0), 0);
        assert_int_equal(stat(w->key, &now), 0);
    } while (now.st_ctim.tv_sec == before.st_ctim.tv_sec && now.st_ctim.tv_nsec == before.st_ctim.tv_nsec);
    assert_true(told(w, 5 * SECOND));
}

static void a_change_is_reported_again_until_it_is_applied(void **state)
{
    struct world *w = *state;
    put(w->key, "2");
    w->refuses = true;
    assert_true(told(w, 5 * SECOND));
    assert_true(told(w, 5 * SECOND));
    w->refuses = false;
    assert_true(told(w, 5 * SECOND));
    assert_false(told(w, 700 * MILLISECOND));
}

static void a_file_beside_it_is_not_told_until_it_is_watched_too(void **state)
{
    struct world *w = *state;
    put(w->other, "2");
    assert_false(told(w, 700 * MILLISECOND));
    assert_true(watch(w, w->other));
    put(w->other, "3");
    assert_true(told(w, 5 * SECOND));
}

static void a_removed_file_and_its_return_are_told(void **state)
{
    struct world *w = *state;
    unlink(w->key);
    assert_true(told(w, 5 * SECOND));
    put(w->key, "1");
    assert_true(told(w, 5 * SECOND));
}

/* kubelet replaces a folder of keys in this way: the names stay, and `..data` leads to another folder. */
static void a_folder_swapped_by_a_link_is_told(void **state)
{
    struct world *w = *state;
    char data[96], fresh[96], through[128];
    snprintf(data, sizeof data, "%s/..data", w->folder);
    snprintf(fresh, sizeof fresh, "%s/..new", w->folder);
    snprintf(through, sizeof through, "%s/k1", data);
    assert_int_equal(symlink("/nowhere", data), 0);
    assert_true(watch(w, through)); /* a file that does not exist can be watched */
    assert_int_equal(symlink(w->folder, fresh), 0);
    assert_int_equal(rename(fresh, data), 0);
    assert_true(told(w, 5 * SECOND));
    unlink(data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_rewritten_file_is_told_once, setup, teardown),
        cmocka_unit_test_setup_teardown(a_replaced_file_is_told, setup, teardown),
        cmocka_unit_test_setup_teardown(a_file_of_the_same_size_and_age_is_told, setup, teardown),
        cmocka_unit_test_setup_teardown(a_change_is_reported_again_until_it_is_applied, setup, teardown),
        cmocka_unit_test_setup_teardown(a_file_beside_it_is_not_told_until_it_is_watched_too, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(a_folder_swapped_by_a_link_is_told, setup, teardown),
        cmocka_unit_test_setup_teardown(a_removed_file_and_its_return_are_told, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
