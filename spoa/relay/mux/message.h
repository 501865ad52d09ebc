/* SPDX-License-Identifier: MIT */
/*
 * mux_message: what a client says in a WebSocket that carries many requests, in the form of sandbox-sdk: JSON, one message
 * each (docs/mux.md). Pure.
 *
 *     {"type":"request","id":"ws_1","method":"POST","path":"/api/execute","headers":{"X-A":"b"},"body":{...}}
 *     {"type":"cancel","id":"ws_1"}
 *
 * Those of cellgate.mux.v1 (frame.h) say the same of a request: {"method":"POST","path":"/x","headers":{...},"body":true}
 */
#ifndef CELLGATE_RELAY_MUX_MESSAGE_H
#define CELLGATE_RELAY_MUX_MESSAGE_H

#include "spoa/base/bytes/buffer.h"
#include "spoa/base/bytes/writer.h"
#include "spoa/base/json/json.h"
#include "spoa/base/json/json_feed.h"

enum {
    MUX_ID_MOST = 128,      /* bytes of a request's id */
    MUX_DEPTH = 64,         /* of JSON, bodies included */
    MUX_WORDS_MOST = 65536, /* bytes of all but the body */
    MUX_KNOWN_MOST = 32768  /* of the members that are known: an HTTP head has half of that */
};

enum mux_kind {
    MUX_REQUEST,
    MUX_CANCEL,
    MUX_NO_JSON, /* these are answered with an error that has no id */
    MUX_NO_MESSAGE,
    MUX_NO_MEMORY
};

struct mux_message {
    enum mux_kind kind;
    struct json *doc; /* of MUX_REQUEST and MUX_CANCEL: all but the body */
    struct slice id, method, path;
    struct slice body;        /* JSON as it came, in the message's own text; absent: none */
    const json_node *headers; /* an object of texts, or NULL */

    /* of cellgate.mux.v1 */
    bool v1;
    bool follows;   /* a body */
    int64_t length; /* of that; negative: not known */
    /* bytes of the answer's body that the client takes without more credit; negative: not said */
    int64_t window;
    const char *wrong; /* of MUX_NO_MESSAGE: which member, as a sentence for the client */
};

/* A message of sandbox-sdk's form while it arrives. Each byte is looked at once, when it is there, and of the body nothing is
 * remembered but where it stands: a body may be as long as max_message, all else is MUX_WORDS_MOST bytes at most. */
struct mux_text {
    struct json_feed feed;
    struct buffer words;      /* the members that are known, but for the body, as one object */
    size_t body, body_len;    /* where it stands */
    const char *const *known; /* keys, NULL behind the last */
    unsigned seen;            /* a bit for each member that is known */
    bool in_body, wrong;      /* wrong: it is no JSON, or too large: the rest is not looked at */
    enum mux_kind kind;       /* what it is then */
};

struct mux_text mux_text_begin(void); /* of sandbox-sdk's form */
/* all: what has come of the message, of which nothing was dropped. Returns false once the message cannot become a good one:
 * the caller need not keep what has come, nor what comes, and calls mux_text_end with an empty slice. */
bool mux_text_feed(struct mux_text *t, struct slice all);
size_t mux_text_held(const struct mux_text *t); /* bytes of memory */
/* The message has ended: all of it, which was fed. What it has is as it should be: a method that is allowed, a path of
 * printable ASCII, headers that are ones. *t is freed. */
struct mux_message mux_text_end(struct mux_text *t, struct slice all);
void mux_text_free(struct mux_text *t);

/* The same for a message that is there whole. */
struct mux_message mux_message_read(struct slice text);
/* The same for the payload of a REQUEST of cellgate.mux.v1, which has no type and no id: method, path, headers; `body`: whether
 * one follows, `length` of it, `window`. */
struct mux_message mux_message_read_v1(struct slice text);
void mux_message_free(struct mux_message *message);

/* Of the payload of an END: {"trailers":{...}}, as lines, those left out that no trailer is. False: it is none. */
bool mux_trailers_read(struct slice text, struct writer *lines);

/* Of the upgrade: what each request in the socket has in common. */
struct mux_client {
    struct slice host;
    struct slice target;    /* path and query; a token in the query counts as one of the request */
    struct slice below;     /* put in front of each path, without its last slash; may be absent */
    struct slice protocols; /* offered; one of them may hold a token */
    struct slice fields;    /* {u16be length, name, u16be length, value}* */
};

/* The head of the request, for HAProxy's own listener: what the client brought with the upgrade, and what the message adds
 * to that. It takes nothing of it away: who has opened the socket asks. w->full where it does not fit. */
void mux_message_head(const struct mux_message *message, const struct mux_client *client, struct writer *w);

/* Whether two upgrades ask for the same with the same credentials: all that goes with each request, but for what only says
 * which way it came. Who has another one is not who opened the socket. */
bool mux_client_is(const struct mux_client *one, const struct mux_client *other);

#endif
