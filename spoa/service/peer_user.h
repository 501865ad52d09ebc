/* SPDX-License-Identifier: MIT */
/*
 * peer_user: the account whose processes may connect to a Unix socket of a daemon. The mode of the socket's file is not
 * enough: accounts that share a group, as those of a pod do, could each speak as the other. So the kernel is asked who
 * the peer of each connection is.
 */
#ifndef CELLGATE_SERVICE_PEER_USER_H
#define CELLGATE_SERVICE_PEER_USER_H

#include "spoa/base/os/fail.h"
#include "spoa/net/net.h"
#include "spoa/service/log.h"

struct peer_user {
    const char *listener; /* the configuration's key of the socket, for the log; a constant */
    bool any;             /* the socket is TCP: nobody knows who its peer is, and everybody is admitted */
    bool other;           /* an account of its own; else the daemon's */
    uid_t uid;
    gid_t gid;
};

/* The time of the last log line about a refused peer, in microseconds of loop_clock; 0: never. For one thread. */
struct peer_refusals {
    uint64_t logged;
};

/* Looks up `name`, an account's name or number. NULL stands for `usual` if there is such an account, and otherwise for the
 * daemon's own; so does a `usual` of NULL. Returns false and *why, which begins with `key`, if there is no such account,
 * or if it is the one that the kernel names for whomever it does not know. Reads files: not for a loop. */
bool peer_user_find(const char *key, const char *name, const char *usual, struct peer_user *user,
                    struct fail *why) __attribute__((warn_unused_result));
/* Listens for the account: the socket's file gets its group. Returns as net_listen does. */
int peer_user_listen(const struct peer_user *user, const char *key, const struct net_address *address,
                     struct fail *why);
/* Returns whether the peer of this connection may stay: root, the daemon's own account, and `user`. Logs a refusal, unless
 * it logged another one a moment ago. */
bool peer_user_admits(const struct peer_user *user, int fd, struct peer_refusals *refusals, struct log *log);

#endif
