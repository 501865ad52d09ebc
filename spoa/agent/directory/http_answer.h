/* SPDX-License-Identifier: MIT */
/*
 * directory_http_answer: what a control plane's answers and events mean (docs/directory.md has them as a
 * contract). Pure: no socket, no clock.
 */
#ifndef CELLGATE_AGENT_DIRECTORY_HTTP_ANSWER_H
#define CELLGATE_AGENT_DIRECTORY_HTTP_ANSWER_H

#include "spoa/agent/directory/kind.h"
#include "spoa/base/bytes/writer.h"

#define DIRECTORY_HTTP_BODY_MAX ((size_t)64 * 1024) /* of an answer, and of an event */
#define DIRECTORY_HTTP_KEY_MAX  255

/* An answer as it came. */
struct directory_http_reply {
    unsigned status;
    struct slice content_type, cache_control, retry_after; /* header values; absent: there is none */
    struct slice body;
    bool too_large; /* the body was over the limit: it is not whole */
};

enum directory_http_health {
    DIRECTORY_HTTP_GOOD,
    DIRECTORY_HTTP_BAD,   /* the control plane as a whole is not well, or not ours */
    DIRECTORY_HTTP_DOUBT, /* this one answer makes no sense */
};

struct directory_http_finding {
    enum lookup outcome;
    struct record record; /* where found; slices point into doc and scratch */
    struct json *doc;     /* freed by the caller; may be NULL */
    uint64_t ttl;         /* microseconds; 0: the configured one */
    enum directory_http_health health;
    uint64_t pause; /* microseconds in which the control plane wants no other question; 0: it did not say */
};

/* Of GET /v1/sandboxes/{id}. *why is set unless the health is good. */
void directory_http_answer(const struct directory_http_reply *reply, struct writer *scratch,
                           struct directory_http_finding *finding, struct fail *why);

/* Gives what an event says to the directory. False and *why: it makes no sense, something may have been missed. */
bool directory_http_event(struct directory *directory, struct slice name, struct slice data,
                          struct writer *scratch, struct fail *why);

#endif
