/* SPDX-License-Identifier: MIT */
#include "spoa/service/peer_user.h"

#include <errno.h>
#include <pwd.h>
#include <string.h>
#include <unistd.h>

#include "spoa/net/loop.h"

#define REFUSAL_EVERY (10 * SECOND) /* minimum time between two log lines */

enum {
    ENTRY_MAX = 4096, /* bytes of a line of /etc/passwd */
    UNKNOWN = 65534   /* the kernel's name for an account of another user namespace (user_namespaces(7)) */
};

/* Finds an account. One without a line in /etc/passwd, such as that of another container of a pod, may be given by number; its group is
 * then the daemon's own. */
static bool find_entry(const char *name, struct peer_user *user, int *error)
{
    struct passwd entry, *found = NULL;
    char memory[ENTRY_MAX];
    uint64_t number;
    bool is_number = slice_u64(slice_text(name), UINT32_MAX - 1, &number);
    *error = is_number ? getpwuid_r((uid_t)number, &entry, memory, sizeof memory, &found)
                       : getpwnam_r(name, &entry, memory, sizeof memory, &found);
    if (*error || (!found && !is_number))
        return false;
    user->uid = found ? entry.pw_uid : (uid_t)number;
    user->gid = found ? entry.pw_gid : getegid();
    user->other = user->uid != geteuid();
    return true;
}

bool peer_user_find(const char *key, const char *name, const char *usual, struct peer_user *user,
                    struct fail *why)
{
    int error = 0;
    *user = (struct peer_user){.uid = geteuid(), .gid = getegid()};
    if (!name && !usual)
        return true;
    bool found = find_entry(name ? name : usual, user, &error);
    if (found && user->uid == UNKNOWN && user->other)
        return fail(why, "%s: the kernel uses %s for accounts that it does not know: use another one", key,
                    name ? name : usual);
    if (found || (!name && !error))
        return true;
    if (error)
        return fail(why, "%s: cannot look up the account %s: %s", key, name ? name : usual, strerror(error));
    return fail(why, "%s: there is no account %s", key, name);
}

int peer_user_listen(const struct peer_user *user, const char *key, const struct net_address *address,
                     struct fail *why)
{
    int listener = net_listen(address, 0660, why);
    if (listener < 0 || !user->other || chown(address->path.sun_path, (uid_t)-1, user->gid) == 0)
        return listener;
    fail(why,
         "cannot give %s to the group of %s: %s (the agent must be in that group: SupplementaryGroups= of "
         "its unit)",
         address->path.sun_path, key, strerror(errno));
    net_unlisten(listener);
    return -1;
}

static void log_refusal(const struct peer_user *user, const struct net_peer *peer,
                        struct peer_refusals *refusals, struct log *log)
{
    uint64_t now = loop_clock();
    if (!log || (refusals->logged && now - refusals->logged < REFUSAL_EVERY))
        return;
    refusals->logged = now;
    log_write(log, LOG_WARN, "a connection of an account that may not connect is refused",
              LOG_TEXT("listener", user->listener), LOG_U64("uid", peer->uid),
              LOG_U64("pid", (uint64_t)peer->pid), LOG_U64("expected_uid", user->uid));
}

bool peer_user_admits(const struct peer_user *user, int fd, struct peer_refusals *refusals, struct log *log)
{
    struct net_peer peer = {.uid = (uid_t)-1};
    if (user->any)
        return true;
    if (net_peer(fd, &peer) && (peer.uid == 0 || peer.uid == geteuid() || peer.uid == user->uid))
        return true;
    log_refusal(user, &peer, refusals, log);
    return false;
}
