/* SPDX-License-Identifier: MIT */
/*
 * kubernetes_transfer: sends the requests of one watch (watch.h) one after another, by libcurl. Zero bytes with `watch` set are a valid
 * start.
 */
#ifndef CELLGATE_AGENT_DIRECTORY_KUBERNETES_TRANSFER_H
#define CELLGATE_AGENT_DIRECTORY_KUBERNETES_TRANSFER_H

#include "spoa/agent/directory/http_target.h"
#include "spoa/agent/directory/kubernetes/watch.h"

struct kubernetes_transfer {
    struct kubernetes_watch *watch;

    /* private */
    CURL *easy; /* NULL before the first request */
    struct curl_slist *fields;
    size_t header_bytes;
    char error[CURL_ERROR_SIZE];
};

/* Begins a request that is due, and ends one that hangs. Returns true if a transfer was added to `multi`. */
bool kubernetes_transfer_step(struct kubernetes_transfer *t, CURLM *multi,
                              struct directory_http_target *target, uint64_t now);
/* Takes the end of the transfer `easy`. Returns false if it is not this one's. */
bool kubernetes_transfer_end(struct kubernetes_transfer *t, CURLM *multi,
                             struct directory_http_target *target, const CURL *easy, CURLcode result);
/* Frees what the transfer holds, and removes it from `multi`. */
void kubernetes_transfer_free(struct kubernetes_transfer *t, CURLM *multi);

#endif
