/* SPDX-License-Identifier: MIT */
/* With a resolv.conf of the test's own: the system's functions that c-ares and dns look at it with are ours here. */
#include "tests/unit/support.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "spoa/agent/dns.h"

#define SYSTEM_FILE "/etc/resolv.conf"

static char folder[] = "/tmp/cellgate-dns-XXXXXX", path[64];
static char asked[INET_ADDRSTRLEN]; /* the name server that was asked last */
static void (*once_read)(void);     /* happens behind the next reading of resolv.conf */
static struct loop *loop;

static const char *mapped(const char *name)
{
    return strcmp(name, SYSTEM_FILE) == 0 ? path : name;
}

int stat(const char *restrict name, struct stat *restrict to)
{
    return fstatat(AT_FDCWD, mapped(name), to, 0);
}

/* What it holds later is not what was read. */
FILE *fopen(const char *restrict name, const char *restrict mode)
{
    static char text[256];
    bool writes = *mode == 'w';
    int fd = open(mapped(name), O_CLOEXEC | (writes ? O_WRONLY | O_CREAT | O_TRUNC : O_RDONLY), 0600);
    if (fd < 0 || strcmp(name, SYSTEM_FILE) != 0)
        return fd < 0 ? NULL : fdopen(fd, mode);
    ssize_t len = read(fd, text, sizeof text);
    close(fd);
    if (once_read)
        once_read();
    once_read = NULL;
    return fmemopen(text, (size_t)len, "r");
}

int connect(int fd, const struct sockaddr *address, socklen_t len)
{
    struct sockaddr_in to;
    memcpy(&to, address, sizeof to);
    if (to.sin_family == AF_INET && to.sin_port == htons(53))
        inet_ntop(AF_INET, &to.sin_addr, asked, sizeof asked);
    return (int)syscall(SYS_connect, fd, address, len);
}

/* The file in its place, as dhclient and others put it there. */
static void use_server(const char *server)
{
    char part[80];
    snprintf(part, sizeof part, "%s.part", path);
    FILE *out = fopen(part, "w");
    assert_non_null(out);
    fprintf(out, "nameserver %s\n", server);
    assert_int_equal(fclose(out), 0);
    assert_int_equal(rename(part, path), 0);
}

static void use_second(void)
{
    use_server("127.0.0.2");
}

static int start(void **state)
{
    (void)state;
    struct fail why;
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/resolv.conf", folder);
    loop = loop_new(&why);
    return loop ? 0 : -1;
}

static int stop(void **state)
{
    (void)state;
    loop_free(loop);
    unlink(path);
    return rmdir(folder);
}

static void on_answer(void *owner, const struct dns_answer *answer)
{
    (void)owner, (void)answer;
}

/* The server that the next question goes to, whatever becomes of it. */
static const char *asks(struct dns *dns)
{
    *asked = '\0';
    assert_true(dns_ask(dns, SLICE_LITERAL("worker.example"), on_answer, NULL));
    while (!*asked)
        loop_turn(loop, true);
    return asked;
}

static const struct dns_options options = {.exact = true, .timeout = 5};

static struct dns *dns_of_first(void)
{
    struct fail why;
    use_server("127.0.0.1");
    struct dns *dns = dns_new(loop, &options, &why);
    assert_non_null(dns);
    return dns;
}

static void the_servers_of_the_system_are_asked(void **state)
{
    (void)state;
    struct dns *dns = dns_of_first();
    assert_string_equal(asks(dns), "127.0.0.1");
    dns_free(dns);
}

static void servers_that_change_before_the_first_question_are_noticed(void **state)
{
    (void)state;
    struct dns *dns = dns_of_first();
    use_second();
    assert_string_equal(asks(dns), "127.0.0.2");
    dns_free(dns);
}

static void servers_that_change_while_they_are_read_are_noticed(void **state)
{
    (void)state;
    once_read = use_second;
    struct dns *dns = dns_of_first();
    assert_string_equal(asks(dns), "127.0.0.2");
    dns_free(dns);
}

/* As a link that is turned to an older file, or one that is unpacked with its age. */
static void servers_of_the_same_age_are_noticed(void **state)
{
    (void)state;
    struct stat before;
    struct dns *dns = dns_of_first();
    assert_int_equal(stat(path, &before), 0);
    use_second();
    const struct timespec times[] = {before.st_atim, before.st_mtim};
    assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
    assert_string_equal(asks(dns), "127.0.0.2");
    dns_free(dns);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_servers_of_the_system_are_asked),
        cmocka_unit_test(servers_that_change_before_the_first_question_are_noticed),
        cmocka_unit_test(servers_that_change_while_they_are_read_are_noticed),
        cmocka_unit_test(servers_of_the_same_age_are_noticed),
    };
    return cmocka_run_group_tests(tests, start, stop);
}
