/* SPDX-License-Identifier: MIT */
/* top_ends: records the last ended tunnels of a thread, for views. Only that thread may use the record. */
#ifndef CELLGATE_RELAY_THREAD_TOP_ENDS_H
#define CELLGATE_RELAY_THREAD_TOP_ENDS_H

#include <stddef.h>
#include <stdint.h>

#include "spoa/base/bytes/slice.h"

enum { TOP_ENDS = 32, TOP_END_NAME = 96 };

struct top_end {
    int64_t at;      /* Unix milliseconds */
    unsigned reason; /* enum close_reason */
    unsigned redials;
    uint64_t age, longest_gap; /* microseconds */
    char id[32];
    size_t sandbox_len, route_len;
    uint8_t sandbox[TOP_END_NAME], route[TOP_END_NAME]; /* cut if longer */
};

struct top_ends {                /* zeroed bytes are an empty record */
    struct top_end at[TOP_ENDS]; /* a ring */
    size_t noted;
};

/* Returns a zeroed entry for the newest end, in place of the oldest. */
struct top_end *top_ends_note(struct top_ends *ends);
/* Copies as much as fits and returns its length. */
size_t top_end_name(uint8_t to[static TOP_END_NAME], struct slice name);
/* Returns the i-th newest end, counted from 0, or NULL if there are fewer. */
const struct top_end *top_ends_newest(const struct top_ends *ends, size_t i);

#endif
