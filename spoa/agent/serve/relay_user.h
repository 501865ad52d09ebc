/* SPDX-License-Identifier: MIT */
/*
 * relay_user: which account the relay runs as, and so who may ask on agent.relay_listen. The answers there hold
 * the credentials of records, so the file's mode is not all that guards it: each peer's user is checked, too.
 */
#ifndef CELLGATE_AGENT_SERVE_RELAY_USER_H
#define CELLGATE_AGENT_SERVE_RELAY_USER_H

#include "spoa/base/fail.h"
#include "spoa/net/net.h"

struct relay_user {
    bool other; /* an account of its own; else the agent's */
    uid_t uid;
    gid_t gid;
};

/* Looks the account up; name NULL: the agent's own. False and *why: there is none. Reads files: not for a loop. */
bool relay_user_find(const char *name, struct relay_user *user, struct fail *why);
/* Listens for it: the file of the socket belongs to the account's group. Returns as net_listen does. */
int relay_user_listen(const struct relay_user *user, const struct net_address *address, struct fail *why);
/* Whether this peer may ask: root, the agent's own user, and the relay's. A group is not enough: HAProxy has ours. */
bool relay_user_admits(const struct relay_user *user, const struct net_peer *peer);

#endif
