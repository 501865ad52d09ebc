/* SPDX-License-Identifier: MIT */
/*
 * mux_answer: turns the HTTP answer to one request of a mux into messages for the client, in the form of sandbox-sdk: one
 * `response`, or for an event stream one `stream` per event and a `response` after the last. The code does no I/O: the caller
 * feeds bytes and gets WebSocket frames (docs/mux.md).
 *
 *     {"type":"response","id":"ws_1","status":200,"headers":{...},"body":{...},"done":true}
 *     {"type":"stream","id":"ws_1","event":"stdout","data":"..."}
 *     {"type":"error","id":"ws_1","code":"STREAM_ERROR","message":"...","status":500}
 */
#ifndef CELLGATE_RELAY_MUX_ANSWER_H
#define CELLGATE_RELAY_MUX_ANSWER_H

#include "spoa/base/json/json_feed.h"
#include "spoa/proto/event_stream.h"
#include "spoa/relay/mux/response.h"

enum {
    MUX_EVENT_MOST = 1 << 20
}; /* largest event in bytes; JSON escapes may make the message six times as long */

struct mux_answer {
    struct slice id; /* id of the request, in memory of the owner */
    size_t most;     /* largest body in bytes; an event is also limited to MUX_EVENT_MOST */

    /* private */
    struct buffer *out; /* buffer for frames, valid during a call */
    struct mux_response response;
    bool streams, full;
    struct event_stream events;
    /* The unfinished message: room for the frame's head, then the members, then the body as it arrives. */
    struct buffer text;
    size_t members;         /* bytes of `text` before the key `body` */
    size_t gathered;        /* bytes of the body received so far */
    struct json_feed check; /* parser that checks the body */
    bool no_json;           /* the body is no JSON, so none of its bytes is kept */
    bool whole;             /* the message is complete, and waits for an empty `out` */
};

enum mux_step {
    MUX_MORE,
    MUX_WHOLE, /* the answer is complete, but too large to be appended to `out`; call mux_answer_finish */
    MUX_DONE,  /* the last message of this request is in `out` */
    MUX_BROKEN /* like MUX_DONE, with an error as the last message; *fits is false if the error did not fit */
};

void mux_answer_init(struct mux_answer *a, struct slice id, size_t most);
void mux_answer_free(struct mux_answer *a);
/* Reads all bytes of the answer and appends frames to `out`. */
enum mux_step mux_answer_feed(struct mux_answer *a, struct slice bytes, struct buffer *out, bool *fits)
    __attribute__((warn_unused_result));
/* Ends the answer, because the connection has ended. Never returns MUX_MORE. */
enum mux_step mux_answer_end(struct mux_answer *a, struct buffer *out, bool *fits)
    __attribute__((warn_unused_result));
/* Moves the message to `out` without a copy. Call after MUX_WHOLE, once `out` is empty. */
void mux_answer_finish(struct mux_answer *a, struct buffer *out);
bool mux_answer_is_whole(const struct mux_answer *a);
/* mux_answer_gathers returns true if part of a body has been collected, mux_answer_streams if the answer is an event stream. */
bool mux_answer_gathers(const struct mux_answer *a);
bool mux_answer_streams(const struct mux_answer *a);
/* Returns the number of bytes of memory in use. */
size_t mux_answer_held(const struct mux_answer *a);

/* Appends an error in one frame; `id` is absent if the error belongs to no request. Returns false if there is no room. */
bool mux_put_error(struct buffer *out, struct slice id, const char *code, const char *message,
                   unsigned status) __attribute__((warn_unused_result));

#endif
