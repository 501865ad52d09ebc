/* SPDX-License-Identifier: MIT */
/* host_names: the names of all workers in a table of records, each once. */
#ifndef CELLGATE_AGENT_DIRECTORY_HOST_NAMES_H
#define CELLGATE_AGENT_DIRECTORY_HOST_NAMES_H

#include "spoa/agent/directory/records.h"

struct host_names { /* zeroed before its first use */
    char **texts;   /* sorted */
    size_t count, size;
};

/* False when out of memory; *names is for host_names_free either way. */
bool host_names_collect(struct host_names *names, const struct records *records);
void host_names_free(struct host_names *names);

#endif
