/* SPDX-License-Identifier: MIT */
/*
 * directory_http_stream: the control plane's stream of events (server-sent events), which is opened again whenever it ends, after
 * a pause that grows with each failure. A stream without a byte for 30 seconds is taken for dead, because
 * control planes send a comment now and then. Times are those of loop_clock().
 */
#ifndef CELLGATE_AGENT_DIRECTORY_HTTP_STREAM_H
#define CELLGATE_AGENT_DIRECTORY_HTTP_STREAM_H

#include "spoa/agent/directory/http_answer.h"
#include "spoa/agent/directory/http_target.h"
#include "spoa/net/backoff.h"
#include "spoa/net/loop.h"
#include "spoa/proto/event_stream.h"

/* Read `easy`, `open`, `absent`, `begun`, `status` and `why`; the other fields are private. */
struct directory_http_stream {
    struct directory *directory;
    uint64_t timeout; /* maximum time until the answer's head [µs] */
    CURL *easy;
    struct curl_slist *fields;
    struct event_stream events;
    struct writer scratch;
    bool active;            /* a transfer is open */
    bool open;              /* events are received */
    bool heard;             /* an event was applied */
    bool broken;            /* an event made no sense */
    bool absent;            /* this control plane has no events (404, 405 or 501) */
    uint64_t begun;         /* start of the last attempt */
    uint64_t last_byte;     /* time of the last byte received */
    uint64_t due;           /* time of the next attempt, if not active */
    struct backoff backoff; /* pause between failed attempts */
    unsigned status;        /* status of the answer, or 0 before it */
    size_t header_bytes;
    struct fail why; /* why the last stream ended; empty: none has */
    char error[CURL_ERROR_SIZE];
};

/* Prepares a stream. `timeout`: maximum time until an answer [µs]. `scratch` is memory for one record while an event is applied. */
void directory_http_stream_init(struct directory_http_stream *s, struct directory *directory,
                                uint64_t timeout, struct writer scratch);
/* Frees the stream, and removes its transfer. */
void directory_http_stream_free(struct directory_http_stream *s, CURLM *multi);

/* Opens the stream if it is due, and drops a dead one. Returns false if an attempt or a stream has just ended; s->why tells why. */
bool directory_http_stream_step(struct directory_http_stream *s, CURLM *multi,
                                struct directory_http_target *target, uint64_t now);
/* Returns the latest time of the next directory_http_stream_step. */
uint64_t directory_http_stream_next(const struct directory_http_stream *s);
/* Notes that the stream's transfer ended with `result`; s->status and s->why then describe the end. */
void directory_http_stream_end(struct directory_http_stream *s, CURLM *multi, CURLcode result, uint64_t now);
/* Lets the next attempt begin now, because the control plane answers again. */
void directory_http_stream_hurry(struct directory_http_stream *s, uint64_t now);

#endif
