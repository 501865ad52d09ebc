/* SPDX-License-Identifier: MIT */
#include "spoa/proto/data_watch.h"

enum { APPLICATION_DATA = 23 }; /* content type */

void data_watch_client(struct data_watch *w, struct slice bytes)
{
    while (!w->done && bytes.len > 0) {
        bool in_head = w->head_len < TLS_RECORD_HEAD;
        struct slice part = slice_sub(bytes, 0, in_head ? TLS_RECORD_HEAD - w->head_len : w->left);
        bytes = slice_from(bytes, part.len);
        if (in_head) {
            memcpy(w->head + w->head_len, part.at, part.len);
            w->head_len += part.len;
            if (w->head_len == TLS_RECORD_HEAD)
                w->left = (size_t)w->head[3] << 8 | w->head[4];
        } else {
            w->left -= part.len;
        }
        if (w->head_len < TLS_RECORD_HEAD || w->left > 0)
            continue;
        w->done = w->head[0] == APPLICATION_DATA;
        w->head_len = 0;
    }
}
