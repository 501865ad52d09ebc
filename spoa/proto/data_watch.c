/* SPDX-License-Identifier: MIT */
#include "spoa/proto/data_watch.h"

enum { APPLICATION_DATA = 23 };

static size_t take_head(struct data_watch *w, struct slice bytes)
{
    struct slice part = slice_sub(bytes, 0, TLS_RECORD_HEAD - w->head_len);
    memcpy(w->head + w->head_len, part.at, part.len);
    w->head_len += part.len;
    if (w->head_len == TLS_RECORD_HEAD)
        w->left = (size_t)w->head[3] << 8 | w->head[4];
    return part.len;
}

static size_t take_rest(struct data_watch *w, struct slice bytes)
{
    struct slice part = slice_sub(bytes, 0, w->left);
    w->left -= part.len;
    return part.len;
}

void data_watch_client(struct data_watch *w, struct slice bytes)
{
    while (!w->done && bytes.len > 0) {
        size_t taken = w->head_len < TLS_RECORD_HEAD ? take_head(w, bytes) : take_rest(w, bytes);
        bytes = slice_from(bytes, taken);
        if (w->head_len < TLS_RECORD_HEAD || w->left > 0)
            continue;
        w->done = w->head[0] == APPLICATION_DATA;
        w->head_len = 0;
    }
}
