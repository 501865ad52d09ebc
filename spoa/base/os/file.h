/* SPDX-License-Identifier: MIT */
/*
 * file: reads whole files: configuration, keys, tokens. These functions wait for the disk, so they do not belong on the thread of a
 * loop. An error has the text "PATH: reason".
 */
#ifndef CELLGATE_BASE_OS_FILE_H
#define CELLGATE_BASE_OS_FILE_H

#include <sys/stat.h>

#include "spoa/base/bytes/slice.h"
#include "spoa/base/os/fail.h"

/* Reads a regular file of at most `limit` bytes. Refuses a longer one, and refuses a FIFO, a device or a folder without waiting for
 * it. *content ends with a NUL that its length does not count, and the caller frees it with file_free; after a failure *content is
 * absent. */
bool file_read(const char *path, size_t limit, struct slice *content, struct fail *why) MUST_CHECK;

/* What users other than a file's reader can do with the file. */
enum file_exposure { FILE_PRIVATE, FILE_READABLE, FILE_WRITABLE };
enum file_reader {
    FILE_READ_BY_SELF, /* this process: its user and its own group may read the file, and no other group of it */
    FILE_READ_BY_ROOT, /* HAProxy at its start: the operator has chosen owner and groups */
};

/* Judges a file that holds a secret, or a key that is trusted. This is the only function that knows which modes, owners, groups and ACLs
 * are too open. If the file is not private, *what becomes "PATH: who can read or write it (mode, should be 600)". A file that does not exist,
 * or that is not regular, is private. */
enum file_exposure file_exposure(const char *path, enum file_reader reader, struct fail *what) MUST_CHECK;
/* Like file_exposure, for the open file fd, so that nobody can replace the file after the judgement. */
enum file_exposure file_exposure_of(int fd, const char *path, struct fail *what) MUST_CHECK;
/* Like file_read, for a secret. Refuses a file that is more exposed than `most`: FILE_PRIVATE by default, or FILE_READABLE for keys,
 * tokens and passwords that a pod without an fsGroup gets with mode 0444; the caller then warns. */
bool file_read_secret(const char *path, size_t limit, enum file_exposure most, struct slice *content,
                      struct fail *why) MUST_CHECK;
/* Like file_read, but reads pipes and terminals, too, and waits for their end: for what a person names on a command line, never in a
 * daemon. */
bool file_read_stream(const char *path, size_t limit, struct slice *content, struct fail *why) MUST_CHECK;
/* Returns true if path is a regular file that this process can open. */
bool file_readable(const char *path, struct fail *why) MUST_CHECK;
/* Like file_readable, for a secret: refuses the files that file_read_secret refuses. */
bool file_readable_secret(const char *path, enum file_exposure most, struct fail *why) MUST_CHECK;
/* Overwrites the content, which may be a secret, and frees it. Does nothing for an absent one. */
void file_free(struct slice content);

/* Looks up what stat(2) says of a file; *look is zeroed if there is no such file. Two looks show whether a file must be read again. */
void file_look(const char *path, struct stat *look);
/* Returns true if both looks are of one file with one content, as far as that is visible without reading. A file that was put in
 * place with the size and the modification time of its predecessor, as `cp -p` and `tar x` do, counts as another one. */
bool file_looks_same(const struct stat *before, const struct stat *now);

/* Returns true if everybody on this machine can read the file (mode o+r). For files that need not be secret; file_exposure judges
 * secrets. */
bool file_is_public(const char *path);

#endif
