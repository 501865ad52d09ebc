/* SPDX-License-Identifier: MIT */
/* explain_report: prints the steps and the result of a decision, as text or as parts of a JSON object. */
#ifndef CELLGATE_CTL_EXPLAIN_REPORT_H
#define CELLGATE_CTL_EXPLAIN_REPORT_H

#include <stdbool.h>

#include "spoa/base/bytes/slice.h"

struct report {
    bool json;
    size_t members; /* number of members printed in the open object or array */
};

/* Print a member or a line each. Absent texts, negative numbers and false values are skipped. */
void report_text(struct report *r, const char *name, struct slice value);
void report_number(struct report *r, const char *name, int64_t value);
void report_truth(struct report *r, const char *name, bool value);
/* Implements decide_trace.step; `context` is a struct report. */
void report_step(void *context, const char *step, const char *text, struct slice detail);

#endif
