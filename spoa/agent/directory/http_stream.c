/* SPDX-License-Identifier: MIT */
#include "spoa/agent/directory/http_stream.h"

#include <stdio.h>

#define HEADERS_MAX     ((size_t)32 * 1024)              /* maximum size of the answer's header */
#define STREAM_LINE_MAX (DIRECTORY_HTTP_BODY_MAX + 1024) /* maximum size of a line: an event and its name */

#define DELAY_MIN    (100 * MILLISECOND)
#define DELAY_MAX    (2 * SECOND)
#define DELAY_ABSENT (30 * SECOND) /* pause if the control plane has no events yet */
#define ASKED_MAX    (30 * SECOND) /* maximum pause that a server may ask for */
#define SILENCE_MAX  (30 * SECOND) /* time without a byte after which a stream is dead */
#define SETTLED      SECOND        /* a stream that lived this long succeeded */

/* ---- call-backs of libcurl ---- */

/* Applies one event. The events after a broken one are not applied, because the stream is about to end. */
static void on_event(void *context, struct slice name, struct slice data)
{
    struct directory_http_stream *s = context;
    struct writer scratch = s->scratch;
    if (!s->broken)
        s->heard = directory_http_event(s->directory, name, data, &scratch, &s->why);
    s->broken = !s->heard;
}

static size_t on_body(char *bytes, size_t size, size_t count, void *context)
{
    struct directory_http_stream *s = context;
    s->last_byte = loop_clock();
    if (!event_stream_feed(&s->events, slice_of(bytes, size * count), &s->why))
        s->broken = true;
    return s->broken ? 0 : size * count;
}

/* Judges the head of the answer. Returns false with s->why if it is not a stream of events. */
static bool judge_head(struct directory_http_stream *s)
{
    if (s->status != 200)
        return fail(&s->why, "its events answer with status %u", s->status);
    struct curl_header *found;
    if (curl_easy_header(s->easy, "Content-Type", 0, CURLH_HEADER, -1, &found) != CURLHE_OK ||
        strncasecmp(found->value, "text/event-stream", strlen("text/event-stream")) != 0)
        return fail(&s->why, "its events are not of type text/event-stream");
    s->open = true;
    s->absent = false;
    directory_missed(s->directory);
    return true;
}

/* Takes one line of the header; the empty line ends it. */
static size_t on_header(char *bytes, size_t size, size_t count, void *context)
{
    struct directory_http_stream *s = context;
    struct slice line = slice_of(bytes, size * count);
    long status = 0;
    s->header_bytes += line.len;
    s->last_byte = loop_clock();
    if (s->header_bytes > HEADERS_MAX) {
        fail(&s->why, "the header of its events is over %zu bytes", HEADERS_MAX);
        return 0;
    }
    if (!slice_is(line, "\r\n") && !slice_is(line, "\n"))
        return line.len;
    curl_easy_getinfo(s->easy, CURLINFO_RESPONSE_CODE, &status);
    if (status < 200) /* an informational answer (1xx): another head follows */
        return line.len;
    s->status = (unsigned)status;
    return judge_head(s) ? line.len : 0;
}

/* ---- opening ---- */

/* Prepares the transfer of a new stream. */
static bool set_up(struct directory_http_stream *s, struct directory_http_target *target)
{
    char line[EVENT_STREAM_ID_MAX + 32];
    const char *last_id = event_stream_last_id(&s->events);
    if (!s->easy && !(s->easy = curl_easy_init()))
        return fail(&s->why, "out of memory");
    if (!directory_http_target_aim(target, s->easy, "/v1/events", "Accept: text/event-stream", &s->fields,
                                   &s->why))
        return false;
    if (*last_id) {
        snprintf(line, sizeof line, "Last-Event-ID: %s", last_id);
        struct curl_slist *longer = curl_slist_append(s->fields, line);
        if (!longer)
            return fail(&s->why, "out of memory");
        s->fields = longer;
    }
    curl_easy_setopt(s->easy, CURLOPT_HTTPHEADER, s->fields);
    curl_easy_setopt(s->easy, CURLOPT_ERRORBUFFER, s->error);
    curl_easy_setopt(s->easy, CURLOPT_WRITEFUNCTION, on_body);
    curl_easy_setopt(s->easy, CURLOPT_WRITEDATA, s);
    curl_easy_setopt(s->easy, CURLOPT_HEADERFUNCTION, on_header);
    curl_easy_setopt(s->easy, CURLOPT_HEADERDATA, s);
    /* a stream uses a connection of its own, so nothing of an older answer can delay it */
    curl_easy_setopt(s->easy, CURLOPT_FRESH_CONNECT, 1L);
    curl_easy_setopt(s->easy, CURLOPT_FORBID_REUSE, 1L);
    return true;
}

static bool begin_stream(struct directory_http_stream *s, CURLM *multi, struct directory_http_target *target,
                         uint64_t now)
{
    s->why.text[0] = s->error[0] = '\0';
    s->status = 0;
    s->header_bytes = 0;
    s->open = s->heard = s->broken = false;
    s->begun = s->last_byte = now;
    event_stream_restart(&s->events);
    s->active = set_up(s, target) &&
                (curl_multi_add_handle(multi, s->easy) == CURLM_OK || fail(&s->why, "out of memory"));
    return s->active;
}

/* ---- ending ---- */

/* Returns the pause that the server has asked for, by Retry-After or by `retry` of the stream [µs], or 0. */
static uint64_t asked_delay(const struct directory_http_stream *s)
{
    struct curl_header *found;
    uint64_t asked = event_stream_retry(&s->events) * MILLISECOND, seconds;
    if ((s->status == 429 || s->status == 503) &&
        curl_easy_header(s->easy, "Retry-After", 0, CURLH_HEADER, -1, &found) == CURLHE_OK &&
        slice_u64(slice_text(found->value), UINT32_MAX, &seconds))
        asked = seconds * SECOND;
    return asked > ASKED_MAX ? ASKED_MAX : asked;
}

/* Plans the next attempt after the stream has ended. */
static void plan(struct directory_http_stream *s, uint64_t now)
{
    bool good = s->open && !s->broken && (s->heard || now - s->begun > SETTLED);
    uint64_t asked = s->easy ? asked_delay(s) : 0;
    s->absent = s->status == 404 || s->status == 405 || s->status == 501;
    if (good)
        backoff_reset(&s->backoff);
    uint64_t step = (uint64_t)backoff_next(&s->backoff);
    /* Half of the pause is random, so that agents which lost their control plane together do not come back together. */
    uint64_t delay = s->absent ? DELAY_ABSENT : asked > step ? asked : step;
    struct backoff once = {.least = delay, .most = delay, .jitter = 50};
    s->due = now + backoff_next(&once);
    s->active = s->open = false;
    curl_slist_free_all(s->fields);
    s->fields = NULL;
}

void directory_http_stream_end(struct directory_http_stream *s, CURLM *multi, CURLcode result, uint64_t now)
{
    curl_multi_remove_handle(multi, s->easy);
    const char *error = s->error[0] ? s->error : curl_easy_strerror(result);
    if (!s->why.text[0])
        fail(&s->why, "its events ended%s%.200s", result == CURLE_OK ? "" : ": ",
             result == CURLE_OK ? "" : error);
    plan(s, now);
}

/* Returns how long the stream may be silent in its present state [µs]. */
static uint64_t patience(const struct directory_http_stream *s)
{
    return s->open ? SILENCE_MAX : s->timeout;
}

bool directory_http_stream_step(struct directory_http_stream *s, CURLM *multi,
                                struct directory_http_target *target, uint64_t now)
{
    if (!s->active && now >= s->due && !begin_stream(s, multi, target, now)) {
        plan(s, now);
        return false;
    }
    if (!s->active || now < s->last_byte + patience(s))
        return true;
    fail(&s->why, s->open ? "nothing came on its events for %u s" : "its events do not answer",
         (unsigned)(SILENCE_MAX / SECOND));
    directory_http_stream_end(s, multi, CURLE_OPERATION_TIMEDOUT, now);
    return false;
}

uint64_t directory_http_stream_next(const struct directory_http_stream *s)
{
    return s->active ? s->last_byte + patience(s) : s->due;
}

void directory_http_stream_hurry(struct directory_http_stream *s, uint64_t now)
{
    if (!s->active && !s->absent)
        s->due = now;
}

/* ---- life ---- */

void directory_http_stream_init(struct directory_http_stream *s, struct directory *directory,
                                uint64_t timeout, struct writer scratch)
{
    *s = (struct directory_http_stream){.directory = directory,
                                        .timeout = timeout,
                                        .scratch = scratch,
                                        .backoff = {.least = DELAY_MIN, .most = DELAY_MAX}};
    s->events.event = on_event;
    s->events.context = s;
    event_stream_init(&s->events, STREAM_LINE_MAX);
}

void directory_http_stream_free(struct directory_http_stream *s, CURLM *multi)
{
    if (s->easy) {
        curl_multi_remove_handle(multi, s->easy);
        curl_easy_cleanup(s->easy);
    }
    curl_slist_free_all(s->fields);
    event_stream_free(&s->events);
}
