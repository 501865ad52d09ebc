/* SPDX-License-Identifier: MIT */
#include "spoa/net/file_watch.h"

#include <stdlib.h>

#include "spoa/base/os/file.h"

#define LOOK_EVERY (500 * MILLISECOND)

struct watched {
    char *path;
    struct stat seen; /* the last look at the file; zeroed if there was no file */
};

struct file_watch {
    struct loop_timer look;
    bool (*changed)(void *context);
    void *context;
    bool again; /* the last call of `changed` returned false */
    struct watched *files;
    size_t count;
};

static void on_look(void *owner)
{
    struct file_watch *w = owner;
    bool changed = w->again;
    for (size_t i = 0; i < w->count; i++) {
        struct watched *file = &w->files[i];
        struct stat before = file->seen;
        file_look(file->path, &file->seen);
        changed = changed || !file_looks_same(&before, &file->seen);
    }
    loop_timer_set(&w->look, LOOK_EVERY);
    w->again = changed && !w->changed(w->context);
}

struct file_watch *file_watch_new(struct loop *loop, bool (*changed)(void *context), void *context)
{
    struct file_watch *w = calloc(1, sizeof *w);
    if (!w)
        return NULL;
    w->changed = changed;
    w->context = context;
    loop_timer_open(&w->look, loop, on_look, w);
    loop_timer_set(&w->look, LOOK_EVERY);
    return w;
}

bool file_watch_add(struct file_watch *w, const char *path, const struct stat *seen)
{
    for (size_t i = 0; i < w->count; i++)
        if (strcmp(w->files[i].path, path) == 0)
            return true;
    struct watched *files = realloc(w->files, (w->count + 1) * sizeof *files);
    if (!files)
        return false;
    w->files = files;
    struct watched *file = &w->files[w->count];
    *file = (struct watched){.path = strdup(path), .seen = *seen};
    if (!file->path)
        return false;
    w->count++;
    return true;
}

void file_watch_free(struct file_watch *w)
{
    if (!w)
        return;
    loop_timer_close(&w->look);
    for (size_t i = 0; i < w->count; i++)
        free(w->files[i].path);
    free(w->files);
    free(w);
}
