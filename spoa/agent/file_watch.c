/* SPDX-License-Identifier: MIT */
#include "spoa/agent/file_watch.h"

#include <stdlib.h>

#include "spoa/agent/folder_events.h"

#define SETTLE_SECONDS 0.05

struct file_watch {
    struct loop_io io;
    struct loop_timer settle;
    void (*changed)(void *context);
    void *context;
    char **paths;
    size_t count;
};

/* kubectl replaces a whole folder's content by a symbolic link named ..data: then every file in it is new. */
static bool concerns(const void *context, const char *name)
{
    const struct file_watch *w = context;
    if (strcmp(name, "..data") == 0)
        return true;
    for (size_t i = 0; i < w->count; i++)
        if (strcmp(folder_events_name(w->paths[i]), name) == 0)
            return true;
    return false;
}

static void on_events(void *owner, int events)
{
    struct file_watch *w = owner;
    (void)events;
    if (folder_events_read(loop_io_fd(&w->io), concerns, w))
        loop_timer_set(&w->settle, SETTLE_SECONDS);
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
    int fd = w ? folder_events_open(why) : -1;
    if (!w)
        fail(why, "out of memory");
    if (fd < 0) {
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
    folder_events_add(loop_io_fd(&w->io), path);
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
