/* SPDX-License-Identifier: MIT */
/* http_call: one request with a whole, bounded answer; used again and again. Zeroed before its first use. */
#ifndef CELLGATE_AGENT_DIRECTORY_HTTP_CALL_H
#define CELLGATE_AGENT_DIRECTORY_HTTP_CALL_H

#include "spoa/agent/directory/http_answer.h"
#include "spoa/agent/directory/http_target.h"
#include "spoa/base/bytes/buffer.h"

struct http_call {
    CURL *easy; /* NULL: not used yet */
    struct curl_slist *fields;
    struct buffer body;
    bool too_large;
    size_t header_bytes;
    char error[CURL_ERROR_SIZE];
};

struct http_call_request {
    const char *path;
    const char *method; /* NULL: GET */
    const char *body;   /* of another method; lives as long as the call */
    const char *type;   /* its header line; NULL: none */
    long milliseconds;  /* until it ends, one way or the other */
};

/* Adds the transfer to `multi`. False and *why. */
bool http_call_begin(struct http_call *call, CURLM *multi, struct directory_http_target *target,
                     const struct http_call_request *request, struct fail *why);
/* It ended with this result. True: there is an answer, which is valid until the call begins again. */
bool http_call_end(struct http_call *call, CURLM *multi, CURLcode result, struct directory_http_reply *reply,
                   struct fail *why);
void http_call_free(struct http_call *call, CURLM *multi);

#endif
