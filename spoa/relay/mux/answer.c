/* SPDX-License-Identifier: MIT */
#include "spoa/relay/mux/answer.h"

#include "spoa/base/json.h"
#include "spoa/base/json_write.h"
#include "spoa/proto/ws.h"
#include "spoa/relay/mux/message.h"

#include <limits.h>

#define HEAD_MOST ((size_t)32 << 10)

/* ---- messages ---- */

/* The text of a message as one frame, behind what is there: all of it, or nothing. */
static bool put_frame(struct buffer *out, const struct buffer *text)
{
    struct slice payload = buffer_slice(text);
    const struct ws_frame frame = {.opcode = WS_TEXT, .fin = true, .length = payload.len};
    uint8_t head[WS_HEAD_MAX];
    size_t len = ws_encode_head(head, &frame), room;
    uint8_t *to = buffer_room(out, len + payload.len, &room);
    if (!to)
        return false;
    memcpy(to, head, len);
    if (payload.len)
        memcpy(to + len, payload.at, payload.len);
    buffer_commit(out, len + payload.len);
    return true;
}

/* `good`: whether all of the text found room. */
static bool finish(struct buffer *out, struct buffer *text, bool good)
{
    good = good && put_frame(out, text);
    buffer_free(text);
    return good;
}

static bool begin(struct buffer *text, const char *type, struct slice id)
{
    *text = buffer_with_limit(INT_MAX);
    return json_write(text, "{\"type\":\"%s\"", type) &&
           (!slice_present(id) || (json_write(text, ",\"id\":") && json_write_text(text, id)));
}

bool mux_put_error(struct buffer *out, struct slice id, const char *code, const char *message, unsigned status)
{
    struct buffer text;
    bool good = begin(&text, "error", id) &&
                json_write(&text, ",\"code\":\"%s\",\"message\":\"%s\",\"status\":%u}", code, message, status);
    return finish(out, &text, good);
}

static void put_event(void *context, struct slice name, struct slice data)
{
    struct mux_answer *a = context;
    struct buffer text;
    if (a->full)
        return;
    bool good = begin(&text, "stream", a->id);
    if (good && name.len)
        good = json_write(&text, ",\"event\":") && json_write_text(&text, name);
    good = good && json_write(&text, ",\"data\":") && json_write_text(&text, data) && json_write(&text, "}");
    a->full = !finish(a->out, &text, good);
}

/* What concerns a connection, or what the message says otherwise. */
static bool is_told(struct slice name)
{
    static const char *const names[] = {"connection", "content-encoding", "content-length", "keep-alive", "te", "trailer",
                                        "transfer-encoding", "upgrade", NULL};
    for (size_t i = 0; names[i]; i++)
        if (slice_equal_nocase(name, slice_text(names[i])))
            return false;
    return true;
}

/* The first line of each name. */
static bool is_first(const struct http_head *head, size_t at)
{
    for (size_t i = 0; i < at; i++)
        if (slice_equal_nocase(head->fields[i].name, head->fields[at].name))
            return false;
    return true;
}

static bool put_name(struct buffer *text, struct slice name)
{
    uint8_t lower[256];
    size_t len = name.len < sizeof lower ? name.len : sizeof lower;
    for (size_t i = 0; i < len; i++)
        lower[i] = (uint8_t)(name.at[i] >= 'A' && name.at[i] <= 'Z' ? name.at[i] | 0x20 : name.at[i]);
    return json_write_text(text, slice_of(lower, len));
}

static bool put_headers(const struct mux_answer *a, struct buffer *text)
{
    struct http_reader reader = http_reader_of(HTTP_RESPONSE, HEAD_MOST);
    struct http_head head;
    const char *comma = "";
    if (http_read(&reader, buffer_slice(&a->head), &head) != HTTP_DONE)
        return false;
    bool good = json_write(text, ",\"headers\":{");
    for (size_t i = 0; good && i < head.count; i++) {
        if (!is_told(head.fields[i].name) || !is_first(&head, i))
            continue;
        good = json_write(text, "%s", comma) && put_name(text, head.fields[i].name) && json_write(text, ":") &&
               json_write_text(text, head.fields[i].value);
        comma = ",";
    }
    return good && json_write(text, "}");
}

/* A body that is no JSON is left out, as sandbox-sdk's own server does. */
static bool put_body(const struct mux_answer *a, struct buffer *text)
{
    struct slice body = buffer_slice(&a->body);
    struct fail why;
    if (body.len == 0 || !json_check(body, "body", 0, (struct json_limits){body.len, MUX_DEPTH}, &why))
        return true;
    return json_write(text, ",\"body\":") && buffer_put(text, body);
}

static enum mux_step broken(struct mux_answer *a, const char *code, const char *message, unsigned status, bool *fits)
{
    *fits = !a->full && mux_put_error(a->out, a->id, code, message, status);
    return MUX_BROKEN;
}

static enum mux_step no_room(bool *fits)
{
    *fits = false;
    return MUX_BROKEN;
}

/* All of the answer is there. */
static enum mux_step conclude(struct mux_answer *a, bool *fits)
{
    struct buffer text;
    struct fail why;
    /* the last event counts without the empty line behind it, too */
    if (a->streams && !event_stream_feed(&a->events, SLICE_LITERAL("\n\n"), &why))
        return broken(a, "STREAM_ERROR", "An event is too large.", 500, fits);
    if (a->full)
        return no_room(fits);
    bool good = begin(&text, "response", a->id) && json_write(&text, ",\"status\":%u", a->status) &&
                put_headers(a, &text) && put_body(a, &text) && json_write(&text, ",\"done\":true}");
    *fits = finish(a->out, &text, good);
    return *fits ? MUX_DONE : MUX_BROKEN;
}

/* ---- the answer ---- */

void mux_answer_init(struct mux_answer *a, struct slice id, size_t most)
{
    *a = (struct mux_answer){.id = id,
                             .most = most,
                             .reader = http_reader_of(HTTP_RESPONSE, HEAD_MOST),
                             .head = buffer_with_limit(HEAD_MOST),
                             .body = buffer_with_limit(most)};
    event_stream_init(&a->events, most);
    a->events.event = put_event;
    a->events.context = a;
}

void mux_answer_free(struct mux_answer *a)
{
    event_stream_free(&a->events);
    buffer_free(&a->head);
    buffer_free(&a->body);
}

size_t mux_answer_held(const struct mux_answer *a)
{
    return a->head.size + a->body.size + a->events.line.size + a->events.data.size;
}

bool mux_answer_gathers(const struct mux_answer *a)
{
    return buffer_len(&a->body) > 0;
}

bool mux_answer_streams(const struct mux_answer *a)
{
    return a->streams;
}

static bool is_event_stream(const struct http_head *head)
{
    static const char type[] = "text/event-stream";
    struct slice value = http_get(head, "Content-Type");
    value = slice_trim(slice_sub(value, 0, slice_find(value, ';')));
    return head->status < 400 && slice_equal_nocase(value, slice_text(type));
}

/* Takes the head off *in. */
static enum mux_step read_head(struct mux_answer *a, struct slice *in, bool *fits)
{
    struct http_head head;
    size_t before = buffer_len(&a->head), room = HEAD_MOST - before;
    struct slice part = slice_sub(*in, 0, room);
    if (!buffer_put(&a->head, part))
        return no_room(fits);
    enum http_result result = http_read(&a->reader, buffer_slice(&a->head), &head);
    if (result == HTTP_MORE && part.len) {
        *in = slice_from(*in, part.len);
        return MUX_MORE;
    }
    if (result != HTTP_DONE)
        return broken(a, "INTERNAL_ERROR", "The answer is no HTTP.", 502, fits);
    *in = slice_from(*in, head.len - before);
    if (head.status < 200) { /* 100 and 103 come before the answer */
        buffer_consume(&a->head, buffer_len(&a->head));
        a->reader = http_reader_of(HTTP_RESPONSE, HEAD_MOST);
        return head.status == 101 ? broken(a, "INTERNAL_ERROR", "The answer is no HTTP.", 502, fits) : MUX_MORE;
    }
    a->has_head = true;
    a->status = head.status;
    a->framing = http_framing(&head, false);
    a->left = head.length;
    a->streams = is_event_stream(&head);
    /* what is behind it in the buffer is the body's, which is read from *in */
    struct buffer kept = buffer_with_limit(HEAD_MOST);
    bool good = buffer_put(&kept, slice_sub(buffer_slice(&a->head), 0, head.len));
    buffer_free(&a->head);
    a->head = kept;
    return good ? MUX_MORE : no_room(fits);
}

static enum mux_step take_piece(struct mux_answer *a, struct slice piece, bool *fits)
{
    struct fail why;
    if (a->streams && !event_stream_feed(&a->events, piece, &why))
        return broken(a, "STREAM_ERROR", "An event is too large.", 500, fits);
    if (!a->streams && !buffer_put(&a->body, piece))
        return broken(a, "INTERNAL_ERROR", "The answer is too large for a message.", 502, fits);
    return a->full ? no_room(fits) : MUX_MORE;
}

static enum mux_step read_chunks(struct mux_answer *a, struct slice *in, bool *fits)
{
    struct slice piece;
    enum http_result result = http_chunked_read(&a->chunked, in, &piece);
    enum mux_step step = piece.len ? take_piece(a, piece, fits) : MUX_MORE;
    if (step != MUX_MORE)
        return step;
    if (result == HTTP_DONE)
        return conclude(a, fits);
    return result == HTTP_MORE ? MUX_MORE : broken(a, "STREAM_ERROR", "The answer's chunks are broken.", 502, fits);
}

static enum mux_step read_body(struct mux_answer *a, struct slice *in, bool *fits)
{
    if (a->framing == HTTP_CHUNKED)
        return read_chunks(a, in, fits);
    struct slice piece = a->framing == HTTP_LENGTH ? slice_sub(*in, 0, a->left < in->len ? (size_t)a->left : in->len) : *in;
    enum mux_step step = piece.len ? take_piece(a, piece, fits) : MUX_MORE;
    *in = slice_from(*in, piece.len);
    a->left -= a->framing == HTTP_LENGTH ? piece.len : 0;
    return step == MUX_MORE && a->framing == HTTP_LENGTH && a->left == 0 ? conclude(a, fits) : step;
}

enum mux_step mux_answer_feed(struct mux_answer *a, struct slice in, struct buffer *out, bool *fits)
{
    enum mux_step step = MUX_MORE;
    a->out = out;
    *fits = true;
    while (in.len && step == MUX_MORE) {
        step = a->has_head ? read_body(a, &in, fits) : read_head(a, &in, fits);
        if (step == MUX_MORE && a->has_head && a->framing == HTTP_NO_BODY)
            step = conclude(a, fits);
    }
    return step;
}

enum mux_step mux_answer_end(struct mux_answer *a, struct buffer *out, bool *fits)
{
    a->out = out;
    *fits = true;
    if (a->has_head && a->framing == HTTP_UNTIL_CLOSE)
        return conclude(a, fits);
    return a->has_head ? broken(a, "STREAM_ERROR", "The answer was cut.", 502, fits)
                       : broken(a, "INTERNAL_ERROR", "There was no answer.", 502, fits);
}
