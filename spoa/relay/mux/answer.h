/* SPDX-License-Identifier: MIT */
/*
 * mux_answer: the HTTP answer to one request of a mux, turned into messages for its client in the form of sandbox-sdk: one
 * `response`, or for an event stream one `stream` per event and a `response` behind the last. Sans-I/O: bytes in, WebSocket
 * frames out (docs/mux.md).
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
}; /* bytes of an event, which is written anew at once: as JSON up to six times as many */

struct mux_answer {
    struct slice id; /* the owner's memory */
    size_t most;     /* bytes of a body; of an event also MUX_EVENT_MOST */

    /* private */
    struct buffer *out; /* while it is fed */
    struct mux_response response;
    bool streams, full;
    struct event_stream events;
    /* The message in the making, with room for its frame's head in front: members, then the body as it comes. */
    struct buffer text;
    size_t members;         /* bytes of it that are not the body's, nor the key's in front of that */
    size_t gathered;        /* bytes of the body that have come */
    struct json_feed check; /* of the body */
    bool no_json;           /* it is none: nothing of it is kept */
    bool whole;             /* the message is made, and waits for an empty `out` */
};

enum mux_step {
    MUX_MORE,
    MUX_WHOLE, /* the answer has come, and is too large to be copied behind what is in `out`: mux_answer_finish */
    MUX_DONE,  /* the last message of this request is in `out` */
    MUX_BROKEN /* the same, and it is an error; or there is no room for it: then *fits is false */
};

void mux_answer_init(struct mux_answer *a, struct slice id, size_t most);
void mux_answer_free(struct mux_answer *a);
/* Takes all of the bytes. Frames are appended to `out`. */
enum mux_step mux_answer_feed(struct mux_answer *a, struct slice bytes, struct buffer *out, bool *fits)
    __attribute__((warn_unused_result));
/* The connection has ended: never MUX_MORE. */
enum mux_step mux_answer_end(struct mux_answer *a, struct buffer *out, bool *fits)
    __attribute__((warn_unused_result));
/* After MUX_WHOLE, when `out` is empty: puts the message there without a copy. */
void mux_answer_finish(struct mux_answer *a, struct buffer *out);
bool mux_answer_is_whole(const struct mux_answer *a);
/* Whether it is one that is collected until it is whole, and some of it is there; or an event stream. */
bool mux_answer_gathers(const struct mux_answer *a);
bool mux_answer_streams(const struct mux_answer *a);
/* Bytes of memory. */
size_t mux_answer_held(const struct mux_answer *a);

/* An error in one frame; id: absent: of no request. False: there is no room. */
bool mux_put_error(struct buffer *out, struct slice id, const char *code, const char *message,
                   unsigned status) __attribute__((warn_unused_result));

#endif
