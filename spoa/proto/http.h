/* SPDX-License-Identifier: MIT */
/*
 * http: reads heads of HTTP/1.0 and 1.1 messages (RFC 9112), requests and responses, and says how their
 * bodies are framed. Strict where leniency lets two parsers disagree: no bare LF, no folded lines, no space
 * before a colon, no control bytes, one Host, one length that means one thing.
 *
 * The caller owns the bytes and all limits but HTTP_FIELDS_MAX. Everything in a head is a slice of the bytes
 * that were given, so these must stay in place for as long as the head is used.
 */
#ifndef CELLGATE_PROTO_HTTP_H
#define CELLGATE_PROTO_HTTP_H

#include "spoa/base/bytes/buffer.h"
#include "spoa/base/bytes/slice.h"

#define HTTP_HEAD_MAX   16384 /* a fair limit for a head, in bytes, its final empty line included */
#define HTTP_FIELDS_MAX 128

enum http_side {
    HTTP_REQUEST,
    HTTP_RESPONSE,
};

enum http_result {
    HTTP_MORE, /* not all there yet */
    HTTP_DONE,
    HTTP_BAD,       /* refuse with 400, or 502 towards the other side, and close */
    HTTP_TOO_LARGE, /* refuse with 431, and close */
};

struct http_field {
    struct slice name;
    struct slice value; /* without blanks at its ends */
};

struct http_head {
    size_t len;          /* of the head; what is behind it is not the head's */
    struct slice method; /* requests: a token, as sent */
    struct slice target; /* requests: visible ASCII, as sent */
    unsigned status;     /* responses: 100 to 599 */
    struct slice reason; /* responses: may be empty */
    unsigned minor;      /* HTTP/1.0 or HTTP/1.1 */
    bool chunked;        /* Transfer-Encoding is `chunked` */
    bool has_length;     /* Content-Length is there */
    uint64_t length;     /* its value */
    size_t count;        /* of fields */
    struct http_field fields[HTTP_FIELDS_MAX];
};

/* What is remembered between two reads, so that no byte is looked at twice. */
struct http_reader {
    enum http_side side;
    size_t head_max;
    size_t scanned;
    const char *why; /* after HTTP_BAD or HTTP_TOO_LARGE: the reason, for a log; never holds input */
};

static inline struct http_reader http_reader_of(enum http_side side, size_t head_max)
{
    return (struct http_reader){side, head_max, 0, NULL};
}

/* `bytes` are all that arrived since the head's first byte (they may have moved since the last call). On
 * HTTP_DONE *head is filled and bytes from head->len on belong to what follows. *head is only used then. */
enum http_result http_read(struct http_reader *r, struct slice bytes, struct http_head *head);

/* Whether a header's name is that one to a worker: in any case, and with '_' for '-', which are the same to many servers.
 * Whatever is stripped, reserved or replaced by its name is compared by this. */
bool http_same_letters(const uint8_t *a, const uint8_t *b, size_t len);
static inline bool http_same_name(struct slice name, struct slice other)
{
    return name.len == other.len && http_same_letters(name.at, other.at, name.len);
}
bool http_name_starts(struct slice name, const char *prefix); /* by the same rule */

/* The first value of that name (any case); absent when there is none. */
struct slice http_get(const struct http_head *head, const char *name);
/* Lines of that name. */
size_t http_count(const struct http_head *head, const char *name);
/* Whether one of the comma-separated lists of that name
 * holds the token (any case; RFC 9110 section 5.6.1). */
bool http_has_token(const struct http_head *head, const char *name, const char *token);
/* Bytes that no line of a head holds; a tab is none of them. */
static inline bool http_is_control(uint8_t c)
{
    return (c < 0x20 && c != '\t') || c == 0x7f;
}

/* Whether every byte may stand in a token (methods, field names, subprotocols), and there is one at least. */
bool http_is_token(struct slice s);

enum http_framing {
    HTTP_NO_BODY,
    HTTP_LENGTH, /* head->length bytes, 1 at least */
    HTTP_CHUNKED,
    HTTP_UNTIL_CLOSE, /* responses only */
};

/* RFC 9112 section 6.3. to_head: the request that is answered was a HEAD (matters for responses only). */
enum http_framing http_framing(const struct http_head *head, bool to_head);

/* Takes a chunked body apart (RFC 9112 section 7.1). Zeroed to begin with. Extensions and trailers are
 * checked, bounded and dropped, unless somebody collects the trailers. */
struct http_chunked {
    /* NULL, or where their lines go, with the empty one; what finds no room is bad */
    struct buffer *trailers;
    unsigned state;
    unsigned digits; /* of the size so far */
    unsigned extra;  /* bytes of this size line's extension, or of the trailers */
    uint64_t left;   /* of the chunk */
};

/* Takes bytes off *in and puts at most one piece of the body, a slice of
 * them, into *data (empty: none). HTTP_MORE: call again, with more bytes
 * if *in is empty. HTTP_DONE: the body has ended; *in is what follows it. */
enum http_result http_chunked_read(struct http_chunked *c, struct slice *in, struct slice *data);

#endif
