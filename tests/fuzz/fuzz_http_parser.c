/* SPDX-License-Identifier: MIT */
/*
 * HTTP heads and chunked bodies against http-parser: we may be stricter, but what we take, it takes too, and as the
 * same message. First byte: what the rest is. Methods and forms of a target that it does not know are left out.
 */
#define HTTP_REQUEST  THEIR_REQUEST /* our enum http_side has these names */
#define HTTP_RESPONSE THEIR_RESPONSE
#include <http_parser.h>
#undef HTTP_REQUEST
#undef HTTP_RESPONSE
#include <stdlib.h>

#include "spoa/base/bytes/writer.h"
#include "spoa/proto/http.h"
#include "tests/fuzz/fuzz.h"

/* What http-parser told, in the form that `as_text` gives a head of ours. */
struct heard {
    struct writer text;
    struct slice url;
    uint8_t *body;
    size_t body_len;
    bool in_value, complete, head_done;
    uint64_t length;
    bool chunked;
    bool head_only;
};

static int hears_url(http_parser *p, const char *at, size_t len)
{
    struct heard *h = p->data;
    h->url = slice_of(h->url.at ? h->url.at : (const uint8_t *)at, h->url.len + len);
    return 0;
}

/* It leaves the blanks behind a value, which are none of it (RFC 9112 section 5.1). */
static void end_value(struct heard *h)
{
    while (h->in_value && (h->text.at[h->text.len - 1] == ' ' || h->text.at[h->text.len - 1] == '\t'))
        h->text.len--;
}

static int hears_name(http_parser *p, const char *at, size_t len)
{
    struct heard *h = p->data;
    end_value(h);
    if (h->in_value)
        writer_text(&h->text, "\n");
    h->in_value = false;
    writer_put(&h->text, slice_of(at, len));
    return 0;
}

static int hears_value(http_parser *p, const char *at, size_t len)
{
    struct heard *h = p->data;
    if (!h->in_value)
        writer_text(&h->text, ":");
    h->in_value = true;
    writer_put(&h->text, slice_of(at, len));
    return 0;
}

static int hears_head_end(http_parser *p)
{
    struct heard *h = p->data;
    end_value(h);
    h->head_done = true;
    h->length = p->content_length;
    h->chunked = (p->flags & F_CHUNKED) != 0;
    return h->head_only ? 2 : 0; /* 2: no body, and what follows is another protocol's */
}

static int hears_body(http_parser *p, const char *at, size_t len)
{
    struct heard *h = p->data;
    memcpy(h->body + h->body_len, at, len);
    h->body_len += len;
    return 0;
}

static int hears_end(http_parser *p)
{
    struct heard *h = p->data;
    h->complete = true;
    http_parser_pause(p, 1);
    return 0;
}

static const http_parser_settings hears = {.on_url = hears_url,
                                           .on_header_field = hears_name,
                                           .on_header_value = hears_value,
                                           .on_headers_complete = hears_head_end,
                                           .on_body = hears_body,
                                           .on_message_complete = hears_end};

/* ---- heads ---- */

static void as_text(const struct http_head *head, struct writer *w)
{
    for (size_t i = 0; i < head->count; i++) {
        if (i > 0)
            writer_text(w, "\n");
        writer_put(w, head->fields[i].name);
        writer_text(w, ":");
        writer_put(w, head->fields[i].value);
    }
}

static bool foreign_to_it(enum http_errno error, struct slice head)
{
    /* a tab may stand behind the number, too (RFC 9110 section 5.6.3) */
    if (error == HPE_INVALID_CONTENT_LENGTH && memchr(head.at, '\t', head.len))
        return true;
    /* the same Content-Length twice is one (RFC 9112 section 6.3) */
    return error == HPE_UNEXPECTED_CONTENT_LENGTH || error == HPE_INVALID_METHOD ||
           error == HPE_INVALID_URL || error == HPE_INVALID_HOST || error == HPE_INVALID_PATH ||
           error == HPE_INVALID_FRAGMENT || error == HPE_INVALID_QUERY_STRING;
}

/* It takes Transfer-Encodings: for another Transfer-Encoding:, and forgets the first one; nor does it know the word with a
 * tab behind it, which is none of the value (RFC 9110 section 5.5). */
static bool misses_chunked(const struct http_head *head)
{
    static const struct slice known = SLICE_LITERAL("transfer-encoding");
    for (size_t i = 0; i < head->count; i++) {
        struct slice name = head->fields[i].name, value = head->fields[i].value;
        if (slice_equal_nocase(slice_sub(name, 0, known.len), known) &&
            (name.len > known.len || value.at[value.len] == '\t'))
            return true;
    }
    return false;
}

static void read_head(enum http_side side, struct slice all)
{
    static struct http_head head;
    static uint8_t memory[2][4 * HTTP_HEAD_MAX];
    struct http_reader r = http_reader_of(side, HTTP_HEAD_MAX);
    if (http_read(&r, all, &head) != HTTP_DONE)
        return;
    struct heard h = {.text = writer_of(memory[0], sizeof memory[0]), .head_only = true};
    struct writer ours = writer_of(memory[1], sizeof memory[1]);
    http_parser p;
    http_parser_init(&p, side == HTTP_REQUEST ? THEIR_REQUEST : THEIR_RESPONSE);
    p.data = &h;
    http_parser_execute(&p, &hears, (const char *)all.at, head.len);
    if (foreign_to_it(HTTP_PARSER_ERRNO(&p), slice_sub(all, 0, head.len)))
        return;
    CHECK(h.head_done);
    as_text(&head, &ours);
    CHECK(!ours.full && slice_equal(writer_slice(&ours), writer_slice(&h.text)));
    CHECK(p.http_major == 1 && p.http_minor == head.minor);
    CHECK(!head.has_length || h.length == head.length);
    CHECK(h.chunked == head.chunked || (head.chunked && misses_chunked(&head)));
    if (side == HTTP_REQUEST)
        CHECK(slice_equal(h.url, head.target) && slice_is(head.method, http_method_str(p.method)));
    else
        CHECK(p.status_code == head.status);
}

/* ---- chunks ---- */

static void read_chunks(struct slice all)
{
    static const char start[] = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
    uint8_t *ours = malloc(all.len + 1), *theirs = malloc(all.len + 1);
    struct http_chunked c = {0};
    enum http_result result;
    struct slice in = all, piece;
    size_t len = 0;

    CHECK(ours && theirs);
    do {
        result = http_chunked_read(&c, &in, &piece);
        if (piece.len)
            memcpy(ours + len, piece.at, piece.len);
        len += piece.len;
    } while (result == HTTP_MORE && in.len);
    if (result == HTTP_DONE) {
        static uint8_t memory[65536];
        struct heard h = {.text = writer_of(memory, sizeof memory), .body = theirs};
        http_parser p;
        http_parser_init(&p, THEIR_RESPONSE);
        p.data = &h;
        http_parser_execute(&p, &hears, start, sizeof start - 1);
        size_t took = http_parser_execute(&p, &hears, (const char *)all.at, all.len - in.len);
        enum http_errno error = HTTP_PARSER_ERRNO(&p);
        /* it reads trailers as headers; we drop them, whatever they say (RFC 9110 section 6.5.1) */
        if (error != HPE_INVALID_CONTENT_LENGTH && error != HPE_UNEXPECTED_CONTENT_LENGTH &&
            error != HPE_INVALID_TRANSFER_ENCODING)
            CHECK(h.complete && took + 1 >= all.len - in.len);
        CHECK(h.body_len == len && memcmp(ours, theirs, len) == 0);
    }
    free(ours);
    free(theirs);
}

static int read_input(const uint8_t *data, size_t size)
{
    if (size < 2)
        return 0;
    struct slice all = slice_of(data + 1, size - 1);
    if (data[0] & 2)
        read_chunks(all);
    else
        read_head(data[0] & 1 ? HTTP_RESPONSE : HTTP_REQUEST, all);
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    return fuzz_grown(read_input, data, size);
}
