/* SPDX-License-Identifier: MIT */
/*
 * kubernetes_transfer: the requests of one watch (watch.h), one after the other, by libcurl. Zeroed before its
 * first use, but for `watch`.
 */
#ifndef CELLGATE_AGENT_DIRECTORY_KUBERNETES_TRANSFER_H
#define CELLGATE_AGENT_DIRECTORY_KUBERNETES_TRANSFER_H

#include "spoa/agent/directory/http_target.h"
#include "spoa/agent/directory/kubernetes/watch.h"

struct kubernetes_transfer {
    struct kubernetes_watch *watch;

    /* private */
    CURL *easy; /* NULL: not used yet */
    struct curl_slist *fields;
    size_t header_bytes;
    char error[CURL_ERROR_SIZE];
};

/* Begins what is due, ends what hangs. True: a transfer was added to `multi`. */
bool kubernetes_transfer_step(struct kubernetes_transfer *t, CURLM *multi,
                              struct directory_http_target *target, uint64_t now);
/* Whether this transfer is its own, which has ended. */
bool kubernetes_transfer_end(struct kubernetes_transfer *t, CURLM *multi,
                             struct directory_http_target *target, const CURL *easy, CURLcode result);
void kubernetes_transfer_free(struct kubernetes_transfer *t, CURLM *multi);

#endif
