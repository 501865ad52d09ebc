/* SPDX-License-Identifier: MIT */
/* top_frame: formats the output of `cellgate top` as lines of text. A line is ASCII without control characters, whatever names others have
 * chosen, and no longer than the screen is wide. */
#ifndef CELLGATE_CTL_TOP_FRAME_H
#define CELLGATE_CTL_TOP_FRAME_H

#include "spoa/base/bytes/buffer.h"
#include "spoa/base/json/json.h"

/* Sums of the last answers, to compute rates. */
struct top_sums {
    int64_t at; /* time of the answers, in µs of loop_clock; 0 if there are none yet */
    int64_t opened, ended, to_worker, to_client, decisions;
};

struct top_view {
    const struct json *relay, *agent;      /* answers to `top` and `status`; NULL if there is none */
    const char *relay_error, *agent_error; /* reason why there is no answer */
    struct top_sums before, now;
    struct slice filter;
    const char *sort;
    bool edits; /* true while the filter is being typed */
};

struct top_screen { /* size of the screen; 0 means unlimited and plain text without terminal codes */
    size_t columns, rows;
};

/* Computes the sums of an answer. */
void top_frame_sums(const struct top_view *view, int64_t at, struct top_sums *sums);
/* Appends the frame. Returns false if the buffer is full. */
bool top_frame(const struct top_view *view, struct top_screen screen, struct buffer *to);

#endif
