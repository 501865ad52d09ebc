/* SPDX-License-Identifier: MIT */
/* top_frame: what `cellgate top` shows, as lines of text. Whatever names others have chosen, a line is ASCII that moves no
 * cursor, and no longer than the screen is wide. */
#ifndef CELLGATE_CTL_TOP_FRAME_H
#define CELLGATE_CTL_TOP_FRAME_H

#include "spoa/base/bytes/buffer.h"
#include "spoa/base/json/json.h"

/* Sums of the last answers, to tell rates by. */
struct top_sums {
    int64_t at; /* microseconds of loop_clock; 0: none yet */
    int64_t opened, ended, to_worker, to_client, decisions;
};

struct top_view {
    const struct json *relay, *agent;      /* their answers to `top` and `status`; NULL: none */
    const char *relay_error, *agent_error; /* why there is none */
    struct top_sums before, now;
    struct slice filter;
    const char *sort;
    bool edits; /* the filter is being typed */
};

struct top_screen { /* 0: no limit, and nothing that only a terminal understands */
    size_t columns, rows;
};

/* What an answer adds up to. */
void top_frame_sums(const struct top_view *view, int64_t at, struct top_sums *sums);
/* Appends the frame. False: the buffer is full. */
bool top_frame(const struct top_view *view, struct top_screen screen, struct buffer *to);

#endif
