/* SPDX-License-Identifier: MIT */
/* shared_record: one immutable record in memory of its own, with a reference count. */
#ifndef CELLGATE_AGENT_MODEL_SHARED_RECORD_H
#define CELLGATE_AGENT_MODEL_SHARED_RECORD_H

#include "spoa/agent/model/record.h"
#include "spoa/base/table/references.h"

struct shared_record {
    atomic_uint references; /* used by shared_record_retain and shared_record_release only */
    size_t bytes;           /* memory in use */
    struct record record;
    uint8_t texts[]; /* the bytes that the record's slices point to */
};

/* Copies the record. Returns NULL if memory is short. */
struct shared_record *shared_record_new(const struct record *record);
struct shared_record *shared_record_retain(struct shared_record *box);
void shared_record_release(struct shared_record *box); /* box may be NULL */
/* Returns whether both records have the same content. */
bool shared_record_equal(const struct shared_record *a, const struct shared_record *b);

#endif
