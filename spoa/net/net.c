/* SPDX-License-Identifier: MIT */
#include "spoa/net/net.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "spoa/base/bytes/writer.h"
#include "spoa/net/loop_memory.h"

#define UNIX_PREFIX "unix@"
#define BACKLOG     4096 /* the kernel cuts it to net.core.somaxconn */

/* ---- addresses ---- */
static bool parse_unix(struct slice path, struct net_address *address, struct fail *why)
{
    if (path.len == 0 || path.len >= sizeof address->path.sun_path)
        return fail(why, "the path of a Unix socket has 1 to %zu bytes", sizeof address->path.sun_path - 1);
    if (slice_find(path, '\0') != path.len)
        return fail(why, "the path of a Unix socket holds a NUL");
    address->path.sun_family = AF_UNIX;
    memcpy(address->path.sun_path, path.at, path.len);
    address->len = sizeof address->path;
    return true;
}

/* Splits "HOST:PORT"; an IPv6 address keeps its brackets. */
static bool split_host(struct slice text, struct slice *host, uint16_t *port)
{
    size_t colon = text.len;
    while (colon > 0 && text.at[colon - 1] != ':')
        colon--;
    uint64_t number;
    if (colon == 0 || !slice_u64(slice_from(text, colon), UINT16_MAX, &number))
        return false;
    *port = (uint16_t)number;
    *host = slice_sub(text, 0, colon - 1);
    return host->len > 0;
}

static bool parse_host(struct slice host, uint16_t port, struct net_address *address)
{
    char text[INET6_ADDRSTRLEN];
    bool brackets = host.at[0] == '[' && host.at[host.len - 1] == ']';
    if (brackets)
        host = slice_sub(host, 1, host.len - 2);
    if (host.len >= sizeof text || slice_find(host, '\0') != host.len)
        return false;
    memcpy(text, host.at, host.len);
    text[host.len] = '\0';
    uint8_t bytes[16];
    if (inet_pton(brackets ? AF_INET6 : AF_INET, text, bytes) != 1)
        return false;
    net_from_ip(slice_of(bytes, brackets ? 16 : 4), port, address);
    return true;
}

bool net_parse(struct slice text, struct net_address *address, struct fail *why)
{
    memset(address, 0, sizeof *address);
    if (slice_starts(text, UNIX_PREFIX))
        return parse_unix(slice_from(text, sizeof UNIX_PREFIX - 1), address, why);
    struct slice host;
    uint16_t port;
    if (!split_host(text, &host, &port) || !parse_host(host, port, address))
        return fail(why, "not an address: expected unix@/PATH, 127.0.0.1:PORT or [::1]:PORT");
    return true;
}

void net_from_ip(struct slice bytes, uint16_t port, struct net_address *address)
{
    memset(address, 0, sizeof *address);
    if (bytes.len == 4) {
        address->ip4.sin_family = AF_INET;
        address->ip4.sin_port = htons(port);
        memcpy(&address->ip4.sin_addr, bytes.at, 4);
        address->len = sizeof address->ip4;
    } else {
        address->ip6.sin6_family = AF_INET6;
        address->ip6.sin6_port = htons(port);
        memcpy(&address->ip6.sin6_addr, bytes.at, 16);
        address->len = sizeof address->ip6;
    }
}

/* Writes the address as inet_ntop and printf would, and faster: each log line about a tunnel has one. */
static void put_ip4(const struct sockaddr_in *address, char text[static NET_TEXT])
{
    struct writer w = writer_of(text, NET_TEXT);

    writer_ip4(&w, (const uint8_t *)&address->sin_addr);
    writer_u8(&w, ':');
    writer_decimal(&w, ntohs(address->sin_port));
    writer_u8(&w, 0);
}

const char *net_text(const struct net_address *address, char text[static NET_TEXT])
{
    char host[INET6_ADDRSTRLEN] = "";
    switch (address->any.sa_family) {
    case AF_UNIX:
        snprintf(text, NET_TEXT, UNIX_PREFIX "%.*s", (int)sizeof address->path.sun_path,
                 address->path.sun_path);
        break;
    case AF_INET:
        put_ip4(&address->ip4, text);
        break;
    case AF_INET6:
        inet_ntop(AF_INET6, &address->ip6.sin6_addr, host, sizeof host);
        snprintf(text, NET_TEXT, "[%s]:%u", host, ntohs(address->ip6.sin6_port));
        break;
    default:
        snprintf(text, NET_TEXT, "-");
    }
    return text;
}

bool net_same(const struct net_address *one, const struct net_address *other)
{
    if (one->any.sa_family != other->any.sa_family)
        return false;
    if (one->any.sa_family == AF_UNIX)
        return strncmp(one->path.sun_path, other->path.sun_path, sizeof one->path.sun_path) == 0;
    if (one->any.sa_family == AF_INET)
        return one->ip4.sin_addr.s_addr == other->ip4.sin_addr.s_addr &&
               (other->ip4.sin_port == 0 || one->ip4.sin_port == other->ip4.sin_port);
    return memcmp(&one->ip6.sin6_addr, &other->ip6.sin6_addr, sizeof one->ip6.sin6_addr) == 0 &&
           (other->ip6.sin6_port == 0 || one->ip6.sin6_port == other->ip6.sin6_port);
}

bool net_is_unix(const struct net_address *address)
{
    return address->any.sa_family == AF_UNIX;
}

bool net_is_loopback(const struct net_address *address)
{
    if (address->any.sa_family == AF_INET)
        return ntohl(address->ip4.sin_addr.s_addr) >> 24 == 127;
    return address->any.sa_family == AF_INET6 && IN6_IS_ADDR_LOOPBACK(&address->ip6.sin6_addr);
}

bool net_local(int fd, struct net_address *address)
{
    memset(address, 0, sizeof *address);
    address->len = sizeof address->path;
    return getsockname(fd, &address->any, &address->len) == 0;
}

/* ---- listening ---- */
static int socket_of(const struct net_address *address)
{
    return socket(address->any.sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
}

/* Sets the options of a TCP socket: small packets are sent at once, and a peer whose host has died is noticed within two minutes. Accepted
 * connections inherit the options of the listening socket. A Unix socket needs none of this. */
static void tune(int fd, const struct net_address *address)
{
    const int on = 1, idle = 60, interval = 15, probes = 4;
    if (net_is_unix(address))
        return;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval, sizeof interval);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof probes);
}

/* Closes fd and fills *why from errno, which it keeps. Returns -1. */
static int give_up(int fd, const char *what, const struct net_address *address, struct fail *why)
{
    char text[NET_TEXT];
    int error = errno;
    fail(why, "cannot %s %s: %s", what, net_text(address, text), strerror(error));
    if (fd >= 0)
        close(fd);
    errno = error;
    return -1;
}

/* Removes the stale file of a Unix socket. Fails if another process listens there, or if the file is no socket. */
static bool clear_path(const struct net_address *address, struct fail *why)
{
    const char *path = address->path.sun_path;
    struct stat there;
    if (lstat(path, &there) != 0)
        return true; /* there is no file, or bind will report why the path cannot be used */
    if (!S_ISSOCK(there.st_mode))
        return fail(why, "cannot listen on %s%s: a file that is no socket is in the way", UNIX_PREFIX, path);
    int probe = socket_of(address);
    if (probe < 0)
        return give_up(probe, "listen on", address, why) == 0;
    bool refused = connect(probe, &address->any, address->len) != 0 && errno == ECONNREFUSED;
    close(probe);
    if (!refused)
        return fail(why, "cannot listen on %s%s: another process listens there", UNIX_PREFIX, path);
    if (unlink(path) != 0 && errno != ENOENT)
        return give_up(-1, "replace the old socket of", address, why) == 0;
    return true;
}

/* The sockets of net_keep. */
static struct {
    struct net_address address;
    int fd;
    bool taken; /* net_listen has returned it */
} kept[NET_KEPT_MAX];
static size_t kept_count;

void net_keep(const struct net_address *address, int fd)
{
    if (kept_count == NET_KEPT_MAX)
        return;
    kept[kept_count].address = *address;
    kept[kept_count++].fd = fd;
}

/* Returns the kept socket of an address, once, or -1. */
static int take_kept(const struct net_address *address)
{
    for (size_t i = 0; i < kept_count; i++)
        if (!kept[i].taken && kept[i].address.len == address->len &&
            memcmp(&kept[i].address.any, &address->any, address->len) == 0) {
            kept[i].taken = true;
            return kept[i].fd;
        }
    return -1;
}

int net_listen(const struct net_address *address, mode_t mode, struct fail *why)
{
    int held = take_kept(address);
    if (held >= 0)
        return held;
    bool path = net_is_unix(address);
    if (path && !clear_path(address, why))
        return -1;
    int fd = socket_of(address);
    int on = 1;
    if (fd < 0)
        return give_up(fd, "listen on", address, why);
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    tune(fd, address);
    /* Linux creates the file with the socket's own mode, less the umask: the file is never more open than `mode`, not even in the moment
     * before chmod */
    if (path && fchmod(fd, mode) != 0)
        return give_up(fd, "listen on", address, why);
    if (bind(fd, &address->any, address->len) != 0)
        return give_up(fd, "listen on", address, why);
    if (path && chmod(address->path.sun_path, mode) != 0)
        return give_up(fd, "set the mode of", address, why);
    if (listen(fd, BACKLOG) != 0)
        return give_up(fd, "listen on", address, why);
    return fd;
}

void net_unlisten(int fd)
{
    for (size_t i = 0; i < kept_count; i++)
        if (kept[i].fd == fd && kept[i].taken)
            return;
    struct net_address address;
    if (net_local(fd, &address) && net_is_unix(&address) && address.path.sun_path[0])
        unlink(address.path.sun_path);
    close(fd);
}

/* ---- connections ---- */
int net_accept(int listener)
{
    if (!loop_memory_whole()) {
        errno = ENOMEM;
        return -1;
    }
    return accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
}

static int connect_to(const struct net_address *address, bool asks, struct fail *why)
{
    const int off = 0;
    int fd = socket_of(address);
    if (fd < 0)
        return give_up(fd, "connect to", address, why);
    tune(fd, address);
    if (asks && !net_is_unix(address))
        setsockopt(fd, IPPROTO_TCP, TCP_QUICKACK, &off, sizeof off);
    if (connect(fd, &address->any, address->len) != 0 && errno != EINPROGRESS)
        return give_up(fd, "connect to", address, why);
    return fd;
}

int net_connect(const struct net_address *address, struct fail *why)
{
    return connect_to(address, false, why);
}

int net_connect_to_ask(const struct net_address *address, struct fail *why)
{
    return connect_to(address, true, why);
}

void net_asked(int fd)
{
    const int on = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_QUICKACK, &on, sizeof on);
}

bool net_path_plain(struct slice path)
{
    struct slice rest = slice_from(path, 1), part;
    if (path.len < 2 || path.len > NET_PATH_MAX || path.at[0] != '/' || slice_find(path, '\0') != path.len)
        return false;
    while (slice_split(&rest, '/', &part))
        if (part.len == 0 || slice_is(part, ".") || slice_is(part, ".."))
            return false;
    return path.at[path.len - 1] != '/';
}

bool net_path_beneath(const char *folder, struct slice path)
{
    return net_path_plain(path) && slice_starts(path, folder) && path.len > strlen(folder);
}

/* Opens the path beneath a folder, one component after the other, so that nobody can replace a component by a link in between. Returns the
 * descriptor, or -1 and sets errno. */
static int open_beneath(const char *folder, struct slice rest)
{
    struct slice part;
    int at = open(folder, O_PATH | O_DIRECTORY | O_CLOEXEC);
    while (at >= 0 && slice_split(&rest, '/', &part)) {
        char name[NET_PATH_MAX + 1];
        snprintf(name, sizeof name, "%.*s", SLICE_PRINTF(part));
        int next = openat(at, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
        int error = errno;
        close(at);
        errno = error;
        at = next;
    }
    return at;
}

int net_connect_beneath(const char *folder, struct slice path, struct fail *why)
{
    struct net_address address = {.len = sizeof address.path};
    int at = open_beneath(folder, slice_from(path, strlen(folder))), fd = -1;
    if (at >= 0) {
        address.path.sun_family = AF_UNIX;
        snprintf(address.path.sun_path, sizeof address.path.sun_path, "/proc/self/fd/%d", at);
        fd = net_connect(&address, why);
    }
    int error = errno;
    if (fd < 0)
        fail(why, "cannot connect to unix@%.*s: %s", SLICE_PRINTF(path), strerror(error));
    if (at >= 0)
        close(at);
    errno = error;
    return fd;
}

/* Gives the peer's address. Returns false while the connection is being made, and after it has failed. */
static bool peer_of(int fd, struct net_address *there)
{
    there->len = sizeof there->path;
    return getpeername(fd, &there->any, &there->len) == 0;
}

/* Returns true if a connection has reached itself: TCP does that if the kernel gives the socket the very port of this host that it dials. */
static bool is_here(int fd, const struct net_address *there)
{
    struct net_address here;
    return !net_is_unix(there) && net_local(fd, &here) && here.len == there->len &&
           memcmp(&here.any, &there->any, here.len) == 0;
}

int net_connected(int fd)
{
    int error = 0;
    socklen_t len = sizeof error;
    struct net_address there;
    if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &len) != 0)
        return errno;
    return error == 0 && peer_of(fd, &there) && is_here(fd, &there) ? ECONNREFUSED : error;
}

bool net_is_connected(int fd)
{
    struct net_address there;
    return peer_of(fd, &there) && !is_here(fd, &there);
}

bool net_peer(int fd, struct net_peer *peer)
{
    struct ucred who;
    socklen_t len = sizeof who;
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &len) != 0 || who.uid == (uid_t)-1)
        return false;
    *peer = (struct net_peer){who.pid, who.uid, who.gid};
    return true;
}
