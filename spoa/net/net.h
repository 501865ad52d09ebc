/* SPDX-License-Identifier: MIT */
/*
 * net: stream sockets, by addresses as people write them: `unix@/run/x.sock`, `127.0.0.1:9101`, `[::1]:80`. Host names are not resolved
 * here. Every descriptor is non-blocking and close-on-exec. A function that opens one returns -1 on failure and fills *why, which
 * names the address.
 */
#ifndef CELLGATE_NET_NET_H
#define CELLGATE_NET_NET_H

#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "spoa/base/bytes/slice.h"
#include "spoa/base/os/fail.h"

struct net_address {
    union {
        struct sockaddr any;
        struct sockaddr_in ip4;
        struct sockaddr_in6 ip6;
        struct sockaddr_un path;
    };
    socklen_t len; /* bytes of the union that are used */
};

/* Bytes of the longest text of an address, with its NUL. */
#define NET_TEXT 128

enum { NET_KEPT_MAX = 8 }; /* sockets of net_keep */

/* Reads an address. Port 0 is allowed: a listener then gets a free port. Returns false and fills *why for any other text. */
bool net_parse(struct slice text, struct net_address *address, struct fail *why) MUST_CHECK;
/* Makes an address of 4 or 16 bytes of an IP address, in network order, and a port. */
void net_from_ip(struct slice bytes, uint16_t port, struct net_address *address);
/* Writes the form that net_parse reads. Returns `text`. */
const char *net_text(const struct net_address *address, char text[static NET_TEXT]);
/* Returns true if both addresses have the same family, address or path, and port. Port 0 of `other` matches any port. */
bool net_same(const struct net_address *one, const struct net_address *other);
bool net_is_unix(const struct net_address *address);
/* Returns true for 127.0.0.0/8 and ::1. */
bool net_is_loopback(const struct net_address *address);

/* Listens, with a backlog of 1024 or more. A Unix socket has exactly `mode` from its first moment on. A stale socket file, on which no
 * process listens, is replaced; any other file at that path is an error. */
int net_listen(const struct net_address *address, mode_t mode, struct fail *why) MUST_CHECK;
/* Makes the next net_listen for this address, in this process or a clone of it, return fd instead of a new socket. `fd` comes from
 * net_listen. For at most NET_KEPT_MAX sockets; further ones are ignored. */
void net_keep(const struct net_address *address, int fd);
/* Closes a listening socket, and first removes the file of a Unix socket. A socket that net_listen took from the kept ones stays open,
 * and its file stays. */
void net_unlisten(int fd);
/* Gives the address that a socket is bound to. Returns false if the kernel has none. */
bool net_local(int fd, struct net_address *address) MUST_CHECK;

/* Accepts a connection, which inherits TCP_NODELAY and keepalive from the listening socket. Returns -1 with errno as accept4(2) sets it,
 * or ENOMEM while loop_memory is not whole. */
int net_accept(int listener) MUST_CHECK;
/* Starts a connection, with the same socket options. Once the descriptor is writable, net_connected returns the result. */
int net_connect(const struct net_address *address, struct fail *why) MUST_CHECK;
/* Like net_connect, for a connection on which this side sends at once. TCP delays the last packet of the handshake until there is data
 * (TCP_QUICKACK, tcp(7)): that saves a packet, and the peer finds the question when it accepts. Call net_asked once the question is
 * sent; a peer would notice a connection without data only 200 ms later. */
int net_connect_to_ask(const struct net_address *address, struct fail *why) MUST_CHECK;
/* Acknowledges at once again, after net_connect_to_ask. Otherwise a peer without TCP_NODELAY sends its second packet 40 ms later. */
void net_asked(int fd);

enum { NET_PATH_MAX = 107, NET_FOLDERS_MAX = 8 }; /* bytes of a path; entries of a list of folders */
/* Returns true for a path from the root, of at most NET_PATH_MAX bytes, that has no "", "." or ".." between its slashes. */
bool net_path_plain(struct slice path);
/* Returns true if the path is plain and lies beneath the folder, whose name ends with a slash. */
bool net_path_beneath(const char *folder, struct slice path);
/* Connects to a Unix socket beneath a folder (net_path_beneath), and follows no symbolic link beneath it: whoever can write there could
 * otherwise lead the connection elsewhere. The folder itself may be reached by a link. */
int net_connect_beneath(const char *folder, struct slice path, struct fail *why) MUST_CHECK;
/* Returns 0 if the connection is made, or the errno with which it failed. A connection that reached itself counts as ECONNREFUSED. */
int net_connected(int fd) MUST_CHECK;
/* Returns true if the connection is made by now, as connections on one host often are when net_connect returns. False says neither that
 * it failed nor that it will succeed. */
bool net_is_connected(int fd);

/* The process at the other end of a Unix socket. */
struct net_peer {
    pid_t pid; /* 0 for a process outside this PID namespace, such as one of another container of a pod */
    uid_t uid;
    gid_t gid;
};
/* Returns false if the socket is no connected Unix socket. */
bool net_peer(int fd, struct net_peer *peer) MUST_CHECK;

#endif
