/* SPDX-License-Identifier: MIT */
/*
 * metric_names: values of a metric's label that appear at run time, such as names of the configuration. The number of places is
 * fixed; when all are taken, further names count under "other". Any thread.
 */
#ifndef CELLGATE_SERVICE_METRIC_NAMES_H
#define CELLGATE_SERVICE_METRIC_NAMES_H

#include <stddef.h>

#include "spoa/base/bytes/slice.h"

struct metric_names;

/* Returns the values of one label. `fixed` are names with the indices from 0 on, ended by NULL; `places` names can be added after them.
 * Returns NULL if memory is short. */
struct metric_names *metric_names_new(const char *const *fixed, size_t places) MUST_CHECK;
/* Frees the values, when no metric uses them any more; NULL is fine. */
void metric_names_free(struct metric_names *names);
/* Returns the array for metric_label.values, which is valid until metric_names_free. */
const char *const *metric_names_values(struct metric_names *names);
/* Returns the index of `name`, which gets a place if it has none. Keep the index: this takes a lock and searches. */
unsigned metric_names_index(struct metric_names *names, struct slice name);

#endif
