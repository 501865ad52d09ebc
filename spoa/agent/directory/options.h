/* SPDX-License-Identifier: MIT */
/*
 * directory_options: the configuration's `directory`: which kind it is, and the keys that this kind has.
 * Immutable and counted by reference: a directory outlives the configuration that started it.
 */
#ifndef CELLGATE_AGENT_DIRECTORY_OPTIONS_H
#define CELLGATE_AGENT_DIRECTORY_OPTIONS_H

#include "spoa/agent/directory/kind.h"
#include "spoa/base/table/references.h"
#include "spoa/service/settings.h"

struct directory_options {
    const struct directory_kind *kind;
    struct directory_common *own; /* the kind's struct */
    atomic_uint references;       /* of directory_options_retain and _release alone */
};

/* Of settings->directory. NULL and *why with the position. */
struct directory_options *directory_options_read(const struct settings *settings, struct fail *why);
struct directory_options *directory_options_retain(struct directory_options *options);
void directory_options_release(struct directory_options *options); /* NULL is fine */
bool directory_options_equal(const struct directory_options *a, const struct directory_options *b);

/* The file of a directory of kind `file`, else NULL. */
const char *directory_options_file(const struct directory_options *options);

/* The kinds there are, in order; NULL behind the last. */
const struct directory_kind *directory_kind_at(size_t i);

#endif
