/* SPDX-License-Identifier: MIT */
/* The test has a resolv.conf of its own: it replaces the functions of the C library with which c-ares and dns read that file. */
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

#include "spoa/net/dns.h"

#define SYSTEM_FILE "/etc/resolv.conf"

static char folder[] = "/tmp/cellgate-dns-XXXXXX", path[64];
static char asked[INET_ADDRSTRLEN]; /* the name server of the last question */
static void (*once_read)(void);     /* called after resolv.conf is read the next time */
static struct loop *loop;

static const char *mapped(const char *name)
{
    return strcmp(name, SYSTEM_FILE) == 0 ? path : name;
}

int stat(const char *restrict name, struct stat *restrict to)
{
    return fstatat(AT_FDCWD, mapped(name), to, 0);
}

/* Reads the whole file at once, so that a later change does not show in what was read. */
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

/* Replaces the file by renaming, as dhclient and others do. */
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

/* Returns the server that the next question goes to. Its answer does not matter. */
static const char *asks(struct dns *dns)
{
    *asked = '\0';
    assert_true(dns_ask(dns, SLICE_LITERAL("worker.example"), (struct fair_owner){0}, on_answer, NULL));
    while (!*asked)
        loop_turn(loop, true);
    return asked;
}

static const struct dns_options options = {.exact = true, .timeout = 5 * SECOND};

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

/* A link may be turned to an older file, and a file may be unpacked with its old age. */
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

/* ---- datagrams that are taken for answers ---- */

struct outcome {
    bool came;
    struct dns_answer answer;
};

static void on_outcome(void *owner, const struct dns_answer *answer)
{
    *(struct outcome *)owner = (struct outcome){true, *answer};
}

/* Sends a datagram to the asker: the question with these flags and this code, and the address 127.0.0.last unless `last` is 0. */
static void say(int fd, const struct sockaddr_in *to, const uint8_t *question, size_t len, uint8_t flags,
                uint8_t code, uint8_t last)
{
    uint8_t reply[512];
    const uint8_t record[] = {0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 127, 0, 0, last};
    memcpy(reply, question, len);
    reply[2] = flags;
    reply[3] = code;
    reply[7] = last != 0;
    memcpy(reply + len, record, last ? sizeof record : 0);
    assert_true(sendto(fd, reply, len + (last ? sizeof record : 0), 0, (const void *)to, sizeof *to) > 0);
}

/* Sends forgeries that deny the name or give another address; the server answers after them. */
static void say_forgeries(int fd, const struct sockaddr_in *to, uint8_t *question, size_t len)
{
    int other = socket(AF_INET, SOCK_DGRAM, 0);
    say(fd, to, question, len, 0x01, 3, 0); /* QR is 0, so this is a question */
    say(fd, to, question, len, 0x01, 0, 66);
    say(fd, to, question, len, 0x91, 3, 0); /* OPCODE is 2 */
    say(fd, to, question, len, 0xf9, 0, 66);
    say(fd, to, question, 11, 0x81, 3, 0);     /* no whole head */
    say(other, to, question, len, 0x81, 3, 0); /* from another port */
    question[0] ^= 1;
    say(fd, to, question, len, 0x81, 3, 0); /* another number */
    question[0] ^= 1;
    question[13] ^= 1;
    say(fd, to, question, len, 0x81, 3, 0); /* another question */
    question[13] ^= 1;
    close(other);
}

static void only_an_answer_to_the_question_is_taken(void **state)
{
    (void)state;
    struct fail why;
    struct sockaddr_in own = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)}, asker;
    socklen_t own_len = sizeof own, asker_len = sizeof asker;
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK, 0);
    char server[40], *servers[] = {server};
    uint8_t question[512];
    ssize_t len;
    assert_int_equal(bind(fd, (const void *)&own, sizeof own), 0);
    assert_int_equal(getsockname(fd, (void *)&own, &own_len), 0);
    snprintf(server, sizeof server, "127.0.0.1:%u", ntohs(own.sin_port));
    const struct dns_options to_it = {.servers = {servers, 1}, .exact = true, .timeout = MINUTE};
    struct dns *dns = dns_new(loop, &to_it, &why);
    struct outcome outcome = {.came = false};
    assert_non_null(dns);
    assert_true(dns_ask(dns, SLICE_LITERAL("worker.example"), (struct fair_owner){0}, on_outcome, &outcome));
    while ((len = recvfrom(fd, question, sizeof question, 0, (void *)&asker, &asker_len)) < 0)
        loop_turn(loop, true);
    for (unsigned i = 0; i < 3; i++) /* more than one turn drops */
        say_forgeries(fd, &asker, question, (size_t)len);
    for (unsigned i = 0; i < 20 && !outcome.came; i++)
        loop_turn(loop, true);
    assert_false(outcome.came);
    say(fd, &asker, question, (size_t)len, 0x81, 0, 1);
    while (!outcome.came)
        loop_turn(loop, true);
    assert_int_equal(outcome.answer.result, DNS_FOUND);
    assert_int_equal(outcome.answer.count, 1);
    assert_memory_equal(outcome.answer.addresses[0].bytes, ((uint8_t[]){127, 0, 0, 1}), 4);
    dns_free(dns);
    close(fd);
}

static void on_any_outcome(void *owner, const struct dns_answer *answer)
{
    (void)answer;
    ++*(unsigned *)owner;
}

/* A greedy owner has more open questions than are sent at once, to a server that does not answer. */
static void a_question_is_not_sent_behind_all_of_another_asker(void **state)
{
    enum { GREEDY = 5000 };
    (void)state;
    struct fail why;
    struct sockaddr_in own = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t own_len = sizeof own;
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK, 0);
    char server[40], *servers[] = {server}, name[32];
    uint8_t question[512];
    unsigned answered = 0, seen = 0;
    bool found = false;
    assert_int_equal(bind(fd, (const void *)&own, sizeof own), 0);
    assert_int_equal(getsockname(fd, (void *)&own, &own_len), 0);
    snprintf(server, sizeof server, "127.0.0.1:%u", ntohs(own.sin_port));
    const struct dns_options to_it = {.servers = {servers, 1}, .exact = true, .timeout = MINUTE};
    struct dns *dns = dns_new(loop, &to_it, &why);
    assert_non_null(dns);
    for (unsigned i = 0; i < GREEDY; i++) {
        snprintf(name, sizeof name, "greedy-%u.example", i);
        assert_true(
            dns_ask(dns, slice_text(name), (struct fair_owner){1, FAIR_VERIFIED}, on_any_outcome, &answered));
    }
    assert_true(dns_ask(dns, SLICE_LITERAL("other.example"), (struct fair_owner){2, FAIR_VERIFIED},
                        on_any_outcome, &answered));
    while (seen < 64) {
        ssize_t len = recv(fd, question, sizeof question, 0);
        seen += len > 0;
        found = found || (len > 18 && memcmp(question + 12, "\5other", 6) == 0);
        if (len < 0)
            loop_turn(loop, true);
    }
    assert_true(found);
    dns_free(dns);
    assert_int_equal(answered, GREEDY + 1);
    close(fd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_servers_of_the_system_are_asked),
        cmocka_unit_test(servers_that_change_before_the_first_question_are_noticed),
        cmocka_unit_test(servers_that_change_while_they_are_read_are_noticed),
        cmocka_unit_test(servers_of_the_same_age_are_noticed),
        cmocka_unit_test(only_an_answer_to_the_question_is_taken),
        cmocka_unit_test(a_question_is_not_sent_behind_all_of_another_asker),
    };
    return cmocka_run_group_tests(tests, start, stop);
}
