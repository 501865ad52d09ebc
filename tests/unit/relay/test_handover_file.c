/* SPDX-License-Identifier: MIT */
/* The file in which a relay hands over its tunnels, where it is not what it should be. Whole ones: tests/e2e/relay/test_keeper.py. */
#include "tests/unit/support.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "spoa/relay/serve/handover.h"
#include "spoa/service/keeper_exec.h"

static bool is_open(int fd)
{
    return fcntl(fd, F_GETFD) >= 0;
}

/* A file for one tunnel with a client alone, whose record is said to have `len` bytes and has `there`; -1: there is none. */
static int file_of(int client, uint32_t len, int there)
{
    const struct keeper_images head = {KEEPER_IMAGES, 2};
    const int32_t fds[] = {client, -1};
    const uint64_t begun = 7;
    int fd = memfd_create("test", MFD_CLOEXEC);

    assert_int_equal(write(fd, &head, sizeof head), sizeof head);
    assert_int_equal(write(fd, fds, sizeof fds), sizeof fds);
    assert_int_equal(write(fd, &begun, sizeof begun), sizeof begun);
    if (there >= 0)
        assert_int_equal(write(fd, &len, sizeof len), sizeof len);
    for (int i = 0; i < there; i++)
        assert_int_equal(write(fd, "x", 1), 1);
    return fd;
}

static void sockets_without_a_whole_record_are_closed(void **state)
{
    (void)state;
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
        int fd = file_of(pair[0], rows[i].len, rows[i].there);
        assert_true(handover_map(fd, &records));
        assert_int_equal(records.begun, 7);
        assert_int_equal(records.lost, !rows[i].whole);
        assert_int_equal(is_open(pair[0]), rows[i].whole);
        handover_unmap(&records);
        if (is_open(pair[0]))
            close(pair[0]);
        close(pair[1]);
        close(fd);
    }
}

static void a_file_that_is_none_is_refused(void **state)
{
    (void)state;
    struct handover_records records;
    struct keeper_images head = {KEEPER_IMAGES, 2};
    const struct keeper_images bad[] = {
        {0, 0}, {KEEPER_IMAGES, 1}, {KEEPER_IMAGES, UINT64_MAX - 1}, {KEEPER_IMAGES, 2}};

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
        cmocka_unit_test(sockets_without_a_whole_record_are_closed),
        cmocka_unit_test(a_file_that_is_none_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
