/* SPDX-License-Identifier: MIT */
#include "spoa/agent/file_watch.h"

#include <errno.h>
#include <libgen.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/inotify.h>
#include <unistd.h>

#define SETTLE_SECONDS 0.05

struct file_watch {
    struct loop_io io;
    struct loop_timer settle;
    void (*changed)(void *context);
    void *context;
    char **paths;
    size_t count;
};

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* kubectl replaces a whole folder's content by a symbolic link named ..data: then every file in it is new. */
static bool concerns(const struct file_watch *w, const char *name)
{
    if (strcmp(name, "..data") == 0)
        return true;
    for (size_t i = 0; i < w->count; i++)
        if (strcmp(base_name(w->paths[i]), name) == 0)
            return true;
    return false;
}

static void on_events(void *owner, int events)
{
    struct file_watch *w = owner;
    _Alignas(struct inotify_event) char buffer[4096];
    ssize_t n;
    (void)events;
    while ((n = read(loop_io_fd(&w->io), buffer, sizeof buffer)) > 0)
        for (char *p = buffer; p < buffer + n;) {
            const struct inotify_event *e = (const struct inotify_event *)(void *)p;
            if (e->len && concerns(w, e->name))
                loop_timer_set(&w->settle, SETTLE_SECONDS);
            p += sizeof *e + e->len;
        }
}

static void on_settled(void *owner)
{
    struct file_watch *w = owner;
    w->changed(w->context);
}

struct file_watch *file_watch_new(struct loop *loop, void (*changed)(void *context), void *context,
                                  struct fail *why)
{
    struct file_watch *w = calloc(1, sizeof *w);
    int fd = w ? inotify_init1(IN_NONBLOCK | IN_CLOEXEC) : -1;
    if (fd < 0) {
        fail(why, "cannot watch files: %s", strerror(w ? errno : ENOMEM));
        free(w);
        return NULL;
    }
    w->changed = changed;
    w->context = context;
    loop_io_open(&w->io, loop, fd, on_events, w);
    loop_io_want(&w->io, LOOP_READ);
    loop_timer_open(&w->settle, loop, on_settled, w);
    return w;
}

bool file_watch_add(struct file_watch *w, const char *path)
{
    char folder[PATH_MAX];
    snprintf(folder, sizeof folder, "%s", path);
    (void)inotify_add_watch(loop_io_fd(&w->io), dirname(folder), IN_CLOSE_WRITE | IN_MOVED_TO | IN_ONLYDIR);
    for (size_t i = 0; i < w->count; i++)
        if (strcmp(w->paths[i], path) == 0)
            return true;
    char **paths = realloc(w->paths, (w->count + 1) * sizeof *paths);
    if (!paths)
        return false;
    w->paths = paths;
    w->paths[w->count] = strdup(path);
    return w->paths[w->count] && ++w->count;
}

void file_watch_free(struct file_watch *w)
{
    if (!w)
        return;
    loop_io_close(&w->io);
    loop_timer_close(&w->settle);
    for (size_t i = 0; i < w->count; i++)
        free(w->paths[i]);
    free(w->paths);
    free(w);
}
