/* SPDX-License-Identifier: MIT */
/* record_box: one record in memory of its own, immutable and counted by reference. */
#ifndef CELLGATE_AGENT_MODEL_SHARED_RECORD_H
#define CELLGATE_AGENT_MODEL_SHARED_RECORD_H

#include "spoa/agent/model/record.h"

struct record_box {
    unsigned references; /* atomic; of record_box_retain and record_box_release alone */
    size_t bytes;        /* memory it takes */
    struct record record;
    uint8_t texts[]; /* what the record's slices point to */
};

/* Copies the record. NULL when out of memory. */
struct record_box *record_box_new(const struct record *record);
struct record_box *record_box_retain(struct record_box *box);
void record_box_release(struct record_box *box); /* NULL is fine */
/* Whether both say the same. */
bool record_box_equal(const struct record_box *a, const struct record_box *b);

#endif
