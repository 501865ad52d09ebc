/* SPDX-License-Identifier: MIT */
#include "spoa/agent/serve/relay_user.h"

#include <errno.h>
#include <pwd.h>
#include <string.h>
#include <unistd.h>

enum { ENTRY_MOST = 4096 }; /* bytes of a line of /etc/passwd */

bool relay_user_find(const char *name, struct relay_user *user, struct fail *why)
{
    struct passwd entry, *found = NULL;
    char memory[ENTRY_MOST];

    *user = (struct relay_user){.uid = geteuid(), .gid = getegid()};
    if (!name)
        return true;
    int error = getpwnam_r(name, &entry, memory, sizeof memory, &found);
    if (error)
        return fail(why, "agent.relay_user: cannot look up the account %s: %s", name, strerror(error));
    if (!found)
        return fail(why, "agent.relay_user: there is no account %s", name);
    *user = (struct relay_user){.other = entry.pw_uid != geteuid(), .uid = entry.pw_uid, .gid = entry.pw_gid};
    return true;
}

int relay_user_listen(const struct relay_user *user, const struct net_address *address, struct fail *why)
{
    int listener = net_listen(address, 0660, why);

    if (listener < 0 || !user->other || chown(address->path.sun_path, (uid_t)-1, user->gid) == 0)
        return listener;
    fail(why,
         "cannot give %s to the group of agent.relay_user: %s (the agent has to be in that group: "
         "SupplementaryGroups= "
         "of its unit)",
         address->path.sun_path, strerror(errno));
    net_unlisten(listener);
    return -1;
}

bool relay_user_admits(const struct relay_user *user, const struct net_peer *peer)
{
    return peer->uid == 0 || peer->uid == geteuid() || peer->uid == user->uid;
}
