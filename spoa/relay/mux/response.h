/* SPDX-License-Identifier: MIT */
/*
 * mux_response: splits the HTTP answer to one request of a mux (RFC 9112) into head, pieces of the body, and end. The functions
 * are pure; the owner holds the bytes, and takes no more of the body than its client can accept.
 */
#ifndef CELLGATE_RELAY_MUX_RESPONSE_H
#define CELLGATE_RELAY_MUX_RESPONSE_H

#include "spoa/base/bytes/buffer.h"
#include "spoa/proto/http.h"

enum { MUX_HEAD_MOST = 32 << 10 };

struct mux_response {
    bool to_head; /* the request was a HEAD; set by the owner */

    /* private */
    struct http_reader reader;
    struct buffer head, trailers; /* bytes */
    struct buffer handover;
    enum http_framing framing;
    struct http_chunked chunked;
    uint64_t left;
    bool has_head, over;
    unsigned interim; /* the number of interim answers (100 to 199) so far */
};

enum mux_part {
    MUX_PART_MORE, /* more bytes are needed, or `most` is 0 */
    MUX_PART_HEAD, /* mux_response_head */
    MUX_PART_BODY, /* *piece, which is not empty */
    MUX_PART_END,
    MUX_PART_BAD, /* the answer is no HTTP, or ends too early */
    MUX_PART_NO_MEMORY
};

struct mux_response mux_response_of(bool to_head);
void mux_response_free(struct mux_response *r);
/* Returns the next part and removes its bytes from *in; a piece of the body has at most `most` bytes. Answers of 100 to 199 are
 * skipped. Call until MUX_PART_MORE, also with an empty *in. */
enum mux_part mux_response_next(struct mux_response *r, struct slice *in, size_t most, struct slice *piece);
/* Ends the answer, because the connection has ended. Returns MUX_PART_END if the body lasts until the connection ends, otherwise
 * MUX_PART_BAD. */
enum mux_part mux_response_cut(const struct mux_response *r);
bool mux_response_has_head(const struct mux_response *r);
/* Parses the kept head. Returns false if the head has not arrived or was forgotten. */
bool mux_response_head(const struct mux_response *r, struct http_head *head);
void mux_response_forget_head(struct mux_response *r);
/* Returns the X-Cell-Handover of this request, which HAProxy sends in an interim answer before all others (haproxy.cfg); empty if
 * there is none. */
struct slice mux_response_handover(const struct mux_response *r);
/* Parses the trailers, mostly 0 fields, of a chunked answer. Returns false if the answer was not chunked or has not ended. */
bool mux_response_trailers(const struct mux_response *r, struct http_head *head);
size_t mux_response_held(const struct mux_response *r); /* in bytes of memory */

/* Appends the fields of a head as members of JSON (`"name":"value"`, names in lower case), without those that concern a connection.
 * With `all`, a repeated field becomes a list of its values; otherwise only its first value is used. Returns false if there is no
 * room. */
bool mux_put_headers(struct buffer *text, const struct http_head *head, bool all)
    __attribute__((warn_unused_result));

#endif
