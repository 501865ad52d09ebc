/* SPDX-License-Identifier: MIT */
/*
 * mux_message: reads the messages of a client in a WebSocket that carries many requests, in the form of sandbox-sdk: each is
 * JSON (docs/mux.md). The functions are pure.
 *
 *     {"type":"request","id":"ws_1","method":"POST","path":"/api/execute","headers":{"X-A":"b"},"body":{...}}
 *     {"type":"cancel","id":"ws_1"}
 *
 * A request of cellgate.mux.v1 (frame.h) has similar JSON: {"method":"POST","path":"/x","headers":{...},"body":true}
 */
#ifndef CELLGATE_RELAY_MUX_MESSAGE_H
#define CELLGATE_RELAY_MUX_MESSAGE_H

#include "spoa/base/bytes/buffer.h"
#include "spoa/base/bytes/writer.h"
#include "spoa/base/json/json.h"
#include "spoa/base/json/json_feed.h"

enum {
    MUX_ID_MOST = 128,      /* longest id of a request, in bytes */
    MUX_DEPTH = 64,         /* deepest nesting of JSON, bodies included */
    MUX_WORDS_MOST = 65536, /* largest message without its body, in bytes */
    MUX_KNOWN_MOST = 32768  /* largest sum of the known members, in bytes; an HTTP head gets half of this */
};

enum mux_kind {
    MUX_REQUEST,
    MUX_CANCEL,
    MUX_NO_JSON, /* this and the following kinds are answered with an error without id */
    MUX_NO_MESSAGE,
    MUX_NO_MEMORY
};

struct mux_message {
    enum mux_kind kind;
    struct json *doc; /* the message without its body; NULL unless MUX_REQUEST or MUX_CANCEL */
    struct slice id, method, path;
    struct slice body;        /* unparsed JSON inside the message's text; absent if there is none */
    const json_node *headers; /* an object of strings; NULL if there are none */

    /* members of cellgate.mux.v1 only */
    bool v1;
    bool follows;   /* a body follows */
    int64_t length; /* length of the body in bytes; negative if unknown */
    /* initial credit for the answer's body in bytes; negative if the client names none */
    int64_t window;
    const char *wrong; /* a sentence for the client about the wrong member; NULL unless MUX_NO_MESSAGE */
};

/* A partly received message in the form of sandbox-sdk. Each byte is parsed once, when it arrives, and only the position of the body
 * is remembered: a body may be as long as max_message, the rest of the message MUX_WORDS_MOST bytes. */
struct mux_text {
    struct json_feed feed;
    struct buffer words;      /* the known members except the body, as one object */
    size_t body, body_len;    /* offset and length of the body in the message */
    const char *const *known; /* keys, with NULL after the last */
    unsigned seen;            /* a bit for each known member that was read */
    bool in_body, wrong;      /* wrong: the message is no JSON, or too large, and the rest is not parsed */
    enum mux_kind kind;       /* kind of the message if it is `wrong` */
};

struct mux_text mux_text_begin(void); /* a message in that form */
/* Parses the new bytes of a message; `all` is the message from its beginning. Returns false once the message cannot be valid: the
 * caller may then drop all its bytes, and calls mux_text_end with an empty slice. */
bool mux_text_feed(struct mux_text *t, struct slice all);
size_t mux_text_held(const struct mux_text *t); /* in bytes of memory */
/* Returns the complete message `all`, every byte of which was fed, and frees *t. The members of a MUX_REQUEST are valid: an allowed
 * method, a path of printable ASCII, well-formed headers. */
struct mux_message mux_text_end(struct mux_text *t, struct slice all);
void mux_text_free(struct mux_text *t);

/* Reads a whole message in the form of sandbox-sdk. */
struct mux_message mux_message_read(struct slice text);
/* Reads the payload of a REQUEST of cellgate.mux.v1, which has no type and no id. The members are method, path, headers, `body` (true
 * if a body follows), its `length`, and `window`. */
struct mux_message mux_message_read_v1(struct slice text);
void mux_message_free(struct mux_message *message);

/* Writes the trailers in the payload of an END as header lines, without fields that no trailer may be. Returns false if the
 * payload is malformed or `lines` is full. */
bool mux_trailers_read(struct slice text, struct writer *lines);

/* The parts of the upgrade that all requests in the socket share. */
struct mux_client {
    struct slice host;
    struct slice target;    /* path and query; a token in the query counts as the token of each request */
    struct slice below;     /* prefix of each path, used without its last slash; may be absent */
    struct slice protocols; /* the offered subprotocols; one may contain a token */
    struct slice fields;    /* {u16be length, name, u16be length, value}* */
};

/* Writes the head of the request, for HAProxy's own listener: the fields of the upgrade, and those that the message adds. The
 * message cannot replace a field of the upgrade, because the client that opened the socket is the one that asks. Sets w->full if
 * the head does not fit. */
void mux_message_head(const struct mux_message *message, const struct mux_client *client, struct writer *w);

/* Returns true if two upgrades ask for the same target with the same credentials. Every field that is forwarded with each request is
 * compared, except those that only describe the network path. A client with other fields is not the one that opened the socket. */
bool mux_client_is(const struct mux_client *one, const struct mux_client *other);

#endif
