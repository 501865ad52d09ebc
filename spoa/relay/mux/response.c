/* SPDX-License-Identifier: MIT */
#include "spoa/relay/mux/response.h"

#include "spoa/base/json/json_write.h"
#include "spoa/proto/handover.h"

/* A status line in front of trailers makes them a head, which the reader of heads can parse. */
#define TRAILERS_BEGIN "HTTP/1.1 200 OK\r\n"

struct mux_response mux_response_of(bool to_head)
{
    return (struct mux_response){.to_head = to_head,
                                 .reader = http_reader_of(HTTP_RESPONSE, MUX_HEAD_MOST),
                                 .head = buffer_with_limit(MUX_HEAD_MOST),
                                 .trailers = buffer_with_limit(MUX_HEAD_MOST),
                                 .handover = buffer_with_limit(MUX_HEAD_MOST)};
}

void mux_response_free(struct mux_response *r)
{
    buffer_free(&r->head);
    buffer_free(&r->trailers);
    buffer_free(&r->handover);
}

size_t mux_response_held(const struct mux_response *r)
{
    return (size_t)r->head.size + r->trailers.size + r->handover.size;
}

bool mux_response_has_head(const struct mux_response *r)
{
    return r->has_head;
}

static bool read_fields(const struct buffer *bytes, struct http_head *head)
{
    struct http_reader reader = http_reader_of(HTTP_RESPONSE, MUX_HEAD_MOST);
    return buffer_len(bytes) && http_read(&reader, buffer_slice(bytes), head) == HTTP_DONE;
}

bool mux_response_head(const struct mux_response *r, struct http_head *head)
{
    return r->has_head && read_fields(&r->head, head);
}

void mux_response_forget_head(struct mux_response *r)
{
    buffer_free(&r->head);
}

struct slice mux_response_handover(const struct mux_response *r)
{
    return buffer_slice(&r->handover);
}

bool mux_response_trailers(const struct mux_response *r, struct http_head *head)
{
    return r->over && read_fields(&r->trailers, head);
}

/* ---- the head ---- */

enum {
    INTERIM_MOST = 64
}; /* largest number of interim answers; each costs a second reading of the bytes after its head */

static enum mux_part begin_body(struct mux_response *r, const struct http_head *head)
{
    r->has_head = true;
    r->framing = http_framing(head, r->to_head);
    r->left = r->framing == HTTP_LENGTH ? head->length : 0;
    r->chunked.trailers = &r->trailers;
    /* bytes after the head belong to the body, which is read from the caller's slice */
    struct buffer kept = buffer_with_limit(MUX_HEAD_MOST);
    bool good = buffer_put(&kept, slice_sub(buffer_slice(&r->head), 0, head->len));
    buffer_free(&r->head);
    r->head = kept;
    return good ? MUX_PART_HEAD : MUX_PART_NO_MEMORY;
}

/* Skips an interim answer. HAProxy sends the first one; a worker may send others. */
static bool pass_over(struct mux_response *r, const struct http_head *head)
{
    struct slice handover = r->interim ? slice_of("", 0) : http_get(head, HANDOVER_HEADER);
    bool good = !handover.len || buffer_put(&r->handover, handover);
    r->interim++;
    buffer_free(&r->head);
    r->reader = http_reader_of(HTTP_RESPONSE, MUX_HEAD_MOST);
    return good;
}

static enum mux_part read_head(struct mux_response *r, struct slice *in)
{
    struct http_head head;
    while (in->len) {
        size_t before = buffer_len(&r->head);
        struct slice part = slice_sub(*in, 0, MUX_HEAD_MOST - before);
        if (!buffer_put(&r->head, part))
            return MUX_PART_NO_MEMORY;
        enum http_result result = http_read(&r->reader, buffer_slice(&r->head), &head);
        if (result == HTTP_MORE && part.len) {
            *in = slice_from(*in, part.len);
            continue;
        }
        if (result != HTTP_DONE || head.status == 101 || (head.status < 200 && r->interim == INTERIM_MOST))
            return MUX_PART_BAD;
        *in = slice_from(*in, head.len - before);
        if (head.status >= 200)
            return begin_body(r, &head);
        if (!pass_over(r, &head)) /* 100 and 103 precede the answer */
            return MUX_PART_NO_MEMORY;
    }
    return MUX_PART_MORE;
}

/* ---- the body ---- */

static enum mux_part end(struct mux_response *r)
{
    r->over = true;
    return MUX_PART_END;
}

static enum mux_part read_chunks(struct mux_response *r, struct slice *in, size_t most, struct slice *piece)
{
    if (!r->trailers.size && !buffer_put(&r->trailers, SLICE_LITERAL(TRAILERS_BEGIN)))
        return MUX_PART_NO_MEMORY;
    const struct http_chunked before = r->chunked;
    const struct slice was = *in;
    enum http_result result = http_chunked_read(&r->chunked, in, piece);
    if (piece->len > most) { /* reads again, from a shorter input */
        struct slice less = slice_sub(was, 0, (size_t)(piece->at - was.at) + most);
        struct slice rest = less;
        r->chunked = before;
        result = http_chunked_read(&r->chunked, &rest, piece);
        *in = slice_from(was, less.len - rest.len);
    }
    if (piece->len)
        return MUX_PART_BODY;
    return result == HTTP_DONE ? end(r) : result == HTTP_MORE ? MUX_PART_MORE : MUX_PART_BAD;
}

static enum mux_part read_body(struct mux_response *r, struct slice *in, size_t most, struct slice *piece)
{
    if (r->framing == HTTP_NO_BODY || (r->framing == HTTP_LENGTH && !r->left))
        return end(r);
    if (r->framing == HTTP_CHUNKED)
        return in->len ? read_chunks(r, in, most, piece) : MUX_PART_MORE;
    if (r->framing == HTTP_LENGTH && r->left < most)
        most = (size_t)r->left;
    *piece = slice_sub(*in, 0, most);
    *in = slice_from(*in, piece->len);
    r->left -= r->framing == HTTP_LENGTH ? piece->len : 0;
    return piece->len ? MUX_PART_BODY : MUX_PART_MORE;
}

enum mux_part mux_response_next(struct mux_response *r, struct slice *in, size_t most, struct slice *piece)
{
    *piece = slice_of("", 0);
    if (r->over)
        return MUX_PART_MORE;
    return r->has_head ? read_body(r, in, most, piece) : read_head(r, in);
}

enum mux_part mux_response_cut(const struct mux_response *r)
{
    return r->has_head && r->framing == HTTP_UNTIL_CLOSE ? MUX_PART_END : MUX_PART_BAD;
}

/* ---- as JSON ---- */

/* Returns false for fields that concern a connection, or, without `all`, that the message expresses in another way. */
static bool is_told(struct slice name, bool all)
{
    static const char *const names[] = {"connection",        "keep-alive", "te", "trailer",
                                        "transfer-encoding", "upgrade",    NULL};
    for (size_t i = 0; names[i]; i++)
        if (slice_equal_nocase(name, slice_text(names[i])))
            return false;
    return all || !(slice_equal_nocase(name, SLICE_LITERAL("content-length")) ||
                    slice_equal_nocase(name, SLICE_LITERAL("content-encoding")));
}

static size_t next_of_name(const struct http_head *head, struct slice name, size_t from)
{
    while (from < head->count && !slice_equal_nocase(head->fields[from].name, name))
        from++;
    return from;
}

static bool put_name(struct buffer *text, struct slice name)
{
    uint8_t lower[256];
    size_t len = name.len < sizeof lower ? name.len : sizeof lower;
    for (size_t i = 0; i < len; i++)
        lower[i] = (uint8_t)(name.at[i] >= 'A' && name.at[i] <= 'Z' ? name.at[i] | 0x20 : name.at[i]);
    return json_write_text(text, slice_of(lower, len));
}

static bool put_values(struct buffer *text, const struct http_head *head, size_t first)
{
    struct slice name = head->fields[first].name;
    bool good = json_write(text, "[");
    for (size_t i = first; good && i < head->count; i = next_of_name(head, name, i + 1))
        good = json_write(text, i == first ? "" : ",") && json_write_text(text, head->fields[i].value);
    return good && json_write(text, "]");
}

bool mux_put_headers(struct buffer *text, const struct http_head *head, bool all)
{
    const char *comma = "";
    bool good = true;
    for (size_t i = 0; good && i < head->count; i++) {
        struct slice name = head->fields[i].name;
        if (!is_told(name, all) || next_of_name(head, name, 0) < i)
            continue;
        bool more = all && next_of_name(head, name, i + 1) < head->count;
        good = json_write(text, "%s", comma) && put_name(text, name) && json_write(text, ":") &&
               (more ? put_values(text, head, i) : json_write_text(text, head->fields[i].value));
        comma = ",";
    }
    return good;
}
