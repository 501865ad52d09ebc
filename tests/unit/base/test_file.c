/* SPDX-License-Identifier: MIT */
#include "tests/unit/support.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/xattr.h>
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

/* Opening a FIFO without a writer, and reading a terminal, would block for ever. */
static void a_file_that_is_not_regular_is_refused_without_waiting(void **state)
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

enum { READER = 4711, READERS_GROUP = 4712, OTHER = 4713 };

struct acl_entry {
    uint16_t tag, permissions;
    uint32_t id;
};

/* A file as a daemon finds it, whose account is READER, and how exposed that is. */
struct secret {
    const char *what;
    uid_t owner;
    gid_t group;
    mode_t mode;
    enum file_exposure expected;
    struct acl_entry acl[6]; /* users and groups beside those of the mode */
};

static const struct secret secrets[] = {
    {"its own, for itself", READER, READERS_GROUP, 0600, FILE_PRIVATE, {{0}}},
    {"root's, for its group", 0, READERS_GROUP, 0640, FILE_PRIVATE, {{0}}},
    {"a mount with fsGroup", 0, READERS_GROUP, 0440, FILE_PRIVATE, {{0}}},
    {"a mount without fsGroup", 0, 0, 0444, FILE_READABLE, {{0}}},
    {"everybody can read it", READER, READERS_GROUP, 0644, FILE_READABLE, {{0}}},
    {"another group can read it", READER, OTHER, 0640, FILE_READABLE, {{0}}},
    {"its group can write it", READER, READERS_GROUP, 0660, FILE_WRITABLE, {{0}}},
    {"another group can write it", 0, OTHER, 0620, FILE_WRITABLE, {{0}}},
    {"everybody can write it", READER, READERS_GROUP, 0602, FILE_WRITABLE, {{0}}},
    {"it is another user's", OTHER, READERS_GROUP, 0640, FILE_READABLE, {{0}}},
    {"a systemd credential", 0, 0, 0440, FILE_PRIVATE, {{2, 4, READER}}},
    {"an ACL for another user", 0, 0, 0440, FILE_READABLE, {{2, 4, READER}, {2, 4, OTHER}}},
    {"an ACL for another group", READER, READERS_GROUP, 0440, FILE_READABLE, {{8, 4, OTHER}}},
    {"an ACL lets another user write", 0, 0, 0460, FILE_WRITABLE, {{2, 6, OTHER}}},
    {"the mask takes what the ACL gives", 0, 0, 0440, FILE_PRIVATE, {{2, 6, READER}, {2, 2, OTHER}}},
};

/* The extended attribute as the kernel takes it: the entries of the mode around those of the secret. */
static void put_acl(const struct secret *secret)
{
    const struct acl_entry all[] = {{1, 6, UINT32_MAX},
                                    secret->acl[0],
                                    secret->acl[1],
                                    {4, 0, UINT32_MAX},
                                    {16, secret->mode >> 3 & 7, UINT32_MAX},
                                    {32, secret->mode & 7, UINT32_MAX}};
    struct acl_entry sorted[6];
    uint8_t memory[64] = {2};
    size_t count = 0;
    for (unsigned tag = 1; tag <= 32; tag *= 2)
        for (size_t i = 0; i < 6; i++)
            if (all[i].tag == tag)
                sorted[count++] = all[i];
    memcpy(memory + 4, sorted, count * sizeof *sorted);
    assert_int_equal(fsetxattr(fd, "system.posix_acl_access", memory, 4 + count * sizeof *sorted, 0), 0);
}

static void judge_as_reader(const struct secret *secret)
{
    assert_int_equal(setegid(READERS_GROUP) | seteuid(READER), 0);
    enum file_exposure by_path = file_exposure(path, FILE_READ_BY_SELF, &why),
                       of_open = file_exposure_of(fd, path, &why);
    assert_int_equal(seteuid(0) | setegid(0), 0);
    if (by_path != secret->expected || of_open != secret->expected)
        fail_msg("%s: %d, %d", secret->what, by_path, of_open);
}

static void one_judge_knows_who_else_can_use_a_secret(void **state)
{
    (void)state;
    if (geteuid() != 0)
        skip(); /* nobody else can give files away */
    for (size_t i = 0; i < sizeof secrets / sizeof *secrets; i++) {
        removexattr(path, "system.posix_acl_access");
        assert_int_equal(fchown(fd, secrets[i].owner, secrets[i].group) | fchmod(fd, secrets[i].mode), 0);
        if (secrets[i].acl[0].tag)
            put_acl(&secrets[i]);
        judge_as_reader(&secrets[i]);
    }
    removexattr(path, "system.posix_acl_access");
    assert_int_equal(fchown(fd, 0, 0) | fchmod(fd, 0600), 0);
}

static void a_secret_is_read_if_it_is_no_more_exposed_than_its_reader_allows(void **state)
{
    (void)state;
    assert_int_equal(fchmod(fd, 0644), 0);
    assert_false(file_read_secret(path, 1000, FILE_PRIVATE, &content, &why));
    assert_non_null(strstr(why.text, path));
    assert_non_null(strstr(why.text, "everybody can read it (mode 644, should be 600)"));
    why = (struct fail){""};
    assert_true(file_read_secret(path, 1000, FILE_READABLE, &content, &why));
    assert_string_equal(why.text, "");
    file_free(content);
    assert_int_equal(fchmod(fd, 0620), 0);
    assert_false(file_read_secret(path, 1000, FILE_READABLE, &content, &why));
    assert_non_null(strstr(why.text, "a group can write it (mode 620, should be 600)"));
    assert_false(file_readable_secret(path, FILE_READABLE, &why));
    assert_int_equal(fchmod(fd, 0600), 0);
    assert_true(file_readable_secret(path, FILE_PRIVATE, &why));
    assert_int_equal(file_exposure("/nowhere/at/all", FILE_READ_BY_SELF, &why), FILE_PRIVATE);
}

static void an_unreadable_file_is_named_in_the_error(void **state)
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
        cmocka_unit_test(a_file_that_is_not_regular_is_refused_without_waiting),
        cmocka_unit_test(an_unreadable_file_is_named_in_the_error),
        cmocka_unit_test(a_file_that_everybody_can_read_is_public),
        cmocka_unit_test(one_judge_knows_who_else_can_use_a_secret),
        cmocka_unit_test(a_secret_is_read_if_it_is_no_more_exposed_than_its_reader_allows),
    };
    return cmocka_run_group_tests(tests, make, drop);
}
