/* SPDX-License-Identifier: MIT */
/*
 * event_stream: parses server-sent events (WHATWG HTML, section 9.2.6) from bytes as they arrive. Sans-I/O. A line ends with LF, CR
 * or CRLF, an event with an empty line; an event that the end of the stream cuts off is dropped.
 *
 * Lines and the data of an event are bounded. Exceeding a bound is an error of the whole stream, because the parser cannot know where
 * an event continues: the owner opens another stream.
 */
#ifndef CELLGATE_PROTO_EVENT_STREAM_H
#define CELLGATE_PROTO_EVENT_STREAM_H

#include "spoa/base/bytes/buffer.h"
#include "spoa/base/os/fail.h"

/* bytes; a longer id counts as none, because a server cannot resume from a part of it */
#define EVENT_STREAM_ID_MAX   255
#define EVENT_STREAM_NAME_MAX 63 /* bytes; a longer name is cut */

struct event_stream {
    /* Called with each event; the owner sets both. `name` is empty if the event has none. The call-back must not call a function of
     * this stream. */
    void (*event)(void *context, struct slice name, struct slice data);
    void *context;

    /* private */
    size_t limit;             /* bytes of a line, and of an event's data */
    struct buffer line, data; /* the current line and the current event so far */
    char name[EVENT_STREAM_NAME_MAX + 1];
    char id[EVENT_STREAM_ID_MAX + 1];      /* the current event's */
    char last_id[EVENT_STREAM_ID_MAX + 1]; /* the last whole event's */
    uint64_t retry;
    bool has_data;   /* the event has a `data` line */
    bool after_cr;   /* the last byte was CR: an LF that follows belongs to it */
    bool past_start; /* the first line, before which a byte-order mark is allowed, has ended */
};

/* Starts a stream whose lines, and whose events' data, have at most `limit` bytes. Leaves `event` and `context` as they are. */
void event_stream_init(struct event_stream *s, size_t limit);
void event_stream_free(struct event_stream *s);
/* Prepares for the bytes of a new connection. The last id and the retry time are kept. */
void event_stream_restart(struct event_stream *s);
/* Parses the next bytes. Returns false and fills *why if a bound is exceeded or memory is short; only event_stream_restart and
 * event_stream_free may then be called. */
bool event_stream_feed(struct event_stream *s, struct slice bytes, struct fail *why) MUST_CHECK;
/* Returns the id of the last whole event, for Last-Event-ID; empty if there is none. */
const char *event_stream_last_id(const struct event_stream *s);
/* Returns the time that the server wants between two connections, in milliseconds; 0 if it has sent none. */
uint64_t event_stream_retry(const struct event_stream *s);

#endif
