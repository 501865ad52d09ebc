/* SPDX-License-Identifier: MIT */
/* process_metrics: what every daemon reports about its process, under the names of Prometheus' own client libraries. */
#ifndef CELLGATE_SERVICE_PROCESS_METRICS_H
#define CELLGATE_SERVICE_PROCESS_METRICS_H

#include "spoa/base/bytes/buffer.h"

/* Appends cellgate_build_info and process_* in the Prometheus text format, without values that the kernel does not provide. Returns false
 * if `to` is full. */
bool process_metrics_write(const char *program, struct buffer *to) MUST_CHECK;

#endif
