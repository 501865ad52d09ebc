/* SPDX-License-Identifier: MIT */
/*
 * directory_file: the directory kind `file`. A thread of its own reads {"sandboxes": {ID: RECORD, ...}},
 * watches the folder with inotify (editors and kubectl replace files) and looks at the file every 100 ms
 * besides, and hands over a new table whenever a whole good file is there. A bad file is reported and changes
 * nothing.
 *
 * The root may also hold "not_before": tokens issued before that time (Unix seconds) are revoked for all
 * sandboxes. A record whose epoch is lower than the one last seen is ignored: the older record stays.
 */
#ifndef CELLGATE_AGENT_DIRECTORY_FILE_H
#define CELLGATE_AGENT_DIRECTORY_FILE_H

#include "spoa/agent/records.h"

struct directory_load {
    struct records *records;
    int64_t not_before;     /* 0: none */
    uint64_t epochs_behind; /* records ignored because their epoch went back */
    double seconds;         /* that reading took */
};

/* Reads the file once. `before` (may be NULL) is what epochs
 * are compared with. False: *why has path, line, column. */
bool directory_file_load(const char *path, const struct records *before, struct directory_load *load,
                         struct fail *why);

struct directory_events {
    void (*loaded)(void *context, const struct directory_load *load); /* load->records: retain to keep */
    void (*failed)(void *context, const char *why);
    void *context;
};

struct directory_file;
/* Both callbacks are called by the directory's thread. The first load happens there too, so that a large file
 * does not hold up the start. NULL and *why when inotify or the thread cannot be had. */
struct directory_file *directory_file_start(const char *path, const struct directory_events *events,
                                            struct fail *why);
void directory_file_stop(struct directory_file *directory); /* joins the thread; NULL is fine */

#endif
