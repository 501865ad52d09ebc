/* SPDX-License-Identifier: MIT */
/* The file in which a relay hands over its tunnels, where it is not what it should be. Whole ones: tests/e2e/relay/test_keeper.py. */
#include "tests/unit/support.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "spoa/relay/serve/handover.h"

static bool is_open(int fd)
{
    return fcntl(fd, F_GETFD) >= 0;
}

/* A file with these descriptors, whose only record is said to have `len` bytes and has `there`; -1: there is none. */
static int file_of(const int32_t fds[2], uint32_t len, int there)
{
    const struct handover_head head = {HANDOVER_MAGIC, 2, 7};
    int fd = memfd_create("test", MFD_CLOEXEC);

    assert_int_equal(write(fd, &head, sizeof head), sizeof head);
    assert_int_equal(write(fd, fds, 2 * sizeof *fds), 2 * sizeof *fds);
    if (there >= 0)
        assert_int_equal(write(fd, &len, sizeof len), sizeof len);
    for (int i = 0; i < there; i++)
        assert_int_equal(write(fd, "x", 1), 1);
    return fd;
}

/* No record, one that is cut, one that is spoilt or of another version. */
static void sockets_that_no_record_names_are_closed(void **state)
{
    (void)state;
    static struct relay_thread thread;
    const struct {
        uint32_t len;
        int there;
        bool whole;
    } rows[] = {{0, -1, false},           {1, 0, false}, {100, 99, false},
                {UINT32_MAX, 100, false}, {0, 0, true},  {100, 100, true}};

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct handover_records records;
        int pair[2];
        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
        int fd = file_of((const int32_t[]){pair[0], -1}, rows[i].len, rows[i].there);
        assert_true(handover_map(fd, &records));
        assert_int_equal(records.begun, 7);
        handover_read(&records, &thread);
        assert_int_equal(records.taken, 0);
        assert_int_equal(records.lost, rows[i].whole);
        assert_true(is_open(pair[0]));
        handover_unmap(&records);
        assert_false(is_open(pair[0]));
        assert_true(is_open(pair[1]));
        close(pair[1]);
        close(fd);
    }
}

/* A server that was taken over can write any number there. */
static void standard_descriptors_and_those_beyond_the_limit_are_not_closed(void **state)
{
    (void)state;
    struct handover_records records;
    int fd = file_of((const int32_t[]){STDERR_FILENO, INT32_MAX}, 0, -1);

    assert_true(handover_map(fd, &records));
    handover_unmap(&records);
    assert_true(is_open(STDERR_FILENO));
    close(fd);
}

static void a_file_that_is_none_is_refused(void **state)
{
    (void)state;
    struct handover_records records;
    struct handover_head head = {HANDOVER_MAGIC, 2, 7};
    const struct handover_head bad[] = {
        {0, 0, 7}, {HANDOVER_MAGIC, UINT64_MAX - 1, 7}, {HANDOVER_MAGIC, 2, 7}};

    assert_false(handover_map(-1, &records));
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        int fd = memfd_create("test", MFD_CLOEXEC);
        assert_false(handover_map(fd, &records)); /* it is empty */
        head = bad[i];
        assert_int_equal(write(fd, &head, sizeof head), sizeof head);
        assert_false(handover_map(fd, &records));
        close(fd);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sockets_that_no_record_names_are_closed),
        cmocka_unit_test(standard_descriptors_and_those_beyond_the_limit_are_not_closed),
        cmocka_unit_test(a_file_that_is_none_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
