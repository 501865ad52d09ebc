/* SPDX-License-Identifier: MIT */
/*
 * event_stream: reads server-sent events (WHATWG HTML section 9.2.6) from bytes as they come. Sans-I/O. Lines
 * end with LF, CR or CRLF; an event ends with an empty line; one that the stream's end cuts is dropped.
 *
 * A line and the data of an event are bounded. What is over the bound is an error of the whole stream, as
 * after a line whose end never comes: the owner opens another.
 */
#ifndef CELLGATE_PROTO_EVENT_STREAM_H
#define CELLGATE_PROTO_EVENT_STREAM_H

#include "spoa/base/bytes/buffer.h"
#include "spoa/base/os/fail.h"

#define EVENT_STREAM_ID_MAX   255 /* a longer id is none: nobody continues after a part of it */
#define EVENT_STREAM_NAME_MAX 63  /* longer names are cut */

struct event_stream {
    /* set by the owner; name is empty where the event has none. Nothing of the stream may be called in it. */
    void (*event)(void *context, struct slice name, struct slice data);
    void *context;

    /* private */
    size_t limit;
    struct buffer line, data;
    char name[EVENT_STREAM_NAME_MAX + 1];
    char id[EVENT_STREAM_ID_MAX + 1], last_id[EVENT_STREAM_ID_MAX + 1];
    uint64_t retry;
    bool has_data, after_cr, past_start;
};

/* limit: bytes of a line, and of the data of an event. */
void event_stream_init(struct event_stream *s, size_t limit);
void event_stream_free(struct event_stream *s);
/* What follows comes from a new connection. The last id is kept. */
void event_stream_restart(struct event_stream *s);
/* False and *why: too long, or out of memory. Only event_stream_restart and _free are of use then. */
bool event_stream_feed(struct event_stream *s, struct slice bytes, struct fail *why)
    __attribute__((warn_unused_result));
/* For Last-Event-ID; empty: none. Of the last event that was whole. */
const char *event_stream_last_id(const struct event_stream *s);
/* Milliseconds the server wants between connections; 0: it did not say. */
uint64_t event_stream_retry(const struct event_stream *s);

#endif
