/* SPDX-License-Identifier: MIT */
/*
 * directory_http_call: one request to the control plane with a whole, bounded answer. A call is
 * used again and again.
 */
#ifndef CELLGATE_AGENT_DIRECTORY_HTTP_CALL_H
#define CELLGATE_AGENT_DIRECTORY_HTTP_CALL_H

#include "spoa/agent/directory/http_answer.h"
#include "spoa/agent/directory/http_target.h"
#include "spoa/base/buffer.h"

struct directory_http_call {
    CURL *easy; /* NULL: not used yet */
    struct curl_slist *fields;
    struct buffer body;
    bool too_large;
    size_t header_bytes;
    char error[CURL_ERROR_SIZE];
};

/* Adds the transfer to `multi`, where it ends within `milliseconds`. False and *why. */
bool directory_http_call_begin(struct directory_http_call *call, CURLM *multi,
                               struct directory_http_target *target, const char *path, bool post,
                               long milliseconds, struct fail *why);
/* After the transfer ended with `result`: takes it off `multi`. True: there is an answer, which is valid until the
 * next begin or free. False and *why: there is none. */
bool directory_http_call_end(struct directory_http_call *call, CURLM *multi, CURLcode result,
                             struct directory_http_reply *reply, struct fail *why);
void directory_http_call_free(struct directory_http_call *call, CURLM *multi);

#endif
