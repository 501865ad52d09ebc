/* SPDX-License-Identifier: MIT */
/* http_call: one request with a complete, bounded answer; can be used again for the next request. Zero bytes are a valid start. */
#ifndef CELLGATE_AGENT_DIRECTORY_HTTP_CALL_H
#define CELLGATE_AGENT_DIRECTORY_HTTP_CALL_H

#include "spoa/agent/directory/http_answer.h"
#include "spoa/agent/directory/http_target.h"
#include "spoa/base/bytes/buffer.h"

/* The fields are private. */
struct http_call {
    CURL *easy; /* NULL before the first request */
    struct curl_slist *fields;
    struct buffer body;
    bool too_large;
    size_t header_bytes;
    char error[CURL_ERROR_SIZE];
};

/* The request to send; all texts must live as long as the call. */
struct http_call_request {
    const char *path;
    const char *method; /* NULL: GET */
    const char *body;   /* of a method other than GET */
    const char *type;   /* header line with the type of the body, or NULL */
    long milliseconds;  /* maximum duration of the call [ms] */
};

/* Begins a request and adds its transfer to `multi`. Returns false with *why if memory is short or the token cannot be read. */
bool http_call_begin(struct http_call *call, CURLM *multi, struct directory_http_target *target,
                     const struct http_call_request *request, struct fail *why) MUST_CHECK;
/* Ends the call whose transfer ended with `result`. Returns true with the answer, which is valid until the next http_call_begin, or
 * false with *why if there is none. */
bool http_call_end(struct http_call *call, CURLM *multi, CURLcode result, struct directory_http_reply *reply,
                   struct fail *why) MUST_CHECK;
/* Frees what the call holds, and removes a transfer that still runs. */
void http_call_free(struct http_call *call, CURLM *multi);

#endif
