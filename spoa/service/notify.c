/* SPDX-License-Identifier: MIT */
#include "spoa/service/notify.h"

#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>

/* The socket, which stays open because there may be no descriptor left when there is something to report; -1 before notify_open. */
static int channel = -1;

/* Returns the manager's address, or NULL if there is no manager. */
static const char *manager(void)
{
    const char *name = getenv("NOTIFY_SOCKET");
    return name && *name ? name : NULL;
}

bool notify_open(struct fail *why)
{
    if (manager() && channel < 0)
        channel = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    return !manager() || channel >= 0 || fail(why, "cannot tell the service manager: %m");
}

int notify_descriptor(void)
{
    return channel;
}

/* Sends one datagram to the manager. */
static bool send_to(const char *name, const char *text)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    size_t len = strlen(name);
    if (len >= sizeof address.sun_path)
        return false;
    memcpy(address.sun_path, name, len);
    if (name[0] == '@') /* the abstract name space (unix(7)) */
        address.sun_path[0] = '\0';
    socklen_t size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + len);
    ssize_t sent = sendto(channel, text, strlen(text), MSG_NOSIGNAL, (const struct sockaddr *)&address, size);
    return sent == (ssize_t)strlen(text);
}

static bool notify(const char *state, const char *status)
{
    char text[512];
    struct fail why;
    if (!manager())
        return true;
    snprintf(text, sizeof text, "%s%s%s", state, status ? "STATUS=" : "", status ? status : "");
    return notify_open(&why) && send_to(manager(), text);
}

bool notify_ready(const char *status)
{
    return notify("READY=1\n", status);
}

bool notify_reloading(void)
{
    struct timespec now;
    char state[80];
    clock_gettime(CLOCK_MONOTONIC, &now);
    snprintf(state, sizeof state, "RELOADING=1\nMONOTONIC_USEC=%" PRId64 "\n",
             (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000);
    return notify(state, NULL);
}

bool notify_stopping(const char *status)
{
    return notify("STOPPING=1\n", status);
}
