/* SPDX-License-Identifier: MIT */
#include "spoa/agent/directory/folder_events.h"

#include <errno.h>
#include <libgen.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/inotify.h>
#include <unistd.h>

int folder_events_open(struct fail *why)
{
    int fd = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
    if (fd < 0) /* the limit of the user's inotify instances has the errno of open files */
        fail(why, "cannot watch files: %s",
             errno == EMFILE ? "fs.inotify.max_user_instances or RLIMIT_NOFILE is too low" : strerror(errno));
    return fd;
}

void folder_events_add(int fd, const char *path)
{
    char folder[PATH_MAX];
    snprintf(folder, sizeof folder, "%s", path);
    (void)inotify_add_watch(fd, dirname(folder), IN_CLOSE_WRITE | IN_MOVED_TO | IN_CREATE | IN_ONLYDIR);
}

const char *folder_events_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

bool folder_events_read(int fd, bool (*concerns)(const void *context, const char *name), const void *context)
{
    _Alignas(struct inotify_event) char events[4096];
    bool any = false;
    ssize_t n;
    while ((n = read(fd, events, sizeof events)) > 0)
        for (const char *p = events; p < events + n;) {
            const struct inotify_event *e = (const struct inotify_event *)(const void *)p;
            /* what was created is not written yet; such an event only wakes who waits */
            bool whole = e->len && (e->mask & (IN_CLOSE_WRITE | IN_MOVED_TO));
            any = any || (e->mask & IN_Q_OVERFLOW) || (whole && concerns(context, e->name));
            p += sizeof *e + e->len;
        }
    return any;
}
