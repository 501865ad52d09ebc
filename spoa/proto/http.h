/* SPDX-License-Identifier: MIT */
/*
 * http: parses the heads of HTTP/1.0 and HTTP/1.1 requests and responses (RFC 9112), and decides how their bodies are framed. The
 * parser is strict wherever leniency lets two parsers disagree, which is how requests are smuggled: no bare LF, no folded lines, no
 * space before a colon, no control characters, exactly one Host, and one unambiguous length.
 *
 * The caller owns the bytes and sets all limits except HTTP_FIELDS_MAX. Every slice in a head points into the caller's bytes, which
 * must stay in place as long as the head is used.
 */
#ifndef CELLGATE_PROTO_HTTP_H
#define CELLGATE_PROTO_HTTP_H

#include "spoa/base/bytes/buffer.h"
#include "spoa/base/bytes/slice.h"

#define HTTP_HEAD_MAX   16384 /* the usual limit of a head, in bytes, with its final empty line */
#define HTTP_FIELDS_MAX 128   /* fields of a head */

enum http_side {
    HTTP_REQUEST,
    HTTP_RESPONSE,
};

enum http_result {
    HTTP_MORE, /* more bytes are needed */
    HTTP_DONE,
    /* malformed: answer a request with 400, or give the client of a response 502, and close */
    HTTP_BAD,
    HTTP_TOO_LARGE, /* answer with 431 and close */
};

struct http_field {
    struct slice name;  /* as sent */
    struct slice value; /* the blanks at both ends are cut off */
};

struct http_head {
    size_t len;          /* bytes of the head; the body begins after them */
    struct slice method; /* requests: a token, as sent */
    struct slice target; /* requests: visible ASCII, as sent */
    unsigned status;     /* responses: 100 to 599; 0 for a request */
    struct slice reason; /* responses: may be empty */
    unsigned minor;      /* version: HTTP/1.0 or HTTP/1.1 */
    bool chunked;        /* Transfer-Encoding is `chunked` */
    bool has_length;     /* Content-Length is present */
    uint64_t length;     /* value of Content-Length */
    size_t count;        /* number of fields */
    struct http_field fields[HTTP_FIELDS_MAX];
};

/* The progress of a head that arrives in several reads, so that no byte is scanned twice. */
struct http_reader {
    enum http_side side;
    size_t head_max; /* largest head, in bytes */
    size_t scanned;  /* bytes scanned so far */
    const char *why; /* after HTTP_BAD or HTTP_TOO_LARGE, the reason for a log; never contains input */
};

static inline struct http_reader http_reader_of(enum http_side side, size_t head_max)
{
    return (struct http_reader){side, head_max, 0, NULL};
}

/* Parses a head. `bytes` are all bytes that have arrived since its first one; they may have moved since the last call. *head is valid
 * only after HTTP_DONE. */
enum http_result http_read(struct http_reader *r, struct slice bytes, struct http_head *head) MUST_CHECK;

/* Returns true if a worker may take the two names for one: names are compared without case, and with '_' equal to '-', because many
 * servers (CGI, WSGI) map both to one variable. Every decision to strip, reserve or replace a header by its name must use this
 * comparison: otherwise a client could get a reserved header past it. */
bool http_same_letters(const uint8_t *a, const uint8_t *b, size_t len);
static inline bool http_same_name(struct slice name, struct slice other)
{
    return name.len == other.len && http_same_letters(name.at, other.at, name.len);
}
/* Returns true if the name begins with the prefix, compared in the same way. */
bool http_name_starts(struct slice name, const char *prefix);

/* Returns the value of the first field with this name, in any case; absent if there is none. */
struct slice http_get(const struct http_head *head, const char *name);
/* Returns the number of fields with this name. */
size_t http_count(const struct http_head *head, const char *name);
/* Returns true if a comma-separated list has an element, compared without case (RFC 9110 section 5.6.1). */
bool http_list_has(struct slice list, struct slice element);
/* Returns true if one of the fields with this name, each a comma-separated list, has the token, in any case. */
bool http_has_token(const struct http_head *head, const char *name, const char *token);
/* Returns true for a byte that no line of a head may contain. A tab is allowed. */
static inline bool http_is_control(uint8_t c)
{
    return (c < 0x20 && c != '\t') || c == 0x7f;
}

/* Returns true if s is a token: a method, a field name, a subprotocol (RFC 9110 section 5.6.2). A token is not empty. */
bool http_is_token(struct slice s);

/* Returns true if every byte is printable ASCII, a space included: the values that a configuration may set. */
bool http_is_printable(struct slice value);
/* Returns true if every byte is visible ASCII other than '#': a part of a request's target has no fragment (RFC 9112 section 3.2). */
bool http_is_target_part(struct slice text);

enum http_framing {
    HTTP_NO_BODY,
    HTTP_LENGTH, /* head->length bytes, at least 1 */
    HTTP_CHUNKED,
    HTTP_UNTIL_CLOSE, /* responses only */
};

/* Returns how the body is framed (RFC 9112 section 6.3). `to_head` is true for the response to a HEAD request. */
enum http_framing http_framing(const struct http_head *head, bool to_head);

/* Decodes a chunked body (RFC 9112 section 7.1). Zero bytes are the state before its first byte. Extensions and trailers are checked,
 * bounded and dropped, unless the caller collects the trailers. */
struct http_chunked {
    /* Set by the caller: receives the trailer lines with the final empty one, or NULL. Trailers that do not fit make the body bad. */
    struct buffer *trailers;

    /* private */
    unsigned state;
    unsigned digits; /* digits of the current chunk size so far */
    unsigned extra;  /* bytes of the current extension, or of the trailers */
    uint64_t left;   /* bytes left of the current chunk */
};

/* Takes bytes off *in and sets *data to at most one piece of the body, a slice of *in; empty if there is none. After HTTP_MORE call
 * again, with more bytes if *in is empty. After HTTP_DONE the body has ended, and *in holds the bytes after it. */
enum http_result http_chunked_read(struct http_chunked *c, struct slice *in, struct slice *data) MUST_CHECK;

#endif
