/* SPDX-License-Identifier: MIT */
/*
 * directory_http_stream: the control plane's events, for as long as the directory runs: opened again whenever
 * they end, sooner or later depending on how it went. A stream on which nothing comes for 30 seconds is taken
 * for dead: control planes send a comment now and then. Times are those of
 * loop_clock().
 */
#ifndef CELLGATE_AGENT_DIRECTORY_HTTP_STREAM_H
#define CELLGATE_AGENT_DIRECTORY_HTTP_STREAM_H

#include "spoa/agent/directory/http_answer.h"
#include "spoa/agent/directory/http_target.h"
#include "spoa/net/backoff.h"
#include "spoa/net/loop.h"
#include "spoa/proto/event_stream.h"

struct directory_http_stream {
    struct directory *directory;
    uint64_t timeout; /* until there is an answer */
    CURL *easy;
    struct curl_slist *fields;
    struct event_stream events;
    struct writer scratch;
    bool active, open;
    bool heard, broken;             /* an event came, one that makes no sense */
    bool absent;                    /* this control plane has no events */
    uint64_t begun, last_byte, due; /* due: of the next attempt, while not active */
    struct backoff backoff;         /* between attempts that fail */
    unsigned status;                /* 0: no answer yet */
    size_t header_bytes;
    struct fail why; /* of the last end; empty: none yet */
    char error[CURL_ERROR_SIZE];
};

/* timeout: microseconds until there is an answer. What is packed of a record goes to `scratch` for a moment. */
void directory_http_stream_init(struct directory_http_stream *s, struct directory *directory,
                                uint64_t timeout, struct writer scratch);
void directory_http_stream_free(struct directory_http_stream *s, CURLM *multi);

/* Opens what is due to be opened and drops what is dead. False: it has just ended, s->why says why. */
bool directory_http_stream_step(struct directory_http_stream *s, CURLM *multi,
                                struct directory_http_target *target, uint64_t now);
/* When step is to be called next, at the latest. */
uint64_t directory_http_stream_next(const struct directory_http_stream *s);
/* Its transfer ended with `result`; s->status is what was answered, s->why why it ended. */
void directory_http_stream_end(struct directory_http_stream *s, CURLM *multi, CURLcode result, uint64_t now);
/* The control plane answers again: the next attempt is now. */
void directory_http_stream_hurry(struct directory_http_stream *s, uint64_t now);

#endif
