/* SPDX-License-Identifier: MIT */
/*
 * net: stream sockets by the addresses that people write: `unix@/run/x.sock`, `127.0.0.1:9101`, `[::1]:80`.
 * No names are resolved here. Every descriptor is non-blocking and close-on-exec; functions that give one
 * return -1 with the reason, which names the address.
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
    socklen_t len;
};

/* Room for the longest text of an address, with its NUL. */
#define NET_TEXT 128

enum { NET_KEPT_MAX = 8 };

/* Port 0 is allowed: a listener gets a free one. */
bool net_parse(struct slice text, struct net_address *address, struct fail *why);
/* bytes: 4 or 16 of an IP address in network order. */
void net_from_ip(struct slice bytes, uint16_t port, struct net_address *address);
/* The form that net_parse reads; returns text. */
const char *net_text(const struct net_address *address, char text[static NET_TEXT]);
/* Whether two addresses are the same socket's: family, address or path, and port; port 0 of the second one is any. */
bool net_same(const struct net_address *one, const struct net_address *other);
bool net_is_unix(const struct net_address *address);
bool net_is_loopback(const struct net_address *address); /* 127.0.0.0/8 or ::1 */

/* Listens with a backlog of 1024 or more. A Unix socket gets exactly `mode`, from its first moment on; a
 * socket file that nobody listens on is replaced, anything else at that path is an error. */
int net_listen(const struct net_address *address, mode_t mode, struct fail *why);
/* Lets the next net_listen() of this address, in this process or in a clone of it, return fd in place of a new socket. fd comes
 * from net_listen, too. For NET_KEPT_MAX sockets; more are ignored. */
void net_keep(const struct net_address *address, int fd);
/* Closes a listener; the file of a Unix socket is removed first. A listener that net_listen() took from the kept ones stays open, and
 * its file stays. */
void net_unlisten(int fd);
/* The address a socket is bound to. */
bool net_local(int fd, struct net_address *address);

/* The next connection, which inherits TCP_NODELAY and keepalive from a socket of net_listen; -1 with errno as accept4 leaves it, ENOMEM also while
 * loop_memory is not whole. */
int net_accept(int listener);
/* Starts a connection, tuned alike: once the descriptor is writable, net_connected tells how it
 * went. */
int net_connect(const struct net_address *address, struct fail *why);
/* The same for one that speaks first, and as soon as it is connected: TCP acknowledges the handshake with what is said
 * then (TCP_QUICKACK, tcp(7)), which saves a packet, and the peer finds a question where it accepts. Of one that says
 * nothing the peer hears 200 ms later. Call net_asked() when it is said. */
int net_connect_to_ask(const struct net_address *address, struct fail *why);
/* The answer is acknowledged at once again: a peer without TCP_NODELAY says its second word 40 ms later otherwise. */
void net_asked(int fd);

enum { NET_PATH_MOST = 107, NET_FOLDERS_MOST = 8 };
/* A path from the root, of 107 bytes at most, without "", "." and ".." between its slashes. */
bool net_path_plain(struct slice path);
/* Whether a plain path lies beneath the folder, which ends with a slash. */
bool net_path_beneath(const char *folder, struct slice path);
/* As net_connect, to a Unix socket beneath that folder: no symbolic link beneath it is followed. The folder itself may
 * be reached by one. */
int net_connect_beneath(const char *folder, struct slice path, struct fail *why);
/* 0, or the errno that the connection failed with: nobody listens where it has reached nobody but itself. */
int net_connected(int fd);
/* Whether it is made by now: to a socket on this host it often is when net_connect returns. False tells nothing. */
bool net_is_connected(int fd);

/* Who is at the other end of a Unix socket. */
struct net_peer {
    pid_t pid; /* 0: of a process that is not to be seen from here, as those of a pod's other containers */
    uid_t uid;
    gid_t gid;
};
bool net_peer(int fd, struct net_peer *peer);

#endif
