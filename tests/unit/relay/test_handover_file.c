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

/* What is in front of each record. */
struct head {
    uint32_t len, kind;
    int32_t fds[2];
};

/* A file with these descriptors, and the record or the part of one that is given. */
static int file_of(const int32_t fds[2], const void *record, size_t size)
{
    const struct handover_head head = {HANDOVER_MAGIC, 2, 7};
    int fd = memfd_create("test", MFD_CLOEXEC);

    assert_int_equal(write(fd, &head, sizeof head), sizeof head);
    assert_int_equal(write(fd, fds, 2 * sizeof *fds), 2 * sizeof *fds);
    assert_int_equal(write(fd, record, size), size);
    return fd;
}

/* No record, one that is cut, one that is spoilt or of another version. */
static void sockets_that_no_record_names_are_closed(void **state)
{
    (void)state;
    static struct relay_thread thread;
    const struct {
        uint32_t len, kind;
        size_t there; /* bytes of the record, with its head */
        bool whole;
    } rows[] = {
        {0, 't', 0, false},   {1, 't', 15, false},   {1, 't', 16, false},           {100, 't', 115, false},
        {0, 't', 16, true},   {100, 't', 116, true}, {UINT32_MAX, 't', 116, false}, {0, 'e', 16, true},
        {100, '?', 116, true}};

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct handover_records records;
        int pair[2];
        struct {
            struct head head;
            char bytes[100];
        } record = {.head = {rows[i].len, rows[i].kind, {-1, -1}}};
        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
        int fd = file_of((const int32_t[]){pair[0], -1}, &record, rows[i].there);
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
    int fd = file_of((const int32_t[]){STDERR_FILENO, INT32_MAX}, "", 0);

    assert_true(handover_map(fd, &records));
    handover_unmap(&records);
    assert_true(is_open(STDERR_FILENO));
    close(fd);
}

/* Nor does a record get a listener, a descriptor of the keeper's or one that another record has got. All of them would be closed with it. */
static void a_record_gets_no_descriptor_but_a_stream_that_no_other_record_has(void **state)
{
    (void)state;
    static struct relay_thread thread;
    int ends[2], others[2], pair[2], listener = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(listen(listener, 1), 0);
    assert_int_equal(pipe(ends), 0);
    assert_int_equal(socketpair(AF_UNIX, SOCK_DGRAM, 0, others), 0);
    const int kept[] = {listener, ends[0], others[0], STDERR_FILENO};

    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++)
        for (int side = 0; side < 2; side++) {
            assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
            struct head record = {0, i % 2 ? 't' : 'e', {pair[0], pair[0]}};
            record.fds[side] = kept[i];
            struct handover_records records;
            int fd = file_of((const int32_t[]){-1, -1}, &record, sizeof record);
            assert_true(handover_map(fd, &records));
            handover_read(&records, &thread);
            assert_int_equal(records.lost, 1);
            handover_unmap(&records);
            assert_true(is_open(kept[i]));
            assert_false(is_open(pair[0]));
            close(pair[1]);
            close(fd);
        }
    close(listener);
    for (int i = 0; i < 2; i++) {
        close(ends[i]);
        close(others[i]);
    }
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
        cmocka_unit_test(a_record_gets_no_descriptor_but_a_stream_that_no_other_record_has),
        cmocka_unit_test(a_file_that_is_none_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
