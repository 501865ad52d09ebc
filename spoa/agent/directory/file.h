/* SPDX-License-Identifier: MIT */
/*
 * directory_file: the directory kind `file`, {"sandboxes": {ID: RECORD, ...}}. It watches the folder with inotify (editors
 * and kubectl replace files) and looks at the file every 100 ms besides. A thread reads the file, for as long as that takes,
 * and a new table is handed over whenever a whole good file is there. A bad file is reported and changes nothing.
 *
 * The root may also hold "not_before": tokens issued before that time (Unix seconds) are revoked for all
 * sandboxes. A record whose epoch is lower than the one last seen is ignored: the older record stays.
 */
#ifndef CELLGATE_AGENT_DIRECTORY_FILE_H
#define CELLGATE_AGENT_DIRECTORY_FILE_H

#include "spoa/agent/directory/kind.h"

/* Reads the file once. `before` (may be NULL) is what epochs
 * are compared with. False: *why has path, line, column. */
bool directory_file_load(const char *path, const struct records *before, struct directory_load *load,
                         struct fail *why);

/* The same, and each record has to be to the liking of somebody else, too: `why` then has its position within the record. */
struct directory_file_check {
    bool (*record)(const void *context, const struct json *doc, const json_node *record, struct fail *why);
    const void *context;
};
bool directory_file_load_checked(const char *path, const struct directory_file_check *check,
                                 struct directory_load *load, struct fail *why);

/* The options of directory_kind_file. */
struct directory_file_options {
    struct directory_common common;
    char *path;
};

#endif
