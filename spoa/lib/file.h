/* SPDX-License-Identifier: MIT */
/* file: a whole file in memory: configuration, keys, tokens. */
#ifndef CELLGATE_LIB_FILE_H
#define CELLGATE_LIB_FILE_H

#include "spoa/lib/fail.h"
#include "spoa/lib/slice.h"

/* Reads at most `limit` bytes; a longer file is refused. *content has a NUL behind its end and is freed with
 * file_free. On failure why is "PATH: what" and *content is absent. Blocks: not for a loop's thread. */
bool file_read(const char *path, size_t limit, struct slice *content, struct fail *why);
/* Overwrites before it frees, as the content may be a secret. Absent is fine. */
void file_free(struct slice content);

#endif
