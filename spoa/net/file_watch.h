/* SPDX-License-Identifier: MIT */
/*
 * file_watch: notices that one of a few files, such as keys, was replaced or rewritten. The files are looked up (stat) twice a second:
 * that works on every file system and through the symbolic links that kubelet turns, and needs none of a user's few inotify instances.
 * For the loop's thread.
 */
#ifndef CELLGATE_NET_FILE_WATCH_H
#define CELLGATE_NET_FILE_WATCH_H

#include <sys/stat.h>

#include "spoa/net/loop.h"

struct file_watch;

/* Starts a watch without files. `changed` is called once for all changes that are seen together. If it returns false, it is called again
 * half a second later. Returns NULL if memory is short. */
struct file_watch *file_watch_new(struct loop *loop, bool (*changed)(void *context), void *context)
    MUST_CHECK;
/* Watches a file. `seen` is the result of file_look before the file was read (zeroed if it did not exist), so that no change between
 * the two is missed. A file that is watched already keeps its state. Returns false if memory is short. */
bool file_watch_add(struct file_watch *watch, const char *path, const struct stat *seen) MUST_CHECK;
/* Ends the watch. NULL is fine. */
void file_watch_free(struct file_watch *watch);

#endif
