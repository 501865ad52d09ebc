/* SPDX-License-Identifier: MIT */
/* However its bytes arrive, a message is read the same way; a head that passes can be written again and means
 * the same; a chunked body is the same body. First byte: the side and how the rest is cut. */
#include <stdlib.h>

#include "spoa/proto/http.h"
#include "spoa/proto/ws_handshake.h"
#include "tests/fuzz/fuzz.h"

/* With `copy`, a sanitizer sees the first byte that is read too far. */
static enum http_result read_stepwise(enum http_side side, struct slice all, size_t step,
                                      struct http_head *head, uint8_t **copy)
{
    struct http_reader r = http_reader_of(side, HTTP_HEAD_MAX);
    enum http_result result = HTTP_MORE;

    *copy = NULL;
    for (size_t len = 0; result == HTTP_MORE && len < all.len;) {
        len = all.len - len < step ? all.len : len + step;
        free(*copy);
        *copy = malloc(len);
        CHECK(*copy);
        memcpy(*copy, all.at, len);
        result = http_read(&r, slice_of(*copy, len), head);
    }
    return result;
}

static void compare(const struct http_head *a, const struct http_head *b)
{
    CHECK(a->len == b->len && a->count == b->count && a->status == b->status && a->minor == b->minor);
    CHECK(a->chunked == b->chunked && a->has_length == b->has_length && a->length == b->length);
    CHECK(slice_equal(a->method, b->method) && slice_equal(a->target, b->target));
    for (size_t i = 0; i < a->count; i++) {
        CHECK(slice_equal(a->fields[i].name, b->fields[i].name));
        CHECK(slice_equal(a->fields[i].value, b->fields[i].value));
    }
}

static void write_again(enum http_side side, const struct http_head *head)
{
    static uint8_t text[HTTP_HEAD_MAX * 2];
    struct writer w = writer_of(text, sizeof(text));
    struct http_reader r = http_reader_of(side, sizeof(text));
    struct http_head again;

    if (side == HTTP_REQUEST)
        writer_printf(&w, "%.*s %.*s HTTP/1.%u\r\n", SLICE_PRINTF(head->method), SLICE_PRINTF(head->target),
                      head->minor);
    else
        writer_printf(&w, "HTTP/1.%u %u\r\n", head->minor, head->status);
    for (size_t i = 0; i < head->count; i++) {
        writer_put(&w, head->fields[i].name);
        writer_text(&w, ":");
        writer_put(&w, head->fields[i].value);
        writer_text(&w, "\r\n");
    }
    writer_text(&w, "\r\n");
    CHECK(!w.full && http_read(&r, writer_slice(&w), &again) == HTTP_DONE);
    again.len = head->len;
    compare(head, &again);
}

static void judge(enum http_side side, const struct http_head *head)
{
    struct slice out;
    struct fail why;

    CHECK(!(head->chunked && head->has_length));
    (void)http_framing(head, head->len & 1);
    (void)http_has_token(head, "Connection", "upgrade");
    if (side == HTTP_RESPONSE)
        (void)ws_handshake_check_answer(head, SLICE_LITERAL("dGhlIHNhbXBsZSBub25jZQ=="),
                                        SLICE_LITERAL("a, b"), &out, &why);
    else
        (void)ws_handshake_check_request(head, &out, &why);
    write_again(side, head);
}

static void read_head(enum http_side side, struct slice all, size_t step)
{
    struct http_head once, twice;
    uint8_t *copy_once, *copy_twice;
    enum http_result a = read_stepwise(side, all, all.len, &once, &copy_once);
    enum http_result b = read_stepwise(side, all, step, &twice, &copy_twice);

    CHECK(a == b);
    if (a == HTTP_DONE) {
        compare(&once, &twice);
        judge(side, &once);
    }
    free(copy_once);
    free(copy_twice);
}

static enum http_result dechunk(struct slice all, size_t step, uint8_t *body, size_t *len)
{
    struct http_chunked c = {0};
    enum http_result result = HTTP_MORE;

    *len = 0;
    for (size_t at = 0; at < all.len && result == HTTP_MORE; at += step) {
        struct slice in = slice_sub(all, at, step), piece;
        do {
            result = http_chunked_read(&c, &in, &piece);
            if (piece.len)
                memcpy(body + *len, piece.at, piece.len);
            *len += piece.len;
        } while (result == HTTP_MORE && in.len);
    }
    return result;
}

static void read_chunks(struct slice all, size_t step)
{
    uint8_t *once = malloc(all.len + 1), *twice = malloc(all.len + 1);
    size_t once_len, twice_len;

    CHECK(once && twice);
    CHECK(dechunk(all, all.len, once, &once_len) == dechunk(all, step, twice, &twice_len));
    CHECK(once_len == twice_len && memcmp(once, twice, once_len) == 0);
    free(once);
    free(twice);
}

static int read_input(const uint8_t *data, size_t size)
{
    if (size < 2)
        return 0;
    struct slice all = slice_of(data + 1, size - 1);
    size_t step = 1 + (data[0] >> 2);
    if (data[0] & 2)
        read_chunks(all, step);
    else
        read_head(data[0] & 1 ? HTTP_RESPONSE : HTTP_REQUEST, all, step);
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    return fuzz_grown(read_input, data, size);
}
