/* SPDX-License-Identifier: MIT */
/* file: a whole file in memory: configuration, keys, tokens. */
#ifndef CELLGATE_BASE_OS_FILE_H
#define CELLGATE_BASE_OS_FILE_H

#include <sys/stat.h>

#include "spoa/base/bytes/slice.h"
#include "spoa/base/os/fail.h"

/* Reads a regular file of at most `limit` bytes. Anything longer, and a FIFO, a device or a folder, is refused
 * without waiting for it. *content has a NUL behind its end and is freed with file_free. On failure why is
 * "PATH: what" and *content is absent. Waits for the disk: not for a loop's thread. */
bool file_read(const char *path, size_t limit, struct slice *content, struct fail *why);
/* Like file_read, of a secret: refuses a file that others than its owner can write, that everybody can read, or that a group can
 * read which is not this process's own. */
bool file_read_secret(const char *path, size_t limit, struct slice *content, struct fail *why)
    __attribute__((warn_unused_result));
/* The same of a pipe or a terminal, too, until its end, however long that takes: for what a person names on a
 * command line, never in a daemon. */
bool file_read_stream(const char *path, size_t limit, struct slice *content, struct fail *why);
/* Whether it is a regular file that can be opened; why as above. */
bool file_readable(const char *path, struct fail *why);
/* Overwrites before it frees, as the content may be a secret. Absent is fine. */
void file_free(struct slice content);

/* What a file looks like, before it is read; zeroed: it is not there. */
void file_look(const char *path, struct stat *look);
/* Whether it is the same file with the same content, as far as that can be known without reading: also one that was
 * put there with the size and the age of the last one, as `cp -p` and `tar x` do, is another. */
bool file_looks_same(const struct stat *before, const struct stat *now);

/* Whether it is a file that everybody on this machine can read (mode o+r), as no secret should be. */
bool file_is_public(const char *path);

#endif
