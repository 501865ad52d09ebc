/* SPDX-License-Identifier: MIT */
/*
 * peer_user: the account whose processes may connect to a Unix socket of a daemon. The mode of the socket's file is not enough:
 * accounts that share a group, as in a pod, could each pose as another one. Therefore the daemon asks the kernel for the peer's account of
 * each connection.
 */
#ifndef CELLGATE_SERVICE_PEER_USER_H
#define CELLGATE_SERVICE_PEER_USER_H

#include "spoa/base/os/fail.h"
#include "spoa/net/net.h"
#include "spoa/service/log.h"

/* The account that may connect, beside root and the daemon's own. */
struct peer_user {
    const char *listener; /* configuration key of the socket, for the log; a constant */
    bool any;             /* the socket is TCP: its peer is unknown, and everybody is admitted */
    bool other;           /* the account is not the daemon's own */
    uid_t uid;
    gid_t gid;
};

/* State of the log of refused peers, for one thread. */
struct peer_refusals {
    uint64_t logged; /* time of the last line, in µs of loop_clock, or 0 */
};

/* Finds the account `name`, a name or number. If `name` is NULL, the account is `usual`, or the daemon's own if there is no such account or
 * `usual` is NULL. Returns false with *why, which begins with `key`, if there is no such account, or if the kernel uses it for
 * accounts that it does not know. Reads files, so it is not for a loop's thread. */
bool peer_user_find(const char *key, const char *name, const char *usual, struct peer_user *user,
                    struct fail *why) MUST_CHECK;
/* Listens for the account, and gives the socket's file the account's group. Returns the descriptor, or -1 with *why. */
int peer_user_listen(const struct peer_user *user, const char *key, const struct net_address *address,
                     struct fail *why) MUST_CHECK;
/* Returns whether the peer of this connection may stay: root, the daemon's own account, and `user`. Logs a refusal, but at most once in ten
 * seconds. */
bool peer_user_admits(const struct peer_user *user, int fd, struct peer_refusals *refusals, struct log *log)
    MUST_CHECK;

#endif
