/* SPDX-License-Identifier: MIT */
/*
 * directory_file: the directory kind `file`, {"sandboxes": {ID: RECORD, ...}}. The kind watches the folder with inotify, because
 * editors and kubectl replace files, and checks the file every 100 ms besides. A thread reads the file while it changes,
 * and reports a new table whenever the whole file is good. A bad file is reported and changes nothing.
 *
 * The root may also hold "not_before": tokens issued before that time (Unix seconds) are revoked for all sandboxes. A
 * record whose epoch is lower than the last known one is ignored, and the older record stays.
 */
#ifndef CELLGATE_AGENT_DIRECTORY_FILE_H
#define CELLGATE_AGENT_DIRECTORY_FILE_H

#include "spoa/agent/directory/kind.h"

/* Reads the file once. `before` is the table that epochs are compared with, or NULL. Returns false with *why (path, line and column)
 * if the file is bad or memory is short; on success the caller releases load->records and load->revoked. */
bool directory_file_load(const char *path, const struct records *before, struct directory_load *load,
                         struct fail *why) MUST_CHECK;

/* An additional check of each record. `record` returns false with *why, which has a position within the record. */
struct directory_file_check {
    bool (*record)(const void *context, const struct json *doc, const json_node *record, struct fail *why);
    const void *context;
};

/* Like directory_file_load, and each record must pass `check`. */
bool directory_file_load_checked(const char *path, const struct directory_file_check *check,
                                 struct directory_load *load, struct fail *why) MUST_CHECK;

/* The options of directory_kind_file. */
struct directory_file_options {
    struct directory_common common;
    char *path;
};

#endif
