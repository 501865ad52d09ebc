/* SPDX-License-Identifier: MIT */
/* explain_report: the steps of a decision and what came of it, as text or as parts of a JSON object. */
#ifndef CELLGATE_CTL_EXPLAIN_REPORT_H
#define CELLGATE_CTL_EXPLAIN_REPORT_H

#include <stdbool.h>

#include "spoa/base/bytes/slice.h"

struct report {
    bool json;
    size_t members; /* printed in the object or array that is open */
};

/* A member, or a line: nothing of an absent text, a negative number, what is not true. */
void report_text(struct report *r, const char *name, struct slice value);
void report_number(struct report *r, const char *name, int64_t value);
void report_truth(struct report *r, const char *name, bool value);
/* As decide_trace.step; context is a struct report. */
void report_step(void *context, const char *step, const char *text, struct slice detail);

#endif
