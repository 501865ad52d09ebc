/* SPDX-License-Identifier: MIT */
/*
 * directory_http_answer: the meaning of a control plane's answers and events; docs/directory.md is the contract. Pure: no
 * socket, no clock.
 */
#ifndef CELLGATE_AGENT_DIRECTORY_HTTP_ANSWER_H
#define CELLGATE_AGENT_DIRECTORY_HTTP_ANSWER_H

#include "spoa/agent/directory/kind.h"
#include "spoa/base/bytes/writer.h"

#define DIRECTORY_HTTP_BODY_MAX ((size_t)64 * 1024) /* maximum size of an answer, and of an event */
#define DIRECTORY_HTTP_KEY_MAX  255                 /* maximum length of a key */

/* An answer as it was received. */
struct directory_http_reply {
    unsigned status;
    struct slice content_type, cache_control, retry_after; /* header values; absent if the answer has none */
    struct slice body;
    bool too_large; /* the body exceeded the limit, so it is not complete */
};

/* What an answer says about the control plane. */
enum directory_http_health {
    DIRECTORY_HTTP_GOOD,  /* the control plane works */
    DIRECTORY_HTTP_BAD,   /* the control plane as a whole does not work, or is somebody else */
    DIRECTORY_HTTP_DOUBT, /* this answer makes no sense */
};

/* The meaning of an answer. */
struct directory_http_finding {
    enum lookup outcome;
    struct record record; /* set if `outcome` is LOOKUP_FOUND; points into `doc` and the scratch memory */
    struct json *doc;     /* for the caller to free; may be NULL */
    uint64_t ttl;         /* lifetime of the answer [µs], or 0 for the configured one */
    enum directory_http_health health;
    uint64_t pause; /* pause that the control plane asked for [µs], or 0 */
};

/* Reads the answer of GET /v1/sandboxes/{id}. Sets *why unless the health is good. */
void directory_http_answer(const struct directory_http_reply *reply, struct writer *scratch,
                           struct directory_http_finding *finding, struct fail *why);

/* Reports an event of the stream to the directory. Returns false with *why if the event makes no sense: a change may then be missed. */
bool directory_http_event(struct directory *directory, struct slice name, struct slice data,
                          struct writer *scratch, struct fail *why) MUST_CHECK;

#endif
