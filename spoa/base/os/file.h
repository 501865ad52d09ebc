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

/* What others than its reader can do with a file. */
enum file_exposure { FILE_PRIVATE, FILE_READABLE, FILE_WRITABLE };
enum file_reader {
    FILE_READ_BY_SELF, /* this process: its own user and group, no other group that it is in, may read the file */
    FILE_READ_BY_ROOT, /* HAProxy as it starts: groups and owner are what the operator chose */
};

/* Judges a file that holds a secret, or a key that is believed: the only place that knows which modes, owners, groups and ACLs are
 * too open. If the file is not private, what is "PATH: what others can do (mode, what it should be)". A file that is not
 * there, and what is no regular file, is private. */
enum file_exposure file_exposure(const char *path, enum file_reader reader, struct fail *what);
/* The same of the open file fd, so that nothing can be put in its place after the judgement. */
enum file_exposure file_exposure_of(int fd, const char *path, struct fail *what);
/* Like file_read, of a secret: refuses a file that is more exposed than `most`. FILE_PRIVATE: the default. FILE_READABLE: for keys, tokens
 * and passwords, which pods without an fsGroup get with mode 0444; the caller warns. */
bool file_read_secret(const char *path, size_t limit, enum file_exposure most, struct slice *content,
                      struct fail *why) __attribute__((warn_unused_result));
/* The same of a pipe or a terminal, too, until its end, however long that takes: for what a person names on a
 * command line, never in a daemon. */
bool file_read_stream(const char *path, size_t limit, struct slice *content, struct fail *why);
/* Returns true if it is a regular file that can be opened; why as above. */
bool file_readable(const char *path, struct fail *why);
/* Like file_readable, of a secret: what file_read_secret would refuse is refused. */
bool file_readable_secret(const char *path, enum file_exposure most, struct fail *why);
/* Overwrites before it frees, as the content may be a secret. Absent is fine. */
void file_free(struct slice content);

/* What a file looks like, before it is read; zeroed: it is not there. */
void file_look(const char *path, struct stat *look);
/* Whether it is the same file with the same content, as far as that can be known without reading: also one that was
 * put there with the size and the age of the last one, as `cp -p` and `tar x` do, is another. */
bool file_looks_same(const struct stat *before, const struct stat *now);

/* Returns true if everybody on this machine can read the file (mode o+r). For files that need not be secret: file_exposure judges those
 * that are. */
bool file_is_public(const char *path);

#endif
