/* SPDX-License-Identifier: MIT */
/*
 * mux_response: the HTTP answer to one request of a mux, taken apart (RFC 9112): head, pieces of the body, end. Pure; the owner
 * has the bytes, and takes no more of the body than its client can.
 */
#ifndef CELLGATE_RELAY_MUX_RESPONSE_H
#define CELLGATE_RELAY_MUX_RESPONSE_H

#include "spoa/base/bytes/buffer.h"
#include "spoa/proto/http.h"

enum { MUX_HEAD_MOST = 32 << 10 };

struct mux_response {
    bool to_head; /* the owner's: the request was a HEAD */

    /* private */
    struct http_reader reader;
    struct buffer head, trailers; /* bytes */
    struct buffer handover;
    enum http_framing framing;
    struct http_chunked chunked;
    uint64_t left;
    bool has_head, over;
    unsigned interim; /* answers of 100 to 199 so far */
};

enum mux_part {
    MUX_PART_MORE, /* there are no more bytes, or more of the body than is asked for */
    MUX_PART_HEAD, /* mux_response_head */
    MUX_PART_BODY, /* *piece, which is not empty */
    MUX_PART_END,
    MUX_PART_BAD, /* it is no HTTP, or ends too early */
    MUX_PART_NO_MEMORY
};

struct mux_response mux_response_of(bool to_head);
void mux_response_free(struct mux_response *r);
/* The next part. Takes bytes off *in, of the body `most` at most. Answers of 100 to 199 are passed over. To be called until there
 * is no more, also with *in empty. */
enum mux_part mux_response_next(struct mux_response *r, struct slice *in, size_t most, struct slice *piece);
/* The connection has ended: MUX_PART_END if that is how it ends, else MUX_PART_BAD. */
enum mux_part mux_response_cut(const struct mux_response *r);
bool mux_response_has_head(const struct mux_response *r);
/* Of the kept bytes. False: not there, or forgotten. */
bool mux_response_head(const struct mux_response *r, struct http_head *head);
void mux_response_forget_head(struct mux_response *r);
/* What HAProxy said before all else, in an interim answer (haproxy.cfg): X-Cell-Handover of this request. Empty: it has not, or
 * nothing. */
struct slice mux_response_handover(const struct mux_response *r);
/* Behind the end: the trailers' fields, 0 of them mostly. */
bool mux_response_trailers(const struct mux_response *r, struct http_head *head);
size_t mux_response_held(const struct mux_response *r); /* bytes of memory */

/* A head's fields as members of JSON: `"name":"value"`, in lower case, without those that concern a connection. all: of a name
 * that comes more than once all values, as a list; else the first. False: no room. */
bool mux_put_headers(struct buffer *text, const struct http_head *head, bool all)
    __attribute__((warn_unused_result));

#endif
