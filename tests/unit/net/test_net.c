/* SPDX-License-Identifier: MIT */
#include "tests/unit/support.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "spoa/net/net.h"

static char folder[] = "/tmp/test_net.XXXXXX", path[64], text[NET_TEXT];
static struct fail why;

static int start(void **state)
{
    (void)state;
    snprintf(path, sizeof path, "%s/socket", mkdtemp(folder));
    return 0;
}

static int stop(void **state)
{
    (void)state;
    unlink(path);
    return rmdir(folder);
}

static struct net_address address_of(const char *written)
{
    struct net_address address;
    if (!net_parse(slice_text(written), &address, &why))
        fail_msg("%s: %s", written, why.text);
    return address;
}

static struct net_address unix_address(void)
{
    char written[80];
    snprintf(written, sizeof written, "unix@%s", path);
    return address_of(written);
}

static void addresses_come_back_as_they_were_written(void **state)
{
    (void)state;
    static const char *const good[] = {"unix@/run/cellgate/agent.sock",
                                       "unix@x",
                                       "127.0.0.1:9101",
                                       "0.0.0.0:0",
                                       "[::1]:80",
                                       "[2001:db8::1]:65535"};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        struct net_address address = address_of(good[i]);
        assert_string_equal(net_text(&address, text), good[i]);
        assert_int_equal(net_is_unix(&address), i < 2);
    }
}

static void loopback_is_told_from_other_addresses(void **state)
{
    (void)state;
    static const char *const loopback[] = {"127.0.0.1:1", "127.255.0.9:1", "[::1]:1"};
    static const char *const others[] = {"unix@x", "0.0.0.0:1", "128.0.0.1:1",         "10.0.0.127:1",
                                         "[::]:1", "[::2]:1",   "[::ffff:127.0.0.1]:1"};
    for (size_t i = 0; i < sizeof loopback / sizeof *loopback; i++) {
        struct net_address address = address_of(loopback[i]);
        assert_true(net_is_loopback(&address));
    }
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        struct net_address address = address_of(others[i]);
        assert_false(net_is_loopback(&address));
    }
}

static void a_text_that_is_no_address_is_refused_with_a_reason(void **state)
{
    (void)state;
    static const char *const bad[] = {"",
                                      ":",
                                      ":80",
                                      "127.0.0.1",
                                      "127.0.0.1:",
                                      "127.0.0.1:65536",
                                      "127.0.0.1:-1",
                                      "127.0.0.1: 80",
                                      "127.1:80",
                                      "localhost:80",
                                      "::1:80",
                                      "[::1]",
                                      "[::1:80",
                                      "[127.0.0.1]:80",
                                      "[]:80",
                                      "[:80",
                                      "unix@",
                                      "/run/x.sock",
                                      "1.2.3.4.5:80",
                                      "1111:2222:3333:4444:5555:6666:7777:8888:9999:aaaa:bbbb:80"};
    struct net_address address;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct slice s = guarded(slice_text(bad[i]));
        why.text[0] = '\0';
        assert_false(net_parse(s, &address, &why));
        assert_true(strlen(why.text) > 10);
        guarded_free(s);
    }
    assert_false(net_parse(SLICE_LITERAL("unix@/a\0b"), &address, &why));
    assert_false(net_parse(SLICE_LITERAL("127.0.0.1\0:80"), &address, &why));
}

static void paths_as_long_as_the_system_allows_are_taken(void **state)
{
    (void)state;
    struct net_address address;
    char written[5 + 108 + 1] = "unix@";
    memset(written + 5, 'p', 108);
    assert_true(net_parse(slice_of(written, 5 + 107), &address, &why));
    assert_int_equal(strlen(net_text(&address, text)), 112);
    assert_false(net_parse(slice_of(written, 5 + 108), &address, &why));
}

static int accepted(int listener)
{
    struct pollfd p = {.fd = listener, .events = POLLIN};
    assert_int_equal(poll(&p, 1, 2000), 1);
    int fd = net_accept(listener);
    assert_true(fd >= 0);
    assert_true(fcntl(fd, F_GETFL) & O_NONBLOCK);
    assert_true(fcntl(fd, F_GETFD) & FD_CLOEXEC);
    return fd;
}

static void assert_tuned(int fd)
{
    int on = 0;
    socklen_t len = sizeof on;
    assert_int_equal(getsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, &len), 0);
    assert_int_equal(on, 1);
    assert_int_equal(getsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, &len), 0);
    assert_int_equal(on, 1);
    assert_int_equal(getsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &on, &len), 0);
    assert_int_equal(on, 60);
    assert_int_equal(getsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &on, &len), 0);
    assert_int_equal(on, 4);
}

static void tcp_connects_on_a_free_port(const char *written)
{
    struct net_address address = address_of(written), bound;
    int listener = net_listen(&address, 0, &why);
    assert_true(listener >= 0);
    assert_true(net_local(listener, &bound));
    assert_string_not_equal(net_text(&bound, text), written);
    int client = net_connect(&bound, &why), server = accepted(listener);
    assert_int_equal(net_connected(client), 0);
    assert_true(net_is_connected(client));
    assert_tuned(client);
    assert_tuned(server);
    struct net_peer peer;
    assert_false(net_peer(server, &peer));
    /* listening on the same port again fails, with the address in the reason */
    assert_int_equal(net_listen(&bound, 0, &why), -1);
    assert_non_null(strstr(why.text, text));
    assert_non_null(strstr(why.text, strerror(EADDRINUSE)));
    close(client);
    close(server);
    net_unlisten(listener);
    client = net_connect(&bound, &why); /* nobody listens any more: the failure comes now or a moment later */
    if (client >= 0) {
        struct pollfd p = {.fd = client, .events = POLLOUT};
        assert_int_equal(poll(&p, 1, 2000), 1);
        assert_false(net_is_connected(client));
        assert_int_equal(net_connected(client), ECONNREFUSED);
        close(client);
    } else {
        assert_non_null(strstr(why.text, text));
    }
}

static void a_kept_listener_is_given_once_for_its_address(void **state)
{
    (void)state;
    struct net_address address, other;
    assert_true(net_parse(slice_text("127.0.0.1:0"), &address, &why));
    assert_true(net_parse(slice_text("127.0.0.2:0"), &other, &why));
    int first = net_listen(&address, 0, &why), second = net_listen(&address, 0, &why);
    net_keep(&address, first);
    net_keep(&address, second);
    int elsewhere = net_listen(&other, 0, &why);
    assert_true(elsewhere != first && elsewhere != second);
    assert_int_equal(net_listen(&address, 0, &why), first);
    assert_int_equal(net_listen(&address, 0, &why), second);
    int third = net_listen(&address, 0, &why);
    assert_true(third >= 0 && third != first && third != second);
    for (const int *fd = (const int[]){first, second, third, elsewhere, -1}; *fd >= 0; fd++)
        net_unlisten(*fd);
}

static void tcp_listens_and_connects(void **state)
{
    (void)state;
    tcp_connects_on_a_free_port("127.0.0.1:0");
    tcp_connects_on_a_free_port("[::1]:0");
}

/* Connects to itself. This happens now and then to a program that dials a port of its own host on which nobody listens: the kernel gives the
 * socket that very port. */
static void connects_to_itself(const char *written)
{
    struct net_address address = address_of(written), bound;
    int fd = socket(address.any.sa_family, SOCK_STREAM, 0);
    assert_int_equal(bind(fd, &address.any, address.len), 0);
    assert_true(net_local(fd, &bound));
    assert_int_equal(connect(fd, &bound.any, bound.len), 0);
    assert_false(net_is_connected(fd));
    assert_int_equal(net_connected(fd), ECONNREFUSED);
    close(fd);
}

static void a_connection_to_itself_is_none(void **state)
{
    (void)state;
    connects_to_itself("127.0.0.1:0");
    connects_to_itself("[::1]:0");
}

/* Returns the peer's pid as a process in another PID namespace sees it, such as one in another container of the same pod; -1 if this system
 * allows no such namespace. */
static int peer_seen_from_elsewhere(int server)
{
    struct net_peer peer;
    int status = 0;
    pid_t child = fork();
    if (child == 0) {
        if (unshare(CLONE_NEWPID) != 0 && unshare(CLONE_NEWUSER | CLONE_NEWPID) != 0)
            _exit(2);
        pid_t inner = fork();
        if (inner == 0)
            _exit(net_peer(server, &peer) && peer.pid == 0 && peer.uid != (uid_t)-1 ? 0 : 1);
        if (inner < 0 || waitpid(inner, &status, 0) != inner)
            _exit(2);
        _exit(WIFEXITED(status) ? WEXITSTATUS(status) : 1);
    }
    assert_true(child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status));
    return WEXITSTATUS(status) == 2 ? -1 : WEXITSTATUS(status) == 0;
}

static void a_peer_of_another_container_is_one(void **state)
{
    (void)state;
    struct net_address address = unix_address();
    int listener = net_listen(&address, 0600, &why);
    int client = net_connect(&address, &why), server = accepted(listener);
    int seen = peer_seen_from_elsewhere(server);
    close(client);
    close(server);
    net_unlisten(listener);
    if (seen < 0)
        skip();
    assert_int_equal(seen, 1);
}

static void a_unix_socket_has_its_mode_and_tells_its_peer(void **state)
{
    (void)state;
    struct net_address address = unix_address();
    mode_t old = umask(0077);
    int listener = net_listen(&address, 0660, &why);
    umask(old);
    struct stat there;
    assert_true(listener >= 0);
    assert_int_equal(stat(path, &there), 0);
    assert_int_equal(there.st_mode & 0777, 0660);
    int client = net_connect(&address, &why), server = accepted(listener);
    struct net_peer peer;
    assert_int_equal(net_connected(client), 0);
    assert_true(net_is_connected(client));
    assert_true(net_peer(server, &peer));
    assert_int_equal(peer.pid, getpid());
    assert_int_equal(peer.uid, getuid());
    assert_int_equal(peer.gid, getgid());
    close(client);
    close(server);
    net_unlisten(listener);
    assert_int_equal(access(path, F_OK), -1);
}

static void only_a_socket_that_nobody_listens_on_is_replaced(void **state)
{
    (void)state;
    struct net_address address = unix_address();
    int first = net_listen(&address, 0600, &why);
    assert_true(first >= 0);
    assert_int_equal(net_listen(&address, 0600, &why), -1);
    assert_non_null(strstr(why.text, path));
    assert_non_null(strstr(why.text, "another process"));
    close(first); /* the file that a killed process leaves */
    assert_int_equal(access(path, F_OK), 0);
    int second = net_listen(&address, 0600, &why);
    assert_true(second >= 0);
    net_unlisten(second);

    int file = open(path, O_CREAT | O_WRONLY, 0600);
    assert_int_equal(write(file, "precious", 8), 8);
    close(file);
    assert_int_equal(net_listen(&address, 0600, &why), -1);
    assert_non_null(strstr(why.text, "no socket"));
    assert_int_equal(access(path, F_OK), 0);
    unlink(path);
    assert_int_equal(symlink("/nowhere", path), 0);
    assert_int_equal(net_listen(&address, 0600, &why), -1);
    unlink(path);
}

static void a_folder_that_is_not_there_is_named(void **state)
{
    (void)state;
    struct net_address address = address_of("unix@/nowhere/at/all.sock");
    assert_int_equal(net_listen(&address, 0600, &why), -1);
    assert_non_null(strstr(why.text, "unix@/nowhere/at/all.sock"));
    assert_non_null(strstr(why.text, strerror(ENOENT)));
    assert_int_equal(net_connect(&address, &why), -1);
    assert_non_null(strstr(why.text, "unix@/nowhere/at/all.sock"));
}

/* The listener's queue is full, so the kernel lets the next connection wait. */
static void a_connection_that_is_being_made_is_not_made(void **state)
{
    (void)state;
    struct net_address address = address_of("127.0.0.1:0");
    int listener = net_listen(&address, 0, &why), queued, waits;
    assert_true(listener >= 0 && net_local(listener, &address));
    assert_int_equal(listen(listener, 0), 0);
    queued = net_connect(&address, &why);
    assert_true(net_is_connected(queued));
    waits = net_connect(&address, &why);
    assert_true(waits >= 0);
    assert_false(net_is_connected(waits));
    close(queued);
    close(waits);
    net_unlisten(listener);
}

static int acknowledges_at_once(int fd)
{
    int quick = -1;
    socklen_t len = sizeof quick;
    assert_int_equal(getsockopt(fd, IPPROTO_TCP, TCP_QUICKACK, &quick, &len), 0);
    return quick;
}

/* The listener's queue is full, so the handshake cannot complete before the test has looked at the socket. */
static void one_that_asks_acknowledges_the_handshake_with_its_question(void **state)
{
    (void)state;
    struct net_address address = address_of("127.0.0.1:0");
    int listener = net_listen(&address, 0, &why);
    assert_true(listener >= 0 && net_local(listener, &address));
    int asks = net_connect_to_ask(&address, &why);
    assert_true(net_is_connected(asks));
    assert_tuned(asks);
    assert_int_equal(send(asks, "question", 8, MSG_NOSIGNAL), 8);
    int server = accepted(listener);
    assert_int_equal(recv(server, text, sizeof text, MSG_DONTWAIT), 8);
    assert_int_equal(listen(listener, 0), 0);
    int queued = net_connect(&address, &why), waits = net_connect(&address, &why);
    int asks_later = net_connect_to_ask(&address, &why);
    assert_false(net_is_connected(waits) || net_is_connected(asks_later));
    assert_int_equal(acknowledges_at_once(waits), 1);
    assert_int_equal(acknowledges_at_once(asks_later), 0);
    const int all[] = {asks, server, queued, waits, asks_later};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        close(all[i]);
    net_unlisten(listener);
}

static void the_backlog_takes_a_burst(void **state)
{
    (void)state;
    struct net_address address = unix_address();
    int listener = net_listen(&address, 0600, &why), clients[200];
    for (int i = 0; i < 200; i++)
        assert_true((clients[i] = net_connect(&address, &why)) >= 0);
    for (int i = 0; i < 200; i++)
        close(clients[i]);
    net_unlisten(listener);
}

/* Makes a folder "in" with a socket, folders, and links to a socket outside. */
static void beneath_a_folder_no_link_is_followed(void **state)
{
    (void)state;
    static const char *const made[] = {"in/s", "in/a/s", "out/s", "out.s"};
    char root[] = "/tmp/cellgate-net-XXXXXX", before[256], name[64], below[64];
    int listeners[4];
    assert_non_null(getcwd(before, sizeof before));
    assert_non_null(mkdtemp(root));
    assert_int_equal(chdir(root), 0);
    assert_int_equal(mkdir("in", 0700) + mkdir("in/a", 0700) + mkdir("out", 0700), 0);
    for (size_t i = 0; i < 4; i++) {
        snprintf(name, sizeof name, "unix@%s/%s", root, made[i]);
        struct net_address address = address_of(name);
        listeners[i] = net_listen(&address, 0600, &why);
        assert_true(listeners[i] >= 0);
    }
    assert_int_equal(symlink("../out", "in/link") + symlink("../out.s", "in/l") + symlink("a", "in/b"), 0);
    assert_int_equal(symlink("in", "alias"), 0);
    static const struct {
        const char *folder, *path;
        bool reached;
    } rows[] = {{"in", "s", true},       {"in", "a/s", true},  {"alias", "a/s", true},
                {"in", "link/s", false}, {"in", "l", false},   {"in", "b/s", false},
                {"in", "none", false},   {"in", "s/s", false}, {"in", "none/s", false},
                {"none", "s", false}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        snprintf(below, sizeof below, "%s/%s/", root, rows[i].folder);
        snprintf(name, sizeof name, "%s%s", below, rows[i].path);
        int fd = net_connect_beneath(below, slice_text(name), &why);
        if ((fd >= 0) != rows[i].reached)
            fail_msg("%s", name);
        if (fd < 0)
            assert_non_null(strstr(why.text, rows[i].folder));
        else
            close(fd);
    }
    for (size_t i = 0; i < 4; i++)
        net_unlisten(listeners[i]);
    assert_int_equal(unlink("in/link") + unlink("in/l") + unlink("in/b") + unlink("alias"), 0);
    assert_int_equal(rmdir("in/a") + rmdir("in") + rmdir("out"), 0);
    assert_int_equal(chdir(before), 0);
    rmdir(root);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_kept_listener_is_given_once_for_its_address),
        cmocka_unit_test(addresses_come_back_as_they_were_written),
        cmocka_unit_test(loopback_is_told_from_other_addresses),
        cmocka_unit_test(a_text_that_is_no_address_is_refused_with_a_reason),
        cmocka_unit_test(paths_as_long_as_the_system_allows_are_taken),
        cmocka_unit_test(tcp_listens_and_connects),
        cmocka_unit_test(a_connection_to_itself_is_none),
        cmocka_unit_test(a_connection_that_is_being_made_is_not_made),
        cmocka_unit_test(one_that_asks_acknowledges_the_handshake_with_its_question),
        cmocka_unit_test(a_unix_socket_has_its_mode_and_tells_its_peer),
        cmocka_unit_test(a_peer_of_another_container_is_one),
        cmocka_unit_test(only_a_socket_that_nobody_listens_on_is_replaced),
        cmocka_unit_test(beneath_a_folder_no_link_is_followed),
        cmocka_unit_test(a_folder_that_is_not_there_is_named),
        cmocka_unit_test(the_backlog_takes_a_burst),
    };
    return cmocka_run_group_tests(tests, start, stop);
}
