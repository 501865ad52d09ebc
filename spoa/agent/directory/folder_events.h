/* SPDX-License-Identifier: MIT */
/*
 * folder_events: what inotify says about the files of some folders. Folders are watched, not files: editors, certbot and
 * kubectl replace files, and a watch on the old one would stay with it. A descriptor of it is closed with close().
 */
#ifndef CELLGATE_AGENT_DIRECTORY_FOLDER_EVENTS_H
#define CELLGATE_AGENT_DIRECTORY_FOLDER_EVENTS_H

#include "spoa/base/fail.h"

/* A descriptor that never blocks and is readable when there are events; -1 and *why. */
int folder_events_open(struct fail *why);
/* From now on also those of the folder that this file is in, if there is one; again is fine. */
void folder_events_add(int fd, const char *path);
/* Takes all events that wait. True when a file was written or put in place whose name concerns the caller, or when the
 * kernel had so many that it forgot some. */
bool folder_events_read(int fd, bool (*concerns)(const void *context, const char *name), const void *context);

/* The last part of a path. */
const char *folder_events_name(const char *path);

#endif
