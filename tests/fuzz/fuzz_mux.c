/* SPDX-License-Identifier: MIT */
/* A client's message makes at most one request, whose head is read again as it was meant; and however a worker's answer arrives,
 * it makes the same frames of JSON, the last of which ends the request. First byte: which, and how the rest is cut. */

#include "spoa/proto/ws.h"
#include "spoa/relay/mux/answer.h"
#include "spoa/relay/mux/message.h"
#include "tests/fuzz/fuzz.h"

enum { MOST = 4096, OUT_MOST = 1 << 24 };

/* ---- messages ---- */

/* Of the upgrade: a credential that no message may take the place of. */
static const char upgrade_fields[] = "\0\x0d"
                                     "authorization\0\x08"
                                     "Bearer x\0\x01"
                                     "a\0\x01"
                                     "b";

static size_t lines_of(const struct http_head *head, const char *name)
{
    size_t lines = 0;
    for (size_t i = 0; i < head->count; i++)
        lines += http_same_name(head->fields[i].name, slice_text(name));
    return lines;
}

static void check_head(const struct mux_message *m, struct slice text)
{
    struct http_reader reader = http_reader_of(HTTP_REQUEST, text.len);
    struct http_head head;
    enum http_result result = http_read(&reader, text, &head);
    if (result == HTTP_TOO_LARGE) /* more fields than are read */
        return;
    CHECK(result == HTTP_DONE && head.len == text.len);
    CHECK(slice_equal(head.method, m->method) && slice_starts(head.target, "/below/"));
    struct slice path = slice_from(head.target, strlen("/below"));
    CHECK(slice_equal(slice_sub(path, 0, m->path.len), m->path));
    struct slice behind = slice_from(path, m->path.len);
    CHECK(slice_is(slice_from(behind, 1), "cellgate_token=z") &&
          (behind.at[0] == '?' || behind.at[0] == '&'));
    CHECK(!head.chunked && head.length == m->body.len && lines_of(&head, "content-length") <= 1);
    CHECK(lines_of(&head, "host") == 1 && lines_of(&head, "authorization") == 1);
    CHECK(slice_is(http_get(&head, "authorization"), "Bearer x"));
    CHECK(lines_of(&head, "transfer-encoding") == 0 && lines_of(&head, "upgrade") == 0);
    CHECK(lines_of(&head, "x-cell-handover") == 0 && lines_of(&head, "x-forwarded-for") == 0);
    CHECK(lines_of(&head, "connection") == 1);
}

/* It is the same message wherever it is cut. */
static enum mux_kind read_cut(struct slice text, size_t step)
{
    struct mux_text t = mux_text_begin();
    bool good = true;
    for (size_t len = 0; good && len < text.len; len += step)
        good = mux_text_feed(&t, slice_sub(text, 0, len + step));
    struct mux_message m = mux_text_end(&t, good ? text : slice_of("", 0));
    enum mux_kind kind = m.kind;
    mux_message_free(&m);
    return kind;
}

static void read_message(struct slice text, size_t step)
{
    static uint8_t memory[1 << 17];
    const struct mux_client client = {.host = SLICE_LITERAL("cell.test"),
                                      .target = SLICE_LITERAL("/mux?cellgate_token=y"),
                                      .below = SLICE_LITERAL("/below/"),
                                      .protocols = SLICE_LITERAL("cellgate, cellgate.bearer.z"),
                                      .fields = slice_of(upgrade_fields, sizeof upgrade_fields - 1)};
    struct mux_message m = mux_message_read(text);
    enum mux_kind cut = read_cut(text, step);
    CHECK(cut == m.kind ||
          (cut > MUX_CANCEL && m.kind > MUX_CANCEL)); /* what is wrong first depends on where it is cut */
    struct writer w = writer_of(memory, sizeof memory);
    if (m.kind == MUX_REQUEST) {
        CHECK(m.id.len && m.id.len <= MUX_ID_MOST);
        mux_message_head(&m, &client, &w);
        if (!w.full)
            check_head(&m, writer_slice(&w));
    }
    mux_message_free(&m);
}

/* ---- answers ---- */

/* Our reader of JSON takes no \u0000, which others do. NULL: in a worker's own JSON a key comes twice, which ours takes neither. */
static struct json *parse(struct slice text)
{
    struct fail why;
    char *copy = slice_dup(text);
    CHECK(copy);
    for (char *at = copy; (at = strstr(at, "\\u0000"));)
        at[5] = '1';
    struct json *doc =
        json_parse(slice_of(copy, text.len), "frame", 0, (struct json_limits){OUT_MOST, MUX_DEPTH + 2}, &why);
    free(copy);
    CHECK(doc || strstr(why.text, "duplicate key"));
    return doc;
}

/* The frames, each of which holds one document; how many, and whether the last one ends the request. */
static size_t read_frames(struct slice out, bool *ends)
{
    struct ws_decoder decoder = ws_decoder_of(WS_SERVER, SIZE_MAX);
    size_t count = 0;
    *ends = false;
    while (out.len) {
        struct ws_piece piece;
        struct slice text, type;
        CHECK(ws_decode(&decoder, &out, &piece) == WS_HEAD);
        CHECK(ws_decode(&decoder, &out, &piece) == WS_PIECE && piece.last && decoder.frame.fin);
        struct json *doc = parse(piece.bytes);
        CHECK(!*ends);
        count++;
        if (!doc) { /* only answers have bodies */
            CHECK(slice_starts(piece.bytes, "{\"type\":\"response\",\"id\":\"ws_1\","));
            *ends = true;
            continue;
        }
        CHECK(json_text(json_member(json_root(doc), "id"), &text) && slice_is(text, "ws_1"));
        CHECK(json_text(json_member(json_root(doc), "type"), &type));
        *ends = !slice_is(type, "stream");
        json_free(doc);
    }
    return count;
}

static enum mux_step answer(struct slice all, size_t step, struct buffer *out)
{
    struct mux_answer a;
    bool fits = true;
    enum mux_step result = MUX_MORE;
    mux_answer_init(&a, SLICE_LITERAL("ws_1"), MOST);
    while (all.len && result == MUX_MORE) {
        result = mux_answer_feed(&a, slice_sub(all, 0, step), out, &fits);
        all = slice_from(all, step);
    }
    if (result == MUX_MORE)
        result = mux_answer_end(&a, out, &fits);
    CHECK(fits && result != MUX_MORE && mux_answer_held(&a) <= (256 << 10) + 8 * MOST);
    mux_answer_free(&a);
    return result;
}

static int read_input(const uint8_t *data, size_t size)
{
    bool ends;
    if (size == 0)
        return 0;
    struct slice rest = slice_of(data + 1, size - 1);
    read_message(rest, 1 + data[0] % 16);
    struct buffer whole = buffer_with_limit(OUT_MOST), cut = buffer_with_limit(OUT_MOST);
    CHECK(answer(rest, size, &whole) == answer(rest, 1 + data[0] % 16, &cut));
    CHECK(slice_equal(buffer_slice(&whole), buffer_slice(&cut)));
    CHECK(read_frames(buffer_slice(&whole), &ends) > 0 && ends);
    buffer_free(&whole);
    buffer_free(&cut);
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    return fuzz_grown(read_input, data, size);
}
