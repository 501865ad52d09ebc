/* SPDX-License-Identifier: MIT */
/*
 * file_watch: tells when one of a few files (keys) was replaced or rewritten. Looks at them twice a second:
 * that works on every file system, through symbolic links that kubectl turns, and takes none of the few
 * inotify instances of a user. On the loop's thread.
 */
#ifndef CELLGATE_NET_FILE_WATCH_H
#define CELLGATE_NET_FILE_WATCH_H

#include <sys/stat.h>

#include "spoa/net/loop.h"

struct file_watch;

/* `changed` is called once for changes that are seen together, and again with each look while it returns false. NULL
 * when out of memory. */
struct file_watch *file_watch_new(struct loop *loop, bool (*changed)(void *context), void *context);
/* Watches the file too, from what it looked like before it was read (zeroed: it was not there), so that no change
 * is missed in between. One that is watched already stays so. False when out of memory. */
bool file_watch_add(struct file_watch *watch, const char *path, const struct stat *seen);
void file_watch_free(struct file_watch *watch); /* NULL is fine */

#endif
