/* SPDX-License-Identifier: MIT */
/* directory_options: the configuration's `directory`, of which each kind has keys of its own. */
#ifndef CELLGATE_AGENT_DIRECTORY_OPTIONS_H
#define CELLGATE_AGENT_DIRECTORY_OPTIONS_H

#include "spoa/lib/options.h"
#include "spoa/lib/settings.h"

struct directory_options {
    int kind;   /* of directory_kinds */
    char *path; /* kind `file` */
};

/* Of settings->directory. False and *why with the position;
 * *options is then for directory_options_free too. */
bool directory_options_read(const struct settings *settings, struct directory_options *options,
                            struct fail *why);
void directory_options_free(struct directory_options *options);

/* The table of keys, for documentation. */
const struct option *directory_options_table(size_t *count);

#endif
