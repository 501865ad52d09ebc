/* SPDX-License-Identifier: MIT */
/*
 * directory_options: the section `directory` of the configuration: which kind it is, and the values of that kind's keys.
 * Immutable and counted by reference, because a directory may outlive the configuration that started it.
 */
#ifndef CELLGATE_AGENT_DIRECTORY_OPTIONS_H
#define CELLGATE_AGENT_DIRECTORY_OPTIONS_H

#include "spoa/agent/directory/kind.h"
#include "spoa/base/table/references.h"
#include "spoa/service/settings.h"

struct directory_options {
    const struct directory_kind *kind;
    struct directory_common *own; /* options struct of the kind */
    atomic_uint references;       /* written by directory_options_retain and _release only */
};

/* Reads settings->directory. Returns NULL, with *why and its position, if it is not valid or memory is short. */
struct directory_options *directory_options_read(const struct settings *settings, struct fail *why)
    MUST_CHECK;
/* Take and drop a reference; NULL may be released. */
struct directory_options *directory_options_retain(struct directory_options *options);
void directory_options_release(struct directory_options *options);
/* Returns whether both name the same kind with the same values: then a reload keeps the running directory. */
bool directory_options_equal(const struct directory_options *a, const struct directory_options *b);

/* Returns the path of a directory of kind `file`, or NULL for other kinds. */
const char *directory_options_file(const struct directory_options *options);

/* Returns the i-th kind, or NULL after the last one. */
const struct directory_kind *directory_kind_at(size_t i);

#endif
