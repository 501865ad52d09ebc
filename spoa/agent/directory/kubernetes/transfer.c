/* SPDX-License-Identifier: MIT */
#include "spoa/agent/directory/kubernetes/transfer.h"

#define HEADERS_MAX ((size_t)32 * 1024) /* maximum size of an answer's header */

/* A list that is slower than this for so long has failed. */
enum {
    SLOW_BYTES = 1024, /* per second */
    SLOW_SECONDS = 30
};

/* ---- call-backs of libcurl ---- */

static size_t on_body(char *bytes, size_t size, size_t count, void *context)
{
    struct kubernetes_transfer *t = context;
    return kubernetes_watch_body(t->watch, slice_of(bytes, size * count), loop_clock()) ? size * count : 0;
}

static size_t on_header(char *bytes, size_t size, size_t count, void *context)
{
    struct kubernetes_transfer *t = context;
    struct slice line = slice_of(bytes, size * count);
    long status = 0;
    t->header_bytes += line.len;
    if (t->header_bytes > HEADERS_MAX)
        return 0;
    if (!slice_is(line, "\r\n") && !slice_is(line, "\n"))
        return line.len;
    curl_easy_getinfo(t->easy, CURLINFO_RESPONSE_CODE, &status);
    if (status >= 200) /* an informational answer (1xx): another head follows */
        kubernetes_watch_head(t->watch, (unsigned)status, loop_clock());
    return line.len;
}

/* ---- beginning ---- */

/* Sets the options of a request. */
static void set_up(struct kubernetes_transfer *t)
{
    bool listing = t->watch->phase == KUBERNETES_LISTING;
    curl_easy_setopt(t->easy, CURLOPT_HTTPHEADER, t->fields);
    curl_easy_setopt(t->easy, CURLOPT_ERRORBUFFER, t->error);
    curl_easy_setopt(t->easy, CURLOPT_WRITEFUNCTION, on_body);
    curl_easy_setopt(t->easy, CURLOPT_WRITEDATA, t);
    curl_easy_setopt(t->easy, CURLOPT_HEADERFUNCTION, on_header);
    curl_easy_setopt(t->easy, CURLOPT_HEADERDATA, t);
    curl_easy_setopt(t->easy, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_2TLS);
    /* All watches share one connection (HTTP/2), which TCP keepalive checks while it is idle. */
    curl_easy_setopt(t->easy, CURLOPT_PIPEWAIT, 1L);
    curl_easy_setopt(t->easy, CURLOPT_TCP_KEEPALIVE, 1L);
    curl_easy_setopt(t->easy, CURLOPT_TCP_KEEPIDLE, 10L);
    curl_easy_setopt(t->easy, CURLOPT_TCP_KEEPINTVL, 5L);
    curl_easy_setopt(t->easy, CURLOPT_FRESH_CONNECT, t->watch->failing ? 1L : 0L);
    curl_easy_setopt(t->easy, CURLOPT_LOW_SPEED_LIMIT, listing ? (long)SLOW_BYTES : 0L);
    curl_easy_setopt(t->easy, CURLOPT_LOW_SPEED_TIME, listing ? (long)SLOW_SECONDS : 0L);
}

/* Adds the transfer of one request. Returns false with *why. */
static bool begin(struct kubernetes_transfer *t, CURLM *multi, struct directory_http_target *target,
                  const char *path, struct fail *why)
{
    t->header_bytes = 0;
    t->error[0] = '\0';
    if (!t->easy && !(t->easy = curl_easy_init()))
        return fail(why, "out of memory");
    if (!directory_http_target_aim(target, t->easy, path, "Accept: application/json", &t->fields, why))
        return false;
    set_up(t);
    return curl_multi_add_handle(multi, t->easy) == CURLM_OK || fail(why, "out of memory");
}

/* ---- ending ---- */

static void drop_fields(struct kubernetes_transfer *t)
{
    curl_slist_free_all(t->fields);
    t->fields = NULL;
}

/* Ends the present request, and lets the token be read again if the server refused it. */
static void end(struct kubernetes_transfer *t, CURLM *multi, struct directory_http_target *target,
                CURLcode result, uint64_t now)
{
    struct curl_header *found;
    uint64_t pause = 0; /* Retry-After, in seconds */
    const char *error = t->error[0] ? t->error : curl_easy_strerror(result);
    if (curl_easy_header(t->easy, "Retry-After", 0, CURLH_HEADER, -1, &found) != CURLHE_OK ||
        !slice_u64(slice_text(found->value), UINT32_MAX, &pause))
        pause = 0;
    curl_multi_remove_handle(multi, t->easy);
    if (t->watch->status == 401)
        directory_http_target_doubt(target);
    kubernetes_watch_end(t->watch, result == CURLE_OK ? NULL : error, pause, now);
    drop_fields(t);
}

bool kubernetes_transfer_step(struct kubernetes_transfer *t, CURLM *multi,
                              struct directory_http_target *target, uint64_t now)
{
    char memory[6 * 1024];
    struct writer path = writer_of(memory, sizeof memory - 1);
    struct fail why;
    enum kubernetes_step step = kubernetes_watch_step(t->watch, &path, now);
    if (step == KUBERNETES_END)
        end(t, multi, target, CURLE_OPERATION_TIMEDOUT, now);
    if (step != KUBERNETES_BEGIN)
        return false;
    memory[path.len] = '\0';
    if (begin(t, multi, target, memory, &why))
        return true;
    kubernetes_watch_end(t->watch, why.text, 0, now);
    drop_fields(t);
    return false;
}

bool kubernetes_transfer_end(struct kubernetes_transfer *t, CURLM *multi,
                             struct directory_http_target *target, const CURL *easy, CURLcode result)
{
    bool own = t->easy == easy && t->watch->phase != KUBERNETES_IDLE;
    if (own)
        end(t, multi, target, result, loop_clock());
    return own;
}

void kubernetes_transfer_free(struct kubernetes_transfer *t, CURLM *multi)
{
    if (t->easy) {
        curl_multi_remove_handle(multi, t->easy);
        curl_easy_cleanup(t->easy);
    }
    drop_fields(t);
}
