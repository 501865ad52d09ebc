/* SPDX-License-Identifier: MIT */
/* process_metrics: what every daemon tells of its process, under the names that Prometheus' own clients use. */
#ifndef CELLGATE_SERVICE_PROCESS_METRICS_H
#define CELLGATE_SERVICE_PROCESS_METRICS_H

#include "spoa/base/bytes/buffer.h"

/* Appends cellgate_build_info and process_* in the Prometheus text format; what the kernel does not tell is left out.
 * False when `to` is full. */
bool process_metrics_write(const char *program, struct buffer *to);

#endif
