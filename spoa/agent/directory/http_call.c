/* SPDX-License-Identifier: MIT */
#include "spoa/agent/directory/http_call.h"

#define HEADERS_MAX ((size_t)32 * 1024) /* maximum size of an answer's header */

/* Call-back of libcurl. A body beyond the limit ends the transfer, which http_call_end does not count as an error. */
static size_t on_body(char *bytes, size_t size, size_t count, void *context)
{
    struct http_call *call = context;
    if (buffer_put(&call->body, slice_of(bytes, size * count)))
        return size * count;
    call->too_large = true;
    return 0;
}

/* Call-back of libcurl. Bounds the header; libcurl keeps the values. */
static size_t on_header(char *bytes, size_t size, size_t count, void *context)
{
    struct http_call *call = context;
    (void)bytes;
    call->header_bytes += size * count;
    return call->header_bytes > HEADERS_MAX ? 0 : size * count;
}

static void reset(struct http_call *call)
{
    curl_slist_free_all(call->fields);
    call->fields = NULL;
    buffer_free(&call->body);
}

bool http_call_begin(struct http_call *call, CURLM *multi, struct directory_http_target *target,
                     const struct http_call_request *request, struct fail *why)
{
    reset(call);
    call->body = buffer_with_limit(DIRECTORY_HTTP_BODY_MAX);
    call->too_large = false;
    call->header_bytes = 0;
    call->error[0] = '\0';
    if (!call->easy && !(call->easy = curl_easy_init()))
        return fail(why, "out of memory");
    if (!directory_http_target_aim(target, call->easy, request->path, "Accept: application/json",
                                   &call->fields, why))
        return false;
    if (request->method) {
        struct curl_slist *longer =
            request->type ? curl_slist_append(call->fields, request->type) : call->fields;
        if (!longer)
            return fail(why, "out of memory");
        call->fields = longer;
        curl_easy_setopt(call->easy, CURLOPT_POSTFIELDS, request->body);
        curl_easy_setopt(call->easy, CURLOPT_POSTFIELDSIZE, (long)strlen(request->body));
        if (curl_easy_setopt(call->easy, CURLOPT_CUSTOMREQUEST, request->method) != CURLE_OK)
            return fail(why, "out of memory");
    }
    curl_easy_setopt(call->easy, CURLOPT_HTTPHEADER, call->fields);
    curl_easy_setopt(call->easy, CURLOPT_ERRORBUFFER, call->error);
    curl_easy_setopt(call->easy, CURLOPT_WRITEFUNCTION, on_body);
    curl_easy_setopt(call->easy, CURLOPT_WRITEDATA, call);
    curl_easy_setopt(call->easy, CURLOPT_HEADERFUNCTION, on_header);
    curl_easy_setopt(call->easy, CURLOPT_HEADERDATA, call);
    curl_easy_setopt(call->easy, CURLOPT_TIMEOUT_MS, request->milliseconds);
    return curl_multi_add_handle(multi, call->easy) == CURLM_OK || fail(why, "out of memory");
}

/* Returns the value of a header, or an absent slice. */
static struct slice header(CURL *easy, const char *name)
{
    struct curl_header *found;
    if (curl_easy_header(easy, name, 0, CURLH_HEADER, -1, &found) != CURLHE_OK)
        return (struct slice){NULL, 0};
    return slice_text(found->value);
}

bool http_call_end(struct http_call *call, CURLM *multi, CURLcode result, struct directory_http_reply *reply,
                   struct fail *why)
{
    long status = 0;
    curl_multi_remove_handle(multi, call->easy);
    curl_easy_getinfo(call->easy, CURLINFO_RESPONSE_CODE, &status);
    if (result != CURLE_OK && !call->too_large)
        return fail(why, "%.200s", call->error[0] ? call->error : curl_easy_strerror(result));
    *reply = (struct directory_http_reply){
        .status = (unsigned)status,
        .content_type = header(call->easy, "Content-Type"),
        .cache_control = header(call->easy, "Cache-Control"),
        .retry_after = header(call->easy, "Retry-After"),
        .body = buffer_slice(&call->body),
        .too_large = call->too_large,
    };
    return true;
}

void http_call_free(struct http_call *call, CURLM *multi)
{
    if (call->easy) {
        curl_multi_remove_handle(multi, call->easy);
        curl_easy_cleanup(call->easy);
    }
    call->easy = NULL;
    reset(call);
}
