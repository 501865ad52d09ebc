/* SPDX-License-Identifier: MIT */
/*
 * file_watch: tells when one of a few files (keys, certificates) was replaced or rewritten. The folders are
 * watched with inotify, since editors, certbot and kubectl replace files; changes that come together are told
 * once. On the loop's thread.
 */
#ifndef CELLGATE_AGENT_FILE_WATCH_H
#define CELLGATE_AGENT_FILE_WATCH_H

#include "spoa/lib/loop.h"

struct file_watch;

/* NULL and *why when inotify cannot be had. `changed` is called 50 ms after the last of a series of changes.
 */
struct file_watch *file_watch_new(struct loop *loop, void (*changed)(void *context), void *context,
                                  struct fail *why);
/* Watches the file too; a folder that is not there is tried again whenever a file is added. False when out of
 * memory. */
bool file_watch_add(struct file_watch *watch, const char *path);
void file_watch_free(struct file_watch *watch); /* NULL is fine */

#endif
