/* SPDX-License-Identifier: MIT */
/*
 * metric_names: the values of a metric's label that are known only while a daemon runs: names of the configuration, for
 * instance. There are so many places; a name that comes when all are taken counts under "other". Any thread.
 */
#ifndef CELLGATE_SERVICE_METRIC_NAMES_H
#define CELLGATE_SERVICE_METRIC_NAMES_H

#include <stddef.h>

#include "spoa/base/bytes/slice.h"

struct metric_names;

/* fixed: names that are there from the beginning, with indexes from 0, which places are behind; ended by NULL. NULL when
 * out of memory. */
struct metric_names *metric_names_new(const char *const *fixed, size_t places);
void metric_names_free(struct metric_names *names); /* NULL is fine */
/* For metric_label.values; valid until metric_names_free. */
const char *const *metric_names_values(struct metric_names *names);
/* The index of a name, which gets a place if it has none: one lock and a search, so not for each event. */
unsigned metric_names_index(struct metric_names *names, struct slice name);

#endif
