/* SPDX-License-Identifier: MIT */
#include "tests/unit/support.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "spoa/base/os/file.h"

static char path[] = "/tmp/cellgate-file-XXXXXX";
static int fd;
static struct fail why;
static struct slice content;

static int make(void **state)
{
    (void)state;
    fd = mkstemp(path);
    return fd < 0 || write(fd, "a\0b", 3) != 3;
}

static int drop(void **state)
{
    (void)state;
    close(fd);
    return unlink(path);
}

static void a_file_is_read_whole_with_a_nul_behind_it(void **state)
{
    (void)state;
    assert_true(file_read(path, 3, &content, &why));
    assert_int_equal(content.len, 3);
    assert_memory_equal(content.at, "a\0b\0", 4);
    file_free(content);
}

static void a_file_over_the_limit_is_refused(void **state)
{
    (void)state;
    char expected[80];
    assert_false(file_read(path, 2, &content, &why));
    snprintf(expected, sizeof expected, "%s: longer than 2 bytes", path);
    assert_string_equal(why.text, expected);
    assert_false(slice_present(content));
    file_free(content);
}

static void an_empty_file_is_present_and_empty(void **state)
{
    (void)state;
    char name[] = "/tmp/cellgate-file-XXXXXX";
    close(mkstemp(name));
    bool read = file_read(name, 10, &content, &why);
    unlink(name);
    assert_true(read);
    assert_true(slice_present(content));
    assert_int_equal(content.len, 0);
    file_free(content);
}

static void a_pipe_is_read_to_its_end_for_whoever_asks_for_that(void **state)
{
    (void)state;
    int ends[2];
    char name[40];
    assert_int_equal(pipe(ends), 0);
    assert_int_equal(write(ends[1], "piped", 5), 5);
    close(ends[1]);
    snprintf(name, sizeof name, "/dev/fd/%d", ends[0]);
    assert_true(file_read_stream(name, 100, &content, &why));
    assert_true(slice_is(content, "piped"));
    file_free(content);
    close(ends[0]);
}

static void refuse_special(const char *name)
{
    char expected[100];
    assert_false(file_read(name, 100, &content, &why));
    snprintf(expected, sizeof expected, "%s: not a regular file", name);
    assert_string_equal(why.text, expected);
    assert_false(slice_present(content));
}

/* The open of a FIFO without a writer, and a read of a terminal, would last for ever. */
static void what_is_no_regular_file_is_refused_and_not_waited_for(void **state)
{
    (void)state;
    char name[] = "/tmp/cellgate-file-XXXXXX";
    close(mkstemp(name));
    unlink(name);
    assert_int_equal(mkfifo(name, 0600), 0);
    alarm(20);
    refuse_special(name);
    alarm(0);
    unlink(name);
    refuse_special("/dev/zero");
    refuse_special("/dev/null");
}

static void a_file_that_everybody_can_read_is_public(void **state)
{
    (void)state;
    const mode_t modes[] = {0600, 0640, 0440, 0604, 0644};
    for (size_t i = 0; i < sizeof modes / sizeof *modes; i++) {
        assert_int_equal(fchmod(fd, modes[i]), 0);
        assert_int_equal(file_is_public(path), i >= 3);
    }
    assert_int_equal(fchmod(fd, 0600), 0);
    assert_false(file_is_public("/nowhere/at/all"));
    assert_false(file_is_public("/"));
}

static void what_cannot_be_read_is_named(void **state)
{
    (void)state;
    assert_false(file_read("/nowhere/at/all", 10, &content, &why));
    assert_string_equal(why.text, "/nowhere/at/all: No such file or directory");
    assert_false(file_read("/", 10, &content, &why));
    assert_string_equal(why.text, "/: Is a directory");
    alloc_fail_at(1);
    assert_false(file_read(path, 10, &content, &why));
    alloc_fail_at(0);
    assert_non_null(strstr(why.text, "out of memory"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_file_is_read_whole_with_a_nul_behind_it),
        cmocka_unit_test(a_file_over_the_limit_is_refused),
        cmocka_unit_test(an_empty_file_is_present_and_empty),
        cmocka_unit_test(a_pipe_is_read_to_its_end_for_whoever_asks_for_that),
        cmocka_unit_test(what_is_no_regular_file_is_refused_and_not_waited_for),
        cmocka_unit_test(what_cannot_be_read_is_named),
        cmocka_unit_test(a_file_that_everybody_can_read_is_public),
    };
    return cmocka_run_group_tests(tests, make, drop);
}
