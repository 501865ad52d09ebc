/* SPDX-License-Identifier: MIT */
/* shared_record: one record in memory of its own, immutable and counted by reference. */
#ifndef CELLGATE_AGENT_MODEL_SHARED_RECORD_H
#define CELLGATE_AGENT_MODEL_SHARED_RECORD_H

#include "spoa/agent/model/record.h"
#include "spoa/base/table/references.h"

struct shared_record {
    atomic_uint references; /* of shared_record_retain and shared_record_release alone */
    size_t bytes;           /* memory it takes */
    struct record record;
    uint8_t texts[]; /* what the record's slices point to */
};

/* Copies the record. NULL when out of memory. */
struct shared_record *shared_record_new(const struct record *record);
struct shared_record *shared_record_retain(struct shared_record *box);
void shared_record_release(struct shared_record *box); /* NULL is fine */
/* Whether both say the same. */
bool shared_record_equal(const struct shared_record *a, const struct shared_record *b);

#endif
